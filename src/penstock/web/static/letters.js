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
    const pages = topics.filter((each) => named.includes(each.name)).flatMap((topic) =>
      topic.partitions.map(({partition, start, end}) => (
        {topic: topic.name, partition, start, before: end})));
    const letters = await older(pages, overview.allows_actions);
    const list = element("div", {change: () => bar.count()});
    const more = element("button", {id: "older", click: async () => {
      letters.push(...await older(pages, overview.allows_actions));
      show();
    }}, "Older ones");
    const bar = toolbar(
      letters, overview.allows_actions, () => lettersView.open(view, page), endOf(overview, named));
    function show() {
      fill(list, letters.length
        ? letters.map((each) => each.shown)
        : element("p", {class: "empty"}, "There are no dead letters."));
      more.hidden = pages.every((each) => each.before <= each.start);
      bar.count();
    }
    fill(view, bar.shown, list, more);
    show();
  },
  /** Says how many letters have arrived since the list was made. */
  update(view, {overview}) {
    const button = view.querySelector("#reload");
    if (!button) return;
    const fresh = endOf(overview, overview.dead_letter_topics) - Number(button.dataset.end);
    const words = fresh > 0 ? `Reload (${number(fresh)} new)` : "Reload";
    if (button.textContent !== words) button.textContent = words;
  },
};

/** The sum of the ends of topics. */
const endOf = (overview, names) => overview.topics.filter((each) => names.includes(each.name))
  .reduce((sum, topic) => sum + topic.end, 0);

/** The next letters of all partitions, the newest first. Moves the pages back. */
async function older(pages, allowed) {
  const found = [];
  for (const page of pages) {
    const offset = Math.max(page.start, page.before - LIMIT);
    if (offset === page.before) continue;
    const {records} = await get("dashboard/records", {
      topic: page.topic, partition: page.partition, offset, limit: page.before - offset,
    });
    page.before = offset;
    found.push(...records.map((record) => letter(page.topic, page.partition, record, allowed)));
  }
  return found.sort((one, other) => other.time - one.time);
}

/** Reload, and with permission the replay of the selected letters. */
function toolbar(letters, allowed, reload, end) {
  const total = element("span", {});
  const shown = [element("button", {id: "reload", "data-end": end, click: reload}, "Reload"), total];
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
  function count() {
    const chosen = letters.filter((each) => each.box.checked).length;
    total.textContent = `${number(letters.length)} shown, the newest first.`;
    replay.textContent = `Replay selected (${chosen})`;
    replay.disabled = chosen === 0;
    all.checked = letters.length > 0 && chosen === letters.length;
  }
  if (allowed && letters.length) {
    shown.push(element("label", {}, all, " Select all"), replay, outcome);
  }
  return {shown: element("div", {class: "controls"}, shown), count};
}

/** A dead letter: what is shown, its checkbox, and a function that replays it. */
function letter(topic, partition, record, allowed) {
  const about = Object.fromEntries(record.headers
    .filter(([name]) => name.startsWith(PREFIX))
    .map(([name, value]) => [name.slice(PREFIX.length), value?.text ?? ""]));
  const title = [about.exception, about.message].filter(Boolean).join(": ") || "Unknown error";
  const place = about.topic == null ? "Unknown source" : [
    about.topic, about.partition != null && `partition ${about.partition}`,
    about.offset != null && `offset ${about.offset}`,
  ].filter(Boolean).join(", ");
  const outcome = element("span", {role: "status", class: "outcome"});
  const box = element("input", {
    type: "checkbox", "aria-label": `Select offset ${record.offset} of partition ${partition}`,
  });
  async function replay() {
    try {
      const sent = await act("replay", {topic, partition, offset: record.offset});
      outcome.textContent =
        `Sent to ${sent.topic}, partition ${sent.partition}, offset ${sent.offset}.`;
      shown.classList.add("done");
      box.checked = false;
      box.dispatchEvent(new Event("change", {bubbles: true}));
      return 1;
    } catch (error) {
      outcome.textContent = error.message;
      return 0;
    }
  }
  const details = element(
    "details", {class: "letter"},
    element("summary", {}, element("span", {class: "place"}, `${time(record.timestamp)}  ${place}`),
      element("span", {}, title)),
    element("p", {}, `Dead letter ${topic}, partition ${partition}, offset ${record.offset}`),
    element("h3", {}, "Key"), payload(record.key),
    element("h3", {}, "Value"), payload(record.value),
    element("h3", {}, "Headers"), table(["Name", "Value"], record.headers
      .filter(([name]) => !name.startsWith(PREFIX))
      .map(([name, value]) => [name, payload(value)]), "None."),
    element("h3", {}, "Traceback"), element("pre", {}, about.stacktrace ?? "None."),
    allowed && element("p", {}, element("button", {click: replay}, "Replay")),
  );
  const shown = element("div", {class: "letter-row"}, allowed && box,
    element("div", {}, details, outcome));
  return {shown, box, replay, time: record.timestamp};
}
