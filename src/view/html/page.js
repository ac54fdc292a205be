// The page: what is looked at, how a number came about, keys and addresses.

const $ = id => document.getElementById(id);
const all = selector => [...document.querySelectorAll(selector)];
const fill = (box, ...parts) => box.replaceChildren(...parts);
const placeOfBox = box => box.getBoundingClientRect();
const LINKS = all("nav a[data-step]");
/** The steps in the order in which they are gone through. */
const ORDER = all("nav ol a[data-step]").map(at => Number(at.dataset.step));
const state = { at: ORDER[0], item: 0, head: 0, heads: 1, side: 0, places: {}, window: [0, 0] };
for (const step of STEPS) state.heads = max(state.heads, step.axes[step.head]?.size ?? 1);
const here = () => STEPS[state.at];
/** The side of a step that is looked at, and the one that numbers are worked out from. */
const sideOf = step => (step.sides.length > 1 ? state.side : 0);
const workedSide = () => state.side % DIFFERENCE;
const cellAtIndex = index => all(`#view [data-cell="${index.join("/")}"]`)[0];

/** Where a step is looked at: at the batch item, the head, and the places of what is pinned on the axes that it has. */
const indexIn = step => [
  ...leadOf(step),
  ...(state.pin ? step.axes.slice(-2).map(({ name, size }) => min(state.places[name] ?? 0, size - 1)) : []),
];

/** Goes to a step, and to a cell of it. */
function go(at, index = indexIn(STEPS[at])) {
  const wanted = address(STEPS[at], index);
  if (location.hash === wanted) follow();
  else location.hash = wanted;
}

/** A name in an address; one that somebody has mistyped names nothing. */
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return;
  }
}

/** Shows what the address says: a step; the first places of its axes; with one on every axis, a cell that is pinned. */
function follow() {
  const [name, ...places] = location.hash.slice(1).split("/");
  const at = STEPS.findIndex(step => decoded(name) === step.name);
  if (at < 0) return show();
  const step = STEPS[at];
  const index = places.map(Number);
  if (state.at !== at) state.window = [0, 0];
  assign(state, { at, pin: undefined });
  if (
    index.length <= step.axes.length &&
    index.every((place, axis) => isInteger(place) && place >= 0 && place < step.axes[axis].size)
  ) {
    index.slice(0, max(step.axes.length - 2, 0)).forEach((place, axis) => {
      if (axis !== step.head) state.item = axis ? state.item : place;
      else if (leadOf(step)[axis] !== place) state.head = place * shared(step);
    });
    if (index.length === step.axes.length && index.length) {
      state.pin = index;
      index.forEach((place, axis) => {
        state.places[step.axes[axis].name] = place;
      });
      const sizes = sizesOf(step);
      [0, 0, ...index].slice(-2).forEach((place, at) => {
        const from = state.window[at];
        if (place < from || place >= from + sizes[at]) state.window[at] = max(0, place - floor(sizes[at] / 2));
      });
    }
  }
  return show();
}

/** Offers the places of an axis before those of a table. */
function offer(select, step, axis) {
  const count = step.kept[axis] ?? 0;
  const chosen = leadOf(step)[axis];
  fill(select, ...times(count, at => new Option(at, at, false, at === chosen)));
  select.parentElement.hidden = count < 2;
}

/** Whether a step has heads to stand side by side. */
const hasHeads = step => step.kept[step.head] > 1;

/** Whether a step can be shown so. */
const isOffered = (step, view) =>
  view === "heads" ? hasHeads(step) : view !== "lines" || (hasLines(step) && sideOf(step) !== DIFFERENCE);

/** How a step is shown: as was chosen; else attention and wide tables as heat maps. */
function viewOf(step) {
  const [rows, columns] = step.axes.slice(-2);
  const isMap = (rows?.name === "query" && columns?.name === "key") || kept(step)[1] > MOST_COLUMNS;
  const view = state.view ?? (isMap ? "heat" : "table");
  return isOffered(step, view) ? view : "heat";
}

/** Rows and columns of a step that are drawn at a time. */
const sizesOf = step => (viewOf(step) === "table" ? [24, MOST_COLUMNS] : [64, 64]);

