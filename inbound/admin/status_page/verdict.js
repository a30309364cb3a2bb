// The answer at night, in one line: is it stuck, why, did we lose anything? Pure.

/** Return {level, title, text}. `problems` stand in their order, the worst first. */
const verdictOf = (processes, rows, problems) => {
  if (!processes.length) return { level: LOOK, title: "No process answers yet", text: "" };
  const text = heldText(processes, rows), worst = problems[0];
  const still = rows.filter(row => row.level === BAD), slow = rows.filter(row => row.level === LOOK);
  const causes = of => some([...new Set(of.map(row => row.state))], 3);
  if (still.length) return { level: BAD, title: `${howMany(still.length, rows.length)}: ${causes(still)}`, text };
  if (worst?.level === BAD) return { level: BAD, title: `${upper(worst.subject)}: ${worst.title || worst.word}`, text };
  if (slow.length) return { level: LOOK, title: `${count(slow.length, "partition")} to look at: ${causes(slow)}`, text };
  if (worst?.level === LOOK) {
    const things = problems.filter(one => one.level === LOOK).length;
    return { level: LOOK, title: `No partition is stalled; ${count(things, "problem")} to look at`, text };
  }
  const wanted = [...new Set(problems.filter(one => one.word !== "notice").map(one => `${one.subject}: ${one.word}`))];
  if (wanted.length) return { level: WANTED, title: `Nothing is wrong; ${some(wanted, 2)}`, text };
  if (!rows.length && processes.some(process => process.channels.length)) {
    const why = "Other members of the groups have them all, or there are none.";
    return { level: GOOD, title: "All is healthy; no partitions here", text: why };
  }
  return { level: GOOD, title: "All is healthy", text };
};

const howMany = (still, all) => {
  if (still < all) return `${grouped.format(still)} of ${count(all, "partition")} ${still === 1 ? "is" : "are"} stalled`;
  return all === 1 ? "The only partition is stalled" : `All ${count(all, "partition")} are stalled`;
};

const heldText = (processes, rows) => {
  if (!rows.length) return "";
  const channels = new Set(processes.flatMap(process => process.channels.map(channel => channel.name))).size;
  const lags = rows.map(row => row.lag).filter(lag => lag !== null && lag !== undefined);
  const behind = lags.length ? `, ${count(lags.reduce((a, b) => a + b, 0), "record")} behind in all` : "";
  return `${count(rows.length, "partition")} of ${count(channels, "channel")} here${behind}.`;
};

const upper = text => text.charAt(0).toUpperCase() + text.slice(1);

/** What was lost or passed over, as far as the processes know since their start: sentences. */
const lossOf = processes => {
  const channels = processes.flatMap(process => process.channels);
  const sum = take => channels.reduce((all, channel) => all + (take(channel) || 0), 0);
  return [
    [sum(one => one.meters?.retention_lost), "deleted by retention before they were read"],
    [sum(one => one.not_sent_total), "committed and then not delivered"],
    [sum(one => one.meters?.passed_over?.skip), "skipped after they failed for good (on_error)"],
    [sum(one => one.meters?.passed_over?.processor), "passed over by the processor"],
    [sum(one => one.processor?.skipped_total), "passed over because they are no events"],
  ].filter(([number]) => number > 0).map(([number, words]) => `${count(number, "record")} ${words}`);
};
