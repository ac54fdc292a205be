// Tables and heat maps.

/** A table of numbers has no more columns than this, and neither have all heads together that are tables. */
const MOST_COLUMNS = 12;

const dark = matchMedia("(prefers-color-scheme: dark)");
/** Neutral, negative, positive and sequential colours, told apart without red and green; then those of hatching. */
const PALETTES = {
  light: ["255 255 255", "33 102 172", "179 88 6", "0 90 110", "242 242 242", "154 154 154"],
  dark: ["30 33 38", "128 190 240", "253 184 99", "120 215 225", "38 41 47", "109 115 124"],
};
const palette = () => PALETTES[dark.matches ? "dark" : "light"].map(colour => colour.split(" ").map(Number));
const rgb = colour => `rgb(${colour.join(" ")})`;
const mix = (from, to, share) => from.map((part, i) => Math.round(part + (to[i] - part) * min(share, 1)));

/** Rows and columns of a step's tables, as far as the page holds them. */
const kept = step => [1, 1, ...step.kept].slice(-2);

/** The index of a cell of a table. */
const indexOf = (step, lead, row, column) => [...lead, row, column].slice(-step.axes.length || Infinity);

/** Calls for every cell of a table, or for some of them. */
function eachCell(step, lead, side, call, every = 1) {
  const [rows, columns] = kept(step);
  for (let r = 0; r < rows; r += every) {
    for (let c = 0; c < columns; c += every) {
      const index = indexOf(step, lead, r, c);
      const value = valueAt(step, index, side);
      const isHidden = step.flags && side !== DIFFERENCE && value;
      call(value, isHidden || isBlocked(step, index, value), r / every, c / every);
    }
  }
}

/**
 * What turns the values of tables into colours: from low to high where the range is known, by the root, so that small
 * shares are seen; else away from 0. And the signs that stand in them.
 */
function heatOf(step, leads, side) {
  const [neutral, negative, positive, sequential] = palette();
  const signs = new Set();
  let most = 0;
  for (const lead of leads) {
    eachCell(step, lead, side, (value, isFaint) => {
      if (isFaint) signs.add("blocked");
      else if (isNaN(value)) signs.add("nan");
      else if (abs(value) > most && isFinite(value)) most = abs(value);
    });
  }
  const isKnown = step.range && side !== DIFFERENCE;
  const [low, high] = isKnown ? step.range : [-most, most];
  const of = value =>
    isKnown
      ? mix(neutral, sequential, ((value - low) / (high - low)) ** 0.5)
      : mix(neutral, value < 0 ? negative : positive, high && abs(value) / high);
  return { low, high, signs, of };
}

