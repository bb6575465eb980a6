// Line charts over the last minutes.

import {element, svg, time} from "./elements.js";

const WIDTH = 290;
const HEIGHT = 80;
const SPAN_MS = 300_000;
// Between samples that are farther apart, nothing was collected.
const GAP_MS = 15_000;

/** Keeps the samples of the last minutes: {time, records_per_s, latency_ms, commit_ms, lag}. */
export class History {
  constructor() {
    this.samples = [];
  }

  /** Adds samples that are newer than the last one. */
  add(samples) {
    const last = this.samples.at(-1)?.time ?? 0;
    this.samples.push(...samples.filter((sample) => sample.time > last));
    const first = this.samples.length && this.samples.at(-1).time - SPAN_MS;
    this.samples = this.samples.filter((sample) => sample.time >= first);
  }
}

/** A chart of one member of the samples, with its last and its largest value as text. */
export function chart(title, samples, member, show, note = "") {
  const end = samples.at(-1)?.time ?? 0;
  const known = samples.filter((sample) => sample[member] != null);
  const most = Math.max(...known.map((sample) => sample[member]), 0);
  const last = samples.at(-1)?.[member];
  const lines = parts(samples, member).map((part) => svg("polyline", {
    class: "line",
    points: part.map((sample) => {
      const x = WIDTH - ((end - sample.time) / SPAN_MS) * WIDTH;
      const y = HEIGHT - 4 - (most ? (sample[member] / most) * (HEIGHT - 12) : 0);
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    }).join(" "),
  }));
  const largest = known.length ? `at most ${show(most)}` : "no values yet";
  return element(
    "figure", {},
    element("figcaption", {}, element("b", {}, title), ` ${show(last)}`),
    svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT + 18}`, role: "img",
      "aria-label": `${title}: ${show(last)} now, ${largest}`}, ...minutes(end), ...lines),
    element("small", {}, `${note}${largest}`),
  );
}

/** The samples without those that lack the member, as stretches without gaps. */
function parts(samples, member) {
  const found = [];
  let before = null;
  for (const sample of samples) {
    if (sample[member] != null) {
      const follows = before?.[member] != null && sample.time - before.time < GAP_MS;
      if (follows) found.at(-1).push(sample);
      else found.push([sample]);
    }
    before = sample;
  }
  return found;
}

/** A line and the time of day (UTC) at each full minute. */
function minutes(end) {
  if (!end) return [];
  const found = [];
  for (let at = Math.ceil((end - SPAN_MS) / 60_000) * 60_000; at <= end; at += 60_000) {
    const x = WIDTH - ((end - at) / SPAN_MS) * WIDTH;
    found.push(svg("line", {x1: x.toFixed(1), x2: x.toFixed(1), y1: 0, y2: HEIGHT, class: "grid"}));
    // The text of a minute at an edge would be cut.
    if (x > 20 && x < WIDTH - 20) {
      const words = svg("text", {
        x: x.toFixed(1), y: HEIGHT + 14, class: "tick", "text-anchor": "middle",
      });
      words.textContent = time(at).slice(11, 16);
      found.push(words);
    }
  }
  return found;
}
