// The view of instances, lanes by host, tasks, and all metrics.

import {get} from "./api.js";
import {duration, element, fill, moment, progress, table} from "./elements.js";
import {patch} from "./patch.js";

// How many updates pass between two requests for all metrics, while they are shown.
const METRICS_EVERY = 5;

/** The tasks with their records, their host, their latest record of the last minute, and the progress of a restore. */
export function taskTable(overview) {
  const places = new Map(overview.threads.flatMap(
    (thread) => thread.tasks.map((task) => [task, thread.host])));
  const names = new Set([...Object.keys(overview.tasks), ...places.keys()]);
  // It is measured at metrics.recording.level=DEBUG.
  const isMeasured = Object.values(overview.tasks).some((task) => task.lateness_ms != null);
  return table(
    ["Task", "Host", "Records", "Records/s", ...(isMeasured ? ["Lateness"] : []), "Dropped",
      "Restore"],
    [...names].sort(byNumber).map((name) => {
      const task = overview.tasks[name] ?? {};
      return [
        name, places.get(name) || "–", task.records ?? "–", task.rate ?? "–",
        ...(isMeasured ? [duration(task.lateness_ms)] : []), task.dropped ?? "–",
        task.restore ? progress(...task.restore, "records") : "–",
      ];
    }),
    "This process runs no tasks.",
  );
}

const byNumber = (one, other) => one.localeCompare(other, "en", {numeric: true});

export const instancesView = {
  name: "instances",
  title: "Instances",
  open(view) {
    const metrics = element("details", {id: "metrics", toggle: () => loadMetrics(metrics)},
      element("summary", {}, "All metrics"), element("div", {}));
    fill(view, element("div", {id: "instance-list"}), metrics);
  },
  async update(view, {overview, updates}) {
    patch(
      view.querySelector("#instance-list"),
      element("p", {}, "Lease holder: ", element("b", {id: "lease-holder"},
        overview.lease_holder ?? "unknown")),
      element("h2", {}, "Instances"),
      table(["Address", "Process", "Role", "Stores", "Standby stores"],
        overview.instances.map((each) => [
          each.address, moment(each.name || "–"),
          moment(each.is_active ? "active, holds the lease" : "standby"),
          each.stores.join(", ") || "none", each.standby_stores.join(", ") || "none",
        ]), "No instance has an address. Set application.server."),
      element("h2", {}, "Threads and lanes"),
      table(["Host", "Name", "State", "Tasks", "Standby tasks"], overview.threads.map((thread) => [
        thread.host || "–", thread.name, thread.state, thread.tasks.join(" ") || "none",
        thread.standby_tasks.join(" ") || "none",
      ]), "This process runs no tasks."),
      element("h2", {}, "Tasks"), taskTable(overview),
    );
    if (updates % METRICS_EVERY === 0) await loadMetrics(view.querySelector("#metrics"));
  },
};

async function loadMetrics(target) {
  if (!target?.open) return;
  const {metrics} = await get("dashboard/metrics");
  patch(target.lastElementChild, table(
    ["Group", "Name", "Tags", "Value"], metrics.map(([group, name, tags, value]) => [
      group, name, Object.entries(tags).map(([key, tag]) => `${key}=${tag}`).join(" "),
      value ?? "–",
    ]), "Nothing yet.", (row) => row.slice(0, 3).join(" ")));
}
