// Two sets on the same tasks: pairs sorted by where they differ, and one pair side by side.
import { stepOf } from "./conversation.js";
import { el, labelled, replace, select } from "./dom.js";
import { setKey } from "./filters.js";
import { addressOf, formatNumber, formatSigned, plural, rolloutName, setName, winText } from "./text.js";
import { VirtualList } from "./virtual_list.js";

export class CompareView {
  constructor(store) {
    this._store = store;
    [this._left, this._right] = firstChoice(store.sets());
    this._which = "different";
    this._shown = [];
    this._place = 0;
    this._choices = el("div", { class: "filters" });
    this._count = el("p", { class: "count", role: "status" });
    this._verdict = el("p", { class: "verdict" });
    this._pair = el("div", { class: "pair", id: "pair" });
    this._list = new VirtualList({
      height: 34,
      row: (pair) => this._row(pair),
      open: (pair, place) => this._open(pair, place),
      label: "Pairs of rollouts on the same task",
    });
    this.element = el("div", { class: "compare" }, this._choices, this._verdict, this._count,
      el("div", { class: "table" }, heads(), this._list.element), this._pair);
  }

  attach() {
    this._list.attach();
    this._draw();
    return () => this._list.detach();
  }

  focusList() {
    this._list.focus();
  }

  // The next or the previous pair.
  beside(by) {
    this._list.move(by);
    this._list.openCurrent();
  }

  async _draw() {
    if (!this._left || !this._right) {
      this._count.textContent = "There is nothing to compare.";
      return;
    }
    this._drawChoices();
    this._count.textContent = "loading";
    const [left, right] = [this._left, this._right];
    await Promise.all([left, right].map((set) => this._store.loadSet(set)));
    if (left !== this._left || right !== this._right) return;
    this._judge(left, right);
    this._pairs = byDifference(pairsOf(left.rollouts, right.rollouts));
    this._filter();
  }

  // The difference over all pairs, also those that the page doesn't contain.
  async _judge(left, right) {
    replace(this._verdict);
    const comparison = await this._store.comparison(left, right);
    if (!comparison || left !== this._left || right !== this._right) return;
    const figures = [["reward", comparison.reward], ["win rate", comparison.win_rate]].filter(([, one]) => one);
    const texts = figures.map(([name, one]) => `${name} ${formatSigned(one.difference)}${span(one)}`);
    replace(this._verdict,
      el("strong", { text: comparison.reward.shown ? "Right minus left: " : "No difference shown: " }),
      el("span", { text: `${texts.join(" · ")}, over ${plural(comparison.pairs, "pair")} in ${plural(comparison.clusters, "cluster")} of tasks` }));
  }

  _filter() {
    this._shown = this._pairs.filter(WHICH[this._which].test);
    this._list.show(this._shown, 0);
    this._tell();
    if (this._shown.length) this._open(this._shown[0], 0);
    else replace(this._pair);
  }

  _tell() {
    const known = this._pairs.filter((pair) => pair.difference !== null);
    if (!known.length) {
      this._count.textContent = "These two have no rollouts on the same tasks.";
      return;
    }
    const better = known.filter((pair) => pair.difference > 0).length;
    const worse = known.filter((pair) => pair.difference < 0).length;
    this._count.textContent = [
      `${plural(known.length, "pair")} on this page`,
      `${better} better on the right`, `${worse} better on the left`,
      `${known.length - better - worse} equal`, `${formatNumber(this._shown.length)} shown`,
    ].join(" · ");
  }

  _drawChoices() {
    const sets = this._store.sets().filter((set) => !set.omitted);
    const options = sets.map((set) => ({ value: setKey(set), text: setName(set, this._store) }));
    const choose = (side) => (value) => {
      this[side] = sets.find((set) => setKey(set) === value);
      this._draw();
    };
    replace(this._choices,
      labelled("left", select(options, setKey(this._left), choose("_left"), { name: "left" })),
      labelled("right", select(options, setKey(this._right), choose("_right"), { name: "right" })),
      labelled("show", select(
        Object.entries(WHICH).map(([value, { text }]) => ({ value, text })), this._which,
        (value) => { this._which = value; this._filter(); }, { name: "which" })));
  }

  _row(pair) {
    const cells = [
      ["difference", formatSigned(pair.difference), tone(pair.difference)],
      ["reward", formatNumber(pair.left.reward)],
      ["reward", formatNumber(pair.right.reward)],
      ["win", winText(pair.left.win)],
      ["win", winText(pair.right.win)],
      ["steps", formatNumber(pair.left.steps)],
      ["steps", formatNumber(pair.right.steps)],
      ["task", pair.left.task],
    ];
    return el("div", { class: "row" }, ...cells.map(([key, text, more]) =>
      el("span", { class: `cell c-${key} ${more ?? ""}`, text })));
  }

