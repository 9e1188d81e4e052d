// Line charts with intervals, drawn by uPlot.
import { el } from "./dom.js";
import { formatNumber } from "./text.js";
import { color, onTheme } from "./theme.js";

const { uPlot } = globalThis;
const HEIGHT = 190;
const COLORS = ["line-1", "line-2", "line-3", "line-4", "line-5", "line-6"];

// `lines`: [{ label, points: [[x, y]], dots }]; `intervals`: [{ x, y, low, high, label, line }].
export function chart({ title, lines, intervals = [], wide = false }) {
  const body = el("div", { class: "chart-body" });
  const figure = el(
    "figure",
    { class: wide ? "chart wide" : "chart" },
    el("figcaption", {}, el("strong", { text: title }), ...legend(lines)),
    body,
  );
  body.setAttribute("role", "img");
  body.setAttribute("aria-label", summary(title, lines, intervals));
  figure.start = () => drawChart(body, lines, intervals);
  return figure;
}

function legend(lines) {
  if (lines.length === 1) return [lastValue(lines[0])];
  return lines.map((line, number) =>
    el(
      "span",
      { class: "key" },
      el("i", { class: `swatch ${colorOf(line, number)}` }),
      el("span", { text: line.label }),
      lastValue(line),
    ),
  );
}

function lastValue(line) {
  const last = line.points.at(-1);
  return el("span", { class: "last", text: last ? formatNumber(last[1]) : "–" });
}

function colorOf(line, number) {
  return line.color ?? COLORS[number % COLORS.length];
}

function summary(title, lines, intervals) {
  const parts = lines.filter((line) => line.points.length).map((line) => {
    const [first, last] = [line.points[0], line.points.at(-1)];
    return `${line.label || title} from ${formatNumber(first[1])} at step ${first[0]} to ` +
      `${formatNumber(last[1])} at step ${last[0]}`;
  });
  const bars = intervals.map((one) => `${one.label} ${formatNumber(one.y)}, interval ` +
    `${formatNumber(one.low)} to ${formatNumber(one.high)}`);
  return `${title}: ${[...parts, ...bars.slice(0, 6)].join("; ")}`;
}

function drawChart(body, lines, intervals) {
  let plot = null;
  const draw = () => {
    plot?.destroy();
    plot = new uPlot(options(body, lines, intervals), table(lines, intervals), body);
  };
  draw();
  const off = onTheme(draw);
  const watcher = new ResizeObserver(() => plot.setSize({ width: width(body), height: HEIGHT }));
  watcher.observe(body);
  return () => {
    off();
    watcher.disconnect();
    plot.destroy();
  };
}

function width(body) {
  return Math.max(200, Math.floor(body.clientWidth));
}

function table(lines, intervals) {
  const all = lines.flatMap((line) => line.points.map(([x]) => x));
  const xs = [...new Set([...all, ...intervals.map((one) => one.x)])].sort((a, b) => a - b);
  const at = new Map(xs.map((x, place) => [x, place]));
  const columns = lines.map((line) => {
    const column = new Array(xs.length).fill(undefined);
    for (const [x, y] of line.points) column[at.get(x)] = y;
    return column;
  });
  return [xs, ...columns];
}

function options(body, lines, intervals) {
  const axis = {
    stroke: color("muted"),
    grid: { stroke: color("grid"), width: 1 },
    ticks: { stroke: color("grid"), width: 1, size: 4 },
    font: "11px system-ui, sans-serif",
  };
  return {
    width: width(body),
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: "steps" }, y: false, points: { size: 6 } },
    scales: { x: { time: false, range: padded }, y: { range: (_, low, high) => extent(low, high, intervals) } },
    series: [{ label: "step" }, ...lines.map((line, number) => series(line, number))],
    axes: [
      { ...axis, size: 28, values: (_, ticks) => ticks.map((tick) => Number.isInteger(tick) ? `${tick}` : "") },
      { ...axis, size: 52, values: (_, ticks) => ticks.map(short) },
    ],
    hooks: {
      draw: [(plot) => drawIntervals(plot, lines, intervals)],
      setCursor: [(plot) => tellValues(plot, lines, intervals, body)],
      ready: [(plot) => plot.root.append(el("div", { class: "readout", "aria-hidden": "true" }))],
    },
  };
}

function padded(_, low, high) {
  const more = low === high ? 1 : (high - low) * 0.03;
  return [low - more, high + more];
}

function extent(low, high, intervals) {
  const values = [low, high, ...intervals.flatMap((one) => [one.low, one.high])];
  const known = values.filter((value) => value !== null && value !== undefined);
  if (!known.length) return [0, 1];
  const [from, to] = [Math.min(...known), Math.max(...known)];
  const more = (to - from || Math.abs(to) || 1) * 0.08;
  return [from >= 0 && from - more < 0 ? 0 : from - more, to + more];
}

function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(0);
  return String(Number(value.toPrecision(4)));
}