/** Draws the step that is looked at. */
function show() {
  const step = here();
  all(".about").forEach((section, at) => {
    section.hidden = at !== state.at;
  });
  for (const entry of LINKS) {
    const [at, box] = [Number(entry.dataset.step), entry.closest("details, .flow")];
    thumb(entry.querySelector(".thumb"), STEPS[at]);
    entry.ariaCurrent = at === state.at ? "step" : null;
    if (at !== state.at) continue;
    box.open = true;
    const [own, whole] = [entry, box].map(placeOfBox);
    box.scrollBy(own.x - whole.x + (own.width - whole.width) / 2, own.y - whole.y + (own.height - whole.height) / 2);
  }
  document.title = `${step.name} · ${DATA.title}`;
  const head = step.head;
  offer($("item"), step, step.axes.length > 2 && head !== 0 ? 0 : -1);
  offer($("head"), step, head);
  const place = ORDER.indexOf(state.at);
  $("previous").disabled = place === 0;
  $("next").disabled = place === ORDER.length - 1;
  for (const button of all("[data-view]")) {
    button.ariaPressed = button.dataset.view === viewOf(step);
    button.disabled = !isOffered(step, button.dataset.view);
  }
  const before = sizeOfView();
  draw(step, viewOf(step));
  // The table of the step before becomes that of this one.
  const after = sizeOfView();
  if (state.drawn !== state.at && before && after && !still.matches) {
    const scale = ["width", "height"].map(side => min(2, before[side] / after[side]));
    $("view").animate({ transform: [`scale(${scale})`, "none"], opacity: [0.3, 1] }, 300);
  }
  $("how").classList.toggle("moves", state.drawn !== state.at);
  state.drawn = state.at;
  tell(state.pin);
}

const still = matchMedia("(prefers-reduced-motion: reduce)");
const sizeOfView = () => all("#view table, #view canvas").map(placeOfBox)[0];

/** A step as a small picture, its first heads side by side. */
function thumb(box, step) {
  if (!box || !tensor(step, 0)) return;
  const leads = headsOf(step).slice(0, 8);
  const heat = heatOf(step, leads, 0);
  fill(box, ...leads.map(lead => picture(step, lead, 0, heat, 56)));
}

function draw(step, view) {
  const side = sideOf(step);
  const box = $("view");
  if (![side % DIFFERENCE, side && 1].every(one => tensor(step, one))) {
    return fill(box, el("p", say("absent")));
  }
  const lead = leadOf(step);
  const leads = headsOf(step);
  const isHeads = view === "heads";
  const isDense = max(...kept(step)) * SMALL > 256;
  const heat = view !== "table" && !step.flags && heatOf(step, leads, side);
  const caption = own => placeName(step, step.head, own[step.head], 0);
  const pictures = () =>
    leads.map(own => {
      const made = button(
        caption(own),
        () => {
          state.view = "heat";
          go(state.at, [...own, ...(state.pin ?? []).slice(-2)]);
        },
        picture(step, own, side, heat || heatOf(step, leads, side), isHeads || isDense ? 256 : 104),
      );
      made.ariaPressed = own.join() === lead.join();
      return made;
    });
  const place = el("div");
  const redraw = () => {
    const { window } = state;
    if (view === "lines") return fill(place, lines(step, lead, side, window, sizesOf(step)));
    fill(place, isHeads ? "" : scroll(step.name, grid(step, lead, side, { heat, window, sizes: sizesOf(step) })));
    const first = (state.pin && cellAtIndex(state.pin)) || all("#view [data-cell]")[0];
    if (first) first.tabIndex = 0;
  };
  fill(
    box,
    ...(isHeads ? [] : sliders(step, redraw)),
    place,
    heat ? legend(heat) : "",
    isHeads && kept(step)[1] * leads.length <= MOST_COLUMNS
      ? el("div.heads", ...leads.map(own => grid(step, own, side, { heat, caption: caption(own) })))
      : heat && hasHeads(step)
        ? el(isHeads ? (isDense ? "div.heads dense" : "div.heads") : "div.heads strip", ...pictures())
        : "",
  );
  redraw();
}

function button(name, click, ...before) {
  const made = el(before.length ? "button.picture" : "button", { type: "button" }, ...before, name);
  made.onclick = click;
  return made;
}

/** Sliders for the rows and columns that are shown of a large table. */
const sliders = (step, redraw) =>
  kept(step).flatMap((count, i) => {
    const size = sizesOf(step)[i];
    if (count <= size) return [];
    const words = el("span");
    const slider = el("input", { type: "range", max: count - size });
    slider.value = state.window[i];
    slider.oninput = () => {
      const from = (state.window[i] = Number(slider.value));
      words.textContent = say("shown", { axis: axisName(step, i - 2), from, to: from + size - 1, count });
      redraw();
    };
    slider.oninput();
    return [el("label.pager", words, slider)];
  });

