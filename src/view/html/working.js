// How a number came about, in words and tables.

/** The arithmetic of a cell. */
function working(told) {
  const { step, index, terms, row, any } = told;
  const line = (...parts) => el("p.sum-line", ...parts);
  if (told.isUnknown) {
    const what = told.value == null ? "notHeld" : "noFactors";
    return [line(say(what)), el("pre", `mha-trace explain '${cellName(step, index)}'`)];
  }
  const from = nanFrom(told);
  if (step.is_given) return [line(say("given")), ...from];
  const masks = any ? any.filter(cell => cell.value) : blockers(step, index);
  const notes = step.notes.filter(({ when }) => applies(step, when, index, workedSide()));
  const out = [
    row ? softmaxTable(told, row) : "",
    ...masks.map(cell => line(say("masked", { mask: maskName(cell), why: cell.step.title }))),
    ...notes.map(({ text, read }) => {
      const cell = readCell(step, read, index, workedSide());
      return line(filled(text, { ...[...index, ...cell.index], name: cell.name, value: brief(cell.value) }));
    }),
  ];
  const products = terms.map(heldProduct);
  const held = products.filter(value => value != null);
  const sum = total(held);
  if (terms.length === 1) {
    out.push(
      line(
        "= ",
        ...terms[0].flatMap((factor, i) => [i ? " · " : "", brief(factor.value), " (", factorName(factor), ")"]),
      ),
    );
  } else if (terms.length) {
    const widest = max(...terms.map(term => term.length));
    const wide = (cells, last) => [...cells, ...times(2 * widest - cells.length, () => ""), brief(last)];
    const rows = terms.map((term, at) => ({
      kind: "term",
      cells: wide(
        term.flatMap(factor => [factorName(factor), brief(factor.value)]),
        products[at],
      ),
    }));
    const absent = terms.length - held.length;
    if (absent) rows.push({ kind: "sum", cells: wide([say("restOut", { count: absent })], told.value - sum) });
    rows.push({ kind: "sum", cells: wide([say("sum")], absent ? told.value : sum) });
    out.push(
      sums(
        say("product"),
        [...times(widest, () => [say("factor"), say("value")]).flat(), say("product")],
        rows,
      ),
    );
  }
  const isApart = held.length && held.length === terms.length && apart(told.value, sum, ...held);
  if (isApart && state.side !== DIFFERENCE) {
    out.push(el("p.bad-sum", say("not", { value: brief(told.value), sum: brief(sum) })));
  }
  return [...out, ...from];
}

/**
 * Whether a recorded number is another one than what it is made of gives. Numbers of 16 bits have three digits, and are
 * no further off than these, or than the least of them.
 */
function apart(value, sum, ...parts) {
  const size = max(...[value, sum, ...parts].map(abs));
  if (isFinite(value - sum)) return abs(sum - value) > max(6e-8, 0.01 * size);
  return !is(value, sum);
}

/** Where a NaN comes from. */
function nanFrom(told) {
  if (!isNaN(told.value) || state.side === DIFFERENCE) return [];
  const { step, index, terms, row, isUnknown } = nanSource(told, workedSide());
  if (isUnknown || terms.flat().some(factor => factor.value == null)) return [];
  const cell = cellName(step, index);
  const from = cell === cellName(told.step, told.index) ? "" : say("from", { cell });
  const isEmpty = row?.largest === -Infinity;
  const isWorked = isNaN(total(terms.map(product)));
  const why = step.is_given ? "isGiven" : isEmpty ? "emptyRow" : isWorked ? "infinite" : "isRecorded";
  const [item, head, query] = index;
  return [el("p.sum-line", say(why, { from, place: cell, item, head, query }))];
}

/** What a mask is called in words. */
const maskName = ({ step, index, name }) => step.called?.[min(itemOf(step, index), step.called.length - 1)] ?? name;

/** The cells of masks and biases that block a cell: those that no other mask is made of. */
function blockers(step, index) {
  const look = at => {
    const mask = STEPS[at];
    if (!blocks(mask, index)) return [];
    const own = broadcast(mask, index);
    const parts = mask.inputs.filter(part => STEPS[part].sides.some(Boolean));
    return parts.length ? parts.flatMap(look) : [{ step: mask, index: own, name: cellName(mask, own) }];
  };
  return step.blocked.flatMap(look);
}

/**
 * Key by key the score, less the largest, its exponential, its share of their sum; what is recorded where it is another
 * number; and the masks that block keys.
 */
function softmaxTable({ step, index, terms }, row) {
  const isWeight = step.axes.length === row.keys[0].index.length;
  // An empty row has the weights that the run gives it.
  const isZero = terms[0].length === 1;
  for (const key of row.all) {
    key.share = isZero ? 0 : key.exp / row.sum;
    key.own = key === row.sink ? key.share : valueAt(step, key.index, workedSide());
    key.isApart = apart(key.own, key.share);
    key.masks = blockers(key.step, key.index);
  }
  const isRecorded = isWeight && row.all.some(key => key.isApart);
  // The header of a column, what it has for a key, and its sum.
  const columns = [
    [say("score"), key => link(key.step, key.index, brief(key.value)), ""],
    [say("less", { max: brief(row.largest) }), key => brief(key.less), ""],
    [say("exp"), key => brief(key.exp), brief(row.sum)],
  ];
  const add = (header, of, sum = "") => columns.push([header, of, sum]);
  const sum = of => brief(total(row.all.map(of)));
  const bar = key => el("span.share", { style: `--share:${key.share}` }, brief(key.share));
  if (isWeight) add(say("share", { sum: brief(row.sum) }), bar, sum(key => key.share));
  if (isRecorded) {
    const own = key => (key.isApart ? "≠ " : "") + brief(key.own);
    add(say("recorded"), own, sum(key => key.own));
  }
  if (row.all.some(key => key.masks.length)) {
    add(say("blockedBy"), key => key.masks.map(maskName).join(say("comma")));
  }
  const rows = row.all.map(key => {
    const isOwn = key.index.join() === index.join();
    const name =
      key === row.sink
        ? say("sink")
        : placeName(key.step, key.index.length - 1, key.index.at(-1), itemOf(key.step, key.index));
    const kind = isOwn ? "lit" : key.masks.length ? "blocked" : "";
    return { kind, cells: [name, ...columns.map(([, of]) => of(key))] };
  });
  rows.push({ kind: "sum", cells: [say("sum"), ...columns.map(([, , sum]) => sum)] });
  const table = sums(say("score"), [say("key"), ...columns.map(([header]) => header)], rows);
  return isRecorded ? el("div", table, el("p.bad-sum", say("notShare"))) : table;
}

/** The way back from a pinned cell to what is given. */
function back(step, index) {
  const path = trail(step, index, workedSide()).map(({ step, index, value }) =>
    el(
      "li",
      link(step, index, cellName(step, index)),
      ` = ${step.flags ? say(value ? "true" : "false") : brief(value)}${step.is_given ? say("comma") + say("given") : ""}`,
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
  // Norms and means read from many heads.
  const tables = [...groups.values()].slice(0, 6).map(({ step, lead, lit }) => {
    const first = [...lit][0].split(",").map(Number);
    const window = kept(step).map((count, i) => max(0, min(first[i] - 2, count - MOST_COLUMNS)));
    return scroll(step.name, grid(step, lead, workedSide(), { window, sizes: [MOST_COLUMNS, MOST_COLUMNS], lit }));
  });
  return tables.length ? [el("h3", say("parts")), el("div.parts", ...tables)] : [];
}
