// Numbers and times for people.

const grouped = new Intl.NumberFormat("en");
const count = (number, noun) => `${grouped.format(number)} ${noun}${number === 1 ? "" : "s"}`;
const dash = value => value === null || value === undefined ? "–" : grouped.format(value);

/** A time span in its largest unit: `4 s`, `12 min`, `3 h`, `2 d`. */
const age = seconds => {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.max(0, Math.floor(seconds))} s`;
};
const ago = (wall, now) => wall === null || wall === undefined ? "–" : `${age(now - wall)} ago`;

/** A Unix time as the reader's clock shows it; the date only where it is not of the last 20 hours. */
const clock = (wall, now) => {
  const at = new Date(wall * 1000), two = number => String(number).padStart(2, "0");
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  const date = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
  return Math.abs(now - wall) < 72000 ? time : `${date} ${time}`;
};

const bytes = number => {
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (number >= size) return `${(number / size).toFixed(1)} ${unit}`;
  return `${number} B`;
};

/** `a, b, c and 4 more`. */
const some = (names, most = 5) =>
  names.slice(0, most).join(", ") + (names.length > most ? ` and ${grouped.format(names.length - most)} more` : "");

//: The meaning of each cause, in few words; /explain has the details. As in docs/explain.md.
const CAUSES = {
  "healthy": "it moves",
  "catching-up": "it moves, and there is much to read",
  "idle": "there is nothing to read",
  "starting": "claimed a moment ago",
  "releasing": "it is being released",
  "paused": "it is paused",
  "waiting": "the processor asked for a backoff",
  "max-read-rate": "it keeps to its rate",
  "subscriber-limit": "its requests wait for a limit of the subscription",
  "delayed-retry": "the next event is not to be sent again yet",
  "reset": "a reset has closed the gate",
  "slow-processor": "a batch is inside the processor",
  "revert-loop": "the processor answers `revert` again and again",
  "processor-fails": "the processor raises on a batch",
  "poison-event": "the processor raises on one record",
  "subscriber-down": "the subscriber does not take an event",
  "subscriber-slow": "the subscriber takes long to answer",
  "dead-letters": "the dead letter sink, or a retry topic, does not take an event",
  "session-suspended": "no connection to ZooKeeper",
  "in-doubt": "the ZooKeeper session may have expired",
  "commit-waits": "a commit is not answered",
  "broker-away": "no broker answers for it",
  "not-allowed": "Kafka refuses credentials or rights",
  "topic-missing": "Kafka knows no such topic",
  "out-of-range": "the position is not in the log",
  "read-fails": "reading fails",
  "not-fetching": "the client does not fetch it",
  "buffer-full": "back-pressure: other partitions fill the read-ahead buffer",
  "workers-busy": "all workers are in callbacks",
  "ledger": "the ledger cannot be written",
  "internal": "a thread of inbound is dead or stuck",
  "lost": "another consumer has claimed it",
  "abandoned": "released, and its callback still runs",
  "owner-silent": "its owner does not answer",
  "being-claimed": "a member is about to claim it",
  "nobody-allowed": "no coordinator of the group may claim it",
  "bad-node": "a node of it in ZooKeeper cannot be used",
  "no-member": "the group has no consumer",
  "no-partition": "there is no such partition",
};
