// The story of one partition, as `inbound explain` tells it: the answer, what to do, who has it, what happened.

//: So many events are shown.
const EVENTS = 12;

const openDetail = row => {
  state.detail = { row, answers: null, problem: null };
  drawDetail();
  byId("detail").showModal();
  explainDetail();
};
byId("detail").addEventListener("close", () => {
  if (byId("detail").open) return; // the event comes late: the next one is open already
  state.detail = null;
  fill(byId("detail"));
});
// A press beside it.
byId("detail").addEventListener("click", event => { if (event.target === byId("detail")) byId("detail").close(); });

const drawDetail = () => {
  const open = state.detail;
  if (open === null) return;
  const row = state.rows.find(one => one.id === open.row.id) ?? open.row, [answer] = open.answers ?? [];
  fill(byId("detail"), h("article", { key: open.row.id },
    h("header", {},
      h("h2", { id: "detail-title" }, nameOf(row)),
      h("span", { class: `chip ${LEVELS[row.level]}` }, row.state),
      h("button", { type: "button", class: "quiet close", onclick: () => byId("detail").close() }, "Close")),
    open.problem && h("p", { class: "answer bad" }, `Not answered: ${open.problem}`),
    answer ? story(answer, row)
      : h("p", { class: "soft" }, open.answers === null ? "Asking the process …" : "No channel here reads this topic any more.")));
};

const story = (answer, row) => [
  told(answer, row),
  row.note && row.note !== answer.explanation?.text && h("p", { key: "note", class: "soft" }, row.note),
  answer.explanation?.evidence?.length ? h("div", { key: "seen" },
    h("h3", {}, "Seen by"), h("pre", { tabindex: "0" }, answer.explanation.evidence.join("\n"))) : null,
  owner(answer),
  answer.numbers && Object.keys(answer.numbers).length ? numbers(answer.numbers) : null,
  answer.notices?.length ? h("ul", { key: "notices" }, answer.notices.map(one => h("li", {}, one))) : null,
  h("h3", { key: "events-title" }, "What happened, newest first"),
  answer.events?.length ? h("ol", { key: "events", class: "events" }, answer.events.slice(-EVENTS).reverse().map(happened))
    : h("p", { key: "events", class: "soft" }, "nothing is remembered"),
  answer.held ? h("div", { key: "buttons", class: "buttons" },
    h("button", { type: "button", onclick: () => openControl("release", row) }, "Release it")) : null,
];

const told = (answer, row) => {
  const found = answer.explanation;
  if (!found) return h("p", { key: "told" }, `${answer.consumer} does not hold it.`);
  const wall = now(), known = found.since !== null && found.since !== undefined;
  const since = known ? `, since ${clock(found.since, wall)} (${age(wall - found.since)})` : "";
  return h("div", { class: `told ${LEVELS[row.level]}`, key: "told" },
    h("p", { class: "cause" }, `${row.level === BAD ? "Stalled: " : ""}${CAUSES[found.cause] ?? found.cause}${since}`),
    h("p", {}, found.text),
    found.todo && h("p", {}, h("strong", {}, "What to do: "), found.todo));
};

const owner = answer => {
  const claimed = answer.held && answer.claimed ? ` since ${clock(answer.claimed.at, now())}: ${answer.claimed.text}` : "";
  return h("div", { key: "owner" },
    h("h3", {}, "Owner"),
    h("p", {}, answer.held ? `${answer.consumer}${claimed}` : "not held here"),
    h("p", { class: "soft" },
      `channel ${answer.channel}, group ${answer.group}, ${count(answer.members.length, "member")}: ${some(answer.members)}`));
};

const numbers = found => h("dl", { key: "numbers", class: "numbers" }, [
  ["Lag", dash(found.lag)], ["Committed", dash(found.committed)],
  ["Position", dash(found.position)], ["End of log", dash(found.end)],
  ["Read ahead", `${count(found.buffered_records, "record")}, ${bytes(found.buffered_bytes)}`],
  ["Last batch", ago(found.last_batch_at, now())], ["Delivered", count(found.records, "record")],
  ["Commits", dash(found.commits)], ["Epoch", dash(found.epoch)],
].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

const happened = event => h("li", {},
  h("time", {}, clock(event.last ?? event.at, now())),
  h("span", {}, event.text.startsWith(event.kind) ? event.text : `${event.kind}: ${event.text}`,
    event.count > 1 ? ` (${event.count} times)` : ""));
