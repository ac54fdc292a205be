// How a number came about: the terms that add up to it, by the rule that its operation tells of itself.

const FUNCTIONS = {
  tanh: (x, by) => Math.tanh(x / by),
  clip: (x, by) => Math.min(Math.max(x, -by), by),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  plus: (x, by) => x + by,
};

/** The cell that a rule reads for a cell, and its number. */
function readCell(step, read, index, side) {
  const from = STEPS[step.inputs[read.input]];
  const at = read.at.map(({ of, plus }) =>
    of.reduce((sum, [axis, list]) => sum + (list ? list[index[axis]] : index[axis]), plus));
  return { step: from, index: at, name: cellName(from, at), value: valueAt(from, at, side) };
}

/** The numbers of a row, or undefined where the page does not hold all of them. */
function rowOf(step, lead, side) {
  const last = step.axes.length - 1;
  if (step.kept[last] < step.axes[last].size) return undefined;
  const cells = Array.from({ length: step.axes[last].size }, (_, at) => {
    const index = [...lead, at];
    return { step, index, name: cellName(step, index), value: valueAt(step, index, side) };
  });
  return cells.some((cell) => cell.value === undefined) ? undefined : cells;
}

/** Mean, and root of the mean of squares, of the row that a norm takes. */
function normed(step, row, index, side) {
  const x = STEPS[step.inputs[0]];
  const leads = row.over_heads
    ? Array.from({ length: x.axes[1].size }, (_, head) => [index[0], head, index[2]])
    : [index.slice(0, -1)];
  const cells = leads.map((lead) => rowOf(x, lead, side));
  if (cells.includes(undefined)) return undefined;
  const all = cells.flat();
  const mean = row.centred ? all.reduce((sum, cell) => sum + cell.value, 0) / all.length : 0;
  const squares = all.reduce((sum, cell) => sum + (cell.value - mean) ** 2, 0) / all.length;
  return { mean, root: Math.sqrt(squares + row.eps), cells: all };
}

/** The exponentials of a row of scores, and their sum. */
function exponentials(step, lead, side) {
  const [scores, sinks] = step.inputs.map((at) => STEPS[at]);
  const keys = rowOf(scores, lead, side);
  if (!keys) return undefined;
  const sink = sinks && { step: sinks, index: [lead[1]], name: cellName(sinks, [lead[1]]), value: valueAt(sinks, [lead[1]], side) };
  const all = sink ? [...keys, sink] : keys;
  // As of a fold from −∞ by a maximum that passes NaN over.
  const largest = all.reduce((max, { value }) => (value > max ? value : max), -Infinity);
  for (const key of all) {
    key.less = key.value - largest;
    key.exp = Math.exp(key.less);
  }
  return { keys, sink, largest, sum: all.reduce((sum, key) => sum + key.exp, 0) };
}

function turned(step, turn, index, side) {
  const frequency = readCell(step, turn.frequency, index, side);
  const ofItem = turn.positions[turn.positions.length > 1 ? index[0] : 0];
  const ofToken = ofItem[index[2]];
  const position = ofToken[ofToken.length > 1 ? frequency.index[0] : 0];
  const product = position * frequency.value;
  const angle = frequency.step.dtype === "f64" ? product : Math.fround(product);
  const sign = turn.signs[index[3]];
  const name = `${sign < 0 ? "−" : ""}${turn.sine ? "sin" : "cos"}(${position} · ${frequency.name})`;
  return { ...frequency, name, value: turn.sine ? sign * Math.sin(angle) : Math.cos(angle) };
}

/** A factor of a product. */
function factorOf(step, factor, index, side) {
  const [[kind, told]] = Object.entries(factor);
  switch (kind) {
    case "read": return readCell(step, told, index, side);
    case "number": {
      const [name, value, about] = told;
      return { name: about ? name.replace("{}", readCell(step, about, index, side).name) : name, value };
    }
    case "of": {
      const [name, made, read] = told;
      const cell = readCell(step, read, index, side);
      const [key, by] = typeof made === "string" ? [made] : Object.entries(made)[0];
      const isPlain = key === "clip" && Math.abs(cell.value) <= by;
      const value = cell.value === undefined ? undefined : FUNCTIONS[key](cell.value, by);
      return { ...cell, name: isPlain ? cell.name : name.replace("{}", cell.name), value };
    }
    case "root": {
      const row = normed(step, told[1], index, side);
      return { name: told[0], value: row && 1 / row.root };
    }
    case "mean": {
      const row = normed(step, told[1], index, side);
      return { name: told[0], value: row && -row.mean };
    }
    default: return turned(step, told, index, side);
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
  if (!pattern || step.is_given) return told;
  if (pattern === "by_cell") {
    const flat = index.reduce((sum, at, axis) => sum * step.axes[axis].size + at, 0);
    const number = (value) => (typeof value === "string" ? Number(value) : value);
    told.terms = (step.cells?.[flat] ?? []).map((factors) => factors.map(([name, value, cell]) =>
      ({ name, value: number(value), step: cell && STEPS[cell[0]], index: cell?.[1] })));
    told.isUnknown = !step.cells && !step.flags;
  } else if (pattern.sum) {
    for (const { count, when, factors } of pattern.sum) {
      if (!applies(step, when, index, from)) continue;
      for (let k = 0; k < count; k++) {
        told.terms.push(factors.map((factor) => factorOf(step, factor, [...index, k], from)));
      }
    }
  } else if (pattern.any) {
    told.any = pattern.any.map((read) => readCell(step, read, index, from));
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
    } else if (pattern.softmax.zero && row.keys.every((key) => key.value === -Infinity)) {
      told.terms = [[{ name: say("zero"), value: 0 }]];
    } else {
      const key = row.keys[index.at(-1)];
      const exp = { ...key, name: say("expOf", { score: key.name }), value: key.exp };
      told.terms = [[exp, { name: say("shareOf", { over }), value: 1 / row.sum }]];
    }
  }
  return told;
}

const product = (term) => term.reduce((value, factor) => value * factor.value, 1);

/** The cells that a number is read from, by step. */
function cellsOf(told) {
  const all = told.row ? [...told.row.keys, told.row.sink].filter(Boolean) : [];
  return [...all, ...told.terms.flat(), ...(told.any ?? [])].filter((cell) => cell.step);
}

/** Whether a step is made of the input, directly or through others. */
function isOfInput(step) {
  step.ofInput ??= step.is_input || step.inputs.some((at) => isOfInput(STEPS[at]));
  return step.ofInput;
}

/** From a cell back to what is given: at every step the largest term, and in it the factor that is made of the input. */
function trail(step, index, side) {
  const path = [];
  for (let cell = { step, index }; cell; ) {
    const told = explain(cell.step, cell.index, side);
    path.push(told);
    const size = (term) => { const value = Math.abs(product(term)); return Number.isNaN(value) ? Infinity : value; };
    const withCells = told.terms.filter((term) => term.some((factor) => factor.step));
    const largest = withCells.reduce((best, term) => (best && size(best) >= size(term) ? best : term), undefined);
    const cells = (largest ?? told.any ?? []).filter((factor) => factor.step);
    cell = cells.find((factor) => isOfInput(factor.step)) ?? cells[0];
  }
  return path;
}
