// The views of the page. `open` builds a view, `update` shows a new overview in it.

import {act, get, text} from "./api.js";
import {chart, windowAxis} from "./charts.js";
import {element, fill, number, svg, table, time} from "./elements.js";

// A node is a hot spot if it processes at least this share of the busiest node's records.
const HOT = 0.8;

// ---- overview -------------------------------------------------------------------------------

const JOINS = ["matched", "unmatched-left", "unmatched-right", "late", "expired"];

function joins(overview) {
  const found = new Map();
  for (const [group, name, tags, value] of overview.metrics) {
    if (group !== "stream-join-metrics") continue;
    const node = tags["processor-node-id"] ?? tags["task-id"];
    if (!found.has(node)) found.set(node, {});
    const counter = JOINS.find((each) => name === `${each}-total`);
    if (counter) found.get(node)[counter] = (found.get(node)[counter] ?? 0) + value;
  }
  return [...found].map(([node, counts]) => [node, ...JOINS.map((name) => counts[name] ?? 0)]);
}

function drops(overview) {
  return overview.metrics
    .filter(([, name, , value]) => name === "dropped-records-total" && value > 0)
    .map(([, , tags, value]) => [tags["task-id"] ?? "–", tags["processor-node-id"] ?? "–", value]);
}

const overviewView = {
  name: "overview",
  title: "Overview",
  update(view, {overview, history}) {
    fill(
      view,
      overview.not_ready && element("p", {class: "notice"}, overview.not_ready),
      element("div", {class: "charts"},
        chart("Records processed", history.get("records/s"), "/s"),
        chart("Commit", history.get("commit ms"), " ms"),
        chart("Lag", history.get("lag"), " records")),
      element("h2", {}, "Messages"),
      table(["Time", "Level", "Message"], overview.messages.slice(0, 10).map(
        (message) => [time(message.time), message.level, message.text],
      ), "No warnings."),
      element("h2", {}, "Topics"),
      table(["Topic", "Partitions", "Records", "Lag"], overview.topics.map(
        (topic) => [topic.name, topic.partitions, topic.records, topic.lag ?? "–"],
      )),
      element("h2", {}, "Joins"),
      table(["Join", ...JOINS], joins(overview), "The topology has counted no joins."),
      element("h2", {}, "Dropped records"),
      table(["Task", "Node", "Dropped"], drops(overview), "No record was dropped."),
      element("h2", {}, "Tasks"),
      table(["Task", "Records", "Records/s"], tasks(overview)),
    );
  },
};

function tasks(overview) {
  const found = new Map();
  for (const [group, name, tags, value] of overview.metrics) {
    if (group !== "stream-task-metrics" || !["process-total", "process-rate"].includes(name)) {
      continue;
    }
    const task = tags["task-id"];
    found.set(task, {...found.get(task), [name]: value});
  }
  return [...found].map(
    ([task, values]) => [task, values["process-total"] ?? 0, values["process-rate"] ?? 0],
  );
}

// ---- topology -------------------------------------------------------------------------------

const topologyView = {
  name: "topology",
  title: "Topology",
  async open(view) {
    const source = await text("dashboard/topology.svg");
    const parsed = new DOMParser().parseFromString(source, "image/svg+xml").documentElement;
    const picture = document.importNode(parsed, true);
    picture.setAttribute("class", "topology fit");
    fill(view,
      element("button", {click: () => picture.classList.toggle("fit")}, "Fit / actual size"),
      element("div", {class: "scroll"}, picture));
  },
  update(view, {overview, rates}) {
    const lags = new Map(overview.topics.map((topic) => [topic.name, topic.lag]));
    const latencies = nodeLatencies(overview);
    const nodes = [...rates].filter(([name]) => name.startsWith("node "));
    const most = Math.max(0, ...nodes.map(([, rate]) => rate));
    for (const group of view.querySelectorAll("svg.topology g")) {
      const title = group.querySelector("title")?.textContent ?? "";
      const [kind, ...words] = title.split(" ");
      const name = words.join(" ");
      const full = lags.has(name) ? name : `${overview.application}-${name}`;
      const rate = rates.get(kind === "topic" ? `topic ${full}` : `node ${name}`);
      const lag = kind === "topic" ? lags.get(full) : null;
      const latency = kind === "topic" ? null : latencies.get(name);
      const parts = [
        rate == null ? null : `${number(rate)}/s`, lag ? `lag ${number(lag)}` : null,
        latency == null ? null : `${number(latency)} ms`,
      ];
      label(group, parts.filter(Boolean).join(", "));
      group.classList.toggle("hot", kind !== "topic" && most > 0 && rate >= HOT * most);
    }
  },
};

