// Pictures of the arithmetic: lines from token to token, and how the numbers of a cell meet.

/** An element of a drawing. */
function svg(tag, attributes, ...children) {
  const made = document.createElementNS(all("svg")[0].namespaceURI, tag);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  made.append(...children);
  return made;
}

/** Whether a step's rows are shares of keys, which can be lines from tokens to tokens. */
const hasLines = step => step.is_share && step.axes.at(-2)?.name === "query" && step.axes.at(-1).name === "key";

/** Shares below this are no line. */
const LEAST = 0.01;

/** The rows of a head as lines from each query to the keys that it takes, as thick as their shares. */
function lines(step, lead, side, window, sizes) {
  const [queries, keys] = places(step, window, sizes);
  const high = max(9, min(44, floor(460 / max(queries.length, keys.length))));
  const item = itemOf(step, lead);
  const label = (axis, at) => placeOn(step, step.axes.length - axis, at, item);
  const middle = at => high * (at + 2);
  const write = (text, x, at, anchor) =>
    svg("text", { x, y: middle(at), "text-anchor": anchor, "dominant-baseline": "central" }, text);
  const rows = queries.map((query, at) => {
    const row = svg("g", {}, svg("rect", { x: 0, y: middle(at) - high / 2, width: 140, height: high }), write(label(2, query), 132, at, "end"));
    keys.forEach((key, to) => {
      const index = indexOf(step, lead, query, key);
      const share = valueAt(step, index, side);
      if (!(share >= LEAST)) return;
      const d = `M140 ${middle(at)}C280 ${middle(at)} 280 ${middle(to)} 420 ${middle(to)}`;
      const width = max(0.6, share * min(14, high));
      row.append(svg("path", { d, "stroke-width": width, "stroke-opacity": share ** 0.5, "data-cell": index.join("/") }));
    });
    return row;
  });
  const drawn = svg(
    "svg",
    { viewBox: `0 0 560 ${middle(max(queries.length, keys.length))}`, role: "group", "aria-label": step.name, style: `--high:${min(15, high)}px` },
    write(`${axisName(step, -2)} →`, 132, -1, "end"),
    write(`→ ${axisName(step, -1)}`, 428, -1, "start"),
    ...keys.map((key, at) => write(label(1, key), 428, at, "start")),
    ...rows,
  );
  drawn.classList.add("lines");
  return drawn;
}

/** More columns than this no picture of a cell's arithmetic has. */
const MOST_DRAWN = 16;

/** Numbers in a row of boxes, coloured by their size. */
function boxes(name, values, kind) {
  const most = max(...values.map(abs).filter(isFinite), 1e-9);
  const [neutral, negative, positive] = palette();
  const one = (value, at) => {
    const colour = mix(neutral, value < 0 ? negative : positive, isFinite(value) ? abs(value) / most : 0);
    const box = el(`span.${kind}`, values.length > 8 ? "" : number(value, 2));
    assign(box.style, { backgroundColor: rgb(colour), color: inkOn(colour) });
    box.style.setProperty("--at", at);
    return box;
  };
  return [el("b", name), ...values.map(one)];
}

/**
 * How the number of a cell comes about, as a picture: of a sum of products the two rows that meet, their products and
 * what these add up to; of softmax the scores of a row that become its shares.
 */
function stage({ step, value, terms, row }) {
  const style = count => ({ style: `--count:${count}`, "aria-hidden": "true" });
  if (row && row.all.length <= MOST_DRAWN && row.sum > 0) {
    const least = min(...row.all.map(key => key.less).filter(less => less > -50), -1);
    const bar = (key, at) => {
      const from = max(0, 1 - key.less / least);
      const [item, place] = [itemOf(key.step, key.index), key.index.at(-1)];
      const told = key === row.sink ? say("sink") : placeOn(key.step, key.index.length - 1, place, item);
      return el("span", { style: `--from:${from};--to:${key.exp / row.sum};--at:${at}` }, el("i"), el("small", number(key.exp / row.sum, 2)), el("small", told));
    };
    return [el("div.stage bars", style(row.all.length), ...row.all.map(bar))];
  }
  const isPair = term => term.length === 2 && term.every(factor => factor.value != null);
  if (terms.length < 2 || terms.length > MOST_DRAWN || !terms.every(isPair)) return [];
  const names = [0, 1].map(at => terms[0][at].step?.name ?? "");
  return [
    el(
      "div.stage",
      style(terms.length),
      ...[0, 1].flatMap(at => boxes(names[at], terms.map(term => term[at].value), at ? "column" : "row")),
      ...boxes("·", terms.map(product), "product"),
      el("b", "Σ"),
      el("span.total", `${step.name} ${number(value)}`),
    ),
  ];
}
