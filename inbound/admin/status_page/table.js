// The partitions: sorted, filtered, and only so many of them in the document.

const FIRST = 100, MORE = 500;
//: The name of the order, what stands above the column, its class, whether the largest come first.
const COLUMNS = [
  ["partition", "Partition", "", false],
  ["channel", "Channel", "", false],
  ["state", "State", "", true],
  ["since", "Since", "number", true],
  ["lag", "Lag", "number", true],
  ["offset", "Committed", "number", true],
  ["owner", "Owner", "", false],
  ["last", "Last batch", "number", true],
];

let drawn = new Map(); // id: {signature, row}: what has not changed is not looked at again

const drawPartitions = () => {
  const section = byId("partitions");
  if (!state.rows.length) {
    fill(section);
    return;
  }
  const found = filtered(state.rows, state.filter, state.problemsOnly);
  const rows = sorted(found, state.sort.column, state.sort.up).slice(0, state.shown);
  const left = found.length - rows.length;
  fill(section,
    tools(rows.length),
    rows.length ? table(rows) : h("p", { class: "soft", key: "none" },
      state.filter ? "No partition is like that." : "No partition has a problem."),
    left > 0 && h("p", { key: "more" },
      h("button", { type: "button", onclick: more }, `Show ${grouped.format(Math.min(MORE, left))} more`)));
};

const tools = shown => {
  const all = state.rows.length, problems = state.rows.filter(row => row.level >= LOOK).length;
  const search = {
    type: "search", id: "filter", placeholder: "Filter: topic, owner, cause …", "aria-label": "Filter partitions",
    oninput: filter, autocomplete: "off", spellcheck: "false",
  };
  return h("div", { class: "head", key: "head" },
    h("h2", {}, "Partitions"),
    h("input", search),
    h("label", { class: "toggle" },
      h("input", { type: "checkbox", id: "problems-only", onchange: onlyProblems }),
      h("span", {}, `only with problems (${grouped.format(problems)})`)),
    h("span", { class: "soft", id: "counted" },
      shown === all ? count(all, "row") : `${grouped.format(shown)} of ${count(all, "row")}`));
};

const table = rows => {
  const most = state.rows.reduce((all, row) => Math.max(all, row.lag ?? 0), 0), wall = now(), before = drawn;
  drawn = new Map();
  return h("div", { class: "scroll", key: "scroll", tabindex: "0", role: "region", "aria-label": "Table of partitions" },
    h("table", { class: "cards" },
      h("thead", {}, h("tr", {}, COLUMNS.map(header))),
      h("tbody", { id: "rows" }, rows.map(row => rowOf(row, most, wall, before)))));
};

const header = ([name, title, kind, down]) => {
  const here = state.sort.column === name;
  const press = () => {
    state.sort = { column: name, up: here ? !state.sort.up : !down };
    drawPartitions();
  };
  return h("th", { scope: "col", class: kind || null, "aria-sort": here ? (state.sort.up ? "ascending" : "descending") : null },
    h("button", { type: "button", onclick: press }, title));
};

const rowOf = (row, most, wall, before) => {
  const share = row.lag && most ? Math.max(3, Math.round(100 * row.lag / most)) : 0;
  const cells = {
    name: nameOf(row), channel: row.channel, word: row.state, level: LEVELS[row.level], note: row.note,
    since: row.since ? age(wall - row.since) : "–", lag: dash(row.lag), share, committed: dash(row.committed),
    owner: row.owner, last: ago(row.last_batch_at, wall),
  };
  const signature = JSON.stringify(cells), known = before.get(row.id);
  const made = known?.signature === signature ? known.row : describe(row.id, cells);
  drawn.set(row.id, { signature, row: made });
  return made;
};

const describe = (id, cells) => h("tr", { key: id, class: cells.level },
  h("th", { scope: "row" }, h("button", {
    type: "button", class: "link", title: `Why? ${CAUSES[cells.word] ?? ""}`, onclick: () => openRow(id),
  }, cells.name)),
  h("td", { "data-label": "Channel" }, cells.channel),
  h("td", { class: "state" },
    h("span", { class: `chip ${cells.level}` }, cells.word),
    cells.note && h("span", { class: "note" }, cells.note)),
  h("td", { class: "number", "data-label": "Since" }, cells.since),
  h("td", { class: "number lag", "data-label": "Lag" },
    h("span", {}, cells.lag),
    h("i", { class: "track", "aria-hidden": "true" }, h("i", { style: { width: `${cells.share}%` } }))),
  h("td", { class: "number", "data-label": "Committed" }, cells.committed),
  h("td", { class: "owner", "data-label": "Owner" }, cells.owner),
  h("td", { class: "number", "data-label": "Last batch" }, cells.last));

const openRow = id => {
  const row = state.rows.find(one => one.id === id);
  if (row) openDetail(row);
};

const filter = event => {
  Object.assign(state, { filter: event.target.value, shown: FIRST });
  drawPartitions();
};
const onlyProblems = event => {
  Object.assign(state, { problemsOnly: event.target.checked, shown: FIRST });
  drawPartitions();
};
const more = () => {
  state.shown += MORE;
  drawPartitions();
};