/** The average time from the timestamp of a record to a node, the largest of all tasks. */
function nodeLatencies(overview) {
  const found = new Map();
  for (const [, name, tags, value] of overview.metrics) {
    if (name !== "record-e2e-latency-avg" || value == null) continue;
    const node = tags["processor-node-id"];
    found.set(node, Math.max(found.get(node) ?? 0, value));
  }
  return found;
}

/** Shows a text below a shape of the picture. */
function label(group, words) {
  let shown = group.querySelector("text.live");
  if (!shown) {
    const box = group.getBBox();
    // Beside the arrow that leaves the shape.
    shown = svg("text", {class: "live", x: box.x + box.width / 2 + 6, y: box.y + box.height + 13});
    group.append(shown);
  }
  shown.textContent = words;
}

// ---- topics ---------------------------------------------------------------------------------

const DECODINGS = ["auto", "serde", "json", "string", "long", "hex"];

function choice(name, options, label) {
  return element("label", {}, `${label} `, element(
    "select", {name}, options.map((option) => element("option", {value: option}, String(option))),
  ));
}

function payload(shown) {
  if (shown == null) return element("i", {}, "null");
  const note = shown.cut ? ` (cut, ${number(shown.bytes)} bytes)` : "";
  return element("pre", {title: `${shown.as}, ${shown.bytes} bytes`}, shown.text + note);
}

const topicsView = {
  name: "topics",
  title: "Topics",
  async open(view) {
    const {topics} = await get("dashboard/topics");
    const result = element("div", {});
    const form = element(
      "form", {class: "controls", submit: async (event) => {
        event.preventDefault();
        await load();
      }},
      choice("topic", topics.map((topic) => topic.name), "Topic"),
      element("label", {}, "Partition ", element(
        "input", {name: "partition", type: "number", min: 0, value: 0})),
      element("label", {}, "From offset ", element(
        "input", {name: "offset", type: "number", min: 0, placeholder: "last ones"})),
      choice("key_as", DECODINGS, "Key as"),
      choice("value_as", DECODINGS, "Value as"),
      element("button", {}, "Show"),
    );
    async function load() {
      const given = Object.fromEntries(new FormData(form));
      try {
        const found = await get("dashboard/records", given);
        fill(result, records(found));
      } catch (error) {
        fill(result, element("p", {class: "notice"}, error.message));
      }
    }
    fill(view, form, result);
    if (topics.length) await load();
  },
};

function records(found) {
  return [
    element("p", {}, `Offsets ${number(found.start)} to ${number(found.end)}.`),
    table(["Offset", "Time", "Key", "Value", "Headers"], found.records.map((record) => [
      record.offset, time(record.timestamp), payload(record.key), payload(record.value),
      element("div", {}, record.headers.map(([name, value]) => element(
        "div", {class: "header"}, `${name}: ${value == null ? "null" : value.text}`))),
    ]), "The partition has no records here."),
  ];
}

// ---- stores ---------------------------------------------------------------------------------

const PATHS = {
  "key-value": "entries", window: "windows", session: "sessions", versioned: "versions",
};

const storesView = {
  name: "stores",
  title: "Stores",
  async open(view, page) {
    const {stores} = await get("stores");
    const result = element("div", {});
    const form = element(
      "form", {class: "controls", submit: async (event) => {
        event.preventDefault();
        await load();
      }},
      choice("store", stores.map((store) => store.name), "Store"),
      element("label", {}, "Key ", element("input", {name: "key", placeholder: "all keys"})),
      element("label", {}, "Prefix ", element("input", {name: "prefix"})),
      element("button", {}, "Look up"),
    );
    async function load() {
      const given = Object.fromEntries(new FormData(form));
      const kind = stores.find((store) => store.name === given.store).kind;
      const base = `stores/${encodeURIComponent(given.store)}`;
      try {
        if (kind === "key-value" && given.key) {
          const found = await get(`${base}/keys/${encodeURIComponent(given.key)}`);
          fill(result, entryTable([found]));
          return;
        }
        const parameters = kind === "key-value" ? {prefix: given.prefix} : {key: given.key};
        const found = await get(`${base}/${PATHS[kind]}`, {...parameters, limit: 100});
        fill(result, kind === "versioned" ? versionTable(found) : [
          ["window", "session"].includes(kind) && windowAxis(found.entries),
          entryTable(found.entries),
          found.next && element("p", {}, "There are more entries. Use a key or a prefix."),
        ].filter(Boolean));
      } catch (error) {
        fill(result, element("p", {class: "notice"}, error.message));
      }
    }
    fill(view, form, result, element("h2", {}, "All stores"), element("div", {id: "store-list"}));
    if (stores.length) await load();
    if (page.overview) storesView.update(view, page);
  },
  update(view, {overview}) {
    const list = view.querySelector("#store-list");
    if (list) {
      fill(list, table(["Store", "Kind", "Partitions", "Changes behind"], overview.stores.map(
        (store) => [store.name, store.kind, store.partitions, store.lag])));
    }
  },
};