/** Tells how the number in a cell came about, and lights up what it is read from. */
function tell(index) {
  all("#view .here, #view .pinned, #view th.lit").forEach(other => other.classList.remove("here", "pinned", "lit"));
  const step = here();
  const title = el("h3", { id: "how-title" });
  const value = index && shown(step, index);
  if (value == null) {
    title.className = "hint";
    title.append(say("none"));
    fill($("parts"));
    return fill($("how"), title);
  }
  const isPinned = state.pin?.join() === index.join();
  const cell = cellAtIndex(index);
  if (cell) {
    cell.classList.add(isPinned ? "pinned" : "here");
    cell.parentElement.querySelector("th")?.classList.add("lit");
    cell.closest("table")?.tHead.rows[0].cells[cell.cellIndex].classList.add("lit");
  }
  const told = explain(step, index, sideOf(step));
  const sides =
    sideOf(step) === DIFFERENCE
      ? ` (${DATA.sides.map((name, side) => `${name} ${shown(step, index, side)}`).join(say("comma"))})`
      : "";
  title.append(el("code", cellName(step, index)), ` = ${value}${sides}`);
  fill(
    $("how"),
    title,
    el("p", placeOf(step, index)),
    ...(sideOf(step) === DIFFERENCE ? [] : stage(told)),
    ...working(told),
    el("p.hint", say(isPinned ? "pinned" : "pin")),
  );
  fill($("parts"), ...partTables(cellsOf(told)), ...(isPinned ? back(step, index) : []));
  for (const row of all("#how tr.lit")) row.closest("section").scrollTop = row.offsetTop - 99;
}

/** A number in all its digits. */
function shown(step, index, side = sideOf(step)) {
  const value = valueAt(step, index, side);
  if (value == null) return "…";
  if (step.flags && side !== DIFFERENCE) return say(value ? "true" : "false");
  return shortest(value, side === DIFFERENCE ? "f64" : step.dtype);
}

/** A tensor as text, as far as the page holds it. */
function copied(step, isNumpy) {
  const side = sideOf(step);
  const indices = step.kept.reduce(
    (some, size) => some.flatMap(index => times(size, at => [...index, at])),
    [[]],
  );
  const isFlag = step.flags && side !== DIFFERENCE;
  const text = index => {
    const value = shown(step, index);
    if (!isNumpy) return value;
    return isFlag
      ? value[0].toUpperCase() + value.slice(1)
      : value.replace("NaN", "np.nan").replace("Infinity", "np.inf");
  };
  if (!isNumpy) {
    const rows = indices.map(index => [...index, text(index)].join());
    return [[...step.axes.map(({ name }) => name), "value"].join(), ...rows, ""].join("\n");
  }
  const type = isFlag ? "bool_" : step.dtype === "f64" || side === DIFFERENCE ? "float64" : "float32";
  const shape = step.kept.length === 1 ? `${step.kept},` : step.kept.join(", ");
  const name = step.name.replace(/\W/g, "_");
  const array = `np.array([${indices.map(text).join(", ")}], dtype=np.${type}).reshape((${shape}))`;
  return `import numpy as np\n\n${name} = ${array}\n`;
}

async function copy(isNumpy) {
  const step = here();
  if (!tensor(step, workedSide())) return;
  const text = copied(step, isNumpy);
  const isThin = step.kept.some((size, axis) => size < step.axes[axis].size);
  const thin = isThin ? " " + say("thinCopy", { shape: step.kept.join(" × ") }) : "";
  try {
    await navigator.clipboard.writeText(text);
    fill($("said"), say("copied", { count: step.kept.reduce((count, size) => count * size, 1) }) + thin);
  } catch {
    const box = el("textarea", { readonly: "", rows: 6, "aria-label": say("value") });
    box.value = text;
    fill($("said"), say("notCopied") + thin, box);
    box.select();
  }
}

const cellAt = target => target.closest?.("#view [data-cell]");
const indexAt = cell => cell.dataset.cell.split("/").filter(Boolean).map(Number);

/** Pins a cell, or lets go of it, and puts the focus back on it once the page is drawn again. */
function pin(cell, isFocused) {
  const index = indexAt(cell);
  if (isFocused) addEventListener("hashchange", () => cellAtIndex(index)?.focus(), { once: true });
  if (state.pin?.join() === index.join()) go(state.at, leadOf(here()));
  else go(state.at, index);
}

