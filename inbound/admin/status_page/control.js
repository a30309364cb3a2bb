// Operations: each has a dialog that says what will happen, and shows the result.

const CONTROLS = {
  pause: channel => ({
    title: `Pause ${channel.name}?`,
    button: "Pause",
    text: "Each member finishes its batch, keeps its partitions and fetches nothing, also after a restart, "
      + "until it is resumed. Nothing is lost; the lag grows.",
    fields: [whom(channel), { name: "reason", label: "Reason, for others", kind: "text" }],
    path: given => withQuery(pathOf(channel.name, "pause"), given),
  }),
  resume: channel => ({
    title: `Resume ${channel.name}?`,
    button: "Resume",
    text: "Members go on after the committed offsets. A pause that a reset holds stays until the reset is done.",
    fields: [whom(channel)],
    path: given => withQuery(pathOf(channel.name, "resume"), given),
  }),
  rebalance: channel => ({
    title: `Rebalance ${channel.name}?`,
    button: "Rebalance",
    text: `Each member of group ${channel.group} checks its share now. Only partitions that move pause, for a moment; `
      + "nothing is lost or redelivered.",
    fields: [],
    path: () => pathOf(channel.name, "rebalance"),
  }),
  rate: channel => ({
    title: `Bound the rate of ${channel.name}?`,
    button: "Set",
    text: "Each process takes at most so many records per second, until it is restarted or its options are edited. "
      + "Empty: unlimited.",
    fields: [{ name: "per_second", label: "Records per second", kind: "number", value: channel.max_read_rate ?? "" }],
    path: given => withQuery(pathOf(channel.name, "rate"), { per_second: given.per_second || "none" }),
  }),
  release: row => ({
    title: `Have ${row.owner} release ${nameOf(row)}?`,
    button: "Release",
    text: "It finishes the batch, commits, and releases the partition; it does not claim it again for that time. "
      + "If no other member has room, the partition has no owner. Nothing is lost.",
    fields: [{ name: "seconds", label: "Seconds (empty: until the next rebalance)", kind: "number", value: "60" }],
    path: given => withQuery(pathOf(row.channel, "release"),
      { topic: row.topic, partition: row.partition, consumer: row.owner, ...given }),
  }),
  reload: () => ({
    title: "Read the configuration again?",
    button: "Reload",
    text: "The files are read now. A configuration that cannot be used is refused whole, and the old one goes on; "
      + "only the edited parts change.",
    fields: [],
    path: () => "reload",
  }),
};

const pathOf = (channel, verb) => `channels/${encodeURIComponent(channel)}/${verb}`;

const withQuery = (path, given) => {
  const query = new URLSearchParams(Object.entries(given).filter(([, value]) => value !== "" && value !== undefined));
  return `${path}?${query}`;
};

/** The choice between the group and one of its members, those of these processes and those that they know of. */
const whom = channel => {
  const here = state.processes.flatMap(process => process.channels).filter(one => one.name === channel.name);
  const ids = [...new Set(here.flatMap(one => [one.consumer_id, ...one.members]))].sort(compareText);
  const choices = [["", `all members of group ${channel.group}`], ...ids.map(id => [id, `only ${id}`])];
  return { name: "consumer", label: "Whom", kind: "choice", choices };
};

const TOKEN = {
  name: "token", label: "Token", kind: "password",
  hint: "Where admin.token_file is set. Only this page knows it, until it is closed or loaded again.",
};

let opened = 0;
const openControl = (verb, what) => {
  state.control = { ...CONTROLS[verb](what), answer: null, busy: false, number: opened++ };
  drawControl();
  byId("control").showModal();
};
const closeControl = () => byId("control").close();
byId("control").addEventListener("close", () => {
  if (byId("control").open) return; // the event comes late: the next one is open already
  state.control = null;
  fill(byId("control"));
});

const drawControl = () => {
  const one = state.control;
  if (one === null) return;
  const done = one.answer?.good === true;
  fill(byId("control"), h("form", { key: `control-${one.number}`, onsubmit: submit, autocomplete: "off" },
    h("h2", { id: "control-title" }, one.title),
    h("p", {}, one.text),
    [...one.fields, { ...TOKEN, value: state.token }].map(field),
    one.answer && h("p", { class: `answer ${done ? "good" : "bad"}`, role: "status" }, one.answer.text),
    h("div", { class: "buttons" },
      h("button", { type: "button", class: "quiet", onclick: closeControl }, one.answer ? "Close" : "Cancel"),
      h("button", { type: "submit", class: "strong", disabled: one.busy || done }, one.busy ? "Asking …" : one.button))));
};

// What is typed stands in the document alone: fields are given a value when they are made, and not again.
const field = ({ name, label, kind, value = "", choices, hint }) => {
  const props = { name, type: kind, value, autocomplete: "off", spellcheck: "false", maxlength: "200" };
  const bounds = kind === "number" ? { min: "0", step: "any" } : {};
  return h("label", {},
    h("span", {}, label),
    kind === "choice" ? h("select", { name }, choices.map(([id, text]) => h("option", { value: id }, text)))
      : h("input", { ...props, ...bounds }),
    hint && h("small", {}, hint));
};

const submit = async event => {
  event.preventDefault();
  const one = state.control, { token, ...given } = Object.fromEntries(new FormData(event.target));
  state.token = token.trim();
  Object.assign(one, { busy: true, answer: null });
  drawControl();
  const { code, body, text } = await operate(one.path(given));
  const good = code === 200 && !["refused", "rolled-back"].includes(body?.outcome);
  Object.assign(one, { busy: false, answer: { good, text: said(code, body, text) } });
  if (state.control === one) drawControl();
  look();
};

const RELOADED = {
  "applied": "The configuration is applied.",
  "unchanged": "Nothing has changed.",
  "refused": "It cannot be used; what ran before goes on.",
  "rolled-back": "It does not start; what ran before runs again.",
};

const said = (code, body, text) => {
  if (code !== 200) return code ? `Refused (${code}): ${text}` : text;
  const reloaded = [RELOADED[body?.outcome] ?? body?.outcome, ...(body?.steps ?? []), body?.problem];
  return body?.message ?? reloaded.filter(Boolean).join("\n");
};