function entryTable(entries) {
  const windowed = entries.some((entry) => entry.window);
  return table(["Key", ...(windowed ? ["Window"] : []), "Value", "Time"], entries.map((entry) => [
    json(entry.key),
    ...(windowed ? [`${entry.window.start} – ${entry.window.end}`] : []),
    json(entry.value), entry.timestamp ?? "–",
  ]), "No entries.");
}

function versionTable(found) {
  return table(["Value", "Valid from", "Valid to"], found.versions.map((version) => [
    json(version.value), version.valid_from, version.valid_to ?? "now",
  ]), "No versions. A versioned store needs a key.");
}

const json = (value) => element("pre", {}, JSON.stringify(value, null, 1));

// ---- dead letters ---------------------------------------------------------------------------

const PREFIX = "__streams.errors.";

const lettersView = {
  name: "letters",
  title: "Dead letters",
  async open(view, page) {
    const overview = page.overview ?? await get("dashboard/overview");
    const {topics} = await get("dashboard/topics");
    const named = overview.dead_letter_topics;
    if (!named.length) {
      fill(view, element("p", {class: "empty"},
        "The application has no dead letter topic. Set errors.dead.letter.queue.topic.name."));
      return;
    }
    const shown = [];
    for (const topic of topics.filter((each) => named.includes(each.name))) {
      for (const {partition} of topic.partitions) {
        const found = await get("dashboard/records", {topic: topic.name, partition, limit: 100});
        shown.push(...found.records.reverse().map(
          (record) => letter(topic.name, partition, record, overview.allows_actions)));
      }
    }
    fill(view, element("button", {click: () => lettersView.open(view, page)}, "Reload"),
      shown.length ? shown : element("p", {class: "empty"}, "There are no dead letters."));
  },
};

function letter(topic, partition, record, allowed) {
  const about = Object.fromEntries(record.headers
    .filter(([name]) => name.startsWith(PREFIX))
    .map(([name, value]) => [name.slice(PREFIX.length), value?.text ?? ""]));
  const outcome = element("span", {role: "status"});
  const replay = allowed && element("button", {click: async () => {
    try {
      const sent = await act("replay", {topic, partition, offset: record.offset});
      outcome.textContent = `Sent to ${sent.topic}, partition ${sent.partition}, offset ${sent.offset}.`;
    } catch (error) {
      outcome.textContent = error.message;
    }
  }}, "Replay");
  return element(
    "details", {class: "letter"},
    element("summary", {}, `${about.exception ?? "Unknown error"}: ${about.message ?? ""}`),
    element("p", {}, `From ${about.topic}, partition ${about.partition}, offset ${about.offset}; `,
      `dead letter ${topic}, partition ${partition}, offset ${record.offset}; `, time(record.timestamp)),
    element("h3", {}, "Key"), payload(record.key),
    element("h3", {}, "Value"), payload(record.value),
    element("h3", {}, "Headers"), table(["Name", "Value"], record.headers
      .filter(([name]) => !name.startsWith(PREFIX))
      .map(([name, value]) => [name, payload(value)]), "None."),
    element("h3", {}, "Traceback"), element("pre", {}, about.stacktrace ?? ""),
    element("p", {}, replay || null, " ", outcome),
  );
}

// ---- instances and settings -----------------------------------------------------------------

const instancesView = {
  name: "instances",
  title: "Instances",
  update(view, {overview}) {
    fill(
      view,
      element("h2", {}, "Instances"),
      table(["Address", "Stores", "Standby stores"], overview.instances.map((each, at) => [
        `${each.address}${at === 0 && each.stores.length ? " (active)" : ""}`,
        each.stores.join(", ") || "–", each.standby_stores.join(", ") || "–",
      ]), "No instance has an address. Set application.server."),
      element("h2", {}, "Threads and lanes"),
      table(["Name", "State", "Tasks", "Standby tasks"], overview.threads.map((thread) => [
        thread.name, thread.state, thread.tasks.join(" ") || "none",
        thread.standby_tasks.join(" ") || "none",
      ]), "This process runs no tasks."),
      element("h2", {}, "Metrics"),
      table(["Group", "Name", "Tags", "Value"], overview.metrics.map(([group, name, tags, value]) => [
        group, name, Object.entries(tags).map(([key, tag]) => `${key}=${tag}`).join(" "),
        value ?? "–",
      ])),
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
