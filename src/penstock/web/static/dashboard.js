// The page: connects, keeps the history, and shows one view at a time.

import {act, follow, get, setToken, TokenNeeded} from "./api.js";
import {element, fill} from "./elements.js";
import {History} from "./charts.js";
import {VIEWS} from "./views.js";

const find = (id) => document.getElementById(id);
const page = {overview: null, updates: 0, history: new History()};
let current = null;
// The element of the current view. A view that is opened too late fills one that is not shown.
let target = null;

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
  target = element("div");
  fill(find("view"), target);
  const mine = target;
  await attempt(async () => view.open?.(mine, page));
  if (mine === target) update();
}

function update() {
  if (!page.overview || !current?.update) return;
  const [view, place] = [current, target];
  attempt(() => view.update(place, page));
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

function receive(overview) {
  page.overview = overview;
  page.updates += 1;
  page.history.add([overview.sample]);
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
  const loadHistory = async () => page.history.add((await get("dashboard/history")).samples);
  follow(loadHistory, receive, (error) => {
    find("state").textContent = "not connected";
    find("state").dataset.state = "";
    showProblem(error);
  });
}

fill(find("tabs"), tabs);
addEventListener("hashchange", show);
show();
connect();
