// How a number came about, in words and tables.

/** The arithmetic of a cell. */
function working(told) {
  const { step, index, terms, row, any } = told;
  const line = (...parts) => el("p.sum-line", ...parts);
  if (step.is_given) return [line(say("given"))];
  if (told.isUnknown) return [line(say("noFactors")), el("pre", `mha-trace explain '${cellName(step, index)}'`)];
  const masks = any ? any.filter((cell) => cell.value) : blockers(step, index);
  const out = [row ? softmaxTable(told, row) : "", ...masks.map((cell) => line(maskedBy(cell)))];
  const products = terms.map(heldProduct);
  const held = products.filter((value) => value !== undefined);
  const sum = held.reduce((sum, value) => sum + value, 0);
  if (terms.length === 1) {
    out.push(
      line(
        "= ",
        ...terms[0].flatMap((factor, i) => [i ? " · " : "", brief(factor.value), " (", factorName(factor), ")"]),
      ),
    );
  } else if (terms.length) {
    const widest = Math.max(...terms.map((term) => term.length));
    const wide = (cells, last) => [...cells, ...Array(2 * widest - cells.length).fill(""), brief(last)];
    const rows = terms.map((term, at) => ({
      kind: "term",
      cells: wide(
        term.flatMap((factor) => [factorName(factor), brief(factor.value)]),
        products[at],
      ),
    }));
    const absent = terms.length - held.length;
    if (absent) rows.push({ kind: "sum", cells: wide([say("restOut", { count: absent })], told.value - sum) });
    rows.push({ kind: "sum", cells: wide([say("sum")], absent ? told.value : sum) });
    out.push(
      sums(
        say("product"),
        [
          ...Array(widest)
            .fill([say("factor"), say("value")])
            .flat(),
          say("product"),
        ],
        rows,
      ),
    );
  }
  // Numbers of 16 bits have three digits, and are no further off than these.
  const isApart = Math.abs(sum - told.value) > 0.01 * Math.max(Math.abs(told.value), ...held.map(Math.abs));
  if (held.length && held.length === terms.length && isApart && state.side !== DIFFERENCE) {
    out.push(el("p.bad-sum", say("not", { sum: brief(sum) })));
  }
  return out;
}

/** The cells of masks and biases that block a cell: those that no other mask is made of. */
function blockers(step, index) {
  const look = (at) => {
    const mask = STEPS[at];
    const own = broadcast(mask, index);
    const value = valueAt(mask, own, 0);
    if (mask.flags ? !value : value !== -Infinity) return [];
    const parts = mask.inputs.filter((part) => STEPS[part].sides.some(Boolean));
    return parts.length ? parts.flatMap(look) : [{ step: mask, index: own, name: cellName(mask, own) }];
  };
  return step.blocked.flatMap(look);
}

const maskedBy = ({ step, name }) => say("masked", { mask: name, title: step.title });

/** Key by key the score, less the largest, its exponential, and its share of their sum. */
function softmaxTable({ step, index }, row) {
  const isWeight = step.axes.length === row.keys[0].index.length;
  const share = (key) => (key === row.sink ? key.exp / row.sum : valueAt(step, key.index, sideOf(step) % DIFFERENCE));
  const cells = (name, key) => [
    name,
    link(key.step, key.index, brief(key.value)),
    brief(key.less),
    brief(key.exp),
    ...(isWeight ? [brief(share(key))] : []),
  ];
  const rows = row.keys.map((key) => {
    const isOwn = isWeight && key.index.join() === index.join();
    const name = placeName(key.step, key.index.length - 1, key.index.at(-1), itemOf(key.step, key.index));
    return { kind: isOwn ? "lit" : blockers(key.step, key.index).length ? "blocked" : "", cells: cells(name, key) };
  });
  const every = [...row.keys, row.sink].filter(Boolean);
  if (row.sink) rows.push({ kind: "", cells: cells(say("sink"), row.sink) });
  const last = isWeight ? [brief(every.reduce((sum, key) => sum + share(key), 0))] : [];
  rows.push({ kind: "sum", cells: [say("sum"), "", "", brief(row.sum), ...last] });
  const header = [say("key"), say("score"), say("less", { max: brief(row.largest) }), say("exp")];
  return sums(say("score"), [...header, ...(isWeight ? [say("share", { sum: brief(row.sum) })] : [])], rows);
}

/** The way back from a pinned cell to what is given. */
function back(step, index) {
  const path = trail(step, index, workedSide()).map(({ step, index, value }) =>
    el(
      "li",
      link(step, index, cellName(step, index)),
      ` = ${step.flags ? say(value ? "true" : "false") : brief(value)}${step.is_given ? `, ${say("given")}` : ""}`,
    ),
  );
  return [el("h3", say("back")), el("p.hint", say("backNote")), el("ol.trail", ...path)];
}

/** The tables that a number is read from, with its cells lit up. */
function partTables(cells) {
  const groups = new Map();
  for (const { step, index } of cells.filter(({ step }) => step.axes.length && tensor(step, workedSide()))) {
    const lead = index.slice(0, -2);
    const key = `${step.name} ${lead}`;
    if (!groups.has(key)) groups.set(key, { step, lead, lit: new Set() });
    groups.get(key).lit.add([0, 0, ...index].slice(-2).join());
  }
  const SIZE = 12;
  // Norms and means read from many heads.
  const tables = [...groups.values()].slice(0, 6).map(({ step, lead, lit }) => {
    const first = [...lit][0].split(",").map(Number);
    const window = kept(step).map((count, i) => Math.max(0, Math.min(first[i] - 2, count - SIZE)));
    return scroll(step.name, grid(step, lead, workedSide(), { window, size: SIZE, lit }));
  });
  return tables.length ? [el("h3", say("parts")), el("div.parts", ...tables)] : [];
}