$("view").onpointerover = event => {
  const cell = cellAt(event.target);
  if (!cell || state.pin) return;
  $("how").classList.remove("moves");
  tell(indexAt(cell));
};
$("view").addEventListener("focusin", event => {
  const cell = cellAt(event.target);
  if (!cell) return;
  all('#view [data-cell][tabindex="0"]').forEach(other => {
    other.tabIndex = -1;
  });
  cell.tabIndex = 0;
  if (!state.pin) tell(indexAt(cell));
  fill($("said"), `${cellName(here(), indexAt(cell))} = ${shown(here(), indexAt(cell))}`);
});
$("view").onclick = event => {
  const cell = cellAt(event.target);
  if (cell) pin(cell);
};

function move(by) {
  const place = ORDER.indexOf(state.at);
  const next = ORDER[place < 0 ? ORDER.findIndex(at => at > state.at) : place + by];
  if (next != null) go(next);
}

function pick(change) {
  assign(state, change);
  go(state.at);
}
const pickHead = at => at >= 0 && at < here().kept[here().head] && pick({ head: at * shared(here()) });
function look(change) {
  assign(state, change);
  show();
}
const turn = view => look({ view: viewOf(here()) === view ? "table" : view });
function turnSide(side) {
  $("side").value = side;
  look({ side });
}

let typed = "";
/** A step by its number in the list; digits that follow each other soon are one number. */
function type(digit) {
  typed += digit;
  setTimeout(() => {
    typed = "";
  }, 700);
  const at = ORDER[typed - 1];
  if (at != null) go(at);
}

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
/** Moves the focus inside a table. */
function moveCell(cell, [down, right]) {
  const row = cell.parentElement;
  const other = row.parentElement.rows?.[row.sectionRowIndex + down]?.cells[cell.cellIndex + right];
  if (other?.dataset.cell != null) other.focus();
}

const KEYS = {
  ArrowLeft: () => move(-1),
  ArrowRight: () => move(1),
  Escape: () => state.pin && go(state.at, leadOf(here())),
  h: () => turn("heat"),
  a: () => turn("heads"),
  l: () => turn("lines"),
  "[": () => pickHead(leadOf(here())[here().head] - 1),
  "]": () => pickHead(leadOf(here())[here().head] + 1),
  s: () => DATA.sides.length && turnSide((state.side + 1) % 3),
};
document.onkeydown = event => {
  const { key, target } = event;
  const cell = cellAt(target);
  if (event.ctrlKey || event.altKey || event.metaKey || target.closest?.("select, textarea, input")) return;
  if (cell && MOVES[key]) moveCell(cell, MOVES[key]);
  else if (cell && (key === "Enter" || key === " ")) pin(cell, true);
  // A box that scrolls has the arrows for itself.
  else if (target.closest?.(".scroll") && MOVES[key]) return;
  else if (KEYS[key]) KEYS[key]();
  else if (/^\d$/.test(key)) type(key);
  else return;
  event.preventDefault();
};

$("previous").onclick = () => move(-1);
$("next").onclick = () => move(1);
let playing;
/** Goes through the steps by itself, from the first where it stands at the last; stops there, or when asked to. */
$("play").onclick = () => {
  if (!playing && $("next").disabled) go(ORDER[0]);
  playing = clearInterval(playing) ?? (!playing && setInterval(() => $($("next").disabled ? "play" : "next").click(), 2000));
  $("play").ariaPressed = !!playing;
};
$("head").onchange = ({ target }) => pickHead(Number(target.value));
$("item").onchange = ({ target }) => pick({ item: Number(target.value) });
if ($("side")) $("side").onchange = ({ target }) => turnSide(Number(target.value));
all("[data-view]").forEach(one => (one.onclick = () => look({ view: one.dataset.view })));
$("numpy").onclick = () => copy(true);
$("csv").onclick = () => copy(false);
dark.addEventListener("change", show);
addEventListener("hashchange", follow);
// A tour that is open stays so from step to step.
for (const tour of all(".tour")) tour.ontoggle = () => all(".tour").forEach(other => (other.open = tour.open));
for (const entry of LINKS) {
  entry.onclick = event => {
    event.preventDefault();
    go(Number(entry.dataset.step));
  };
}
/** What stands in the corner of the flow must not cover a step. */
function makeRoom() {
  const [flow, details] = all("nav > *");
  if (!details) return;
  flow.classList.remove("full");
  const own = placeOfBox(details);
  const covers = box => box.right > own.left && box.bottom > own.top;
  const isFull = flow.scrollWidth > flow.clientWidth || flow.scrollHeight > flow.clientHeight;
  flow.classList.toggle("full", isFull || all(".flow a").map(placeOfBox).some(covers));
}
addEventListener("resize", makeRoom);
makeRoom();
if (!location.hash) location.replace(DATA.open);
follow();
