// The bar, the answer, and the reasons for it.

const chip = (level, text) => h("span", { class: `chip ${LEVELS[level]}` }, text);

const drawBar = () => {
  const [first] = state.processes ?? [], several = (state.processes?.length ?? 0) > 1;
  const who = !first ? location.host
    : several ? `${state.processes.length} processes on ${first.host}` : `pid ${first.pid} on ${first.host}`;
  fill(byId("bar"), h("div", { class: "inside" },
    h("strong", { class: "brand" }, "inbound"),
    h("span", { class: "who" }, who, first?.version ? ` · ${first.version}` : ""),
    live(),
    state.processes?.some(one => one.reload)
      && h("button", { type: "button", class: "quiet", onclick: () => openControl("reload") }, "Reload")));
};

const live = () => {
  const since = state.heard === null ? null : Math.round((Date.now() - state.heard) / 1000);
  if (state.away !== null) {
    const next = Math.max(0, Math.ceil((state.nextAt - Date.now()) / 1000));
    return h("span", { class: "live bad" },
      `${since === null ? "not heard yet" : `last heard ${age(since)} ago`} · again in ${next} s `,
      h("button", { type: "button", class: "link", onclick: look }, "now"));
  }
  if (since === null) return h("span", { class: "live" }, "asking …");
  return h("span", { class: "live good" }, since < STALE ? "live" : `last heard ${age(since)} ago`);
};
//: Seconds after which an answer is not of this moment any more.
const STALE = 6;

const drawVerdict = () => {
  document.body.classList.toggle("away", state.away !== null);
  if (state.processes === null) {
    fill(byId("verdict"),
      h("h1", {}, state.away === null ? "Asking the process …" : "The process does not answer"),
      state.away && h("p", { class: "soft" }, state.away));
    return;
  }
  const found = verdictOf(state.processes, state.rows, state.problems);
  fill(byId("verdict"), h("div", { class: `verdict ${LEVELS[found.level]}` },
    h("h1", {}, found.title),
    state.away !== null && h("p", { class: "stale" },
      `The process does not answer: ${state.away}. This page shows its last answer.`),
    found.text && h("p", {}, found.text),
    state.processes.some(process => process.channels.length) && lossLine()));
  document.title = state.away !== null ? "? inbound" : `${["✓", "•", "!", "✗"][found.level]} ${found.title} – inbound`;
};

const lossLine = () => {
  const lost = lossOf(state.processes), began = Math.max(...state.processes.map(one => Date.parse(one.started) / 1000 || 0));
  const since = `since the start${began ? `, ${age(now() - began)} ago` : ""}`;
  if (lost.length) return h("p", { class: "lost" }, `Lost or passed over ${since}: ${lost.join("; ")}.`);
  return h("p", { class: "soft" },
    `Nothing is known here to be lost or passed over ${since}. The proof is `, h("code", {}, "inbound spark validate"), ".");
};

//: So many partitions of a problem are named.
const NAMED = 8;

const drawProblems = () => fill(byId("problems"),
  state.problems.length ? h("ul", { class: "problems" }, state.problems.map(problem)) : null);

const problem = one => {
  const told = state.explained.get(one.key), text = told?.text ?? one.text, todo = told?.todo || one.todo;
  const oldest = one.rows.reduce((all, row) => row.since ? Math.min(all, row.since) : all, Infinity);
  const left = one.rows.length - NAMED;
  return h("li", { key: one.key, class: LEVELS[one.level] },
    h("div", { class: "title" },
      chip(one.level, one.word),
      h("strong", {}, one.subject),
      h("span", {}, one.title),
      oldest < Infinity && h("span", { class: "soft" }, `since ${clock(oldest, now())} (${age(now() - oldest)})`)),
    text && h("p", {}, text),
    todo && h("p", {}, h("strong", {}, "What to do: "), todo),
    one.rows.length ? h("p", { class: "places" },
      one.rows.slice(0, NAMED).map(row => h("button", {
        type: "button", class: "link", key: row.id, onclick: () => openRow(row.id),
      }, nameOf(row))),
      left > 0 && h("span", { class: "soft" }, `and ${grouped.format(left)} more`)) : null);
};
