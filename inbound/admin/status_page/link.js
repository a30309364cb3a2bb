// Asks the process: for its status again and again, for explanations, for operations.

const EVERY = 2000, LONGEST = 30000, PATIENCE = 15000; // milliseconds
//: A status that takes long is asked for less often, so that it costs the process little: a tenth of its time, if that
//: means no more than so many milliseconds.
const SHARE = 10, LAZIEST = 10000;
//: How long an explanation of a problem is good for, in seconds, and of how many problems there is one.
const EXPLAIN_EVERY = 10, EXPLAINED = 6;
const FORMAT = 1;

/** There is no answer, or none that can be used; the message says why. */
class Unanswered extends Error {}

const request = async (path, options) => {
  try {
    const answer = await fetch(new URL(path, document.baseURI), {
      cache: "no-store", redirect: "error", credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE), ...options,
    });
    return [answer, await answer.text()];
  } catch (error) {
    throw new Unanswered(error.name === "TimeoutError" ? "no answer in time" : "no process answers");
  }
};

/** Ask, and return {code, body, text}; an answer that is no JSON has no body. Throws Unanswered. */
const ask = async (path, options = {}) => {
  const [answer, text] = await request(path, options);
  const date = Date.parse(answer.headers.get("Date"));
  if (!Number.isNaN(date)) {
    const ahead = date / 1000 + 0.5 - Date.now() / 1000; // the header has whole seconds
    if (Math.abs(ahead - state.ahead) > 1) state.ahead = Math.abs(ahead) > 1 ? ahead : 0;
  }
  const json = (answer.headers.get("Content-Type") ?? "").startsWith("application/json");
  return { code: answer.status, body: json ? JSON.parse(text) : null, text: text.trim() };
};

let timer = null, asking = false;

const lookIn = milliseconds => {
  clearTimeout(timer);
  state.nextAt = Date.now() + milliseconds;
  timer = document.hidden ? null : setTimeout(look, milliseconds);
};

/** Ask for the status now, draw it, and repeat. One request at a time. */
const look = async () => {
  clearTimeout(timer);
  if (asking) return;
  asking = true;
  const began = Date.now();
  try {
    const { code, body, text } = await ask("status");
    if (code !== 200 || body === null) throw new Unanswered(text.split("\n")[0] || `it answered ${code}`);
    if (body.v !== FORMAT) throw new Unanswered(`it speaks format ${body.v}, this page ${FORMAT}: load the page again`);
    state.processes = body.processes ?? [body];
    Object.assign(state, { heard: Date.now(), away: null, tries: 0 });
    digest();
    lookIn(Math.min(LAZIEST, Math.max(EVERY, SHARE * (Date.now() - began))));
  } catch (error) {
    const ours = !(error instanceof Unanswered);
    if (ours) console.error(error);
    state.away = ours ? `this page cannot show the answer (${error.message}): load the page again` : error.message;
    state.tries += 1;
    lookIn(Math.min(LONGEST, EVERY * 2 ** (state.tries - 1)));
  } finally {
    asking = false;
  }
  draw();
  if (state.away === null) {
    await explainProblems();
    await explainDetail();
  }
};

const digest = () => {
  state.rows = rowsOf(state.processes);
  state.problems = problemsOf(state.processes, state.rows, now());
  const keys = new Set(state.problems.map(one => one.key));
  for (const key of state.explained.keys()) if (!keys.has(key)) state.explained.delete(key);
};

const explanations = async row => {
  const query = new URLSearchParams({ topic: row.topic, partition: row.partition, channel: row.channel });
  const { code, body, text } = await ask(`explain?${query}`);
  if (code !== 200 || body === null) throw new Unanswered(text.split("\n")[0] || `it answered ${code}`);
  // The owner knows; of several processes those that do not own it answer too.
  return body.answers.sort((a, b) => Number(b.held) - Number(a.held));
};

/** Ask for explanations: of one partition of each problem. */
const explainProblems = async () => {
  const wanted = state.problems.filter(one => one.rows.length).slice(0, EXPLAINED);
  for (const problem of wanted) {
    const known = state.explained.get(problem.key);
    if (known !== undefined && Date.now() / 1000 - known.at < EXPLAIN_EVERY) continue;
    try {
      const [first] = await explanations(problem.rows[0]);
      state.explained.set(problem.key, { at: Date.now() / 1000, ...(first?.explanation ?? {}) });
    } catch {
      return; // the next status shows whether it is unavailable
    }
  }
  if (wanted.length) draw();
};

const explainDetail = async () => {
  const open = state.detail;
  if (open === null) return;
  try {
    const answers = await explanations(open.row);
    Object.assign(open, { answers, problem: null });
  } catch (error) {
    open.problem = error.message;
  }
  if (state.detail === open) drawDetail();
};

/** Ask for an operation. Returns {done, text}. A page of another site cannot: the process looks at Origin and Host. */
const operate = async path => {
  const headers = state.token ? { Authorization: `Bearer ${state.token}` } : {};
  try {
    const { code, body, text } = await ask(path, { method: "POST", headers, signal: AbortSignal.timeout(120000) });
    return { code, body, text };
  } catch (error) {
    const text = `No answer (${error.message}): it is unknown whether it was done. To ask again is safe.`;
    return { code: 0, body: null, text };
  }
};

document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else look();
  draw();
});
