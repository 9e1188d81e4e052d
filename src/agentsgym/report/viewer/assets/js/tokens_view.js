// The training view: every token of a rollout, colored by a switch, its numbers on hover and focus.
import { episodeTitle } from "./conversation.js";
import { button, el, labelled, replace, select } from "./dom.js";
import { formatNumber, formatSigned, tokenText } from "./text.js";
import { colorings, paint, rowsOf } from "./tokens.js";

const FIRST_TOKENS = 4000;
let chosenColoring = "advantage";

export class TokensView {
  constructor(rollout) {
    this._detail = rollout.detail;
    this._rows = rowsOf(rollout);
    this._tokens = this._rows.flatMap((row) => row.tokens);
    this._colorings = colorings(creditsOf(rollout.detail));
    this._elements = [];
    this._current = null;
    this._legend = el("div", { class: "legend" });
    this._facts = el("div", { class: "token-facts", role: "status" });
    this._body = el("div", {
      class: "tokens",
      on: {
        pointerover: (event) => this._show(event.target),
        focusin: (event) => this._show(event.target),
        click: (event) => event.target.closest(".t")?.focus(),
        keydown: (event) => this._onKey(event),
      },
    }, ...this._rows.map((row, number) => this._row(row, number)));
    this._switch = this._makeSwitch();
    this.element = el("div", { class: "training" },
      el("div", { class: "token-bar" }, labelled("color by", this._switch), this._legend),
      this._facts, this._body);
    this._paint();
    this._showFirst();
  }

  // The next coloring that has numbers.
  cycle(by) {
    const usable = this._colorings.filter((one) => this._has(one));
    const place = usable.findIndex((one) => one.key === this._switch.value);
    const next = usable[(place + by + usable.length) % usable.length];
    this._switch.value = next.key;
    this._choose(next.key);
  }

  _has(coloring) {
    return this._tokens.some((token) => (coloring.of(token) ?? null) !== null);
  }

  _makeSwitch() {
    const options = this._colorings.map((one) => {
      const has = this._has(one);
      return { value: one.key, text: has ? one.text : `${one.text} (not stored)`, disabled: !has };
    });
    const usable = options.filter((option) => !option.disabled);
    const first = usable.find((option) => option.value === chosenColoring) ?? usable[0] ?? options[0];
    return select(options, first.value, (value) => this._choose(value), { name: "coloring" });
  }

  _choose(key) {
    chosenColoring = key;
    this._paint();
  }

  _paint() {
    const coloring = this._colorings.find((one) => one.key === this._switch.value);
    const { classes, legend } = paint(this._tokens, coloring);
    this._elements.forEach((element, place) => {
      element.className = `${element.dataset.base} ${classes[place]}`;
    });
    this._classes = classes;
    replace(this._legend, legendOf(legend));
  }

  _row(row, number) {
    const box = el("div", { class: "token-row" });
    if (this._rows.length > 1 || row.begins !== "episode" || !row.sampled) {
      box.append(el("p", { class: "row-title", text: rowTitle(row, number, this._rows.length) }));
    }
    const line = el("div", { class: "token-line", role: "group", "aria-label": `tokens of row ${number + 1}` });
    box.append(line);
    this._fill(line, row.tokens, 0);
    return box;
  }

  _fill(line, tokens, from) {
    const until = Math.min(tokens.length, from + FIRST_TOKENS);
    const parts = [];
    for (let place = from; place < until; place += 1) {
      const token = tokens[place];
      if (startsStep(token, tokens[place - 1])) parts.push(this._stepMark(token));
      parts.push(this._token(token));
    }
    line.append(...parts);
    if (until < tokens.length) {
      const more = button(`… ${tokens.length - until} more tokens`, () => {
        more.remove();
        this._fill(line, tokens, until);
        this._paint();
      }, { class: "link" });
      line.append(more);
    }
  }

  _token(token) {
    const element = document.createElement("span");
    element.textContent = tokenText(token.text);
    element.tabIndex = -1;
    element.dataset.place = this._elements.length;
    element.dataset.base = `t${token.mask ? " a" : ""}${token.special ? " markup" : ""}`;
    element.token = token;
    this._elements.push(element);
    return element;
  }

  _stepMark(token) {
    const step = this._detail.episodes[token.episode]?.steps[token.step];
    const episode = this._detail.episodes[token.episode];
    const first = token.step === 0 && this._detail.episodes.length > 1;
    const parts = [];
    if (first) parts.push(episodeTitle(episode, token.episode));
    parts.push(step?.kind === "reflection" ? "note" : `${token.step + 1}`);
    if (step?.anchor) parts.push(`⚓${step.anchor[0]}`);
    const title = step?.anchor
      ? `The same state as in ${step.anchor[1] - 1} other steps of the group` : null;
    return el("span", {
      class: `step-mark${step?.anchor ? " anchor" : ""}`, text: parts.join(" "), title,
    });
  }

