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
  find("view").setAttribute("aria-labelledby", `tab-${view.name}`);
  await open(view);
}

/** Builds the current view. An error stays in it, until the user tries again. */
async function open(view) {
  target = element("div", {}, element("p", {class: "empty loading"}, "Loading …"));
  fill(find("view"), target);
  const mine = target;
  try {
    await view.open?.(mine, page);
  } catch (error) {
    if (error instanceof TokenNeeded) showProblem(error);
    fill(mine, element("p", {class: "notice"}, error.message),
      element("button", {id: "again", click: () => open(view)}, "Try again"));
    return;
  }
  if (mine === target) update();
}

function update() {
  if (!page.overview || !current?.update) return;
  const [view, place] = [current, target];
  Promise.resolve().then(() => view.update(place, page)).catch(showProblem);
}

// The arrow keys move between the tabs, Home and End to the first and the last one.
find("tabs").addEventListener("keydown", (event) => {
  // The view of a key that was pressed just before may not be current yet.
  const now = tabs.indexOf(event.target);
  const next = {ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: -1}[event.key];
  if (next == null) return;
  event.preventDefault();
  const at = (next + VIEWS.length) % VIEWS.length;
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
  find("view").classList.remove("stale");
  document.title = `${overview.application} · penstock`;
  find("application").textContent = overview.application;
  // The state of a query node says nothing about that of the application.
  find("state").textContent = !overview.runs_tasks ? `query node ${overview.state}`
    : overview.paused ? "PAUSED" : overview.state;
  find("state").dataset.state = overview.state;
  if (overview.allows_actions) showActions(overview.paused);
  update();
}

/** Pause and resume. The error of an action stays until the next one. */
function showActions(paused) {
  if (!find("actions").childElementCount) {
    const outcome = element("span", {id: "outcome", class: "notice", role: "alert"});
    const run = async (name) => {
      outcome.textContent = "";
      if (find(name).getAttribute("aria-disabled") === "true") return;
      try {
        await act(name);
      } catch (error) {
        outcome.textContent = error.message;
      }
    };
    fill(find("actions"), ["Pause", "Resume"].map((title) => element(
      "button", {id: title.toLowerCase(), click: () => run(title.toLowerCase())}, title,
    )), outcome);
  }
  // The button that was just used keeps the focus.
  find("pause").setAttribute("aria-disabled", paused);
  find("resume").setAttribute("aria-disabled", !paused);
}

/** Shows an error until the next overview arrives. */
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
  // It may need the token, too.
  open(current);
});

function connect() {
  const loadHistory = async () => page.history.add((await get("dashboard/history")).samples);
  follow(loadHistory, receive, (error) => {
    find("state").textContent = "not connected";
    find("state").dataset.state = "";
    // The shown values are old.
    find("view").classList.add("stale");
    showProblem(error);
  });
}

fill(find("tabs"), tabs);
addEventListener("hashchange", show);
show();
connect();
