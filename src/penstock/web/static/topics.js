// The view of topics and their records.

import {get} from "./api.js";
import {choice, element, fill, number, payload, table, time} from "./elements.js";

const DECODINGS = ["auto", "serde", "json", "string", "long", "hex"];

export const topicsView = {
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