  async _open(pair, place) {
    this._place = place;
    const [left, right] = await Promise.all([pair.left, pair.right].map((one) => this._store.detail(one)));
    if (this._place !== place) return;
    replace(this._pair, sideBySide(this._store, pair, left.detail, right.detail));
  }
}

function span({ interval }) {
  return interval ? ` [${interval.map((end) => formatSigned(end)).join(", ")}]` : "";
}

function tone(difference) {
  if (difference === null || difference === 0) return "";
  return difference > 0 ? "plus" : "minus";
}

function heads() {
  const titles = [
    ["difference", "difference"], ["reward", "left reward"], ["reward", "right reward"],
    ["win", "left result"], ["win", "right result"], ["steps", "left actions"],
    ["steps", "right actions"], ["task", "task"],
  ];
  return el("div", { class: "row heads" },
    ...titles.map(([key, text]) => el("span", { class: `cell c-${key}`, text })));
}

function sideBySide(store, pair, left, right) {
  const episodes = Math.max(left.episodes.length, right.episodes.length);
  const parts = [];
  for (let number = 0; number < episodes; number += 1) {
    parts.push(...episodeRows(left.episodes[number], right.episodes[number], number, episodes));
  }
  return el("div", { class: "pair-grid" },
    ...[pair.left, pair.right].map((entry) => el("h3", {},
      el("a", { href: addressOf(entry), text: rolloutName(entry, store) }),
      el("span", { class: "chip", text: `reward ${formatNumber(entry.reward)}` }))),
    ...parts);
}

function episodeRows(left, right, number, episodes) {
  const rows = [];
  if (episodes > 1) {
    rows.push(...[left, right].map((one) => el("h4", {
      class: "pair-episode",
      text: one ? `Episode ${number + 1}, reward ${formatNumber(one.reward)}${one.scored ? "" : " (free shot)"}` : "",
    })));
  }
  const steps = Math.max(left?.steps.length ?? 0, right?.steps.length ?? 0);
  let same = true;
  for (let at = 0; at < steps; at += 1) {
    const [a, b] = [left?.steps[at], right?.steps[at]];
    const first = same && a?.action !== b?.action;
    if (first) {
      rows.push(el("p", { class: "parting", text: at ? `from here they differ (action ${at + 1})` : "they differ from the first action" }));
    }
    same &&= !first;
    rows.push(...[a, b].map((step) => (step ? stepOf(step, at) : el("div", { class: "step absent" }))));
  }
  return rows;
}

// Rollouts of two sets on the same tasks, episode beside episode.

function pairsOf(left, right) {
  const waiting = new Map();
  for (const entry of right) {
    if (!waiting.has(entry.key)) waiting.set(entry.key, []);
    waiting.get(entry.key).push(entry);
  }
  const pairs = [];
  for (const entry of left) {
    const other = waiting.get(entry.key)?.shift();
    if (other) pairs.push(pair(entry, other));
  }
  return pairs;
}

function pair(left, right) {
  const known = left.reward !== null && right.reward !== null;
  return { left, right, difference: known ? right.reward - left.reward : null };
}

function byDifference(pairs) {
  const size = ({ difference }) => (difference === null ? Infinity : Math.abs(difference));
  const keyed = pairs.map((one, place) => [size(one), place, one]);
  keyed.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  return keyed.map(([, , one]) => one);
}

const WHICH = {
  all: { text: "all pairs", test: () => true },
  different: { text: "different rewards", test: (p) => p.difference !== 0 },
  better: { text: "better on the right", test: (p) => p.difference > 0 },
  worse: { text: "better on the left", test: (p) => p.difference < 0 },
};

// The sets that can be compared, and the two that are shown first.
function firstChoice(sets) {
  const usable = sets.filter((set) => !set.omitted && set.phase !== "warmstart");
  const last = (source, phases) => usable.filter(
    (set) => set.source === source && phases.includes(set.phase)).at(-1);
  const two = usable.some((set) => set.source === 1);
  if (two) {
    const phases = ["after", "eval", "before", "train"];
    for (const phase of phases) {
      const [left, right] = [last(0, [phase]), last(1, [phase])];
      if (left && right) return [left, right];
    }
    return [last(0, phases), last(1, phases)];
  }
  const before = last(0, ["before"]) ?? usable.find((set) => set.phase === "eval");
  return [before ?? usable[0], last(0, ["after", "eval"]) ?? usable.at(-1)];
}
