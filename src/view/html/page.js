// The page: what is looked at, how a number came about, keys and addresses.

const $ = (id) => document.getElementById(id);
const LINKS = [...document.querySelectorAll("nav a[data-step]")];
/** The steps in the order in which they are gone through. */
const ORDER = [...document.querySelectorAll("nav ol a[data-step]")].map((link) => Number(link.dataset.step));
const state = { at: ORDER[0], item: 0, head: 0, heads: 1, view: "table", side: 0, pin: undefined, window: [0, 0] };
for (const { axes, kept } of STEPS) {
  axes.forEach(({ name }, at) => {
    if (name === "head") state.heads = Math.max(state.heads, axes[at].size);
    if (at === 0 && name === "batch") state.items = Math.max(state.items ?? 1, kept[at]);
  });
}
const here = () => STEPS[state.at];
const sameIndex = (left, right) => left.join() === right.join();

/** Goes to a step, and to a cell of it. */
function go(at, index) {
  const wanted = address(STEPS[at], index ?? leadOf(STEPS[at], state));
  if (location.hash === wanted) follow();
  else location.hash = wanted;
}

/** Shows what the address says: a step; the first places of its axes; with one on every axis, a cell that is pinned. */
function follow() {
  const [name, ...places] = location.hash.slice(1).split("/");
  let wanted = name;
  try { wanted = decodeURIComponent(name); } catch { /* An address that somebody mistyped names no step. */ }
  const at = STEPS.findIndex((step) => step.name === wanted);
  if (at < 0) {
    if (name !== "main") show();
    return;
  }
  const index = places.map(Number);
  const { axes, kept } = STEPS[at];
  const isThere = index.length <= axes.length && index.every((place, axis) => Number.isInteger(place) && place >= 0 && place < kept[axis]);
  const before = state.at;
  state.at = at;
  state.pin = undefined;
  if (before !== at) state.window = [0, 0];
  if (isThere) {
    index.slice(0, Math.max(axes.length - 2, 0)).forEach((place, axis) => {
      const isHead = axes[axis].name === "head" || axes[axis].name === "axis 1";
      const own = Math.floor((state.head * axes[axis].size) / Math.max(state.heads, axes[axis].size));
      if (isHead && own !== place) state.head = Math.floor((place * Math.max(state.heads, axes[axis].size)) / axes[axis].size);
      if (!isHead && axis === 0) state.item = place;
    });
    if (index.length === axes.length && axes.length) {
      state.pin = index;
      const [row, column] = [0, 0, ...index].slice(-2);
      state.window = [row, column].map((place, i) => (place >= state.window[i] && place < state.window[i] + WINDOW ? state.window[i] : Math.floor(place / WINDOW) * WINDOW));
    }
  }
  show();
}

function options(select, count, name, chosen) {
  select.replaceChildren(...Array.from({ length: count }, (_, at) => el("option", { value: at, selected: at === chosen }, `${name} ${at}`)));
  select.parentElement.hidden = count < 2;
}

/** Draws the step that is looked at. */
function show() {
  const step = here();
  document.querySelectorAll(".about").forEach((section, at) => { section.hidden = at !== state.at; });
  for (const link of LINKS) {
    const isHere = Number(link.dataset.step) === state.at;
    if (isHere) {
      link.setAttribute("aria-current", "step");
      const box = link.closest("details");
      if (box) box.open = true;
      const bar = link.closest("nav");
      bar.scrollTop = link.offsetTop - bar.clientHeight / 2;
      bar.scrollLeft = link.offsetLeft - bar.clientWidth / 2;
    } else link.removeAttribute("aria-current");
  }
  document.title = `${step.name} · ${document.querySelector("h1").textContent}`;
  const leads = step.axes.slice(0, -2).map(({ name }) => name);
  options($("item"), leads[0] === "batch" || leads[0] === "axis 0" ? step.kept[0] : 0, leads[0], leadOf(step, state)[0]);
  const headAxis = leads.findIndex((name) => name === "head" || name === "axis 1");
  options($("head"), headAxis < 0 ? 0 : step.kept[headAxis], step.axes[headAxis]?.called ?? leads[headAxis], leadOf(step, state)[headAxis]);
  const place = ORDER.indexOf(state.at);
  $("previous").disabled = place === 0;
  $("next").disabled = place === ORDER.length - 1;
  const hasHeads = headAxis >= 0 && step.kept[headAxis] > 1;
  const view = state.view === "heads" && !hasHeads ? "heat" : state.view;
  for (const button of document.querySelectorAll("[data-view]")) {
    button.setAttribute("aria-pressed", String(button.dataset.view === view));
    button.disabled = button.dataset.view === "heads" && !hasHeads;
  }
  draw(step, view, headAxis);
  tell(state.pin);
}

