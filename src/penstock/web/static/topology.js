// The picture of the topology with rates, lags, latencies and hot spots.

import {text} from "./api.js";
import {duration, element, fill, number, svg, table} from "./elements.js";
import {patch} from "./patch.js";

// A picture that would be smaller than this share of its size is shown in full, and scrolls.
const SMALLEST = 0.6;
// How far a label is from the end of its arrow.
const BEFORE_TIP = 10;

const LEGEND = [
  "At a node and on an arrow: records/s, the average of the last 5 seconds.",
  "At a topic: records/s that are written, and its lag: records that are not processed yet.",
  "At a source or sink also the latency: the time from the timestamp of a record until it was read " +
    "or written, the average of the last minute in the slowest task.",
  "Other nodes process a record in the same call as its source, and have the latency of the source. " +
    "An arrow has the latency of the node that it leaves.",
  "Hot spots have a thick orange line: a topic whose lag has grown in the last 10 seconds and is " +
    "more than what is written to it in a second; and the node where records are older than at the " +
    "inputs of the application, by 1 second or more and by a tenth or more.",
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
        element("button", {click: () => picture.classList.toggle("fit")}, "Fit / actual size"),
        element("span", {id: "hot-spots", role: "status", click: ({target}) => {
          if (target.dataset.shape) centre(picture, target.dataset.shape);
        }})),
      element("div", {class: "scroll frame", tabindex: 0, role: "region", "aria-label": "Picture"},
        picture),
      element("details", {class: "legend"}, element("summary", {}, "Legend"),
        element("ul", {}, LEGEND.map((line) => element("li", {}, line)))),
      element("div", {id: "node-list"}));
    const width = picture.viewBox.baseVal.width;
    picture.classList.toggle("fit", view.clientWidth >= SMALLEST * width);
    scrollToInput(picture);
  },
  update(view, {overview}) {
    const picture = view.querySelector("svg.topology");
    if (!picture) return;
    const topics = new Map(overview.topics.map((topic) => [topic.name, topic]));
    // The picture names internal topics without the id of the application.
    const full = (name) => topics.has(name) ? name : `${overview.application}-${name}`;
    const hot = new Set(overview.hot.map((each) => `${each.kind} ${each.name}`));
    for (const group of picture.querySelectorAll("g")) {
      const [kind, name] = parts(group.querySelector("title").textContent);
      const found = kind === "topic" ? topics.get(full(name)) : overview.nodes[name];
      if (kind !== "store") label(group, words(found));
      group.dataset.shape = kind === "topic" ? `topic ${full(name)}` : `node ${name}`;
      group.classList.toggle("hot", kind !== "store" && hot.has(group.dataset.shape));
    }
    labelArrows(picture, overview, topics, full);
    showHotSpots(view.querySelector("#hot-spots"), overview);
    patch(view.querySelector("#node-list"), element("h2", {}, "Nodes"), table(
      ["Node", "Records/s", "Latency"],
      Object.entries(overview.nodes).sort(([one], [other]) => one < other ? -1 : 1).map(
        ([name, node]) => [name, node.rate ?? "–", duration(node.latency_ms)]),
      "No node has counted records yet."));
  },
};

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
function showHotSpots(target, {hot, old}) {
  patch(target,
    hot.length ? "Hot spots: " : "No hot spots. ",
    hot.map((each) => element("button", {"data-shape": `${each.kind} ${each.name}`},
      `${each.name}: ${each.reason}`)),
    old.map((each) => element("span", {class: "old"}, ` ${each.name}: ${each.reason}. `)));
}

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

/** Shows a text below a shape of the picture, and inside of its sub-topology. */
function label(group, shown) {
  let target = group.querySelector("text.live");
  if (!target) {
    const box = group.getBBox();
    // Beside the arrow that leaves the shape.
    target = svg("text", {class: "live", x: box.x + box.width / 2 + 6, y: box.y + box.height + 12});
    group.append(target);
  }
  write(target, shown);
}

/** Sets the text of a label. It ends where it would start if it left its sub-topology otherwise. */
function write(target, shown) {
  if (target.textContent === shown) return;
  target.textContent = shown;
  const end = Number(target.getAttribute("x")) + target.getComputedTextLength();
  target.classList.toggle("before", end > rightEdge(target));
}

/** The right edge of the sub-topology that a label starts in; infinite outside of all of them. */
function rightEdge(target) {
  const [x, y] = [Number(target.getAttribute("x")), Number(target.getAttribute("y"))];
  for (const cluster of target.ownerSVGElement.querySelectorAll("rect.cluster")) {
    const box = cluster.getBBox();
    const isInside = x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height;
    if (isInside) return box.x + box.width - 4;
  }
  return Infinity;
}

/** Labels arrows with their records/s, the lag of a topic that is read, and the latency. */
function labelArrows(picture, overview, topics, full) {
  const known = new Map([
    ...overview.edges.map(([topic, node, ...values]) => [`topic ${topic}\n${node}`, values]),
    ...overview.arrows.map(([from, to, ...values]) => [`${from}\n${to}`, values]),
  ]);
  const arrows = [...picture.querySelectorAll("path.arrow")];
  const inputs = new Map();
  for (const {dataset} of arrows) inputs.set(dataset.to, (inputs.get(dataset.to) ?? 0) + 1);
  const labels = picture.querySelectorAll("text.edge");
  arrows.forEach((arrow, at) => {
    const [fromKind, from] = parts(arrow.dataset.from);
    const [toKind, to] = parts(arrow.dataset.to);
    let ends = `${from}\n${to}`;
    if (fromKind === "topic") ends = `topic ${full(from)}\n${to}`;
    else if (toKind === "topic") ends = `topic ${full(to)}\n${from}`;
    const [rate, latency_ms] = known.get(ends) ?? [];
    const lag = fromKind === "topic" ? topics.get(full(from))?.lag : null;
    const target = labels[at] ?? arrowLabel(picture, arrow, inputs.get(arrow.dataset.to) === 1);
    write(target, words({rate, lag, latency_ms}));
  });
}

function arrowLabel(picture, arrow, isOnly) {
  const length = arrow.getTotalLength();
  // Where several arrows end, their labels stand apart.
  const {x, y} = arrow.getPointAtLength(isOnly ? length - BEFORE_TIP : length / 2);
  const made = svg("text", {class: "edge", x: x + 6, y: y + 3});
  picture.append(made);
  return made;
}
