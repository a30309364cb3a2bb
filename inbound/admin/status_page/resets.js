// Resets of offsets: how far each is, by Knative's six conditions; and the manifests that ask for some.

const CONDITIONS = [
  "RefMapped", "AcquireDataPlaneServices", "ConsumerGroupsStopped", "OffsetsUpdated", "ConsumerGroupsStarted", "Succeeded",
];
const STATUS = { True: ["good", "done"], False: ["bad", "failed"], Unknown: ["open", "not yet"] };

const drawResets = () => {
  const resets = new Map(), manifests = new Map(); // each process tells of the same ones
  for (const process of state.processes) {
    for (const one of process.resets?.known ?? []) resets.set(one.name, one);
    for (const one of process.reset_manifests ?? []) manifests.set(one.name, one);
  }
  fill(byId("resets"), resets.size || manifests.size ? [
    h("h2", { key: "title" }, "Resets of offsets"),
    [...resets.values()].map(resetCard), [...manifests.values()].map(manifestCard),
  ] : null);
};

const resetCard = reset => {
  const level = reset.state === "succeeded" ? GOOD : reset.finished ? LOOK : WANTED, wall = now();
  const about = [
    reset.name, `group ${reset.group ?? "not found yet"}, ${reset.ref}`, reset.by && `by ${reset.by}`,
    reset.ended && `ended ${ago(reset.ended, wall)}`,
  ].filter(Boolean).join("; ");
  return h("details", { class: "card reset", key: `reset ${reset.name}`, ...(reset.finished ? {} : { open: true }) },
    h("summary", {},
      h("h3", {}, reset.topic ?? reset.ref), chip(level, reset.state),
      h("span", { class: "soft" }, `${reset.what}, asked for ${ago(reset.created, wall)}`)),
    h("ol", { class: "steps" },
      CONDITIONS.map(type => condition(type, reset.conditions.find(one => one.type === type) ?? { status: "Unknown" }))),
    h("p", { class: "small soft" }, about));
};

const condition = (type, one) => {
  const [kind, word] = STATUS[one.status] ?? ["open", one.status];
  return h("li", { class: kind },
    h("strong", {}, type.split(/(?<=[a-z])(?=[A-Z])/).flatMap(part => [part, h("wbr")])),
    h("span", {}, word, one.reason ? ` – ${one.reason}` : ""),
    one.message && h("span", { class: "soft" }, one.message),
    one.time && one.status !== "Unknown" && h("time", { class: "soft" }, timeOf(one.time)));
};

const manifestCard = one => {
  const level = one.problem ? LOOK : one.state === "succeeded" ? GOOD : WANTED;
  return h("article", { class: "card reset", key: `manifest ${one.name}` },
    h("header", {}, h("h3", {}, `ResetOffset ${one.name}`), chip(level, one.problem ? "does nothing" : one.state || "read")),
    h("p", {}, one.problem ?? one.message),
    h("p", { class: "small soft" }, one.where));
};
