"""How a flame graph looks, and the script that draws it."""

from __future__ import annotations

from inbound.report.style import COLOURS

STYLE = """
.tools { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; margin: 12px 0; }
.tools select, .tools input, .tools button {
  font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 3px 10px;
}
#graph { position: relative; overflow: hidden; border-radius: 6px; }
#graph button {
  all: unset; box-sizing: border-box; position: absolute; height: 19px; padding: 0 4px; cursor: pointer; overflow: hidden;
  border: 1px solid var(--back); border-radius: 4px; color: var(--ink); font: 12px/17px ui-monospace, "Liberation Mono", monospace;
  white-space: nowrap; text-overflow: ellipsis;
}
#graph button:hover, #graph button:focus-visible { outline: 2px solid var(--text); outline-offset: -2px; }
#graph .above { opacity: .6; }
#graph .faint { opacity: .25; }
.told { min-height: 3em; overflow-wrap: anywhere; white-space: pre-line; }
""" + "".join(f"#graph .k{i} {{ background: var(--c{i}); }}\n" for i in range(COLOURS))

#: Draws the bars that are wide enough to be seen, from the node that was pressed on; colours are by package.
SCRIPT = """
(() => {
  const holder = document.getElementById("profile");
  if (!holder) return;
  const { types, texts, root } = JSON.parse(holder.textContent);
  const byId = id => document.getElementById(id);
  const graph = byId("graph"), told = byId("told"), found = byId("found"), find = byId("find"), type = byId("type");
  const row = 20, narrowest = 2;
  const units = {
    nanoseconds: [[1e9, " s"], [1e6, " ms"], [1e3, " \\u00b5s"]], bytes: [[2 ** 20, " MiB"], [2 ** 10, " KiB"]],
  };
  const amount = (value, unit) => {
    for (const [divisor, name] of units[unit] || []) if (value >= divisor) return (value / divisor).toFixed(2) + name;
    return unit === "count" ? String(value) : value + " " + unit;
  };
  const packages = new Map();  // by when they come first: those that are seen most differ
  const colour = name => {
    const [first] = name.split(".", 1);
    if (!packages.has(first)) packages.set(first, packages.size % COLOURS);
    return "k" + packages.get(first);
  };
  let path = [root];  // from the whole to what is looked at
  const value = node => node[2][Number(type.value)];
  const matches = node => find.value && texts[node[0]].toLowerCase().includes(find.value.toLowerCase());
  const tell = node => {
    const unit = types[Number(type.value)].unit, whole = value(root) || 1;
    const part = `${amount(value(node), unit)}, ${(value(node) / whole * 100).toFixed(1)} %`;
    told.textContent = `${texts[node[0]]}: ${part}\n${texts[node[1]]}`;
  };
  const bar = (trail, x, width, depth, above) => {
    const node = trail[trail.length - 1], one = document.createElement("button");
    one.type = "button";
    one.tabIndex = width * graph.clientWidth > 40 ? 0 : -1;
    one.className = colour(texts[node[0]]) + (above ? " above" : "") + (find.value && !matches(node) ? " faint" : "");
    one.style.left = x * 100 + "%";
    one.style.width = width * 100 + "%";
    one.style.top = depth * row + "px";
    one.textContent = width * graph.clientWidth > 24 ? texts[node[0]] : "";
    one.ariaLabel = texts[node[0]];
    one.addEventListener("click", () => { path = trail; draw(); tell(node); });
    for (const event of ["mouseenter", "focus"]) one.addEventListener(event, () => tell(node));
    return one;
  };
  const draw = () => {
    const bars = [];
    let deepest = 0;
    path.slice(0, -1).forEach((node, depth) => bars.push(bar(path.slice(0, depth + 1), 0, 1, depth, true)));
    const place = (trail, x, width, depth) => {
      const node = trail[trail.length - 1], whole = value(node);
      if (width * graph.clientWidth < narrowest || !whole) return;
      deepest = Math.max(deepest, depth);
      bars.push(bar(trail, x, width, depth, false));
      for (const child of [...node[3]].sort((a, b) => value(b) - value(a))) {
        const part = width * value(child) / whole;
        place([...trail, child], x, part, depth + 1);
        x += part;
      }
    };
    place(path, 0, 1, path.length - 1);
    graph.replaceChildren(...bars);
    graph.style.height = (deepest + 1) * row + "px";
    const sum = node => matches(node) ? value(node) : node[3].reduce((total, child) => total + sum(child), 0);
    found.textContent = find.value ? `${(sum(root) / (value(root) || 1) * 100).toFixed(1)} % of all` : "";
  };
  type.addEventListener("change", draw);
  find.addEventListener("input", draw);
  byId("whole").addEventListener("click", () => { path = [root]; draw(); tell(root); });
  addEventListener("keydown", event => { if (event.key === "Escape") byId("whole").click(); });
  addEventListener("resize", draw);
  draw();
  tell(root);
})();
""".replace("COLOURS", str(COLOURS))
