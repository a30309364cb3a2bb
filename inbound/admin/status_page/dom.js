// What is shown is described as plain values (`h`), and `fill` changes of the document only what differs.
// Every text is set as text, and no attribute's name comes from data: nothing that is shown can become markup or script.

/** What is there of nested lists in which some are left out. */
const flat = children => children.flat(Infinity)
  .filter(one => one !== null && one !== undefined && one !== false && one !== "")
  .map(one => typeof one === "object" ? one : String(one));

/** Describe an element. `key`, among the properties, tells it from its siblings when they change their order. */
const h = (tag, props, ...children) => ({ tag, props: props ?? {}, key: props?.key, children: flat(children) });

const described = new WeakMap(); // what each node was made of
//: Those that are no attributes.
const PROPERTIES = new Set(["disabled", "checked", "hidden", "open", "value"]);

const setOne = (node, name, value) => {
  if (name === "key") return;
  if (name.startsWith("on") || PROPERTIES.has(name)) node[name] = value ?? (name.startsWith("on") ? null : false);
  else if (name === "style") for (const [one, text] of Object.entries(value ?? {})) node.style.setProperty(one, text);
  else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
};

const make = wanted => {
  if (typeof wanted === "string") return document.createTextNode(wanted);
  const node = document.createElement(wanted.tag);
  for (const [name, value] of Object.entries(wanted.props)) setOne(node, name, value);
  node.append(...wanted.children.map(make));
  described.set(node, wanted);
  return node;
};

const patch = (node, wanted) => {
  const before = described.get(node);
  if (before === wanted && before !== undefined) return;
  if (typeof wanted === "string" && node.nodeType === Node.TEXT_NODE) {
    if (node.data !== wanted) node.data = wanted;
  } else if (typeof wanted === "string" || before?.tag !== wanted.tag || before.key !== wanted.key) {
    node.replaceWith(make(wanted));
  } else {
    for (const name of Object.keys(before.props)) if (!(name in wanted.props)) setOne(node, name, undefined);
    for (const [name, value] of Object.entries(wanted.props)) {
      const old = before.props[name], same = name === "style" ? JSON.stringify(old) === JSON.stringify(value) : old === value;
      if (!same) setOne(node, name, value);
    }
    fill(node, wanted.children);
    described.set(node, wanted);
  }
};

/** Let `node` have these children: those that stand there already stay, with focus, selection and scroll position. */
const fill = (node, ...children) => {
  const wanted = flat(children);
  const keyed = new Map(), keys = new Set(wanted.map(one => one.key));
  for (const child of [...node.childNodes]) {
    const key = described.get(child)?.key;
    if (key === undefined) continue;
    if (keys.has(key)) keyed.set(key, child);
    else child.remove(); // first of all: so the others need not be moved, which would take the focus from them
  }
  let place = node.firstChild;
  for (const one of wanted) {
    const known = one.key === undefined ? undefined : keyed.get(one.key);
    if (known !== undefined) {
      if (known === place) place = place.nextSibling;
      else node.insertBefore(known, place);
      patch(known, one);
    } else if (place !== null && one.key === undefined && described.get(place)?.key === undefined) {
      const next = place.nextSibling;
      patch(place, one);
      place = next;
    } else {
      node.insertBefore(make(one), place);
    }
  }
  while (place !== null) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
};

const byId = id => document.getElementById(id);