  _showFirst() {
    const first = this._elements.find((element) => element.token.mask) ?? this._elements[0];
    if (!first) return;
    first.tabIndex = 0;
    this._current = first;
    this._tell(first.token);
  }

  _show(target) {
    const element = target.closest?.(".t");
    if (!element || element === this._current) return;
    if (this._current) this._current.tabIndex = -1;
    element.tabIndex = 0;
    this._current = element;
    this._tell(element.token);
  }

  _tell(token) {
    const step = this._detail.episodes[token.episode]?.steps[token.step];
    const values = [
      ["token", `${tokenText(token.text).trim() || "␣"}`],
      ["id", token.id],
      ["place", this._rows.length > 1 ? `row ${token.row + 1}, ${token.place}` : token.place],
      ["step", token.step === undefined ? "context" : this._stepName(token)],
      ["trained", token.mask ? "yes" : "no"],
      ["advantage", token.advantage ?? null, formatSigned],
      ["reward", token.reward ?? null],
      ["sampler", token.logprob ?? null, probability],
      ["trainer", token.trainer ?? null, probability],
      ["gap", token.gap ?? null, (value) => formatSigned(value, 4)],
      ["ratio", token.ratio ?? null, (value) => formatNumber(value, 4)],
      ["entropy", token.entropy ?? null],
      ...Object.entries(step?.credit ?? {}).map(([name, value]) => [`by ${name}`, value, formatSigned]),
    ];
    replace(this._facts, el("dl", {}, ...values.filter(([, value]) => value !== null).map(
      ([name, value, format]) => el("div", {}, el("dt", { text: name }), el("dd", {
        text: format ? format(value) : typeof value === "number" ? formatNumber(value) : value,
      })))));
  }

  _stepName(token) {
    const several = this._detail.episodes.length > 1;
    return several ? `${token.step + 1} of episode ${token.episode + 1}` : `${token.step + 1}`;
  }

  _onKey(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: "down", ArrowUp: "up" };
    if (!(event.key in moves) || !event.target.closest(".t")) return;
    const move = moves[event.key];
    const place = Number(event.target.dataset.place);
    const next = typeof move === "number" ? place + move : this._otherStep(place, move === "down" ? 1 : -1);
    this._elements[next]?.focus();
    event.preventDefault();
  }

  // The first token of the next step, or of this one and then of the step before.
  _otherStep(place, by) {
    const starts = this._elements.flatMap((element, at) =>
      startsStep(element.token, this._elements[at - 1]?.token) ? [at] : []);
    return by > 0 ? starts.find((at) => at > place) : starts.filter((at) => at < place).at(-1);
  }
}

function startsStep(token, before) {
  if (token.step === undefined) return false;
  return !before || before.row !== token.row || before.step !== token.step || before.episode !== token.episode;
}

function creditsOf(detail) {
  for (const episode of detail.episodes) {
    for (const step of episode.steps) if (step.credit) return Object.keys(step.credit);
  }
  return [];
}

const REASONS = {
  episode: "a new context",
  note: "the note from which the episode goes on",
  template: "the chat template rewrote the earlier conversation",
  history: "a call whose earlier turns were changed or dropped",
  tools: "a call that offers other tools",
  conversation: "a call of another conversation",
  branch: "a call that continues an earlier answer a second time",
  retry: "a call that repeats an earlier one",
};
const REWRITES = {
  thoughts: "it drops earlier thoughts",
  answer: "it changes the text of the last answer",
  opening: "it writes something else before the last answer",
  earlier: "it changes earlier turns",
};

function rowTitle(row, number, count) {
  const text = row.sampled ? "" : "; a text agent’s words, tokenized afterwards: no log-probabilities";
  const why = row.rewrites ? `: ${REWRITES[row.rewrites] ?? row.rewrites}` : "";
  return `Row ${number + 1} of ${count}: begins with ${REASONS[row.begins] ?? row.begins}${why}${text}`;
}

function probability(value) {
  return `${formatNumber(value, 4)} (p = ${formatNumber(Math.exp(value))})`;
}

function legendOf(legend) {
  if (!legend) return el("span", { text: "no numbers" });
  if (legend.kind === "flag") {
    return [el("i", { class: "swatch s5" }), el("span", { text: "sampled by the agent, trained" })];
  }
  const levels = [1, 2, 3, 4, 5, 6, 7, 8];
  const steps = legend.kind === "one" ? ["zero", ...levels.map((n) => `s${n}`)]
    : [...levels.toReversed().map((n) => `n${n}`), "zero", ...levels.map((n) => `p${n}`)];
  return [
    el("span", { text: legend.low }),
    el("span", { class: "ramp", "aria-hidden": "true" }, ...steps.map((name) => el("i", { class: name }))),
    el("span", { text: legend.high }),
  ];
}
