// The page: what is looked at, how a number came about, keys and addresses.

const $ = id => document.getElementById(id);
const all = selector => [...document.querySelectorAll(selector)];
const LINKS = all("nav a[data-step]");
/** The steps in the order in which they are gone through. */
const ORDER = all("nav ol a[data-step]").map(at => Number(at.dataset.step));
const state = { at: ORDER[0], item: 0, head: 0, heads: 1, view: "table", side: 0, pin: undefined, window: [0, 0] };
for (const step of STEPS) state.heads = max(state.heads, step.axes[step.head]?.size ?? 1);
const here = () => STEPS[state.at];
/** The side of a step that is looked at, and the one that numbers are worked out from. */
const sideOf = step => (step.sides.length > 1 ? state.side : 0);
const workedSide = () => state.side % DIFFERENCE;
const cellAtIndex = index => document.querySelector(`#view [data-cell="${index.join("/")}"]`);

/** Goes to a step, and to a cell of it. */
function go(at, index = leadOf(STEPS[at])) {
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
      const last = kept(step);
      state.window = [0, 0, ...index].slice(-2).map((place, at) => WINDOW * floor(min(place, last[at] - 1) / WINDOW));
    }
  }
  return show();
}

/** Offers the places of an axis before those of a table. */
function offer(select, step, axis) {
  const count = step.kept[axis] ?? 0;
  const chosen = leadOf(step)[axis];
  select.replaceChildren(...times(count, at => new Option(at, at, false, at === chosen)));
  select.parentElement.hidden = count < 2;
}

/** Draws the step that is looked at. */
function show() {
  const step = here();
  all(".about").forEach((section, at) => {
    section.hidden = at !== state.at;
  });
  for (const entry of LINKS) {
    const isHere = Number(entry.dataset.step) === state.at;
    if (!isHere) {
      entry.removeAttribute("aria-current");
      continue;
    }
    entry.setAttribute("aria-current", "step");
    if (entry.closest("details")) entry.closest("details").open = true;
    // All steps scroll down, or their list to the right.
    const [bar, list] = [entry.closest("nav"), entry.closest("ol, ul")];
    bar.scrollTop = entry.offsetTop - bar.clientHeight / 2;
    list.scrollLeft = entry.offsetLeft - list.clientWidth / 2;
  }
  document.title = `${step.name} · ${DATA.title}`;
  const head = step.head;
  offer($("item"), step, step.axes.length > 2 && head !== 0 ? 0 : -1);
  offer($("head"), step, head);
  const place = ORDER.indexOf(state.at);
  $("previous").disabled = place === 0;
  $("next").disabled = place === ORDER.length - 1;
  const hasHeads = step.kept[head] > 1;
  const view = state.view === "heads" && !hasHeads ? "heat" : state.view;
  for (const button of all("[data-view]")) {
    button.setAttribute("aria-pressed", String(button.dataset.view === view));
    button.disabled = button.dataset.view === "heads" && !hasHeads;
  }
  draw(step, view, head);
  tell(state.pin);
}

function draw(step, view, head) {
  const side = sideOf(step);
  const box = $("view");
  if (![side % DIFFERENCE, side && 1].every(one => tensor(step, one))) {
    box.replaceChildren(el("p", say("absent")));
    return;
  }
  const lead = leadOf(step);
  const heatOn = leads => view !== "table" && !step.flags && heatOf(step, leads, side);
  if (view === "heads") {
    const leads = times(step.kept[head], at => lead.with(head, at));
    const heat = heatOn(leads);
    box.replaceChildren(
      heat ? legend(heat) : "",
      el(
        "div.heads",
        ...leads.map(own => {
          const caption = placeName(step, head, own[head], 0);
          if (kept(step)[1] * leads.length <= MOST_COLUMNS) return grid(step, own, side, { heat, caption });
          return button(
            caption,
            () => {
              state.view = "heat";
              go(state.at, own);
            },
            picture(step, own, side, heat || heatOf(step, leads, side)),
          );
        }),
      ),
    );
  } else {
    const heat = heatOn([lead]);
    box.replaceChildren(
      ...pager(step),
      heat ? legend(heat) : "",
      scroll(step.name, grid(step, lead, side, { heat, window: state.window })),
    );
  }
  const first = state.pin ? cellAtIndex(state.pin) : box.querySelector("[data-cell]");
  if (first) first.tabIndex = 0;
}

function button(name, click, ...before) {
  const made = el(before.length ? "button.picture" : "button", { type: "button" }, ...before, name);
  made.onclick = click;
  return made;
}

