// Tables and heat maps.

/** Rows and columns of a table that are drawn at a time. */
const WINDOW = 64;
/** All heads are tables if they have no more cells than this together, and pictures otherwise. */
const MOST_CELLS = 1500;

const dark = matchMedia("(prefers-color-scheme: dark)");
/** Neutral, negative, positive and sequential colour: told apart without red and green. */
const PALETTES = {
  light: [[255, 255, 255], [33, 102, 172], [179, 88, 6], [0, 90, 110]],
  dark: [[30, 33, 38], [128, 190, 240], [253, 184, 99], [120, 215, 225]],
};

const mix = (from, to, share) => from.map((part, i) => Math.round(part + (to[i] - part) * share));

/** What turns values into colours: from low to high where the range is known, else away from 0. */
function heatOf(step, lead, side) {
  const [neutral, negative, positive, sequential] = PALETTES[dark.matches ? "dark" : "light"];
  if (step.range && side !== DIFFERENCE) {
    const [low, high] = step.range;
    return { low, high, of: (value) => mix(neutral, sequential, Math.min(Math.max((value - low) / (high - low), 0), 1)) };
  }
  const [rows, columns] = kept(step);
  let largest = 0;
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      const index = indexOf(step, lead, r, c);
      const value = Math.abs(valueAt(step, index, side));
      if (value > largest && value < Infinity && !isBlocked(step, index)) largest = value;
    }
  }
  const of = (value) => mix(neutral, value < 0 ? negative : positive, largest ? Math.min(Math.abs(value) / largest, 1) : 0);
  return { low: -largest, high: largest, of };
}

/** Black or white, whichever stands out from a colour. */
function inkOn(colour) {
  const [r, g, b] = colour.map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

/** Rows and columns of a step's tables, as far as the page holds them. */
function kept(step) {
  const sizes = [1, 1, ...step.kept];
  return sizes.slice(-2);
}

/** The index of a cell of a table. */
const indexOf = (step, lead, row, column) => [...lead, row, column].slice(-step.axes.length || Infinity);

/** The index on the axes before those of a table, for a batch item and a head. */
function leadOf(step, { item, head, heads }) {
  return step.axes.slice(0, -2).map(({ name, size }, at) => {
    const isHead = name === "head" || name === "axis 1";
    const wanted = isHead ? Math.floor((head * size) / Math.max(heads, size)) : at === 0 ? item : 0;
    return Math.min(wanted, step.kept[at] - 1);
  });
}

function cellText(step, index, value, side) {
  if (value === undefined) return ["…"];
  if (step.flags && side !== DIFFERENCE) {
    const words = { blocked: ["visible", "blocked"], kept: ["dropped", "kept"] }[step.flags];
    return [el("span", { "aria-hidden": "true" }, value ? "■" : "·"), el("span", { class: "unseen" }, say(words[value ? 1 : 0]))];
  }
  if (step.fill && side !== DIFFERENCE) {
    const [text, mask] = step.fill;
    if (valueAt(STEPS[mask], broadcast(STEPS[mask], index), 0) === 1) return [text];
  }
  return [number(value)];
}

/**
 * A table of a step at a leading index. `heat` colours it; `window` says from which row and column on; `lit` holds the
 * cells that stand out, as "row,column"; `isPart` makes one that cells are only read from.
 */
function grid(step, lead, side, { heat, window = [0, 0], size = WINDOW, lit, isPart, caption }) {
  const rank = step.axes.length;
  const item = itemOf(step, lead);
  const [rows, columns] = kept(step);
  const [top, left] = window;
  const [bottom, right] = [Math.min(top + size, rows), Math.min(left + size, columns)];
  const header = (axis, at) => (rank > axis ? placeName(step, rank - 1 - axis, at, item) : step.name);
  const litRows = new Set([...(lit ?? [])].map((cell) => cell.split(",")[0]));
  const litColumns = new Set([...(lit ?? [])].map((cell) => cell.split(",")[1]));
  const sums = step.is_share && !heat && side !== DIFFERENCE && step.kept.at(-1) === step.axes.at(-1).size;
  const head = el("tr", {}, rank > 1 ? el("td") : "");
  for (let c = left; c < right; c++) {
    head.append(el("th", { scope: "col", class: litColumns.has(String(c)) ? "lit" : undefined }, header(0, c)));
  }
  if (sums) head.append(el("th", { scope: "col" }, say("sum")));
  const body = el("tbody");
  for (let r = top; r < bottom; r++) {
    const row = el("tr", {}, rank > 1 ? el("th", { scope: "row", class: litRows.has(String(r)) ? "lit" : undefined }, header(1, r)) : "");
    for (let c = left; c < right; c++) {
      const index = indexOf(step, lead, r, c);
      const value = valueAt(step, index, side);
      const isFaint = isBlocked(step, index);
      const cell = el("td", { class: [isFaint && "blocked", lit?.has(`${r},${c}`) && "lit"].filter(Boolean).join(" ") || undefined });
      cell.append(...cellText(step, index, value, side));
      if (heat && !isFaint && Number.isFinite(value)) {
        const colour = heat.of(value);
        cell.style.backgroundColor = `rgb(${colour.join(" ")})`;
        cell.style.color = inkOn(colour);
      }
      if (!isPart) {
        cell.dataset.cell = index.join("/");
        cell.tabIndex = -1;
      }
      row.append(cell);
    }
    if (sums) {
      const all = Array.from({ length: columns }, (_, c) => valueAt(step, indexOf(step, lead, r, c), side));
      row.append(el("td", { class: "sum" }, number(all.reduce((sum, value) => sum + value, 0))));
    }
    body.append(row);
  }
  const title = caption ?? [step.name, ...lead.map((at, axis) => placeName(step, axis, at, item))].join(", ");
  return el("table", { class: heat ? "grid heat" : "grid" }, el("caption", {}, title), el("thead", {}, head), body);
}

/** A box that scrolls by itself, and can be reached by keys where nothing inside can. */
const scroll = (label, ...children) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...children);

