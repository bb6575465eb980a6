// Line charts over the last minutes.

import {element, number, svg} from "./elements.js";

const WIDTH = 480;
const HEIGHT = 120;
const LIMIT = 300;
// A chart with fewer values does not fill its width.
const FEWEST = 60;

/** Keeps the last values of named series. */
export class History {
  constructor() {
    this.series = new Map();
  }

  add(name, value) {
    if (!this.series.has(name)) this.series.set(name, []);
    const values = this.series.get(name);
    values.push(value ?? null);
    if (values.length > LIMIT) values.shift();
  }

  get(name) {
    return this.series.get(name) ?? [];
  }
}

/** A chart of one series, with its last and its largest value as text. */
export function chart(title, values, unit = "") {
  const known = values.filter((value) => value != null);
  const most = Math.max(...known, 0);
  const last = known.at(-1);
  const step = WIDTH / (Math.max(values.length, FEWEST) - 1);
  const start = WIDTH - (values.length - 1) * step;
  const points = values
    .map((value, at) => value == null ? null : [
      start + at * step, HEIGHT - 4 - (most ? (value / most) * (HEIGHT - 12) : 0),
    ])
    .filter(Boolean)
    .map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`)
    .join(" ");
  const caption = `${title}: ${number(last)}${unit} now, at most ${number(most)}${unit}`;
  return element(
    "figure", {},
    element("figcaption", {}, element("b", {}, title), ` ${number(last)}${unit}`),
    svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": caption},
      svg("polyline", {points, class: "line"})),
    element("small", {}, `at most ${number(most)}${unit} in the last ${LIMIT} s`),
  );
}

/** Windows or sessions of keys, drawn on one time axis. */
export function windowAxis(entries) {
  if (!entries.length) return null;
  const starts = entries.map((entry) => entry.window.start_ms);
  const ends = entries.map((entry) => entry.window.end_ms);
  const first = Math.min(...starts);
  const span = Math.max(Math.max(...ends) - first, 1);
  const keys = [...new Set(entries.map((entry) => JSON.stringify(entry.key)))];
  const row = 22;
  const bars = entries.map((entry, at) => {
    const x = 120 + ((starts[at] - first) / span) * (WIDTH - 130);
    const width = Math.max(2, ((ends[at] - starts[at]) / span) * (WIDTH - 130));
    const y = keys.indexOf(JSON.stringify(entry.key)) * row;
    const bar = svg("rect", {class: "bar", x, y: y + 3, width, height: row - 6, rx: 3});
    const label = svg("title");
    label.textContent = `${JSON.stringify(entry.key)} ${entry.window.start} to ` +
      `${entry.window.end}: ${JSON.stringify(entry.value)}`;
    bar.append(label);
    return bar;
  });
  const names = keys.map((key, at) => {
    const name = svg("text", {x: 0, y: at * row + 15, class: "label"});
    name.textContent = key.length > 16 ? `${key.slice(0, 15)}…` : key;
    return name;
  });
  return svg(
    "svg", {viewBox: `0 0 ${WIDTH} ${keys.length * row + 4}`, role: "img", class: "axis",
      "aria-label": "Windows on a time axis"}, ...names, ...bars,
  );
}