function draw(step, view, headAxis) {
  const side = Math.min(state.side, step.sides.length > 1 ? DIFFERENCE : 0);
  const box = $("view");
  if (!tensor(step, side === DIFFERENCE ? 0 : side) || (side === DIFFERENCE && !tensor(step, 1))) {
    box.replaceChildren(el("p", {}, say("absent")));
    return;
  }
  const lead = leadOf(step, state);
  const isHeat = view !== "table" && !step.flags;
  if (view === "heads") {
    const all = Array.from({ length: step.kept[headAxis] }, (_, head) => lead.map((at, axis) => (axis === headAxis ? head : at)));
    const [rows, columns] = kept(step);
    const isSmall = rows * columns * all.length <= MOST_CELLS;
    const figures = all.map((own) => {
      const heat = heatOf(step, own, side);
      const name = placeName(step, headAxis, own[headAxis], itemOf(step, own));
      if (isSmall) return grid(step, own, side, { heat: isHeat && heat, caption: name });
      const button = el("button", { type: "button", class: "picture" }, picture(step, own, side, heat), name);
      button.addEventListener("click", () => { state.view = "heat"; go(state.at, own); });
      return button;
    });
    box.replaceChildren(el("div", { class: "heads" }, ...figures));
  } else {
    const heat = isHeat && heatOf(step, lead, side);
    const table = grid(step, lead, side, { heat, window: state.window });
    const parts = [scroll(step.name, table)];
    if (heat) parts.unshift(legend(heat));
    box.replaceChildren(...pager(step), ...parts);
  }
  const first = box.querySelector(state.pin ? `[data-cell="${state.pin.join("/")}"]` : "[data-cell]");
  if (first) first.tabIndex = 0;
}

/** Buttons for the other rows and columns of a large table. */
function pager(step) {
  return kept(step).flatMap((count, i) => {
    if (count <= WINDOW) return [];
    const from = state.window[i];
    const button = (name, to) => {
      const made = el("button", { type: "button", disabled: to < 0 || to >= count }, say(name));
      made.addEventListener("click", () => { state.window[i] = to; show(); });
      return made;
    };
    const words = say(i ? "columns" : "rows", { from, to: Math.min(from + WINDOW, count) - 1, count });
    return [el("p", { class: "pager" }, button("earlier", from - WINDOW), " ", words, " ", button("later", from + WINDOW))];
  });
}

/** Tells how the number in a cell came about, and lights up what it is read from. */
function tell(index) {
  for (const cell of document.querySelectorAll("#view .here, #view .pinned")) cell.classList.remove("here", "pinned");
  for (const head of document.querySelectorAll("#view th.lit")) head.classList.remove("lit");
  const step = here();
  const title = el("h3", { id: "how-title" });
  if (!index || valueAt(step, index, state.side) === undefined) {
    title.append(say("none"));
    title.className = "hint";
    $("how").replaceChildren(title);
    $("parts").replaceChildren();
    return;
  }
  const isPinned = state.pin && sameIndex(state.pin, index);
  const cell = document.querySelector(`#view [data-cell="${index.join("/")}"]`);
  if (cell) {
    cell.classList.add(isPinned ? "pinned" : "here");
    cell.parentElement.querySelector("th")?.classList.add("lit");
    const at = [...cell.parentElement.children].indexOf(cell);
    cell.closest("table").tHead.rows[0].children[at]?.classList.add("lit");
  }
  const told = explain(step, index, state.side);
  const sides = step.sides.length > 1 && state.side === DIFFERENCE
    ? ` (${DATA.sides[0]} ${valueShown(step, index, 0)}, ${DATA.sides[1]} ${valueShown(step, index, 1)})` : "";
  title.append(el("code", {}, cellName(step, index)), ` = ${valueShown(step, index, state.side)}${sides}`);
  $("how").replaceChildren(title, el("p", {}, placeOf(step, index)), ...working(told), ...(isPinned ? back(step, index) : [el("p", { class: "hint" }, say("pin"))]));
  $("parts").replaceChildren(...partTables(cellsOf(told)));
}

function valueShown(step, index, side) {
  const value = valueAt(step, index, side);
  if (step.flags && side !== DIFFERENCE) return say(value ? "true" : "false");
  return value === undefined ? "…" : shortest(value, step.dtype);
}

