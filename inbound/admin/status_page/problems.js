// From a status to its problems: each with its reason and remedy. Pure.

//: By the state of the session.
const NOT_A_MEMBER = {
  down: [BAD, "not connected", "there is no connection to ZooKeeper yet",
    "Nothing is read before it answers; see zookeeper.hosts."],
  joining: [WANTED, "joining", "it joins its groups", "Partitions are claimed when that is done."],
  suspended: [BAD, "session-suspended", "there is no connection to ZooKeeper",
    "No new batches and no commits until it answers; partitions are kept, and go on then."],
  closed: [WANTED, "closed", "it has left its groups", ""],
};
//: Seconds without a step after which a thread counts as stuck, as /healthz does.
const STUCK = 60;
const isNotWell = thread => !thread.alive || (!thread.in_callback && thread.last_step_age > STUCK);

/** Return {level, key, subject, word, title, text, todo, rows}; problems that several processes share appear once. */
const problemsOf = (processes, rows, wall) => {
  const found = new Map();
  const say = (level, subject, word, title, text = "", todo = "") => {
    const key = JSON.stringify([subject, word, title, text]);
    if (!found.has(key)) found.set(key, { level, key, subject, word, title, text, todo, rows: [] });
  };
  standing(rows, found);
  for (const process of processes) {
    ofProcess(process, processes.length > 1 ? `process ${process.pid}` : "this process", say);
    for (const channel of process.channels) {
      const named = rows.filter(row => row.channel === channel.name && row.level >= LOOK).map(row => row.state);
      ofChannel(channel, new Set(named), wall, say);
    }
  }
  return [...found.values()].sort((a, b) => b.level - a.level);
};

/** Stalled partitions by channel and cause: of each lot, one partition is explained. */
const standing = (rows, found) => {
  for (const row of rows.filter(one => one.level >= LOOK)) {
    const key = JSON.stringify(["partitions", row.channel, row.state, row.level]);
    const lot = {
      level: row.level, key, subject: row.channel, word: row.state, title: CAUSES[row.state] ?? "", text: row.note, todo: "",
      rows: [],
    };
    if (!found.has(key)) found.set(key, lot);
    found.get(key).rows.push(row);
  }
};

const ofProcess = (process, who, say) => {
  if (process.problem) {
    say(BAD, who, "silent", process.problem, "Nothing more is known of it.");
    return;
  }
  for (const thread of process.threads.filter(isNotWell)) {
    say(BAD, who, "internal", `thread ${thread.name} is ${thread.alive ? "stuck" : "dead"}`,
      "A defect of inbound; please report it with the log.", "Restart the process: other members claim its partitions.");
  }
  ofSession(process, who, say);
  if (process.ingress?.away)
    say(BAD, "ingress", "broker-away", "Kafka is unavailable", process.ingress.away, "Events are answered with 503 until then.");
  for (const [topic, problem] of Object.entries(process.ingress?.doubted ?? {}))
    say(BAD, "ingress", "no answer", `topic ${topic}: Kafka does not acknowledge`, problem,
      "Its events are answered with 503 until it takes one.");
  const config = process.config_problem ?? process.reload?.problem;
  if (config)
    say(LOOK, "configuration", "refused", "the files cannot be used; the old configuration goes on", config,
      "Correct the file: it is read as soon as it changes.");
  const { ledger_shipping: shipping, offsets } = process;
  if (shipping?.problem) say(LOOK, "ledger", "not shipped", "its files wait here", shipping.problem);
  if (offsets?.zookeeper_problem) say(BAD, "offsets", "ZooKeeper", "it cannot be asked", offsets.zookeeper_problem);
  if (offsets?.kafka_problem) say(LOOK, "offsets", "Kafka", "lags are missing", offsets.kafka_problem);
  for (const one of process.refused_manifests ?? []) {
    const subscriber = one.subscriber ? `, subscriber ${one.subscriber}` : "";
    const subject = one.kind && one.name ? `${one.kind} ${one.namespace}/${one.name}${subscriber}` : one.file;
    const title = one.kept.length ? `${one.kept.join(", ")} goes on as before` : "it does not run";
    say(LOOK, subject, "refused", title, one.problem, "Correct the manifest: it is read as soon as it changes.");
  }
  for (const manifest of process.reset_manifests ?? [])
    if (manifest.problem) say(LOOK, `ResetOffset ${manifest.name}`, "does nothing", "", manifest.problem);
};

