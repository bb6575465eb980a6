// Builds elements. Text is always set as text, so a payload never becomes markup.

/** element("td", {class: "number"}, "text", child): attributes that are functions are listeners. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== false));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const AMOUNT = /^[\d.,]+( (µs|ms|s|min|h|d)|%)$/;

/** A number, a missing one, or one with a unit: its column is aligned at the right. */
const isNumeric = (value) => typeof value === "number" || value === "–" || AMOUNT.test(value);

/** A table from rows of cells. A cell is text, a number or an element. */
export function table(heads, rows, empty = "Nothing yet.", key = (row) => row[0]) {
  if (!rows.length) return element("p", {class: "empty"}, empty);
  const cell = (value, at) => element(
    "td", {class: isNumeric(value) ? "number" : null, "data-label": heads[at]},
    typeof value === "number" ? number(value) : value,
  );
  const keys = uniqueKeys(rows.map((row) => key(row)));
  return element("div", {class: "scroll"}, element(
    "table", {},
    element("thead", {}, element("tr", {}, heads.map((head, at) => element(
      "th", {scope: "col", class: rows.every((row) => isNumeric(row[at])) ? "number" : null},
      head,
    )))),
    element("tbody", {}, rows.map(
      (row, at) => element("tr", {"data-key": keys[at]}, row.map(cell)))),
  ));
}

/** The texts of keys. The second of two equal ones gets a number, counted from the last row. */
function uniqueKeys(keys) {
  const seen = new Map();
  return keys.reverse().map((key) => {
    const text = key instanceof Node ? key.textContent : String(key);
    const count = seen.get(text) ?? 0;
    seen.set(text, count + 1);
    return count ? `${text} #${count}` : text;
  }).reverse();
}

/** A number as text: 1,234 or 0.25. */
export function number(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  const digits = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2;
  return value.toLocaleString("en", {maximumFractionDigits: digits});
}

/** A duration as text: 7 µs, 12 ms, 3.4 s, 5 min. */
export function duration(milliseconds) {
  if (milliseconds == null) return "–";
  const units = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"], [1, "ms"], [0.001, "µs"]];
  if (!milliseconds) return "0 ms";
  const [size, name] = units.find(([size]) => milliseconds >= size) ?? units.at(-1);
  const value = milliseconds / size;
  return `${number(value < 10 ? Math.round(value * 10) / 10 : Math.round(value))} ${name}`;
}

export function time(milliseconds) {
  if (milliseconds == null || milliseconds < 0) return "–";
  return new Date(milliseconds).toISOString().replace("T", " ").replace("Z", "");
}

/** A text that a table does not break, unless the page is narrow. */
export const moment = (text) => element("span", {class: "moment"}, text);

/** The start and the end of a window. The end has no date if it is that of the start. */
export function timeSpan(start, end) {
  const [from, to] = [time(start), time(end)].map((each) => each.replace(/\.000$/, ""));
  return `${from} – ${from.slice(0, 10) === to.slice(0, 10) ? to.slice(11) : to}`;
}

/** A bar with its meaning as text. */
export function progress(done, whole, unit) {
  const percent = whole ? Math.floor((100 * done) / whole) : 0;
  const words = `${number(done)} of ${number(whole)} ${unit} (${percent}%)`;
  return element("div", {class: "progress"},
    element("progress", {max: whole, value: done, "aria-label": words}), element("small", {}, words));
}

/** A select element with a label. */
export function choice(name, options, label) {
  return element("label", {}, `${label} `, element(
    "select", {name}, options.map((option) => {
      const [value, title] = [option].flat();
      return element("option", {value}, String(title ?? value));
    }),
  ));
}

// A longer payload is folded.
const SHOWN_LINES = 6;
const SHOWN_CHARACTERS = 400;

/** A decoded key, value or header. */
export function payload(shown) {
  if (shown == null) return element("i", {}, "null");
  const note = shown.cut ? ` (cut, ${number(shown.bytes)} bytes)` : "";
  const text = shown.text + note;
  const start = text.split("\n", SHOWN_LINES).join("\n").slice(0, SHOWN_CHARACTERS);
  const body = element("pre", {title: `${shown.as}, ${shown.bytes} bytes`}, text);
  if (start.length === text.length) return body;
  body.textContent = `${start}…`;
  const button = element("button", {class: "more", "aria-expanded": "false", click: () => {
    const isOpen = button.getAttribute("aria-expanded") === "false";
    button.setAttribute("aria-expanded", isOpen);
    button.textContent = isOpen ? "Show less" : "Show all";
    body.textContent = isOpen ? text : `${start}…`;
  }}, "Show all");
  return element("div", {class: "folded"}, body, button);
}

/** Replaces the content of an element. */
export function fill(target, ...children) {
  target.replaceChildren(...children.flat().filter((child) => child != null && child !== false));
}