/** The arithmetic of a cell. */
function working(told) {
  const { step, index, terms, row, any } = told;
  const out = [];
  if (step.is_given) return [el("p", {}, say("given"))];
  if (told.isUnknown) {
    return [el("p", {}, say("noFactors")), el("pre", {}, `mha-trace explain '${cellName(step, index)}'`)];
  }
  if (row) out.push(scroll(say("score"), softmaxTable(told, row)));
  if (any) out.push(...any.filter((cell) => cell.value === 1).map((cell) => el("p", {}, maskedBy(cell))));
  if (!row && !any) out.push(...blockers(step, index).map((cell) => el("p", {}, maskedBy(cell))));
  if (terms.length === 1) {
    const line = el("p", { class: "sum-line" }, "= ");
    terms[0].forEach((factor, i) => line.append(i ? " · " : "", brief(factor.value), " (", factorName(factor), ")"));
    out.push(line);
  } else if (terms.length) {
    const build = (isWhole) => {
      const { head, body, line, total, isCut } = termTable(terms, isWhole);
      const absent = terms.filter((term) => heldProduct(term) === undefined).length;
      if (absent) line(say("restOut", { count: absent }), told.value - total);
      line(say("sum"), absent ? told.value : total);
      const table = el("table", { class: "terms" }, el("caption", { class: "unseen" }, cellName(step, index)), el("thead", {}, head), body);
      const box = scroll(say("factor"), table);
      if (isCut) {
        const all = el("button", { type: "button" }, say("all"));
        all.addEventListener("click", () => box.replaceWith(build(true)));
        box.append(all);
      }
      return box;
    };
    out.push(build(false));
  }
  const sum = terms.map(heldProduct).reduce((all, value) => all + value, 0);
  const size = Math.max(Math.abs(told.value), ...terms.map((term) => Math.abs(heldProduct(term))));
  // Numbers of 16 bits have three digits, and are no further off than these.
  if (terms.length && state.side !== DIFFERENCE && Math.abs(sum - told.value) > 0.01 * size) {
    out.push(el("p", { class: "bad-sum" }, say("not", { sum: brief(sum) })));
  }
  return out;
}

/** The cells of masks and biases that block a cell: those that no other mask is made of. */
function blockers(step, index) {
  const found = [];
  const look = (at) => {
    const mask = STEPS[at];
    const own = broadcast(mask, index);
    const value = valueAt(mask, own, 0);
    if (mask.flags ? value !== 1 : value !== -Infinity) return;
    const parts = mask.inputs.filter((part) => STEPS[part].sides.some(Boolean));
    if (parts.length) parts.forEach(look);
    else found.push({ step: mask, index: own, name: cellName(mask, own), value });
  };
  step.blocked.forEach(look);
  return found;
}

function maskedBy(cell) {
  const title = document.querySelector(`#step-${STEPS.indexOf(cell.step)} .title`)?.textContent ?? "";
  return say("masked", { mask: cell.name, title });
}

/** Key by key the score, less the largest, its exponential, and its share of their sum. */
function softmaxTable({ step, index }, row) {
  const isWeight = step.axes.length === row.keys[0].index.length;
  const own = (key) => (isWeight ? valueAt(step, key.index, state.side === DIFFERENCE ? 0 : state.side) : undefined);
  const heads = [say("key"), say("score"), say("less", { max: brief(row.largest) }), say("exp"), ...(isWeight ? [say("share", { sum: brief(row.sum) })] : [])];
  const head = el("tr", {}, ...heads.map((name) => el("th", { scope: "col" }, name)));
  const body = el("tbody");
  const line = (name, key, weight) => {
    const isOwn = isWeight && key.step === row.keys[0].step && sameIndex(key.index, index);
    const masks = key.step.blocked ? blockers(key.step, key.index).length : 0;
    body.append(el("tr", { class: [isOwn && "lit", masks && "blocked"].filter(Boolean).join(" ") || undefined },
      el("th", { scope: "row" }, name), el("td", {}, el("a", { href: address(key.step, key.index) }, brief(key.value))),
      el("td", {}, brief(key.less)), el("td", {}, brief(key.exp)), isWeight ? el("td", {}, brief(weight)) : ""));
  };
  row.keys.forEach((key) => line(placeName(key.step, key.index.length - 1, key.index.at(-1), itemOf(key.step, key.index)), key, own(key)));
  if (row.sink) line(say("sink"), row.sink, row.sink.exp / row.sum);
  const shares = isWeight && row.keys.reduce((sum, key) => sum + own(key), row.sink ? row.sink.exp / row.sum : 0);
  body.append(el("tr", { class: "sum" }, el("th", { scope: "row" }, say("sum")), el("td"), el("td"), el("td", {}, brief(row.sum)), isWeight ? el("td", {}, brief(shares)) : ""));
  return el("table", { class: "terms" }, el("caption", { class: "unseen" }, cellName(step, index)), el("thead", {}, head), body);
}

