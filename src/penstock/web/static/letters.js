// The view of dead letters, and their replay.

import {act, get} from "./api.js";
import {element, fill, number, payload, table, time} from "./elements.js";

const PREFIX = "__streams.errors.";
const LIMIT = 100;

export const lettersView = {
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
    const letters = [];
    let older = 0;
    for (const topic of topics.filter((each) => named.includes(each.name))) {
      for (const {partition} of topic.partitions) {
        const found = await get("dashboard/records", {topic: topic.name, partition, limit: LIMIT});
        if (found.records.length) older += found.records[0].offset - found.start;
        letters.push(...found.records.reverse().map(
          (record) => letter(topic.name, partition, record, overview.allows_actions)));
      }
    }
    fill(view,
      toolbar(letters, overview.allows_actions, () => lettersView.open(view, page)),
      letters.length
        ? letters.map((each) => each.shown)
        : element("p", {class: "empty"}, "There are no dead letters."),
      older > 0 && element("p", {}, `${number(older)} older ones: see the view of topics.`));
  },
};

/** Reload, and with permission the replay of the selected letters. */
function toolbar(letters, allowed, reload) {
  const buttons = [element("button", {id: "reload", click: reload}, "Reload")];
  if (allowed && letters.length) {
    const outcome = element("span", {role: "status"});
    const all = element("input", {type: "checkbox", change: () => {
      for (const each of letters) each.box.checked = all.checked;
      count();
    }});
    const replay = element("button", {id: "replay-selected", click: async () => {
      const chosen = letters.filter((each) => each.box.checked);
      replay.disabled = true;
      let sent = 0;
      // One after the other, oldest first, so that records of a partition keep their order.
      for (const each of chosen.reverse()) sent += await each.replay();
      outcome.textContent = `${sent} of ${chosen.length} replayed.`;
      count();
    }});
    const count = () => {
      const chosen = letters.filter((each) => each.box.checked).length;
      replay.textContent = `Replay selected (${chosen})`;
      replay.disabled = chosen === 0;
      all.checked = chosen === letters.length;
    };
    for (const each of letters) each.box.addEventListener("change", count);
    count();
    buttons.push(element("label", {}, all, " Select all"), replay, outcome);
  }
  return element("div", {class: "controls"}, buttons);
}

/** A dead letter: what is shown, its checkbox, and a function that replays it. */
function letter(topic, partition, record, allowed) {
  const about = Object.fromEntries(record.headers
    .filter(([name]) => name.startsWith(PREFIX))
    .map(([name, value]) => [name.slice(PREFIX.length), value?.text ?? ""]));
  const title = `${about.exception ?? "Unknown error"}: ${about.message ?? ""}`;
  const outcome = element("span", {role: "status", class: "outcome"});
  const box = element("input", {
    type: "checkbox", "aria-label": `Select offset ${record.offset} of partition ${partition}`,
  });
  async function replay() {
    try {
      const sent = await act("replay", {topic, partition, offset: record.offset});
      outcome.textContent =
        `Sent to ${sent.topic}, partition ${sent.partition}, offset ${sent.offset}.`;
      box.checked = false;
      box.dispatchEvent(new Event("change"));
      return 1;
    } catch (error) {
      outcome.textContent = error.message;
      return 0;
    }
  }
  const details = element(
    "details", {class: "letter"},
    element("summary", {}, title),
    element("p", {}, `From ${about.topic}, partition ${about.partition}, offset ${about.offset}; `,
      `dead letter ${topic}, partition ${partition}, offset ${record.offset}; `, time(record.timestamp)),
    element("h3", {}, "Key"), payload(record.key),
    element("h3", {}, "Value"), payload(record.value),
    element("h3", {}, "Headers"), table(["Name", "Value"], record.headers
      .filter(([name]) => !name.startsWith(PREFIX))
      .map(([name, value]) => [name, payload(value)]), "None."),
    element("h3", {}, "Traceback"), element("pre", {}, about.stacktrace ?? ""),
    allowed && element("p", {}, element("button", {click: replay}, "Replay")),
  );
  const shown = element("div", {class: "letter-row"}, allowed && box,
    element("div", {}, details, outcome));
  return {shown, box, replay};
}
