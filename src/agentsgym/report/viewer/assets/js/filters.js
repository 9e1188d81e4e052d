// Which rollouts are listed, and in what order.

export const COLUMNS = [
  { key: "set", title: "played", sort: (e) => [e.set.source, e.set.place, e.group, e.rollout] },
  { key: "group", title: "group", sort: (e) => e.group, number: true },
  { key: "rollout", title: "rollout", sort: (e) => e.rollout, number: true },
  { key: "reward", title: "reward", sort: (e) => e.reward ?? -Infinity, number: true },
  { key: "win", title: "result", sort: (e) => e.win ?? -1 },
  { key: "steps", title: "actions", sort: (e) => e.steps, number: true },
  { key: "tokens", title: "tokens", sort: (e) => e.tokens, number: true },
  { key: "stop", title: "ended", sort: (e) => e.stop.join(" ") },
  { key: "task", title: "task", sort: (e) => e.task },
  { key: "marks", title: "marks", sort: (e) => -marks(e).length },
];

export function marks(entry) {
  const texts = [];
  if (entry.failed) texts.push("failed");
  if (entry.malformed) texts.push(`${entry.malformed} malformed`);
  if (entry.truncated) texts.push(`${entry.truncated} cut off`);
  if (entry.rows > 1) texts.push(`${entry.rows} rows`);
  if (entry.recorded) texts.push("trainer’s numbers");
  return texts;
}

export const NO_FILTER = {
  set: "", env: "", result: "", stop: "", task: "", group: "", least: "", most: "", marked: "",
  text: "", sort: "set", down: false,
};

export function filtered(entries, filter, hits) {
  const tests = testsOf(filter, hits);
  const kept = entries.filter((entry) => tests.every((test) => test(entry)));
  return sorted(kept, filter);
}

function testsOf(filter, hits) {
  const tests = [];
  const add = (value, test) => value !== "" && tests.push(test);
  add(filter.set, (e) => setKey(e.set) === filter.set || e.set.phase === filter.set);
  add(filter.env, (e) => e.env === filter.env);
  add(filter.stop, (e) => e.stop.includes(filter.stop));
  add(filter.group, (e) => e.group === Number(filter.group));
  add(filter.least, (e) => e.reward !== null && e.reward >= Number(filter.least));
  add(filter.most, (e) => e.reward !== null && e.reward <= Number(filter.most));
  add(filter.result, RESULTS[filter.result]?.test);
  add(filter.marked, MARKS[filter.marked]?.test);
  const task = filter.task.toLowerCase();
  add(task, (e) => e.task.toLowerCase().includes(task));
  add(filter.text, (e) => hits.has(e));
  return tests;
}

export const RESULTS = {
  won: { text: "won", test: (e) => e.win === 1 },
  lost: { text: "lost", test: (e) => e.win !== null && e.win < 1 },
  failed: { text: "failed", test: (e) => e.failed },
};

export const MARKS = {
  malformed: { text: "malformed action", test: (e) => e.malformed > 0 },
  truncated: { text: "cut-off action", test: (e) => e.truncated > 0 },
  rows: { text: "several rows", test: (e) => e.rows > 1 },
  recorded: { text: "trainer’s numbers", test: (e) => e.recorded },
};

export function setKey(set) {
  return `${set.source} ${set.id}`;
}

function sorted(entries, { sort, down }) {
  const of = COLUMNS.find((column) => column.key === sort)?.sort ?? COLUMNS[0].sort;
  const keyed = entries.map((entry, place) => [of(entry), place, entry]);
  const sign = down ? -1 : 1;
  keyed.sort((a, b) => sign * compare(a[0], b[0]) || a[1] - b[1]);
  return keyed.map(([, , entry]) => entry);
}

function compare(a, b) {
  if (Array.isArray(a)) {
    const place = a.findIndex((value, at) => value !== b[at]);
    return place < 0 ? 0 : compare(a[place], b[place]);
  }
  if (typeof a === "string") return a.localeCompare(b);
  return a - b;
}

// Text search through conversations, block by block, so that the page answers meanwhile.

export class Search {
  constructor(store, onProgress) {
    this._store = store;
    this._onProgress = onProgress;
    this._run = 0;
    this.hits = new Set();
    this.done = true;
  }

  async start(text, entries) {
    const run = ++this._run;
    const needle = text.trim().toLowerCase();
    this.hits = new Set();
    this.done = needle === "";
    if (this.done) return;
    let reported = performance.now();
    for (const [place, entry] of entries.entries()) {
      const { detail } = await this._store.detail(entry);
      if (run !== this._run) return;
      if (says(detail, entry, needle)) this.hits.add(entry);
      if (performance.now() - reported > 120) {
        this._onProgress(place + 1, entries.length);
        await new Promise((resolve) => setTimeout(resolve));
        if (run !== this._run) return;
        reported = performance.now();
      }
    }
    this.done = true;
    this._onProgress(entries.length, entries.length);
  }

  stop() {
    this._run += 1;
  }
}

function says(detail, entry, needle) {
  detail.searchable ??= [
    entry.task,
    detail.error ?? "",
    ...detail.episodes.flatMap((episode) => [
      episode.system ?? "",
      ...episode.steps.flatMap((step) => [step.observation, step.action]),
    ]),
  ].join("\n").toLowerCase();
  return detail.searchable.includes(needle);
}
