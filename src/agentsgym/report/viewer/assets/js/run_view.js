// The run: its figures before and after, its learning curves, where the time went, its settings.
import { chart, chartsOf } from "./charts.js";
import { el } from "./dom.js";
import { formatNumber, formatSeconds, formatShare, nameOf, setName } from "./text.js";

export function runView(store) {
  const charts = [];
  const { sections, constant } = chartsOf(store.sources);
  const panels = sections.map(({ title, charts: own }) => {
    const figures = own.map((one) => curve(one, store));
    charts.push(...figures);
    return { title, figures };
  });
  // Of one run, the scores stand beside the table.
  const score = store.sources.length === 1 && panels[0]?.title === "Score" ? panels.shift() : null;
  const element = el(
    "div",
    { class: "run" },
    el("div", { class: store.sources.length > 1 ? "two-runs" : "" },
      ...store.sources.map((source, number) => header(source, number, store, score))),
    ...panels.map(({ title, figures }) => el("section", { class: "panel" }, el("h2", { text: title }),
      el("div", { class: "charts" }, ...figures), title === "Score" ? bars() : null)),
    constants(constant),
    ...store.sources.map((source) => configuration(source, store)),
  );
  return { element, attach: () => startWhenSeen(charts) };
}

function bars() {
  return el("p", {
    class: "note",
    text: "Bars are 95 % intervals over tasks with the same solution; single points are held-out evaluations.",
  });
}

function constants(constant) {
  if (!constant.size) return null;
  const same = [...constant].map(([name, value]) => `${name} ${formatNumber(value)}`);
  return el("p", { class: "note constants", text: `The same in every step: ${same.join(" · ")}.` });
}

// A chart is drawn when it first comes into view.
function startWhenSeen(charts) {
  const ends = [];
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      watcher.unobserve(entry.target);
      ends.push(entry.target.start());
    }
  }, { rootMargin: "200px" });
  charts.forEach((one) => watcher.observe(one));
  return () => {
    watcher.disconnect();
    ends.forEach((end) => end());
  };
}

function header(source, number, store, score) {
  const run = store.sources.length > 1 ? `${"AB"[number]} · ` : "";
  return el(
    "section",
    { class: "panel" },
    el("h2", { text: `${run}${nameOf(source, store)}` }),
    ...source.problems.map((problem) => el("p", { class: "problem", text: problem })),
    source.summary ? facts(factsOf(source.summary)) : null,
    source.evaluation ? facts(factsOfEvaluation(source.evaluation)) : null,
    el(
      "div",
      { class: "overview" },
      el("div", {}, figuresOf(source)),
      score ? el("div", {}, el("div", { class: "charts" }, ...score.figures), bars()) : null,
    ),
    source.summary ? times(source.summary) : null,
  );
}

function figuresOf({ summary, evaluation, ...source }) {
  if (summary) return beforeAfter(summary, EVALUATIONS);
  if (evaluation?.figures) return beforeAfter(evaluation, [["figures", "This evaluation"]]);
  return setTable(source);
}

function factsOfEvaluation(evaluation) {
  const { settings } = evaluation;
  const plain = Object.entries(settings).filter(([, value]) => ["string", "number"].includes(typeof value));
  return [
    ["status", evaluation.status],
    ["model", evaluation.model],
    ["time", formatSeconds(evaluation.seconds)],
    ...plain.filter(([name]) => name !== "model" && !name.endsWith("digest")).slice(0, 8).map(([name, value]) => [name, String(value)]),
  ];
}

function factsOf(summary) {
  const values = [
    ["status", summary.status + (summary.stop_reason ? ` (${summary.stop_reason})` : "")],
    ["environment", summary.env],
    ["model", summary.model],
    ["optimizer steps", formatNumber(summary.steps)],
    ["agent tokens", formatNumber(summary.agent_tokens)],
    ["time", formatSeconds(summary.seconds)],
    ["seed", formatNumber(summary.seed)],
  ];
  if (summary.error) values.push(["error", summary.error]);
  return values;
}

function facts(values) {
  return el(
    "dl",
    { class: "facts" },
    ...values.map(([name, value]) =>
      el("div", {}, el("dt", { text: name }), el("dd", { text: value, dir: "auto" }))),
  );
}

const EVALUATIONS = [["before", "Before"], ["warm_started", "After warm start"], ["after", "After"]];

function beforeAfter(summary, titles) {
  const columns = titles.filter(([key]) => summary[key]);
  if (!columns.length) return null;
  const figures = columns.map(([key]) => summary[key]);
  const rows = [
    ["win rate", (f) => f.win_rate === null ? null : withInterval(f.win_rate, f.ci95, formatShare)],
    ["reward", (f) => withInterval(f.reward, f.reward_ci95, formatNumber)],
    ["reference player", (f) => f.reference === null ? null : formatNumber(f.reference)],
    ...Object.entries(summary.references ?? {}).map(([name, score]) => [
      `${name} (reference)`, () => formatNumber(score),
    ]),
    ["regret", (f) => f.regret === null ? null : formatNumber(f.regret)],
    ...names(figures, "trial").map((name) => [trialName(name), (f) => formatNumber(f.trial?.[name])]),
    ["actions per rollout", (f) => formatNumber(f.mean_steps)],
    ...names(figures, "metrics").map((name) => [`${name} per action`, (f) => formatNumber(f.metrics[name])]),
    ...names(figures, "stop_reasons").map((name) => [
      `ended: ${name}`, (f) => f.stop_reasons[name] ? formatNumber(f.stop_reasons[name]) : "0",
    ]),
    ["rollouts (failed)", (f) => `${formatNumber(f.rollouts)} (${f.failures})`],
    ["task clusters", (f) => formatNumber(f.clusters)],
    ...names(figures, "environments").map((name) => [
      `${name}: reward`, (f) => {
        const own = f.environments[name];
        return own ? withInterval(own.reward, own.reward_ci95, formatNumber) : null;
      },
    ]),
  ];
  return tableOf("Held-out tasks", columns.map(([, title]) => title), rows, figures);
}