function legend(heat) {
  const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => `rgb(${heat.of(heat.low + (heat.high - heat.low) * share).join(" ")})`);
  const bar = el("span", { class: "bar", "aria-hidden": "true" });
  bar.style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
  return el("p", { class: "legend" }, number(heat.low), bar, number(heat.high),
    el("span", { class: "bar blocked", "aria-hidden": "true" }), say("blocked"));
}

/** A head as a picture: a square a cell, blocked ones hatched. */
function picture(step, lead, side, heat) {
  const [rows, columns] = kept(step);
  const size = Math.max(2, Math.floor(256 / Math.max(rows, columns)));
  const canvas = el("canvas", { width: columns * size, height: rows * size, "aria-hidden": "true" });
  const draw = canvas.getContext("2d");
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      const index = indexOf(step, lead, r, c);
      const value = valueAt(step, index, side);
      const [x, y] = [c * size, r * size];
      if (isBlocked(step, index) || !Number.isFinite(value)) {
        draw.fillStyle = dark.matches ? "#26292f" : "#f2f2f2";
        draw.fillRect(x, y, size, size);
        draw.fillStyle = dark.matches ? "#6d737c" : "#9a9a9a";
        for (let i = 0; i < size; i++) {
          if ((x + y + i) % 4 === 0 || size < 4) draw.fillRect(x + i, y + size - 1 - i, 1, 1);
        }
      } else {
        draw.fillStyle = `rgb(${heat.of(value).join(" ")})`;
        draw.fillRect(x, y, size, size);
      }
    }
  }
  return canvas;
}

/** What a number is made of, in a table: as many factors as a term has, and their product. */
function termTable(terms, isWhole) {
  const MOST = 20;
  const widest = Math.max(...terms.map((term) => term.length));
  const shown = isWhole || terms.length <= MOST ? terms : terms.slice(0, MOST);
  const head = el("tr");
  for (let i = 0; i < widest; i++) head.append(el("th", { scope: "col" }, say("factor")), el("th", { scope: "col" }, say("value")));
  head.append(el("th", { scope: "col" }, say("product")));
  const body = el("tbody");
  for (const term of shown) {
    const row = el("tr");
    for (let i = 0; i < widest; i++) {
      row.append(el("td", { class: "name" }, term[i] ? factorName(term[i]) : ""), el("td", {}, term[i] ? brief(term[i].value) : ""));
    }
    row.append(el("td", {}, brief(heldProduct(term))));
    body.append(row);
  }
  const sum = (some) => some.map(heldProduct).reduce((all, value) => (value === undefined ? all : all + value), 0);
  const line = (name, value) => body.append(el("tr", { class: "sum" }, el("th", { scope: "row", colspan: 2 * widest }, name), el("td", {}, brief(value))));
  if (shown.length < terms.length) line(say("rest", { count: terms.length - shown.length }), sum(terms.slice(MOST)));
  return { head, body, line, total: sum(terms), isCut: shown.length < terms.length };
}

/** A term's product; undefined where the page does not hold one of its factors. */
const heldProduct = (term) => (term.some((factor) => factor.value === undefined) ? undefined : product(term));

const factorName = (factor) =>
  factor.step && factor.value !== undefined ? el("a", { href: address(factor.step, factor.index) }, factor.name) : factor.name;