/** The way back from a pinned cell to what is given. */
function back(step, index) {
  const path = trail(step, index, state.side === DIFFERENCE ? 0 : state.side);
  const list = el("ol", { class: "trail" }, ...path.map((told) => {
    const name = el("a", { href: address(told.step, told.index) }, cellName(told.step, told.index));
    const value = ` = ${told.step.flags ? say(told.value ? "true" : "false") : brief(told.value)}`;
    return el("li", {}, name, value, told.step.is_given ? `, ${say("given")}` : "");
  }));
  return [el("h4", {}, say("back")), el("p", { class: "hint" }, `${say("backNote")} ${say("pinned")}`), list];
}

/** The tables that a number is read from, with its cells lit up. */
function partTables(cells) {
  const groups = new Map();
  for (const cell of cells.filter(({ step }) => step.axes.length)) {
    const lead = cell.index.slice(0, -2);
    const key = `${cell.step.name} ${lead}`;
    if (!groups.has(key)) groups.set(key, { step: cell.step, lead, lit: new Set() });
    groups.get(key).lit.add([0, 0, ...cell.index].slice(-2).join());
  }
  // Norms and means read from many heads.
  const shown = [...groups.values()].slice(0, 6).filter(({ step }) => tensor(step, 0));
  if (!shown.length) return [];
  const side = state.side === DIFFERENCE ? 0 : state.side;
  const SIZE = 12;
  const tables = shown.map(({ step, lead, lit }) => {
    const first = [...lit].map((cell) => cell.split(",").map(Number))[0];
    const window = kept(step).map((count, i) => (count <= SIZE ? 0 : Math.max(0, Math.min(first[i] - 2, count - SIZE))));
    const table = grid(step, lead, side, { window, size: SIZE, lit, isPart: true });
    return scroll(step.name, table);
  });
  return [el("h3", {}, say("parts")), el("div", { class: "parts" }, ...tables)];
}

/** A tensor as text, as far as the page holds it. */
function copied(step, format) {
  const side = state.side === DIFFERENCE && step.sides.length < 2 ? 0 : state.side;
  const count = step.kept.reduce((all, size) => all * size, 1);
  const indices = Array.from({ length: count }, (_, flat) => {
    const index = [];
    for (const size of [...step.kept].reverse()) { index.unshift(flat % size); flat = Math.floor(flat / size); }
    return index;
  });
  const text = (index) => {
    const value = valueAt(step, index, side);
    if (step.flags && side !== DIFFERENCE) return format === "numpy" ? (value ? "True" : "False") : value ? "true" : "false";
    if (format === "numpy" && !Number.isFinite(value)) return Number.isNaN(value) ? "np.nan" : value > 0 ? "np.inf" : "-np.inf";
    return shortest(value, side === DIFFERENCE ? "f64" : step.dtype);
  };
  if (format === "csv") {
    const head = [...step.axes.map(({ name }) => name), "value"].join(",");
    return [head, ...indices.map((index) => [...index, text(index)].join(","))].join("\n") + "\n";
  }
  const name = step.name.replace(/\W/g, "_");
  const type = step.flags ? "bool_" : step.dtype === "f64" || side === DIFFERENCE ? "float64" : "float32";
  return `import numpy as np\n\n${name} = np.array([${indices.map(text).join(", ")}], dtype=np.${type}).reshape(${step.kept.join(", ") || "()"})\n`;
}

async function copy(format) {
  const step = here();
  if (!tensor(step, 0) && !tensor(step, 1)) return;
  const text = copied(step, format);
  const thin = step.kept.some((size, axis) => size < step.axes[axis].size) ? " " + say("thinCopy", { shape: step.kept.join(" × ") }) : "";
  const count = step.kept.reduce((all, size) => all * size, 1);
  try {
    await navigator.clipboard.writeText(text);
    $("said").replaceChildren(say("copied", { count }) + thin);
  } catch {
    const box = el("textarea", { readonly: true, rows: 6, "aria-label": say("value") });
    box.value = text;
    $("said").replaceChildren(say("notCopied") + thin, box);
    box.select();
  }
}

