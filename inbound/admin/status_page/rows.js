// From a status to one row for each partition. Pure.

//: How bad: healthy; intended, or in progress; to look at; stalled.
const GOOD = 0, WANTED = 1, LOOK = 2, BAD = 3;
const LEVELS = ["good", "wanted", "look", "bad"];

const MOVES = new Set(["healthy", "catching-up", "idle"]);
const BENIGN = new Set([
  ...MOVES, "starting", "releasing", "paused", "waiting", "max-read-rate", "subscriber-limit", "delayed-retry", "reset",
  "being-claimed",
]);

const levelOf = partition => {
  if (partition.stalled || partition.held !== null || partition.in_doubt) return BAD;
  if (!BENIGN.has(partition.cause) || partition.attempts > 0) return LOOK;
  return MOVES.has(partition.cause) && !partition.paused && !partition.leaving ? GOOD : WANTED;
};

const stateOf = partition => {
  if (partition.in_doubt) return "in-doubt";
  if (partition.paused && BENIGN.has(partition.cause)) return "paused";
  return partition.cause;
};

const noteOf = partition => {
  if (partition.held !== null) return `held: ${partition.held}`;
  const error = partition.last_error ?? "";
  const failed = partition.attempts > 0 && `failed ${grouped.format(partition.attempts)}× in a row`;
  return [partition.leaving && "leaving", failed, error && (failed ? error : `earlier: ${error}`)].filter(Boolean).join("; ");
};

const heldRow = (common, partition) => ({
  ...common,
  ...partition,
  level: levelOf(partition),
  state: stateOf(partition),
  note: noteOf(partition),
  since: partition.stalled?.since ?? partition.cause_since,
  id: JSON.stringify([common.channel, partition.topic, partition.partition, common.pid]),
});

/** `name` is topic/partition. */
const abandonedRow = (common, name) => ({
  ...common,
  topic: name.slice(0, name.lastIndexOf("/")),
  partition: Number(name.slice(name.lastIndexOf("/") + 1)),
  owner: "–",
  level: BAD,
  state: "abandoned",
  note: "given up, but its callback still runs; this process takes it again only after that has ended",
  ...{ lag: null, committed: null, since: null, last_batch_at: null, held: null },
  id: JSON.stringify([common.channel, name, common.pid, "abandoned"]),
});

/** One row for each held partition of each process, and for each that was given up while its callback still runs. */
const rowsOf = processes => processes.flatMap(process => process.channels.flatMap(channel => {
  const common = { channel: channel.name, group: channel.group, owner: channel.consumer_id, pid: process.pid };
  return [
    ...channel.partitions.map(partition => heldRow(common, partition)),
    ...channel.abandoned.map(name => abandonedRow(common, name)),
  ];
}));

const nameOf = row => `${row.topic}/${row.partition}`;

const compareText = new Intl.Collator("en", { numeric: true }).compare;
const byPlace = (a, b) =>
  compareText(a.topic, b.topic) || a.partition - b.partition || compareText(a.channel, b.channel) || a.pid - b.pid;
const numberOf = value => value ?? -1;
const sinceOf = row => row.since ?? Number.MAX_SAFE_INTEGER;
//: By the names of the columns. Rows that are equal stand by topic and number.
const ORDERS = {
  partition: byPlace,
  channel: (a, b) => compareText(a.channel, b.channel),
  state: (a, b) => a.level - b.level || (a.level < LOOK ? 0 : sinceOf(b) - sinceOf(a)),
  since: (a, b) => sinceOf(b) - sinceOf(a), // the longest is the largest
  lag: (a, b) => numberOf(a.lag) - numberOf(b.lag),
  offset: (a, b) => numberOf(a.committed) - numberOf(b.committed),
  owner: (a, b) => compareText(a.owner, b.owner),
  last: (a, b) => numberOf(a.last_batch_at) - numberOf(b.last_batch_at),
};

const sorted = (rows, column, up) => {
  const order = ORDERS[column];
  return [...rows].sort((a, b) => (up ? order(a, b) : order(b, a)) || byPlace(a, b));
};

/** Those in which every word that is looked for stands somewhere. */
const filtered = (rows, text, problemsOnly) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(row => {
    if (problemsOnly && row.level < LOOK) return false;
    const said = [nameOf(row), row.channel, row.group, row.owner, row.state, row.note].join(" ").toLowerCase();
    return words.every(word => said.includes(word));
  });
};
