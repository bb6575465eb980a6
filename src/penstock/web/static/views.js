// The views of the page. `open` builds a view, `update` shows a new overview in it.

import {get} from "./api.js";
import {chart} from "./charts.js";
import {duration, element, fill, moment, number, table, time} from "./elements.js";
import {patch} from "./patch.js";
import {instancesView, taskTable} from "./instances.js";
import {lettersView} from "./letters.js";
import {storesView} from "./stores.js";
import {topicsView} from "./topics.js";
import {topologyView} from "./topology.js";

const JOINS = new Map([
  ["matched", "Matched"], ["unmatched-left", "Unmatched left"],
  ["unmatched-right", "Unmatched right"], ["late", "Late"], ["expired", "Expired"],
]);

const perSecond = (value) => value == null ? "–" : `${number(value)}/s`;

const sum = (values) => values.reduce((one, other) => one + other, 0);

/** How many threads or lanes run, and how many have failed and were replaced. */
function threadWords({threads, failed_threads}) {
  const running = threads.filter((each) => each.state === "RUNNING").length;
  const words = threads.length ? `${running} of ${threads.length} running` : "none running";
  return failed_threads ? `${words}, ${number(failed_threads)} failed` : words;
}

/** The health of the application in one line. A fact that needs attention stands out. */
function facts(overview, letters) {
  const {threads, hot} = overview;
  const tasks = Object.values(overview.tasks);
  const running = threads.filter((each) => each.state === "RUNNING").length;
  const restoring = tasks.filter((each) => each.restore).length;
  const dropped = sum(tasks.map((each) => each.dropped ?? 0));
  const dead = sum(letters.map((topic) => topic.records));
  const late = sum(Object.values(overview.joins).map(
    (counts) => (counts.late ?? 0) + (counts.expired ?? 0)));
  const shown = [
    overview.runs_tasks && ["instances", "Threads and lanes", threadWords(overview),
      !running || running < threads.length || overview.failed_threads],
    tasks.length && ["instances", "Tasks",
      restoring ? `${restoring} of ${tasks.length} restoring` : number(tasks.length), restoring],
    overview.runs_tasks && ["topology", "Hot spots", hot.length ? [...new Set(hot.map((each) => each.name))].join(", ") : "none",
      hot.length],
    !overview.runs_tasks && ["instances", "Application",
      overview.lease_holder ? `runs in ${overview.lease_holder}` : "no instance with an address"],
    tasks.length && ["overview", "Dropped records", number(dropped), dropped],
    letters.length && ["letters", "Dead letters", number(dead), dead],
    Object.keys(overview.joins).length &&
      ["overview", "Late or expired in joins", number(late), late],
    ["overview", "Warnings", number(overview.warnings), overview.warnings],
  ];
  return element("ul", {class: "facts", "aria-label": "Health"}, shown.filter(Boolean).map(
    ([view, name, value, needsAttention]) => element(
      "li", {"data-key": name, class: needsAttention ? "attention" : null},
      view === "overview" ? element("span", {}, name) : element("a", {href: `#${view}`}, name),
      element("b", {}, value))));
}

const section = (title, ...content) => element("section", {}, element("h2", {}, title), content);

const overviewView = {
  name: "overview",
  title: "Overview",
  update(view, {overview, history}) {
    const letters = overview.topics.filter(
      (topic) => overview.dead_letter_topics.includes(topic.name));
    const {samples} = history;
    patch(
      view,
      facts(overview, letters),
      element("div", {}, overview.not_ready && element("p", {class: "notice"}, overview.not_ready)),
      element("div", {class: "charts"},
        // A query node knows the log, but not what the application does.
        overview.runs_tasks && [
          chart("Records processed", samples, "records_per_s", perSecond),
          chart("Latency", samples, "latency_ms", duration, "slowest node; "),
          chart("Commit", samples, "commit_ms", duration, "duration; ")],
        chart("Lag", samples, "lag", number, "unread records; ")),
      element("small", {}, "The last five minutes; times are UTC." +
        (overview.runs_tasks ? " Latency and commit are averages of a minute each." : "")),
      element("div", {}, overview.old.map((input) => element(
        "p", {class: "old"}, `${input.name}: ${input.reason}, so it is not in the latency.`))),
      element("div", {class: "columns"},
        section("Topics", table(
          ["Topic", "Partitions", "Records", "Lag", "Records/s"],
          overview.topics.map((topic) => [
            topic.name, topic.partitions, topic.records, topic.lag ?? "–", topic.rate ?? "–",
          ]), "None of the topics exists yet.")),
        overview.runs_tasks && [
          section("Tasks", taskTable(overview)),
          section("Joins", table(
            ["Join", ...JOINS.values()],
            Object.entries(overview.joins).map(
              ([join, counts]) => [join, ...[...JOINS.keys()].map((name) => counts[name] ?? 0)]),
            "The topology has counted no joins."))],
        section(
          overview.runs_tasks ? "Dropped records and dead letters" : "Dead letters",
          table(["Where", "Records"], [
            ...Object.entries(overview.tasks).filter(([, task]) => task.dropped > 0).map(
              ([name, task]) => [`dropped by task ${name}`, task.dropped]),
            ...letters.filter((topic) => topic.records > 0).map((topic) => [
              element("a", {href: "#letters"}, `dead letters in ${topic.name}`), topic.records]),
          ], overview.runs_tasks ? "No record was dropped." : "No dead letters."))),
      section("Warnings", table(["Time", "Level", "Message"], overview.messages.map(
        (message) => [moment(time(message.time)), message.level, message.text],
      ), "No warnings.", ([at, ...words]) => [at.textContent, ...words].join(" "))),
    );
  },
};

const settingsView = {
  name: "settings",
  title: "Settings",
  async open(view) {
    const settings = await get("dashboard/settings");
    fill(view, table(["Setting", "Value"], Object.entries(settings)));
  },
};

export const VIEWS = [
  overviewView, topologyView, topicsView, storesView, lettersView, instancesView, settingsView,
];