const cellAt = (target) => target.closest?.("#view [data-cell]");
const indexAt = (cell) => cell.dataset.cell.split("/").filter(Boolean).map(Number);

function pin(cell) {
  const index = indexAt(cell);
  if (state.pin && sameIndex(state.pin, index)) go(state.at);
  else go(state.at, index);
}

$("view").addEventListener("pointerover", (event) => {
  const cell = cellAt(event.target);
  if (cell && !state.pin) tell(indexAt(cell));
});
$("view").addEventListener("focusin", (event) => {
  const cell = cellAt(event.target);
  if (!cell) return;
  for (const other of document.querySelectorAll('#view [data-cell][tabindex="0"]')) other.tabIndex = -1;
  cell.tabIndex = 0;
  if (state.pin) return;
  tell(indexAt(cell));
  const index = indexAt(cell);
  $("said").replaceChildren(`${cellName(here(), index)} = ${valueShown(here(), index, state.side)}`);
});
$("view").addEventListener("click", (event) => {
  const cell = cellAt(event.target);
  if (cell) pin(cell);
});

const move = (by) => {
  const place = ORDER.indexOf(state.at);
  const next = place < 0 ? ORDER.findIndex((at) => at > state.at) : place + by;
  if (ORDER[next] !== undefined) go(ORDER[next]);
};
function pick(axis, at) {
  state[axis] = at;
  go(state.at);
}
function turn(view) {
  state.view = state.view === view ? "table" : view;
  show();
}
/** The head after this one, or before it: of heads that several query heads share, the next that differs. */
function otherHead(by) {
  const select = $("head");
  const next = select.selectedIndex + by;
  if (next >= 0 && next < select.options.length) pick("head", headOf(next));
}
const headOf = (at) => Math.floor((at * state.heads) / Math.max(1, Math.min(state.heads, here().axes[headAxisOf(here())]?.size ?? 1)));
const headAxisOf = (step) => step.axes.findIndex(({ name }) => name === "head" || name === "axis 1");

let typed = "";
let typedAt = 0;
/** A step by its number in the list; digits that follow each other soon are one number. */
function type(digit) {
  typed = Date.now() - typedAt < 700 ? typed + digit : digit;
  typedAt = Date.now();
  const at = ORDER[Number(typed) - 1];
  if (at !== undefined) go(at);
}

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
/** Moves the focus inside a table. */
function moveCell(cell, [down, right]) {
  const row = cell.closest("tr");
  const rows = [...row.parentElement.rows];
  const other = rows[rows.indexOf(row) + down]?.children[[...row.children].indexOf(cell) + right];
  if (other?.dataset.cell !== undefined) other.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest?.("select, textarea")) return;
  const cell = cellAt(event.target);
  const { key } = event;
  if (cell && MOVES[key]) moveCell(cell, MOVES[key]);
  else if (cell && (key === "Enter" || key === " ")) { pin(cell); refocus(indexAt(cell)); }
  else if (key === "ArrowLeft" && !event.target.closest?.(".scroll")) move(-1);
  else if (key === "ArrowRight" && !event.target.closest?.(".scroll")) move(1);
  else if (key === "Escape" && state.pin) { const index = state.pin; go(state.at); refocus(index); }
  else if (/^\d$/.test(key)) type(key);
  else if (key === "h") turn("heat");
  else if (key === "a") turn("heads");
  else if (key === "[") otherHead(-1);
  else if (key === "]") otherHead(1);
  else if (key === "s" && DATA.sides.length) { state.side = (state.side + 1) % 3; $("side").value = state.side; show(); }
  else return;
  event.preventDefault();
});

/** Puts the focus back on a cell once the page is drawn again. */
function refocus(index) {
  addEventListener("hashchange", () => document.querySelector(`#view [data-cell="${index.join("/")}"]`)?.focus(), { once: true });
}

$("previous").addEventListener("click", () => move(-1));
$("next").addEventListener("click", () => move(1));
$("head").addEventListener("change", (event) => pick("head", headOf(Number(event.target.value))));
$("item").addEventListener("change", (event) => pick("item", Number(event.target.value)));
$("side")?.addEventListener("change", (event) => { state.side = Number(event.target.value); show(); });
for (const button of document.querySelectorAll("[data-view]")) {
  button.addEventListener("click", () => { state.view = button.dataset.view; show(); });
}
$("numpy").addEventListener("click", () => copy("numpy"));
$("csv").addEventListener("click", () => copy("csv"));
dark.addEventListener("change", show);
addEventListener("hashchange", follow);
follow();
