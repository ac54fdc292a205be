// How a number came about: the terms that add up to it, by the rule that its operation tells of itself.

const FUNCTIONS = {
  tanh: (x, by) => Math.tanh(x / by),
  clip: (x, by) => min(max(x, -by), by),
  sigmoid: x => 1 / (1 + exp(-x)),
  softplus: x => Math.log1p(exp(x)),
  exp: x => exp(x),
  plus: (x, by) => x + by,
};

const cellOf = (step, index, side) => ({ step, index, name: cellName(step, index), value: valueAt(step, index, side) });

/** The cell that a rule reads for a cell, and its number. */
function readCell(step, read, index, side) {
  const from = STEPS[step.inputs[read.input]];
  const at = read.at.map(({ of, plus }) =>
    of.reduce((sum, [axis, list]) => sum + (list ? list[index[axis]] : index[axis]), plus),
  );
  return cellOf(from, at, side);
}

/** The numbers of a row, or undefined where the page does not hold all of them. */
function rowOf(step, lead, side) {
  const last = step.axes.length - 1;
  if (step.kept[last] < step.axes[last].size || !tensor(step, side)) return;
  return times(step.axes[last].size, at => cellOf(step, [...lead, at], side));
}

/** What a norm multiplies by, and the mean with the other sign: of the row, or of those of all heads. */
function normed(step, row, [item, head, ...rest], side) {
  const x = STEPS[step.inputs[0]];
  const heads = row.over_heads ? times(x.axes[1].size, at => at) : [head];
  const cells = heads.map(head => rowOf(x, [item, head, ...rest].slice(0, x.axes.length - 1), side));
  if (cells.includes(undefined)) return {};
  const all = cells.flat();
  const average = of => total(all.map(cell => of(cell.value))) / all.length;
  const mean = row.centred ? average(x => x) : 0;
  const squares = average(x => (x - mean) ** 2) * (row.summed ? all.length : 1);
  return { cells: all, mean: -mean, root: 1 / Math.sqrt(squares + row.eps) };
}

/** The exponentials of a row of scores, and their sum. */
function exponentials(step, lead, side) {
  const [scores, sinks] = step.inputs.map(at => STEPS[at]);
  const keys = rowOf(scores, lead, side);
  if (!keys) return;
  const sink = sinks && cellOf(sinks, [lead[1]], side);
  const all = sink ? [...keys, sink] : keys;
  // As of a fold from −∞ by a maximum that passes NaN over.
  const largest = all.reduce((max, { value }) => (value > max ? value : max), -Infinity);
  for (const key of all) {
    key.less = key.value - largest;
    key.exp = exp(key.less);
  }
  return { keys, sink, all, largest, sum: total(all.map(key => key.exp)) };
}

function turned(step, turn, index, side) {
  const frequency = readCell(step, turn.frequency, index, side);
  const ofItem = turn.positions[turn.positions.length > 1 ? index[0] : 0];
  const ofToken = ofItem[index[2]];
  const position = ofToken[ofToken.length > 1 ? frequency.index[0] : 0];
  const product = position * frequency.value;
  const angle = frequency.step.dtype === "f64" ? product : fround(product);
  const sign = turn.signs[index[3]];
  const kind = turn.sine ? "sin" : "cos";
  const name = `${sign < 0 ? "−" : ""}${kind}(${position} · ${frequency.name})`;
  return { ...frequency, name, value: sign * Math[kind](angle) };
}

/** A factor of a product. */
function factorOf(step, factor, index, side) {
  let [[kind, told]] = entries(factor);
  switch (kind) {
    case "read":
      return readCell(step, told, index, side);
    case "listed":
      told = told[1][index[told[0]]];
    // As a number is told.
    case "number": {
      const [name, value, about] = told;
      return { name: about ? name.replace("{}", readCell(step, about, index, side).name) : name, value: Number(value) };
    }
    case "of": {
      const [name, made, read] = told;
      const cell = readCell(step, read, index, side);
      const [key, by] = typeof made === "string" ? [made] : entries(made)[0];
      const isPlain = key === "clip" && abs(cell.value) <= by;
      const value = cell.value == null ? undefined : FUNCTIONS[key](cell.value, by);
      return { ...cell, name: isPlain ? cell.name : name.replace("{}", cell.name), value };
    }
    case "turn":
      return turned(step, told, index, side);
    default: {
      const row = normed(step, told[1], index, side);
      return { name: told[0], value: row[kind], cells: row.cells };
    }
  }
}