/** Black or white, whichever stands out from a colour. */
function inkOn(colour) {
  const [r, g, b] = colour.map(part => ((part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

/** How many query heads share one of a step's heads. */
const shared = step => max(1, floor(state.heads / (step.axes[step.head]?.size ?? 1)));

/** The index on the axes before those of a table: the batch item and the head that are looked at. */
const leadOf = step =>
  step.axes.slice(0, -2).map((_, at) => {
    const wanted = at === step.head ? floor(state.head / shared(step)) : at ? 0 : state.item;
    return min(wanted, step.kept[at] - 1);
  });

/** Where every head of a step stands beside the one that is looked at. */
const headsOf = step =>
  step.head < 0 ? [leadOf(step)] : times(step.kept[step.head], at => leadOf(step).with(step.head, at));

/** What a cell shows, and what it says where that is a sign. */
function cellText(step, index, value, side) {
  if (value == null) return ["…"];
  if (step.flags && side !== DIFFERENCE) {
    const [sign, word] = step.flags[value];
    return [el("span", { "aria-hidden": "true" }, sign), el("span.unseen", word)];
  }
  const [text, mask] = step.fill ?? [];
  // What a file holds need not be what the mask puts there.
  const isFill = text && side !== DIFFERENCE && [Number(text), fround(text)].includes(value);
  return [isFill && valueAt(STEPS[mask], broadcast(STEPS[mask], index), 0) ? text : number(value)];
}

/** The rows and columns of a window. */
const places = (step, window, sizes) =>
  kept(step).map((count, i) => {
    const from = max(0, min(window[i], count - sizes[i]));
    return times(min(sizes[i], count), at => from + at);
  });

const th = (scope, text, isLit) => el(isLit ? "th.lit" : "th", { scope }, text);

/**
 * A table of a step at a leading index. `heat` colours it, and where it is wide shows colours alone; `window` says from
 * which row and column on, and `sizes` how many; `lit` holds the cells that stand out, as "row,column", of a table that
 * cells are only read from.
 */
function grid(step, lead, side, { heat, window = [0, 0], sizes = [Infinity, Infinity], lit, caption }) {
  const rank = step.axes.length;
  const item = itemOf(step, lead);
  const [, columns] = kept(step);
  const header = (axis, at) =>
    rank > axis ? (heat ? placeOn : placeName)(step, rank - 1 - axis, at, item) : step.name;
  const isLit = (at, place) => [...(lit ?? [])].some(cell => cell.split(",")[at] === String(place));
  const sums = step.is_share && !heat && side !== DIFFERENCE && columns === step.axes.at(-1).size;
  const [shownRows, shown] = places(step, window, sizes);
  const head = el("tr", rank > 1 ? el("td") : "");
  head.append(...shown.map(c => th("col", header(0, c), isLit(1, c))), sums ? th("col", say("sum")) : "");
  const body = el("tbody");
  for (const r of shownRows) {
    const row = el("tr", rank > 1 ? th("row", header(1, r), isLit(0, r)) : "");
    for (const c of shown) {
      const index = indexOf(step, lead, r, c);
      const value = valueAt(step, index, side);
      const isFaint = isBlocked(step, index, value);
      const cell = el("td", ...cellText(step, index, value, side));
      cell.className = `${isFaint ? "blocked" : isNaN(value) ? "nan" : ""} ${lit?.has(`${r},${c}`) ? "lit" : ""}`;
      if (heat && !isFaint && isFinite(value)) {
        cell.style.backgroundColor = rgb(heat.of(value));
        cell.style.color = inkOn(heat.of(value));
      }
      if (!lit) {
        cell.dataset.cell = index.join("/");
        cell.tabIndex = -1;
      }
      row.append(cell);
    }
    if (sums) {
      row.append(el("td.sum", number(total(times(columns, c => valueAt(step, indexOf(step, lead, r, c), side))))));
    }
    body.append(row);
  }
  const title = caption ?? [step.name, ...lead.map((at, axis) => placeName(step, axis, at, item))].join(say("comma"));
  const axes = heat && !caption ? ` · ${axisName(step, -2)} ↓ ${axisName(step, -1)} →` : "";
  const most = max(shown.length, shownRows.length);
  return el(
    `table.grid${heat ? (most > MOST_COLUMNS ? " heat dense" : " heat") : ""}`,
    { style: `--most:${most}` },
    el("caption", title + axes),
    el("thead", head),
    body,
  );
}

/** A box that scrolls by itself, and can be reached by keys where nothing inside can. */
const scroll = (label, ...children) => el("section.scroll", { tabindex: "0", "aria-label": label }, ...children);

/** What colours and signs mean. */
function legend(heat) {
  const bar = name => el("span." + name, { "aria-hidden": "true" });
  const colours = bar("bar");
  const stops = [0, 0.25, 0.5, 0.75, 1].map(share => rgb(heat.of(heat.low + (heat.high - heat.low) * share)));
  colours.style.backgroundImage = `linear-gradient(to right, ${stops})`;
  return el(
    "p.legend",
    number(heat.low),
    colours,
    number(heat.high),
    ...[...heat.signs].flatMap(sign => [bar("bar " + sign), say(sign)]),
  );
}

/** Fewer dots than this a side of a cell cannot be hatched. */
const SMALL = 8;

/** A head as a picture in so many dots: a square a cell, blocked ones hatched, those that are NaN both ways. */
function picture(step, lead, side, heat, room = 256) {
  const every = Math.ceil(max(...kept(step)) / room);
  const [rows, columns] = kept(step).map(count => Math.ceil(count / every));
  const size = floor(room / max(rows, columns));
  const canvas = el("canvas", { width: columns * size, height: rows * size, "aria-hidden": "true" });
  const draw = canvas.getContext("2d");
  const [faint, ink] = palette().slice(4);
  const hatch = rgb(ink);
  eachCell(step, lead, side, (value, isFaint, r, c) => {
    const isNan = isNaN(value);
    const isHatched = isFaint || isNan;
    const [left, top] = [c * size, r * size];
    draw.fillStyle = isHatched ? rgb(size < SMALL ? mix(faint, ink, 0.35) : faint) : rgb(heat.of(value));
    draw.fillRect(left, top, size, size);
    draw.fillStyle = hatch;
    // Every fourth diagonal of the picture, so that it goes on from cell to cell; blocked cells that are small are grey.
    for (let x = left; isHatched && (isNan || size >= SMALL) && x < left + size; x++) {
      for (let y = top; y < top + size; y++)
        if ((x + y) % 4 === 0 || (isNan && (x - y) % 4 === 0)) draw.fillRect(x, y, 1, 1);
    }
  }, every);
  return canvas;
}

/** A table of the arithmetic. The first cell of a row is its header, but in rows of terms. */
function sums(caption, header, rows) {
  const body = rows.map(({ kind, cells }) =>
    el("tr." + kind, ...cells.map((cell, at) => (at === 0 && kind !== "term" ? th("row", cell) : el("td", cell)))),
  );
  return scroll(
    caption,
    el(
      "table.terms",
      el("caption.unseen", caption),
      el("thead", el("tr", ...header.map(name => th("col", name)))),
      el("tbody", ...body),
    ),
  );
}

/** A term's product; undefined where the page does not hold one of its factors. */
const heldProduct = term => (term.some(factor => factor.value == null) ? undefined : product(term));

const link = (step, index, text) => el("a", { href: address(step, index) }, text);

const factorName = ({ step, index, value, name }) => (step && value != null ? link(step, index, name) : name);
