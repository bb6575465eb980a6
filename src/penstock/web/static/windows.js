// Windows or sessions of keys, drawn on one time axis.

import {svg, time} from "./elements.js";

// The axis is at most so wide, and at least as wide as its labels.
const WIDEST = 900;
const NARROWEST = 300;
// For the key, and the largest share of the axis for it.
const LEFT = 150;
const LARGEST_SHARE = 0.3;
const CHARACTER = 7.3;
// For three times below the axis.
const ROOM_FOR_THREE = 330;
const LANE = 14;
const GAP = 8;

/** The axis, of a width in pixels. Windows of a key that overlap are below each other. */
export function windowAxis(entries, available) {
  if (!entries.length) return null;
  const first = Math.min(...entries.map((entry) => entry.window.start_ms));
  const last = Math.max(...entries.map((entry) => entry.window.end_ms));
  const width = Math.min(WIDEST, Math.max(NARROWEST, available));
  const left = Math.min(LEFT, LARGEST_SHARE * width);
  const scale = {first, span: Math.max(last - first, 1), left, space: width - left - 10};
  const longest = Math.floor((left - 6) / CHARACTER);
  const drawn = [];
  let y = 0;
  for (const [key, lanes] of byKey(entries)) {
    const name = svg("text", {x: 0, y: y + LANE - 3, class: "label"});
    name.textContent = key.length > longest ? `${key.slice(0, longest - 1)}…` : key;
    drawn.push(name);
    for (const lane of lanes) {
      drawn.push(...lane.map((entry) => bar(entry, scale, y)));
      y += LANE;
    }
    y += GAP;
  }
  return svg(
    "svg", {viewBox: `0 0 ${width} ${y + 18}`, width, height: y + 18, role: "img", class: "axis",
      "aria-label": `${entries.length} windows on a time axis from ${time(first)} to ${time(last)}`},
    ...ticks(scale, y), ...drawn,
  );
}

/** Key -> lanes of windows that do not overlap. */
function byKey(entries) {
  const found = new Map();
  const sorted = [...entries].sort((one, other) => one.window.start_ms - other.window.start_ms);
  for (const entry of sorted) {
    const key = JSON.stringify(entry.key);
    if (!found.has(key)) found.set(key, []);
    const lanes = found.get(key);
    const free = lanes.find((lane) => lane.at(-1).window.end_ms <= entry.window.start_ms);
    if (free) free.push(entry);
    else lanes.push([entry]);
  }
  return found;
}

function bar(entry, {first, span, left, space}, y) {
  const x = left + ((entry.window.start_ms - first) / span) * space;
  // One unit less than its time, so that windows beside each other are two bars.
  const width = ((entry.window.end_ms - entry.window.start_ms) / span) * space - 1;
  const made = svg("rect", {
    class: "bar", x, y: y + 1, width: Math.max(2, width), height: LANE - 3, rx: 3,
  });
  const label = svg("title");
  label.textContent = `${JSON.stringify(entry.key)} ${entry.window.start} to ` +
    `${entry.window.end}: ${JSON.stringify(entry.value)}`;
  made.append(label);
  return made;
}

/** The time below the axis: at its start, in the middle, and at its end. */
function ticks({first, span, left, space}, y) {
  const text = (share) => time(Math.round(first + share * span)).slice(0, 19);
  const isOneDay = text(0).slice(0, 10) === text(1).slice(0, 10);
  const hasMiddle = isOneDay && space >= ROOM_FOR_THREE;
  const places = [[0, "start"], ...(hasMiddle ? [[0.5, "middle"]] : []), [1, "end"]];
  return places.flatMap(([share, anchor]) => {
    const x = left + share * space;
    const words = svg("text", {x, y: y + 13, class: "tick", "text-anchor": anchor});
    words.textContent = share > 0 && isOneDay ? text(share).slice(11) : text(share);
    return [svg("line", {x1: x, x2: x, y1: 0, y2: y, class: "grid"}), words];
  });
}
