// The picture of the topology with rates, lags, latencies and hot spots.

import {text} from "./api.js";
import {duration, element, fill, number, table} from "./elements.js";
import {patch} from "./patch.js";

// A picture that would be smaller than this share of its size is shown in full, and scrolls.
const SMALLEST = 0.6;

const LEGEND = [
  "In a node and at the tip of an arrow: records/s, the average of the last 5 seconds. Where several " +
    "arrows end, the values are at their beginnings.",
  "In a topic: records/s that are written, and its lag: records that are not processed yet.",
  "In a store: changes/s of its changelog, the average of 5 seconds. With " +
    "metrics.recording.level=DEBUG also reads and writes per second, the average of the last minute.",
  "In a source or sink also the latency: the time from the timestamp of a record until it was read " +
    "or written, the average of the last minute in the slowest task.",
  "Other nodes process a record in the same call as its source, and have the latency of the source. " +
    "An arrow has the latency of the node that it leaves.",
  "With metrics.recording.level=DEBUG, a node shows the time that it takes for a record in place of " +
    "the latency: the average of the last minute, without the nodes below it.",
  "Hot spots have a thick orange line: a topic whose lag has grown in the last 10 seconds and is " +
    "more than what is written to it in a second; the node where records are older than at the " +
    "inputs of the application, by 1 second or more and by a tenth or more; and with DEBUG a node " +
    "that takes half of the time of a lane or more.",
];

export const topologyView = {
  name: "topology",
  title: "Topology",
  async open(view) {
    const source = await text("dashboard/topology.svg");
    const parsed = new DOMParser().parseFromString(source, "image/svg+xml").documentElement;
    const picture = document.importNode(parsed, true);
    picture.setAttribute("class", "topology");
    fill(view,
      element("div", {class: "controls"},
        element("button", {"aria-pressed": "false", id: "fit", click: ({target}) => {
          target.setAttribute("aria-pressed", picture.classList.toggle("fit"));
        }}, "Fit to the page"),
        element("span", {id: "hot-spots", role: "status", click: ({target}) => {
          if (target.dataset.shape) centre(picture, target.dataset.shape);
        }})),
      element("div", {class: "scroll frame", tabindex: 0, role: "region", "aria-label": "Picture"},
        picture),
      element("details", {class: "legend"}, element("summary", {}, "Legend"),
        element("ul", {}, LEGEND.map((line) => element("li", {}, line)))),
      element("div", {id: "node-list"}));
    const width = picture.viewBox.baseVal.width;
    const fits = picture.classList.toggle("fit", view.clientWidth >= SMALLEST * width);
    view.querySelector("#fit").setAttribute("aria-pressed", fits);
    scrollToInput(picture);
  },
  update(view, {overview}) {
    const picture = view.querySelector("svg.topology");
    if (!picture) return;
    const topics = new Map(overview.topics.map((topic) => [topic.name, topic]));
    // The picture has one shape for the topics that match a pattern.
    const shapes = new Map();
    for (const [pattern, names] of Object.entries(overview.patterns)) {
      topics.set(pattern, together(names.map((name) => topics.get(name)).filter(Boolean)));
      for (const name of names) if (!shapes.has(name)) shapes.set(name, pattern);
    }
    const shapeOf = ({kind, name}) => `${kind} ${kind === "topic" ? shapes.get(name) ?? name : name}`;
    // The picture names internal topics without the id of the application.
    const full = (name) => topics.has(name) ? name : `${overview.application}-${name}`;
    const stores = new Map(overview.stores.map((store) => [store.name, store]));
    const hot = new Set(overview.hot.map(shapeOf));
    for (const group of picture.querySelectorAll("g")) {
      const [kind, name] = parts(group.querySelector("title").textContent);
      const found = kind === "topic" ? topics.get(full(name)) : overview.nodes[name];
      write(group.querySelector("text.live"),
        kind === "store" ? storeWords(stores.get(name))
          : kind === "processor" ? nodeWords(found) : words(found));
      group.dataset.shape = kind === "topic" ? `topic ${full(name)}` : `node ${name}`;
      group.classList.toggle("hot", kind !== "store" && hot.has(group.dataset.shape));
    }
    labelArrows(picture, overview, topics, full);
    showHotSpots(view.querySelector("#hot-spots"), overview, shapeOf);
    patch(view.querySelector("#node-list"), element("h2", {}, "Nodes"), nodeTable(overview),
      isMeasured(overview.nodes) || !overview.runs_tasks ? null : element("small", {}, "With " +
        "metrics.recording.level=DEBUG, the time that each node takes is measured."));
  },
};

const isMeasured = (nodes) => Object.values(nodes).some((node) => node.share != null);

