"""The pages' styles, light and dark, and the script that sorts tables."""

from __future__ import annotations

#: Colours of consumers or groups; then they repeat.
COLOURS = 8

STYLE = """
:root {
  color-scheme: light dark;
  --back: #fbfaf7;
  --card: #ffffff; --ink: #ffffff; --text: #23262b; --soft: #6a6f78; --line: #e4e1da; --grid: #eeece6;
  --good: #2f7d55; --good-back: #e6f2ea; --bad: #b3382c; --bad-back: #fbe9e5; --open: #96690c; --open-back: #f8eed6;
  --c0: #4c78a8; --c1: #d9822b; --c2: #5a9e6f; --c3: #b15f8d; --c4: #7d6bb3; --c5: #3d9aa1; --c6: #a4763b; --c7: #7f8894;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #16181c;
    --card: #1e2126; --ink: #16181c; --text: #e4e2dd; --soft: #9aa0aa; --line: #33373e; --grid: #2a2d33;
    --good: #7cc79c; --good-back: #1d3328; --bad: #f08a7c; --bad-back: #40221f; --open: #e0b45c; --open-back: #3a2f18;
    --c0: #7aa6d6; --c1: #eda75f; --c2: #85c699; --c3: #d68fb6; --c4: #a99add; --c5: #6cc1c7; --c6: #cda06a; --c7: #a7afba;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 32px 24px 80px; }
h1 { font-size: 24px; line-height: 1.3; font-weight: 600; margin: 12px 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 17px; font-weight: 600; margin: 40px 0 10px; }
h3 { font-size: 15px; font-weight: 600; margin: 0; overflow-wrap: anywhere; }
p { margin: 6px 0; }
code { font: 13px ui-monospace, "Liberation Mono", monospace; }
.soft { color: var(--soft); }
.small { font-size: 13px; }
.badge {
  display: inline-block; padding: 2px 10px; border-radius: 99px; font-size: 13px; font-weight: 600;
  white-space: nowrap;
}
.proven { color: var(--good); background: var(--good-back); }
.anomalies, .never-claimed { color: var(--bad); background: var(--bad-back); }
.not-provable { color: var(--open); background: var(--open-back); }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); gap: 10px; margin: 22px 0 0;
  padding: 0; list-style: none;
}
.tiles li { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.tiles strong { display: block; font-size: 21px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles .bad strong { color: var(--bad); }
.tiles span { font-size: 13px; color: var(--soft); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
.tall { max-height: 560px; overflow-y: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
caption { text-align: left; padding: 8px 12px; color: var(--soft); }
th, td { padding: 6px 12px; text-align: left; vertical-align: top; border-top: 1px solid var(--grid); }
thead th {
  position: sticky; top: 0; background: var(--card); border-top: 0; color: var(--soft); font-weight: 500;
  white-space: nowrap; box-shadow: 0 1px var(--line);
}
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.zero { color: var(--soft); opacity: .55; }
.hit { color: var(--bad); font-weight: 600; }
.noted { color: var(--open); }
td { overflow-wrap: break-word; }
td.time { white-space: nowrap; }
th button { all: unset; cursor: pointer; }
th button:focus-visible { outline: 2px solid var(--c0); outline-offset: 3px; border-radius: 3px; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
a { color: inherit; text-decoration-color: var(--line); text-underline-offset: 3px; }
a:hover { text-decoration-color: currentcolor; }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 18px;
  margin: 12px 0; content-visibility: auto; contain-intrinsic-size: auto 60px;
}
.card > header, summary { display: flex; gap: 12px; align-items: baseline; flex-wrap: wrap; }
summary { cursor: pointer; list-style-position: inside; }
summary h3 { display: inline; }
.card .scroll { margin-top: 12px; }
ul.reasons { margin: 6px 0; padding-left: 20px; }
.map { display: flex; flex-wrap: wrap; gap: 3px; margin: 12px 0 0; }
.map a { width: 14px; height: 14px; border-radius: 3px; background: var(--good); opacity: .55; }
.map a.anomalies, .map a.never-claimed { background: var(--bad); opacity: 1; }
.map a.not-provable { background: var(--open); opacity: 1; }
.map a:hover, .map a:focus-visible { outline: 2px solid var(--text); }
svg { display: block; width: 100%; height: auto; margin-top: 8px; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: var(--soft); }
svg .label { fill: var(--ink); font-weight: 600; pointer-events: none; }
svg .name { fill: var(--text); font-size: 12px; }
svg .grid { stroke: var(--grid); }
svg .axis { stroke: var(--line); }
svg .end { stroke: var(--soft); stroke-dasharray: 3 4; }
svg .handed { fill: none; stroke-width: 1.5; stroke-dasharray: 2 3; }
svg .landed { fill: none; stroke-width: 2.2; stroke-linecap: round; }
svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
svg .second { stroke-dasharray: 5 4; }
svg .again { fill: var(--open); opacity: .22; }
svg .bad { fill: var(--bad); stroke: var(--card); }
svg .noted { fill: var(--open); stroke: var(--card); }
svg .mark { fill: var(--card); stroke: var(--text); stroke-width: 1.5; }
svg .died { fill: none; stroke: var(--bad); stroke-width: 2; }
svg .dot { opacity: 0; }
svg .dot:hover { opacity: 1; }
.legend {
  display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 8px 0 0; padding: 0; list-style: none;
  font-size: 13px; color: var(--soft);
}
.legend svg { display: inline-block; width: 14px; height: 14px; margin: 0 6px 0 0; vertical-align: -2px; }
.legend li { overflow-wrap: anywhere; }
""" + "".join(f".f{i} {{ fill: var(--c{i}); }}\n.s{i} {{ stroke: var(--c{i}); }}\n" for i in range(COLOURS))

#: Sorts a table by the column whose header is pressed: by `data-value` where cells have one, else by their text.
SCRIPT = """
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const header = button.closest("th"), body = header.closest("table").tBodies[0];
    const up = header.getAttribute("aria-sort") !== "ascending";
    for (const other of header.parentElement.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => { const cell = row.cells[header.cellIndex]; return cell.dataset.value ?? cell.textContent; };
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)], [m, n] = [parseFloat(x), parseFloat(y)];
      return Number.isNaN(m) || Number.isNaN(n) ? compare(x, y) : m - n;
    };
    body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
  });
}
// A link to a folded partition opens it.
const unfold = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
};
addEventListener("hashchange", unfold);
unfold();
"""