function series(line, number) {
  const stroke = color(colorOf(line, number));
  return {
    label: line.label,
    stroke,
    width: 1.6,
    spanGaps: true,
    paths: line.dots ? () => null : undefined,
    points: { show: line.dots || line.points.length < 40, size: line.dots ? 7 : 4, fill: stroke },
  };
}

function drawIntervals(plot, lines, intervals) {
  const { ctx } = plot;
  ctx.save();
  ctx.lineWidth = 1.5 * devicePixelRatio;
  for (const one of intervals) {
    const x = plot.valToPos(one.x, "x", true);
    const [low, high, y] = [one.low, one.high, one.y].map((v) => plot.valToPos(v, "y", true));
    const cap = 3 * devicePixelRatio;
    ctx.strokeStyle = ctx.fillStyle = color(one.color ?? colorOf(lines[one.line] ?? {}, one.line));
    ctx.beginPath();
    ctx.moveTo(x, low);
    ctx.lineTo(x, high);
    for (const end of [low, high]) {
      ctx.moveTo(x - cap, end);
      ctx.lineTo(x + cap, end);
    }
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x, y, cap, 0, 2 * Math.PI);
    ctx.fill();
  }
  ctx.restore();
}

function tellValues(plot, lines, intervals, body) {
  const readout = body.querySelector(".readout");
  if (!readout) return;
  const place = plot.cursor.idx;
  if (place === null || place === undefined || plot.cursor.left < 0) {
    readout.textContent = "";
    return;
  }
  const x = plot.data[0][place];
  const values = lines.flatMap((line, number) => {
    const value = plot.data[number + 1][place];
    return value === undefined || value === null ? [] : [`${line.label} ${formatNumber(value)}`.trim()];
  });
  const bars = intervals.filter((one) => one.x === x).map(
    (one) => `${one.label} ${formatNumber(one.y)} [${formatNumber(one.low)}, ${formatNumber(one.high)}]`,
  );
  readout.textContent = [`step ${x}`, ...values, ...bars].join(" · ");
}

// Which charts a run's metrics make, and in which section each stands.

const SECTIONS = [
  ["Score", /^(reward|win_rate|exploration_gain|regret)$/],
  ["Episodes of the trial", /^episode_\d+\//],
  ["Environments", /^env\//],
  ["How episodes end", /^stop\//],
  ["Signal and update", /^(groups_without_signal|reward_std|loss|grad_norm|entropy|kl|clipped|aux_loss|learning_rate|staleness.*|ratio\/.*|sampler\/.*|curriculum\/.*)$/],
  ["Time", /^(time\/.*|ahead\/.*|tokens_per_second|occupancy|runtime)$/],
  ["Actions and tokens", /./],
];
const UNSHOWN = /^(seconds|epoch|total_agent_tokens|num_tokens)$/;

// One chart shows several metrics where they share a unit and a question.
const TOGETHER = [
  [/^episode_(\d+)\/(.+)$/, (match) => [`${match[2]} by episode`, `episode ${match[1]}`]],
  [/^env\/(.+)\/([^/]+)$/, (match) => [`${match[2]} by environment`, match[1]]],
  [/^curriculum\/(share|signal)\/(.+)$/, (match) => [`${match[1]} by kind of task`, match[2]]],
  [/^stop\/(.+)$/, (match) => ["stop reasons", match[1]]],
  [/^template_breaks\/(.+)$/, (match) => ["rows begun by the template", match[1]]],
  [/^call_breaks\/(.+)$/, (match) => ["rows begun by a program's calls", match[1]]],
  [/^time\/(.+)$/, (match) => ["seconds per step", match[1]]],
];

// Sections of charts: [{ title, charts: [{ title, lines: [{ label, metric, phase, source }] }] }].
// `constant` has the metrics that never change, with their value.
export function chartsOf(sources) {
  const sections = new Map(SECTIONS.map(([title]) => [title, new Map()]));
  const constant = new Map();
  sources.forEach((source, number) => {
    for (const [name, values] of Object.entries(source.metrics.values)) {
      const metric = name.replace(/^eval_/, "");
      const held = metric !== name;
      if (UNSHOWN.test(metric)) continue;
      const section = SECTIONS.find(([, pattern]) => pattern.test(metric))[0];
      const same = sameValue(values);
      if (same !== undefined && section !== "Score") {
        if (!held) constant.set(metric, same);
        continue;
      }
      const [title, label] = place(metric);
      const lines = sections.get(section);
      if (!lines.has(title)) lines.set(title, []);
      lines.get(title).push({ label, metric, name, held, source: number });
    }
  });
  const groups = [...sections].map(([title, charts]) => ({
    title,
    charts: [...charts].map(([name, lines]) => ({ title: name, lines })),
  }));
  return { sections: groups.filter((section) => section.charts.length), constant };
}

function place(metric) {
  for (const [pattern, names] of TOGETHER) {
    const match = pattern.exec(metric);
    if (match) return names(match);
  }
  return [metric.replace(/_/g, " "), ""];
}

function sameValue(values) {
  const known = values.filter((value) => value !== null);
  return known.every((value) => value === known[0]) ? known[0] : undefined;
}
