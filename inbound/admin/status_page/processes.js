// Each process: its session, its configuration, its ledger, what else runs in it.

const drawProcesses = () => fill(byId("processes"), state.processes.length ? [
  h("h2", { key: "title" }, state.processes.length > 1 ? "Processes" : "Process"),
  h("div", { class: "grid wide", key: "grid" }, state.processes.map(processCard)),
] : null);

const processCard = (process, place) => {
  const began = Date.parse(process.started) / 1000, notWell = process.threads.filter(isNotWell);
  const level = process.problem || notWell.length || ["down", "suspended"].includes(process.session?.state) ? BAD
    : process.config_problem || process.reload?.problem ? LOOK : GOOD;
  const word = process.problem ? "silent" : process.stopping ? "stopping" : { [BAD]: "wrong", [LOOK]: "look" }[level] ?? "well";
  const lines = [
    ["ZooKeeper", process.session && sessionLine(process.session)],
    ["Configuration", process.reload && reloadLine(process.reload)],
    ["Last change", process.reload?.last_steps?.length && some(process.reload.last_steps, 4)],
    ["Refused", process.config_problem ?? process.reload?.problem],
    ["Ledger", ledgerLine(process)],
    ["Shipping", process.ledger_shipping && shippingLine(process.ledger_shipping)],
    ["Mirror", process.channels.filter(one => one.mirror).map(mirrorLine).join("; ")],
    ["Ingress", process.ingress && ingressLine(process.ingress)],
    ["Offsets", process.offsets && offsetsLine(process.offsets)],
    ["Threads", process.threads.length && (notWell.length
      ? `${some(notWell.map(one => one.name))} of ${process.threads.length} not well` : `${process.threads.length}, all well`)],
  ].filter(([, text]) => text);
  return h("article", { class: "card", key: `process ${place}` },
    h("header", {}, h("h3", {}, `pid ${process.pid} on ${process.host}`), chip(level, word)),
    h("p", { class: "soft" },
      process.problem ?? `inbound ${process.version}${Number.isNaN(began) ? "" : `, up ${age(now() - began)}`}`),
    h("dl", { class: "lines" }, lines.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)))));
};

const sessionLine = session => [
  session.state, session.id && `session ${session.id}${session.timeout ? ` of ${session.timeout} s` : ""}`,
  session.certain_for > 0 ? `certain for ${session.certain_for.toFixed(1)} s` : session.id && "in doubt",
  session.sessions_total > 1 && `session number ${session.sessions_total}`,
].filter(Boolean).join(", ");

const reloadLine = reload => {
  const last = reload.last_outcome
    ? `${reload.last_outcome}${reload.last_at ? ` ${ago(reload.last_at, now())}` : ""}` : "as at the start";
  const totals = [[reload.applied_total, "applied"], [reload.refused_total, "refused"], [reload.rolled_back_total, "taken back"]];
  return `${reload.digest}: ${last}; ${totals.map(([number, word]) => `${grouped.format(number)} ${word}`).join(", ")}${
    reload.under_way ? "; steps are being taken" : ""}`;
};

const ledgerLine = process => {
  const written = process.channels.filter(channel => channel.ledger);
  if (!written.length) return process.channels.length ? "nothing is counted" : "";
  const sum = name => written.reduce((all, channel) => all + channel.ledger[name], 0);
  const problem = process.channels.find(channel => channel.ledger_problem)?.ledger_problem;
  const whole = process.channels.every(channel => channel.provable) ? "all is recorded" : "not everything was recorded";
  const counts = [count(sum("entries_total"), "line"), bytes(sum("bytes_total")), count(sum("failures_total"), "failure")];
  return `${counts.join(", ")}; ${problem ?? whole}`;
};

const shippingLine = ships => `${ships.target}: ${count(ships.files_waiting, "file")} waiting (${bytes(ships.bytes_waiting)}), ${
  grouped.format(ships.files_total)} shipped${ships.problem ? `; ${ships.problem}` : ""}`;

const mirrorLine = channel => `${channel.name}: ${channel.mirror.state}, ${count(channel.mirror.waiting, "offset")} waiting`;

const ingressLine = ingress => `${ingress.url}: ${count(ingress.connections, "connection")}, ${
  count(ingress.accepted_events_total, "event")} accepted, ${grouped.format(ingress.failed_events_total)} failed${
  ingress.draining ? ", draining" : ""}`;

const offsetsLine = offsets => `${count(offsets.groups.length, "group")}, ${count(offsets.partitions.length, "partition")}, lag ${
  dash(offsets.partitions.reduce((all, one) => all + (one.lag ?? 0), 0))}, last look ${ago(offsets.looked_at, now())}`;
