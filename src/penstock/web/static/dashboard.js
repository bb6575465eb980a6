// The page: connects, keeps the history, and shows one view at a time.

import {act, follow, setToken, TokenNeeded} from "./api.js";
import {element, fill} from "./elements.js";
import {History} from "./charts.js";
import {VIEWS} from "./views.js";

const find = (id) => document.getElementById(id);
const page = {overview: null, before: null, history: new History(), rates: new Map()};
let current = null;

// ---- views ----------------------------------------------------------------------------------

const tabs = VIEWS.map((view) => element(
  "button", {id: `tab-${view.name}`, role: "tab", click: () => { location.hash = view.name; }},
  view.title,
));

async function show() {
  const wanted = location.hash.slice(1).split("/")[0];
  const view = VIEWS.find((each) => each.name === wanted) ?? VIEWS[0];
  if (current === view) return;
  current = view;
  tabs.forEach((tab, at) => {
    const chosen = VIEWS[at] === view;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  });
  fill(find("view"));
  await attempt(async () => view.open?.(find("view"), page));
  update();
}

function update() {
  if (page.overview && current?.update) attempt(async () => current.update(find("view"), page));
}

/** Runs something and shows its error. */
async function attempt(action) {
  try {
    await action();
  } catch (error) {
    showProblem(error);
  }
}

// The arrow keys move between the tabs.
find("tabs").addEventListener("keydown", (event) => {
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  if (!step) return;
  const at = (VIEWS.indexOf(current) + step + VIEWS.length) % VIEWS.length;
  location.hash = VIEWS[at].name;
  tabs[at].focus();
});

// ---- overviews ------------------------------------------------------------------------------

/** Totals become rates: the difference to the overview before, per second. */
function addRates(overview, before) {
  const seconds = before ? (overview.time - before.time) / 1000 : 0;
  if (seconds <= 0) return;
  const ends = new Map(before.topics.map((topic) => [topic.name, topic.end]));
  for (const topic of overview.topics) {
    if (ends.has(topic.name)) {
      page.rates.set(`topic ${topic.name}`, (topic.end - ends.get(topic.name)) / seconds);
    }
  }
  const sum = (rows, name) => {
    const totals = new Map();
    for (const [group, metric, tags, value] of rows) {
      const node = tags["processor-node-id"];
      if (metric === name && node && group.includes("processor-node")) {
        totals.set(node, (totals.get(node) ?? 0) + value);
      }
    }
    return totals;
  };
  const earlier = sum(before.metrics, "process-total");
  for (const [node, total] of sum(overview.metrics, "process-total")) {
    if (earlier.has(node)) {
      page.rates.set(`node ${node}`, Math.max(0, total - earlier.get(node)) / seconds);
    }
  }
}

function receive(overview) {
  addRates(overview, page.overview);
  page.before = page.overview;
  page.overview = overview;
  const metric = (name) => overview.metrics.find(
    (row) => row[0] === "stream-thread-metrics" && row[1] === name,
  )?.[3];
  page.history.add("records/s", metric("process-rate"));
  page.history.add("commit ms", metric("commit-latency-avg"));
  page.history.add("lag", overview.topics.reduce((total, topic) => total + (topic.lag ?? 0), 0));
  find("problem").hidden = true;
  find("token-form").hidden = true;
  document.title = `${overview.application} · penstock`;
  find("application").textContent = overview.application;
  find("state").textContent = overview.paused ? "PAUSED" : overview.state;
  find("state").dataset.state = overview.state;
  if (overview.allows_actions && !find("actions").childElementCount) {
    fill(find("actions"), ["pause", "resume"].map((name) => element(
      "button", {click: () => attempt(() => act(name))}, name,
    )));
  }
  update();
}

function showProblem(error) {
  find("problem").textContent = error.message;
  find("problem").hidden = false;
  if (error instanceof TokenNeeded) {
    find("token-form").hidden = false;
    find("token").focus();
  }
}

find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(find("token").value);
  connect();
});

function connect() {
  follow(receive, (error) => {
    find("state").textContent = "not connected";
    find("state").dataset.state = "";
    showProblem(error);
  });
}

fill(find("tabs"), tabs);
addEventListener("hashchange", show);
show();
connect();
