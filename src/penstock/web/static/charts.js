// Line charts over the last minutes.

import {element, svg, time} from "./elements.js";

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
export function chart(title, values, show, note = "") {
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
  const caption = `${title}: ${show(last)} now, at most ${show(most)}`;
  return element(
    "figure", {},
    element("figcaption", {}, element("b", {}, title), ` ${show(last)}`),
    svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": caption},
      svg("polyline", {points, class: "line"})),
    element("small", {}, `${note}at most ${show(most)} in the last ${LIMIT} s`),
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
    "svg", {viewBox: `0 0 ${WIDTH} ${keys.length * row + 22}`, role: "img", class: "axis",
      "aria-label": `${entries.length} windows on a time axis from ${time(first)} to ` +
        time(first + span)},
    ...ticks(first, span, keys.length * row + 4), ...names, ...bars,
  );
}

/** The time below the axis: at its start, in the middle, and at its end. */
function ticks(first, span, y) {
  const text = (share) => time(Math.round(first + share * span)).slice(0, 19);
  const isOneDay = text(0).slice(0, 10) === text(1).slice(0, 10);
  const places = [[0, "start"], ...(isOneDay ? [[0.5, "middle"]] : []), [1, "end"]];
  return places.flatMap(([share, anchor]) => {
    const x = 120 + share * (WIDTH - 130);
    const words = svg("text", {x, y: y + 13, class: "tick", "text-anchor": anchor});
    words.textContent = share > 0 && isOneDay ? text(share).slice(11) : text(share);
    return [svg("line", {x1: x, x2: x, y1: 0, y2: y, class: "grid"}), words];
  });
}
