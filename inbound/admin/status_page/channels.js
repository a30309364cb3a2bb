// The channels with their buttons, and the subscribers that they dispatch to.

/** Numbers with their names, in columns. */
const figures = pairs => h("dl", { class: "numbers" },
  pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

/** The channels of all processes by their names; what can be added is added up. */
const channelsOf = processes => {
  const found = new Map();
  for (const channel of processes.flatMap(process => process.channels)) {
    if (!found.has(channel.name))
      found.set(channel.name, { ...channel, here: 0, records: 0, waiting: 0, fenced: 0, failed: {} });
    const all = found.get(channel.name);
    all.here += channel.partitions.length;
    all.records += channel.records_total;
    all.waiting += channel.commits_waiting;
    all.fenced += channel.commits_fenced_total;
    for (const [name, number] of Object.entries(channel.meters?.exceptions ?? {}))
      all.failed[name] = (all.failed[name] ?? 0) + number;
    all.registered &&= channel.registered;
    all.provable &&= channel.provable;
    all.ledger_problem ??= channel.ledger_problem;
    if (!all.paused.length) all.paused = channel.paused;
  }
  return [...found.values()];
};

const drawChannels = () => {
  const channels = channelsOf(state.processes);
  fill(byId("channels"), channels.length
    ? [h("h2", { key: "title" }, "Channels"), h("div", { class: "grid", key: "grid" }, channels.map(channelCard))] : null);
};

const channelCard = channel => {
  const rows = state.rows.filter(row => row.channel === channel.name);
  const lags = rows.map(row => row.lag).filter(lag => lag !== null && lag !== undefined);
  const resting = channel.paused.length || channel.resets.length;
  const level = rows.reduce((all, row) => Math.max(all, row.level), !channel.registered ? LOOK : resting ? WANTED : GOOD);
  const word = channel.removed ? "leaving" : channel.resets.length ? "reset" : channel.paused.length ? "paused"
    : !channel.registered ? "joining" : ["healthy", "in progress", "look", "stalled"][level];
  const all = Object.values(channel.topics).reduce((a, b) => a + b, 0);
  const failed = Object.entries(channel.failed).filter(([, number]) => number > 0);
  const control = (verb, text) => h("button", { type: "button", onclick: () => openControl(verb, channel) }, text);
  return h("article", { class: "card", key: channel.name },
    h("header", {}, h("h3", {}, channel.name), chip(level, word)),
    h("p", { class: "soft" }, `group ${channel.group}, ${channel.coordinator}, ${count(channel.members.length, "member")}`),
    figures([
      ["Partitions here", `${grouped.format(channel.here)} of ${grouped.format(all)}`],
      ["Lag", lags.length ? dash(lags.reduce((a, b) => a + b, 0)) : "–"],
      ["Records", dash(channel.records)],
      ["Commits waiting", dash(channel.waiting)],
      ["Fenced", dash(channel.fenced)],
      ["Ledger", channel.ledger_problem ? "fails" : channel.provable ? "complete" : "has gaps"],
    ]),
    failed.length ? h("p", { class: "small" },
      `Exceptions: ${some(failed.map(([name, number]) => `${name} ${grouped.format(number)}×`))}`) : null,
    channel.members.length ? h("p", { class: "small soft members" }, `Members: ${some(channel.members, 4)}`) : null,
    h("div", { class: "buttons" },
      control("pause", "Pause"), control("resume", "Resume"), control("rebalance", "Rebalance"),
      channel.paced && control("rate", "Rate")));
};

const drawSubscribers = () => {
  const found = [];
  for (const process of state.processes)
    for (const channel of process.channels)
      if (channel.subscriber || channel.processor?.subscriber) found.push(subscriberCard(process, channel));
  fill(byId("subscribers"), found.length
    ? [h("h2", { key: "title" }, "Subscribers"), h("div", { class: "grid wide", key: "grid" }, found)] : null);
};

const READY = { True: "ready", False: "not ready", Unknown: "not known" };

const subscriberCard = (process, channel) => {
  const said = channel.processor ?? {}, ready = channel.subscriber?.ready, standing = Object.entries(said.partitions ?? {});
  const level = said.subscriber_problem || standing.length ? BAD
    : ready === "False" ? LOOK : ready === "True" || Object.keys(said.answers ?? {}).length ? GOOD : WANTED;
  const answers = Object.entries(said.answers ?? {})
    .map(([status, number]) => `${grouped.format(number)} × ${status === "0" ? "no answer" : status}`);
  const where = [
    `channel ${channel.name}`, state.processes.length > 1 && `process ${process.pid}`,
    channel.subscriber && `subscription ${channel.subscriber.uid}`,
  ].filter(Boolean).join(", ");
  return h("article", { class: "card", key: JSON.stringify([channel.name, process.pid]) },
    h("header", {}, h("h3", {}, said.subscriber ?? channel.subscriber.uid),
      chip(level, level === BAD ? "fails" : READY[ready] ?? (answers.length ? "well" : "nothing sent yet"))),
    h("p", { class: "soft" }, where),
    said.subscriber_problem && h("p", { class: "hit" }, said.subscriber_problem),
    channel.subscriber?.message && h("p", {}, channel.subscriber.message),
    said.subscriber ? figures([
      ["Delivered", dash(said.delivered_total)], ["Under way", dash(said.in_flight)],
      ["Sent again", dash(said.retries_total)], ["Dead-lettered", dash(said.dead_lettered_total)],
      ["No events", dash(said.undecodable_total)], ["Replies", dash(said.replied_total)],
    ]) : null,
    said.subscriber ? h("p", { class: "small soft" }, `Answers: ${answers.length ? some(answers, 8) : "none yet"}`) : null,
    standing.slice(0, 5).map(([partition, why]) => h("p", { class: "small" }, `${partition}: ${why}`)));
};
