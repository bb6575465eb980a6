// The views of the page. `open` builds a view, `update` shows a new overview in it.

import {get} from "./api.js";
import {chart} from "./charts.js";
import {duration, element, fill, number, table, time} from "./elements.js";
import {patch} from "./patch.js";
import {instancesView, taskTable} from "./instances.js";
import {lettersView} from "./letters.js";
import {storesView} from "./stores.js";
import {topicsView} from "./topics.js";
import {topologyView} from "./topology.js";

const JOINS = ["matched", "unmatched-left", "unmatched-right", "late", "expired"];

const perSecond = (value) => value == null ? "–" : `${number(value)}/s`;

const overviewView = {
  name: "overview",
  title: "Overview",
  update(view, {overview, history}) {
    const letters = overview.topics.filter(
      (topic) => overview.dead_letter_topics.includes(topic.name));
    const {samples} = history;
    patch(
      view,
      overview.not_ready && element("p", {class: "notice"}, overview.not_ready),
      element("div", {class: "charts"},
        chart("Records processed", samples, "records_per_s", perSecond),
        chart("Latency", samples, "latency_ms", duration, "slowest node; "),
        chart("Commit", samples, "commit_ms", duration),
        chart("Lag", samples, "lag", number, "records; ")),
      element("small", {}, "The last five minutes; times are UTC."),
      overview.old.map((input) => element(
        "p", {class: "old"}, `${input.name}: ${input.reason}, so it is not in the latency.`)),
      element("h2", {}, "Topics"),
      table(["Topic", "Partitions", "Records", "Lag", "Records/s"], overview.topics.map(
        (topic) => [
          topic.name, topic.partitions, topic.records, topic.lag ?? "–", topic.rate ?? "–",
        ],
      )),
      element("h2", {}, "Joins"),
      table(["Join", ...JOINS], Object.entries(overview.joins).map(
        ([join, counts]) => [join, ...JOINS.map((name) => counts[name] ?? 0)],
      ), "The topology has counted no joins."),
      element("h2", {}, "Dropped records and dead letters"),
      table(["Where", "Records"], [
        ...Object.entries(overview.tasks).filter(([, task]) => task.dropped > 0).map(
          ([name, task]) => [`dropped by task ${name}`, task.dropped]),
        ...letters.filter((topic) => topic.records > 0).map((topic) => [
          element("a", {href: "#letters"}, `dead letters in ${topic.name}`), topic.records]),
      ], "No record was dropped."),
      element("h2", {}, "Messages"),
      table(["Time", "Level", "Message"], overview.messages.map(
        (message) => [time(message.time), message.level, message.text],
      ), "No warnings.", (row) => row.join(" ")),
      element("h2", {}, "Tasks"),
      taskTable(overview),
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
