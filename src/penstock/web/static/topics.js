// The view of topics and their records.

import {get} from "./api.js";
import {choice, element, fill, moment, number, payload, table, time} from "./elements.js";

const DECODINGS = [
  "auto", ["serde", "serde (Avro, …)"], ["json", "JSON"], "string", "long", "hex",
];
const LIMIT = 50;

export const topicsView = {
  name: "topics",
  title: "Topics",
  async open(view, page) {
    const {topics} = await get("dashboard/topics");
    const overview = page.overview ?? await get("dashboard/overview");
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
        const found = await get("dashboard/records", {...given, limit: LIMIT});
        fill(result, pager(found), records(found));
      } catch (error) {
        fill(result, element("p", {class: "notice"}, error.message));
      }
    }
    /** The shown offsets, and buttons for the records before and after them. */
    function pager(found) {
      const first = found.records[0]?.offset ?? found.end;
      const next = (found.records.at(-1)?.offset ?? found.end - 1) + 1;
      const button = (label, offset, enabled) => element("button", {
        type: "button", disabled: !enabled, click: async () => {
          form.elements.offset.value = offset;
          await load();
          result.querySelector(`[data-step="${label}"]`)?.focus();
        }, "data-step": label,
      }, label);
      return element("div", {class: "controls"},
        button("Previous", Math.max(found.start, first - LIMIT), first > found.start),
        button("Next", next, next < found.end),
        element("span", {}, found.records.length
          ? `Offsets ${number(first)} to ${number(next - 1)}; the partition has ` +
            `${number(found.start)} to ${number(found.end - 1)}.`
          : "No records here."));
    }
    fill(view, form, result);
    if (topics.length) {
      form.elements.topic.value = firstChoice(topics, overview);
      await load();
    }
  },
};

/** A topic that the application reads; not a dead letter topic, if there is another one. */
function firstChoice(topics, overview) {
  const exists = new Set(topics.map((topic) => topic.name));
  const own = overview.topics.filter((topic) => exists.has(topic.name));
  const isLetters = (name) => overview.dead_letter_topics.includes(name);
  const busiest = own.filter((topic) => topic.lag != null).sort(
    (one, other) => other.records - one.records);
  return busiest[0]?.name ?? own.find((topic) => !isLetters(topic.name))?.name ??
    topics.find((topic) => !isLetters(topic.name))?.name ?? topics[0].name;
}

function records(found) {
  const hasHeaders = found.records.some((record) => record.headers.length);
  const headers = (record) => element("div", {}, record.headers.map(([name, value]) => element(
    "div", {class: "header"}, `${name}: `, payload(value))));
  const heads = ["Offset", "Time", "Key", "Value", ...(hasHeaders ? ["Headers"] : [])];
  return table(heads, found.records.map((record) => [
    record.offset, moment(time(record.timestamp)), payload(record.key), payload(record.value),
    ...(hasHeaders ? [headers(record)] : []),
  ]), "The partition has no records here.");
}