const ofSession = (process, who, say) => {
  const session = process.session;
  if (process.stopping) say(WANTED, who, "stopping", "it finishes its batches, commits and leaves its groups");
  else if (session && session.state in NOT_A_MEMBER) {
    const [level, word, title, text] = NOT_A_MEMBER[session.state];
    say(level, who, word, title, [session.problem, text].filter(Boolean).join("\n"));
  } else if (session?.problem) say(LOOK, who, "ZooKeeper", "", session.problem);
};

/** `named` are the causes that its partitions show already. */
const ofChannel = (channel, named, wall, say) => {
  const { name } = channel;
  if (channel.removed)
    say(WANTED, name, "leaving", "it was taken out of the configuration",
      `It leaves group ${channel.group} when its batches in flight have ended.`);
  else if (!channel.registered)
    say(LOOK, name, "joining", "not yet a member of its group",
      `Nothing is claimed before it is a member of ${channel.group}.`);
  for (const reset of channel.resets) {
    const since = reset.since ? `, for ${age(wall - reset.since)}` : "";
    say(WANTED, name, "reset", `a reset moves the offsets of ${reset.topic}`,
      `Reset ${reset.name}: ${reset.step || "its step is not known"}${since}. Nothing of the topic is read before it is over.`);
  }
  for (const pause of channel.paused) {
    const whose = pause.consumer ? `member ${pause.consumer} reads nothing` : "nothing is read";
    const end = pause.holder === "operator" ? "Resume it when the reason for the pause is gone."
      : `Held by ${pause.holder}, which ends it when it is done.`;
    say(WANTED, name, "paused", whose, pauseText(pause), end);
  }
  if (channel.kafka_problem && !["broker-away", "not-allowed", "topic-missing"].some(one => named.has(one)))
    say(BAD, name, "Kafka", "", channel.kafka_problem);
  if (channel.ledger_problem && !named.has("ledger")) say(BAD, name, "ledger", "it cannot be written", channel.ledger_problem);
  for (const [where, problem] of Object.entries(channel.bad_nodes ?? {}))
    say(BAD, name, "bad node", `${where}: its nodes cannot be used`, problem, "It is tried again at least once a minute.");
  if (!channel.provable)
    say(LOOK, name, "ledger", "not everything was recorded", "That part cannot be proven.");
  const mirror = channel.mirror;
  if (mirror?.problem) say(LOOK, name, "mirror", `offsets do not go to Kafka group ${mirror.group}`, mirror.problem);
  if (!named.has("subscriber-down")) ofSubscriber(channel, say); // else the same would be said twice
  for (const notice of channel.notices) say(WANTED, name, "notice", "", notice);
};

const ofSubscriber = (channel, say) => {
  const resting = channel.paused.length || channel.resets.length, said = channel.processor;
  if (said?.subscriber_problem) say(LOOK, channel.name, "subscriber", said.subscriber, said.subscriber_problem);
  else if (channel.subscriber?.ready === "False" && !resting)
    say(LOOK, channel.name, "not ready", "the subscription is not served", channel.subscriber.message);
};

const pauseText = pause => [
  pause.since && `Since ${timeOf(pause.since)}`, pause.by && `by ${pause.by}`, pause.reason && `(${pause.reason})`,
].filter(Boolean).join(" ");

/** A time in ISO 8601 as the reader's clock shows it; what is none stays as it is. */
const timeOf = text => {
  const wall = Date.parse(text) / 1000;
  return Number.isNaN(wall) ? text : clock(wall, now());
};
