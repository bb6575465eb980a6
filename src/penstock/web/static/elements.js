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

/** A table from rows of cells. A cell is text, a number or an element. */
export function table(heads, rows, empty = "Nothing yet.") {
  if (!rows.length) return element("p", {class: "empty"}, empty);
  const isNumeric = (value) => typeof value === "number" || value === "–";
  const cell = (value) => element(
    "td", {class: isNumeric(value) ? "number" : null},
    typeof value === "number" ? number(value) : value,
  );
  return element("div", {class: "scroll"}, element(
    "table", {},
    element("thead", {}, element("tr", {}, heads.map((head, at) => element(
      "th", {scope: "col", class: rows.every((row) => isNumeric(row[at])) ? "number" : null},
      head,
    )))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map(cell)))),
  ));
}

/** A number for people: 1,234 or 0.25. */
export function number(value) {
  if (value == null) return "–";
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : 2;
  return value.toLocaleString("en", {maximumFractionDigits: digits});
}

export function time(milliseconds) {
  if (milliseconds == null || milliseconds < 0) return "–";
  return new Date(milliseconds).toISOString().replace("T", " ").replace("Z", "");
}

/** Replaces the content of an element. */
export function fill(target, ...children) {
  target.replaceChildren(...children.flat().filter((child) => child != null && child !== false));
}
