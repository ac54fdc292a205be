"use strict";
// The page's data: its tensors, and how numbers are written.
const DATA = JSON.parse(document.getElementById("data").textContent);
const STEPS = DATA.steps;
const DIFFERENCE = 2;
const { abs, exp, floor, fround, max, min } = Math;
const { isFinite, isInteger, isNaN } = Number;
const { assign, entries, is } = Object;

/** A text with values in the place of names in braces. */
const filled = (text, values) => text.replace(/\{(\w+)\}/g, (_, key) => values[key]);

/** A text of the page. */
const say = (name, values = {}) => filled(DATA.texts[name], values);

const total = numbers => numbers.reduce((sum, number) => sum + number, 0);

/** A list of so many, made by their place. */
const times = (count, make) => Array.from({ length: count }, (_, at) => make(at));

/** An element, `tag.class`, with attributes and children; strings become text, never markup. */
function el(tag, ...parts) {
  const [name, style] = tag.split(".");
  const made = document.createElement(name);
  if (style) made.className = style;
  for (const part of parts) {
    if (part instanceof Node || typeof part !== "object") made.append(part);
    else for (const key in part) made.setAttribute(key, part[key]);
  }
  return made;
}

/** The numbers of a side of a step, or undefined where the page has none. */
function tensor(step, side) {
  const at = min(side, step.sides.length - 1);
  step.read ??= [];
  if (!step.read[at] && step.sides[at] != null) {
    const text = atob(step.sides[at]);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const type = { bool: Uint8Array, f64: Float64Array }[step.dtype] ?? Float32Array;
    step.read[at] = new type(bytes.buffer);
  }
  return step.read[at];
}

/** The number in a cell; undefined where the page does not hold it. */
function valueAt(step, index, side) {
  if (side === DIFFERENCE && step.sides.length > 1) {
    const [left, right] = [valueAt(step, index, 0), valueAt(step, index, 1)];
    if (left == null || right == null) return;
    return is(left, right) ? 0 : left - right;
  }
  let flat = 0;
  for (let axis = 0; axis < index.length; axis++) {
    if (!(index[axis] >= 0 && index[axis] < step.kept[axis])) return;
    flat = flat * step.kept[axis] + index[axis];
  }
  return tensor(step, side)?.[flat];
}

/** The index that is broadcast to a cell, aligned at the last axes. */
function broadcast(step, index) {
  const skipped = index.length - step.axes.length;
  return step.axes.map((axis, at) => (axis.size === 1 ? 0 : index[at + skipped]));
}

/** Whether a mask blocks a cell. NaN is not what a mask gives, even where it comes of one. */
const isBlocked = (step, index, value) => !isNaN(value) && step.blocked.some(at => blocks(STEPS[at], index));

/** Whether a mask or a bias blocks a cell. */
function blocks(mask, index) {
  const value = valueAt(mask, broadcast(mask, index), 0);
  return mask.flags ? value === 1 : value === -Infinity;
}

const scientific = text => text.replace("e+", "e");

/** A number as the tool's tables have it: so many decimals, halves to even on its exact value. */
function number(value, decimals = DATA.decimals) {
  if (isNaN(value)) return "nan";
  if (!isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (abs(value) >= 1e6) return scientific(value.toExponential(decimals));
  // Only a number of so few binary digits can lie in the middle, where toFixed rounds away from 0.
  const longer = value.toFixed(decimals + 1);
  const isEven = isInteger(value * 2 ** (decimals + 1)) && /[02468]\.?5$/.test(longer);
  const text = isEven ? longer.slice(0, -1) : value.toFixed(decimals);
  return is(value, -0) ? "-" + text : text;
}

/** The same, but a large number of few digits with these alone: -1e9. */
function brief(value) {
  return value == null ? "…" : shorter(value, number(value));
}

/** The shortest decimal that reads back to the number in its own type; a large one of few digits with these alone. */
function shortest(value, dtype) {
  let digits = dtype === "f64" ? 17 : 1;
  while (digits < 10 && fround(value.toPrecision(digits)) !== value) digits++;
  const least = digits < 10 ? Number(value.toPrecision(digits)) : value;
  return is(value, -0) ? "-0" : shorter(value, scientific(String(least)), least);
}

/** A text of a number, or the digits that tell a large one in fewer signs: -1e9. */
function shorter(value, text, exact = value) {
  const few = scientific(exact.toExponential());
  return isFinite(value) && abs(value) >= 1e6 && few.length < text.length ? few : text;
}

const cellName = (step, index) => (index.length ? `${step.name}[${index.join(",")}]` : step.name);

const address = (step, index = []) => "#" + [encodeURIComponent(step.name), ...index].join("/");

/** What an axis is called: "query". */
const axisName = (step, axis) => step.axes.at(axis)?.called ?? step.axes.at(axis)?.name ?? "";

/** The label of a place, or the place: "sat". */
function placeOn(step, axis, at, item) {
  const { labels } = step.axes[axis];
  return labels?.[min(item, labels.length - 1)]?.[at] || at;
}

/** The place on an axis: "query 2 sat". */
function placeName(step, axis, at, item) {
  const { name, every } = step.axes[axis];
  if (every) return say("every", { axis: name });
  const label = placeOn(step, axis, at, item);
  return `${axisName(step, axis)} ${at}${label === at ? "" : " " + label}`;
}

/** The batch item of an index. */
const itemOf = (step, index) => (step.axes[0]?.name === "batch" ? (index[0] ?? 0) : 0);

const placeOf = (step, index) => index.map((at, axis) => placeName(step, axis, at, itemOf(step, index))).join(say("comma"));
