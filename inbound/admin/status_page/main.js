// What draws everything, and begins.

const draw = () => {
  drawBar();
  drawVerdict();
  if (state.processes === null) return;
  drawProblems();
  drawChannels();
  drawPartitions();
  drawSubscribers();
  drawResets();
  drawProcesses();
};

fill(byId("footer"), h("span", {}, "The same for programs: "),
  ["status", "metrics", "jmx", "healthz", "readyz"].map(path => h("a", { href: path }, `/${path}`)));
setInterval(() => { if (!document.hidden) drawBar(); }, 1000);
draw();
look();