/** The nodes with their rates, and their times if they are measured: the slowest first. */
function nodeTable({nodes, runs_tasks}) {
  const measured = isMeasured(nodes);
  const rows = Object.entries(nodes).sort(([one, {share = 0}], [other, {share: others = 0}]) =>
    others - share || (one < other ? -1 : 1));
  return table(
    ["Node", "Records/s", "Latency", ...(measured ? ["Time of a record", "Share of time"] : [])],
    rows.map(([name, node]) => [
      name, node.rate ?? "–", duration(node.latency_ms),
      ...(measured ? [duration(node.time_ms), percent(node.share)] : []),
    ]), runs_tasks ? "No node has counted records yet." : "This process runs no tasks.");
}

const percent = (share) => share == null ? "–" : `${number(Math.round(share * 1000) / 10)}%`;

/** Shows the uppermost topic, if the picture is wider than the page. */
function scrollToInput(picture) {
  const boxes = [...picture.querySelectorAll("g > polygon.topic")].map((shape) => shape.getBBox());
  boxes.sort((one, other) => one.y - other.y);
  const frame = picture.parentElement;
  if (boxes.length) frame.scrollLeft = boxes[0].x + boxes[0].width / 2 - frame.clientWidth / 2;
}

/** Scrolls a shape to the middle of the picture and of the page, and marks it for a moment. */
function centre(picture, shape) {
  const group = picture.querySelector(`g[data-shape="${CSS.escape(shape)}"]`);
  if (!group) return;
  group.scrollIntoView({block: "center", inline: "center"});
  group.classList.remove("found");
  // The animation starts again.
  group.getBBox();
  group.classList.add("found");
}

/** A button for each hot spot shows it. The line is announced when it changes, not every second. */
function showHotSpots(target, {hot, old}, shapeOf) {
  patch(target,
    hot.length ? "Hot spots: " : "No hot spots. ",
    hot.map((each) => element("button", {"data-shape": shapeOf(each)},
      `${each.name}: ${each.reason}`)),
    old.map((each) => element("span", {class: "old"}, ` ${each.name}: ${each.reason}. `)));
}

/** The sum of a member; null if it is unknown everywhere. */
function total(rows, member) {
  const known = rows.map((row) => row[member]).filter((value) => value != null);
  return known.length ? known.reduce((one, other) => one + other, 0) : null;
}

/** The topics of a pattern as one. */
const together = (topics) => ({rate: total(topics, "rate"), lag: total(topics, "lag")});

/** "topic orders" is the kind "topic" and the name "orders". */
function parts(title) {
  const space = title.indexOf(" ");
  return [title.slice(0, space), title.slice(space + 1)];
}

function words(found) {
  if (!found) return "";
  return [
    found.rate == null ? null : `${number(found.rate)}/s`,
    found.lag ? `lag ${number(found.lag)}` : null,
    found.latency_ms == null ? null : duration(found.latency_ms),
  ].filter(Boolean).join(", ");
}

/** A node between source and sink: its own time for a record, if it is measured. */
function nodeWords(node) {
  if (node?.time_ms == null) return words(node);
  const time = `takes ${duration(node.time_ms)}`;
  return node.rate == null ? time : `${number(node.rate)}/s, ${time}`;
}

function storeWords(store) {
  if (!store) return "";
  if (store.reads_per_s == null) {
    return store.changes_per_s == null ? "" : `${number(store.changes_per_s)} changes/s`;
  }
  return `${number(store.reads_per_s)} reads, ${number(store.writes_per_s)} writes/s`;
}

function write(target, shown) {
  if (target.textContent !== shown) target.textContent = shown;
}

/** Labels arrows with their records/s, the lag of a topic that is read, and the latency. */
function labelArrows(picture, overview, topics, full) {
  const known = new Map([
    ...overview.edges.map(([topic, node, ...values]) => [`topic ${topic}\n${node}`, values]),
    ...overview.arrows.map(([from, to, ...values]) => [`${from}\n${to}`, values]),
  ]);
  for (const [pattern, names] of Object.entries(overview.patterns)) {
    for (const node of new Set(overview.edges.map(([, reader]) => reader))) {
      const parts = names.map((name) => known.get(`topic ${name}\n${node}`)).filter(Boolean);
      if (parts.length) known.set(`topic ${pattern}\n${node}`, [total(parts, 0), parts[0][1]]);
    }
  }
  const arrows = [...picture.querySelectorAll("path.arrow")];
  const labels = picture.querySelectorAll("text.edge");
  arrows.forEach((arrow, at) => {
    const [fromKind, from] = parts(arrow.dataset.from);
    const [toKind, to] = parts(arrow.dataset.to);
    let ends = `${from}\n${to}`;
    if (fromKind === "topic") ends = `topic ${full(from)}\n${to}`;
    else if (toKind === "topic") ends = `topic ${full(to)}\n${from}`;
    const [rate, latency_ms] = known.get(ends) ?? [];
    const lag = fromKind === "topic" ? topics.get(full(from))?.lag : null;
    write(labels[at], words({rate, lag, latency_ms}));
  });
}