/** Buttons for the other rows and columns of a large table. */
const pager = step =>
  kept(step).flatMap((count, i) => {
    if (count <= WINDOW) return [];
    const from = state.window[i];
    const to = (name, start) => {
      const made = button(say(name), () => {
        state.window[i] = start;
        show();
      });
      made.disabled = start < 0 || start >= count;
      return made;
    };
    const words = say(i ? "columns" : "rows", { from, to: min(from + WINDOW, count) - 1, count });
    return [el("p.pager", to("earlier", from - WINDOW), " ", words, " ", to("later", from + WINDOW))];
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
    $("how").replaceChildren(title);
    $("parts").replaceChildren();
    return;
  }
  const isPinned = state.pin?.join() === index.join();
  const cell = cellAtIndex(index);
  if (cell) {
    cell.classList.add(isPinned ? "pinned" : "here");
    cell.parentElement.querySelector("th")?.classList.add("lit");
    cell.closest("table").tHead.rows[0].cells[cell.cellIndex].classList.add("lit");
  }
  const told = explain(step, index, sideOf(step));
  const sides =
    sideOf(step) === DIFFERENCE
      ? ` (${DATA.sides.map((name, side) => `${name} ${shown(step, index, side)}`).join(say("comma"))})`
      : "";
  title.append(el("code", cellName(step, index)), ` = ${value}${sides}`);
  $("how").replaceChildren(
    title,
    el("p", placeOf(step, index)),
    ...working(told),
    el("p.hint", say(isPinned ? "pinned" : "pin")),
  );
  $("parts").replaceChildren(...partTables(cellsOf(told)), ...(isPinned ? back(step, index) : []));
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
    $("said").replaceChildren(say("copied", { count: step.kept.reduce((count, size) => count * size, 1) }) + thin);
  } catch {
    const box = el("textarea", { readonly: "", rows: 6, "aria-label": say("value") });
    box.value = text;
    $("said").replaceChildren(say("notCopied") + thin, box);
    box.select();
  }
}

const cellAt = target => target.closest?.("#view [data-cell]");
const indexAt = cell => cell.dataset.cell.split("/").filter(Boolean).map(Number);

/** Pins a cell, or lets go of it, and puts the focus back on it once the page is drawn again. */
function pin(cell, isFocused) {
  const index = indexAt(cell);
  if (isFocused) addEventListener("hashchange", () => cellAtIndex(index)?.focus(), { once: true });
  if (state.pin?.join() === index.join()) go(state.at);
  else go(state.at, index);
}

$("view").onpointerover = event => {
  const cell = cellAt(event.target);
  if (cell && !state.pin) tell(indexAt(cell));
};
$("view").addEventListener("focusin", event => {
  const cell = cellAt(event.target);
  if (!cell) return;
  all('#view [data-cell][tabindex="0"]').forEach(other => {
    other.tabIndex = -1;
  });
  cell.tabIndex = 0;
  if (!state.pin) tell(indexAt(cell));
  $("said").replaceChildren(`${cellName(here(), indexAt(cell))} = ${shown(here(), indexAt(cell))}`);
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
const turn = view => look({ view: state.view === view ? "table" : view });
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
  const other = row.parentElement.rows[row.sectionRowIndex + down]?.cells[cell.cellIndex + right];
  if (other?.dataset.cell != null) other.focus();
}

const KEYS = {
  ArrowLeft: () => move(-1),
  ArrowRight: () => move(1),
  Escape: () => state.pin && go(state.at),
  h: () => turn("heat"),
  a: () => turn("heads"),
  "[": () => pickHead(leadOf(here())[here().head] - 1),
  "]": () => pickHead(leadOf(here())[here().head] + 1),
  s: () => DATA.sides.length && turnSide((state.side + 1) % 3),
};
document.onkeydown = event => {
  const { key, target } = event;
  const cell = cellAt(target);
  if (event.ctrlKey || event.altKey || event.metaKey || target.closest?.("select, textarea")) return;
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
$("head").onchange = ({ target }) => pickHead(Number(target.value));
$("item").onchange = ({ target }) => pick({ item: Number(target.value) });
if ($("side")) $("side").onchange = ({ target }) => turnSide(Number(target.value));
all("[data-view]").forEach(one => (one.onclick = () => look({ view: one.dataset.view })));
$("numpy").onclick = () => copy(true);
$("csv").onclick = () => copy(false);
dark.addEventListener("change", show);
addEventListener("hashchange", follow);
// A report opens where its sides first part, if its address names no place.
const first = document.querySelector(".first");
if (first && !location.hash) location.replace(first.hash);
else follow();