function applies(step, when, index, side) {
  if (!when) return true;
  if (when.within) {
    const [axis, [from, to]] = when.within;
    return index[axis] >= from && index[axis] < to;
  }
  const [read, wanted] = when.is;
  return (readCell(step, read, index, side).value === 1) === wanted;
}

/**
 * How the number in a cell came about: `terms`, products of factors; of softmax also its `row`; of a mask the cells of
 * which `any` makes it true. `isUnknown` where the page does not hold what it takes.
 */
function explain(step, index, side) {
  const from = side === DIFFERENCE ? 0 : side;
  const { pattern } = step;
  const told = { step, index, value: valueAt(step, index, side), terms: [] };
  if (told.value == null) return { ...told, isUnknown: true };
  if (!pattern || step.is_given) return told;
  if (pattern === "by_cell") {
    const flat = index.reduce((sum, at, axis) => sum * step.axes[axis].size + at, 0);
    told.terms = (step.cells?.[flat] ?? []).map(factors =>
      factors.map(([name, value, cell]) => ({
        name,
        value: Number(value),
        step: cell && STEPS[cell[0]],
        index: cell?.[1],
      })),
    );
    told.isUnknown = !step.cells && !step.flags;
  } else if (pattern.sum) {
    for (const { count, when, factors } of pattern.sum) {
      if (!applies(step, when, index, from)) continue;
      told.terms.push(...times(count, k => factors.map(factor => factorOf(step, factor, [...index, k], from))));
    }
  } else if (pattern.any) {
    told.any = pattern.any.map(read => readCell(step, read, index, from));
  } else {
    const isWeight = pattern !== "log_sum_exp";
    const row = exponentials(step, isWeight ? index.slice(0, -1) : index, from);
    if (!row) return { ...told, isUnknown: true };
    told.row = row;
    const over = say(row.sink ? "overSink" : "overKeys");
    if (!isWeight) {
      const largest = { name: say("largestOf", { scores: row.keys[0].step.name }), value: row.largest };
      const log = { name: say("logOf", { over }), value: Math.log(row.sum) };
      const isEmpty = row.largest === -Infinity;
      told.terms = isEmpty ? [[{ name: say("allLow"), value: row.largest }]] : [[largest], [log]];
    } else if (pattern.softmax.zero && row.keys.every(key => key.value === -Infinity)) {
      told.terms = [[{ name: say("zero"), value: 0 }]];
    } else {
      const key = row.keys[index.at(-1)];
      const share = { name: say("shareOf", { over }), value: 1 / row.sum };
      told.terms = [[{ ...key, name: say("expOf", { score: key.name }), value: key.exp }, share]];
    }
  }
  return told;
}

const product = term => term.reduce((value, factor) => value * factor.value, 1);

/** The cells that a number is read from, by step. */
function cellsOf(told) {
  const factors = told.terms.flat().flatMap(factor => factor.cells ?? factor);
  return [...factors, ...(told.row?.all ?? told.any ?? [])].filter(cell => cell.step);
}

/** What the cell is made of from which a NaN comes: of those that are read, the first that is NaN, and so on. */
function nanSource(told, side) {
  const from = cellsOf(told).find(({ step, index }) => isNaN(valueAt(step, index, side)));
  return from ? nanSource(explain(from.step, from.index, side), side) : told;
}

/** From a cell back to what is given: of every step the largest term, and in it the factor made of the input. */
function trail(step, index, side) {
  const path = [];
  for (let cell = { step, index }; cell;) {
    const told = explain(cell.step, cell.index, side);
    path.push(told);
    const size = term => abs(product(term));
    const withCells = told.terms.filter(term => term.some(factor => factor.step));
    // A NaN is followed before all numbers, and a mask that blocks before those that do not.
    const [largest = told.any?.toSorted((left, right) => right.value - left.value) ?? []] = withCells.sort(
      (left, right) => !(size(left) >= size(right)) - !(size(right) >= size(left)),
    );
    const cells = largest.filter(factor => factor.step);
    cell = cells.find(factor => factor.step.is_of_input) ?? cells[0];
  }
  return path;
}