function trialName(name) {
  const match = /^episode_(\d+)\/(.+)$/.exec(name);
  return match ? `episode ${match[1]}: ${match[2].replace(/_/g, " ")}` : name.replace(/_/g, " ");
}

function names(figures, key) {
  return [...new Set(figures.flatMap((one) => Object.keys(one[key] ?? {})))];
}

function withInterval(value, interval, format) {
  if (value === null) return null;
  if (!interval || interval[0] === null) return format(value);
  return `${format(value)} [${interval.map((end) => format(end)).join(", ")}]`;
}

function tableOf(caption, titles, rows, figures) {
  const lines = rows.map(([name, value]) => [name, figures.map(value)]);
  return el(
    "table",
    { class: "figures" },
    el("caption", { text: caption }),
    el("thead", {}, el("tr", {}, el("td"), ...titles.map((text) => el("th", { scope: "col", text })))),
    el(
      "tbody",
      {},
      ...lines.filter(([, cells]) => cells.some((cell) => cell !== null)).map(([name, cells]) =>
        el(
          "tr",
          {},
          el("th", { scope: "row", text: name, dir: "auto" }),
          ...cells.map((cell) => el("td", { text: cell ?? "–" })),
        )),
    ),
  );
}

// An evaluation without a summary: the figures of its sets of rollouts.
function setTable(source) {
  const sets = source.sets.filter((set) => set.figures);
  if (!sets.length) return null;
  const rows = [
    ["win rate", (f) => withInterval(f.win_rate, f.win_rate_ci95, formatShare)],
    ["reward", (f) => withInterval(f.reward, f.reward_ci95, formatNumber)],
    ["failed", (f) => formatNumber(f.failures)],
  ];
  const titles = sets.map((set) => setName(set, { sources: [source] }));
  return tableOf("Rollouts", titles, rows, sets.map((set) => set.figures));
}

const PARTS = {
  model: "loading the model", before: "evaluation before", warm_start: "warm start",
  warm_started: "evaluation after the warm start", rl: "training", after: "evaluation after",
  report: "report",
};

function times(summary) {
  const parts = Object.entries(summary.phases).filter(([, seconds]) => seconds > 0);
  const total = parts.reduce((sum, [, seconds]) => sum + seconds, 0);
  if (!total) return null;
  const names = { ...PARTS, ...(summary.model === "tiny" ? { model: "warm start of the new model" } : {}) };
  const bar = el("div", { class: "time-bar", "aria-hidden": "true" });
  const keys = parts.map(([name, seconds], number) => {
    const swatch = `line-${(number % 6) + 1}`;
    const part = el("i", { class: `swatch ${swatch}` });
    part.style.flexGrow = seconds;
    bar.append(part);
    return el(
      "span",
      { class: "key" },
      el("i", { class: `swatch ${swatch}` }),
      el("span", { text: `${names[name] ?? name} ${formatSeconds(seconds)}` }),
    );
  });
  return el("div", { class: "times" }, el("h3", { text: "Where the time went" }), bar,
    el("p", { class: "keys" }, ...keys));
}

function curve({ title, lines }, store) {
  const several = store.sources.length > 1;
  const curves = lines.map((line) => {
    const { metrics } = store.sources[line.source];
    const values = metrics.values[line.name];
    const points = metrics.step.map((step, at) => [step, values[at]]).filter(([, y]) => y !== null);
    const run = several ? "AB"[line.source] : "";
    const held = line.held ? "held-out" : lines.some((one) => one.held) ? "training" : "";
    return { label: [run, line.label, held].filter(Boolean).join(" "), points, dots: line.held };
  });
  const intervals = lines.length && ["reward", "win_rate"].includes(lines[0].metric)
    ? intervalsOf(lines[0].metric, lines, store) : [];
  return chart({ title, lines: curves, intervals });
}

// Intervals of the sets whose rollouts were read. Training's are over the tasks of one step.
function intervalsOf(metric, lines, store) {
  const intervals = [];
  store.sources.forEach((source, number) => {
    for (const set of source.sets) {
      const interval = set.figures?.[`${metric}_ci95`];
      const value = set.figures?.[metric];
      if (!interval || interval[0] === null || value === null) continue;
      if (!["train", "eval", "before", "after"].includes(set.phase)) continue;
      const line = Math.max(0, lines.findIndex(
        (one) => one.source === number && one.held === (set.phase === "eval")));
      const held = set.phase === "before" || set.phase === "after";
      intervals.push({
        x: set.phase === "train" ? set.step + 1 : set.phase === "after" ? (source.summary?.steps ?? set.step) : set.step,
        y: value, low: interval[0], high: interval[1], line,
        color: held ? (number ? "held-2" : "held") : undefined,
        label: setName(set, store),
      });
    }
  });
  return intervals;
}

function configuration(source, store) {
  const text = source.config || (source.evaluation && JSON.stringify(source.evaluation.settings, null, 2));
  if (!text) return null;
  const run = store.sources.length > 1 ? ` of ${source.name}` : "";
  const versions = Object.entries((source.summary ?? source.evaluation)?.versions ?? {});
  return el(
    "details",
    { class: "panel" },
    el("summary", {}, el("h2", { text: `Configuration${run}` })),
    el("pre", { class: "config", tabIndex: 0, text }),
    versions.length
      ? el("p", { class: "note", text: versions.map((pair) => pair.join(" ")).join(" · ") }) : null,
  );
}
