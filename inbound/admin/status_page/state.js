// The state of the page. Code that changes it calls `draw` (of the last file).

const state = {
  processes: null, // of the last answer; null: there was none yet
  rows: [],
  problems: [],
  heard: null, // when the last answer came, by this browser's clock, in milliseconds
  ahead: 0, // seconds that the clock of the process is ahead of ours
  away: null, // why there is no answer; null: there is one
  tries: 0, // in vain, in a row
  nextAt: null, // when it is asked again, in milliseconds
  filter: "",
  problemsOnly: false,
  sort: { column: "state", up: false },
  shown: 100, // rows at most
  explained: new Map(), // key of a problem: {at, text, todo, since}
  detail: null, // {row, answers, problem}: the partition whose story is open
  control: null, // the operation that is asked for
  token: "", // typed by the person; it is nowhere but here
};

/** Now, in Unix time, by the clock of the process. */
const now = () => Date.now() / 1000 + state.ahead;
