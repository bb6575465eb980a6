// The view of stores: keys, ranges, and windows on a time axis.

import {get} from "./api.js";
import {choice, element, fill, moment, number, table, time, timeSpan} from "./elements.js";
import {patch} from "./patch.js";
import {windowAxis} from "./windows.js";

const PATHS = {
  "key-value": "entries", window: "windows", session: "sessions", versioned: "versions",
};
const LIMIT = 100;
const TIME = "2026-01-31T12:00:00Z";

export const storesView = {
  name: "stores",
  title: "Stores",
  async open(view, page) {
    const {stores} = await get("stores");
    const result = element("div", {"aria-live": "polite"});
    const field = (name, label) => element("label", {}, `${label} `, element("input", {name}));
    const form = element(
      "form", {class: "controls", change: adapt, submit: async (event) => {
        event.preventDefault();
        await load();
      }},
      choice("store", stores.map((store) => store.name), "Store"),
      field("key", "Key"), field("prefix", "Prefix"), field("from", "From"), field("to", "To"),
      element("button", {}, "Look up"),
    );
    const chosen = () => stores.find((store) => store.name === form.elements.store.value);
    /** Ranges of a key-value store are keys, those of other stores are times. */
    function adapt() {
      const isKeys = chosen()?.kind === "key-value";
      form.elements.key.placeholder = chosen()?.kind === "versioned" ? "" : "all keys";
      form.elements.prefix.closest("label").hidden = !isKeys;
      form.elements.from.placeholder = isKeys ? "first key" : TIME;
      form.elements.to.placeholder = isKeys ? "last key" : TIME;
    }
    async function load(cursor) {
      const {kind, name} = chosen();
      const {key, prefix, from, to} = Object.fromEntries(new FormData(form));
      const base = `stores/${encodeURIComponent(name)}`;
      try {
        if (kind === "key-value" && key) {
          fill(result, entryTable([await get(`${base}/keys/${encodeURIComponent(key)}`)]));
          return;
        }
        const found = await get(`${base}/${PATHS[kind]}`, {
          // Of windows, sessions and versions the newest are first.
          ...(kind === "key-value" ? {prefix} : {key, order: "desc"}),
          from, to, limit: LIMIT, cursor,
        });
        fill(result, kind === "versioned" ? versionTable(found) : [
          kind === "key-value" && await size(base),
          ["window", "session"].includes(kind) && windowAxis(found.entries, result.clientWidth),
          entryTable(found.entries),
        ], found.next && element("button", {click: () => load(found.next)}, "Next page"));
      } catch (error) {
        fill(result, element("p", {class: "notice"}, error.message));
      }
    }
    fill(view, stores.length > 0 && [form, result], element("h2", {}, "All stores"),
      element("div", {id: "store-list"}));
    if (stores.length) {
      adapt();
      await load();
    }
    if (page.overview) storesView.update(view, page);
  },
  update(view, page) {
    const {overview} = page;
    const list = view.querySelector("#store-list");
    if (list && overview.stores.length && !view.querySelector("form")) {
      storesView.open(view, page);
    } else if (list) {
      // They are measured at metrics.recording.level=DEBUG.
      const isMeasured = overview.stores.some((store) => store.reads_per_s != null);
      patch(list, table(
        ["Store", "Kind", "Partitions", "Changes behind", "Changes/s",
          ...(isMeasured ? ["Reads/s", "Writes/s"] : [])],
        overview.stores.map((store) => [
          store.name, store.kind, store.partitions, store.lag, store.changes_per_s ?? "–",
          ...(isMeasured ? [store.reads_per_s ?? "–", store.writes_per_s ?? "–"] : []),
        ]), "No store is known yet."));
    }
  },
};

/** The number of all entries of a key-value store. */
async function size(path) {
  const {approximate_entries: entries} = await get(path);
  return entries != null && element("p", {class: "old"},
    `The store has about ${number(entries)} ${entries === 1 ? "entry" : "entries"}.`);
}

function entryTable(entries) {
  const windowed = entries.some((entry) => entry.window);
  return table(["Key", ...(windowed ? ["Window"] : []), "Value", "Time"], entries.map((entry) => [
    json(entry.key),
    ...(windowed ? [moment(timeSpan(entry.window.start_ms, entry.window.end_ms))] : []),
    json(entry.value), entry.timestamp == null ? "–" : moment(time(Date.parse(entry.timestamp))),
  ]), "No entries.");
}

function versionTable(found) {
  return table(["Value", "Valid from", "Valid to"], found.versions.map((version) => [
    json(version.value), version.valid_from, version.valid_to ?? "now",
  ]), "No versions. A versioned store needs a key.");
}

// Longer values have a line for each member.
const SHORT = 80;

function json(value) {
  const line = JSON.stringify(value);
  return element("pre", {}, line.length <= SHORT ? line : JSON.stringify(value, null, 1));
}
