// One rollout: its facts, its group, its conversation or its tokens.
import { conversation } from "./conversation.js";
import { button, el, labelled, longText, replace, select } from "./dom.js";
import { marks } from "./filters.js";
import { addressOf, formatNumber, rolloutName, winText } from "./text.js";
import { TokensView } from "./tokens_view.js";

export const VIEWS = [["conversation", "Conversation"], ["tokens", "Tokens"], ["group", "Group side by side"]];

// The estimator that the reader chose; before that, the one that the run was trained with.
let chosenEstimator = null;

export class RolloutView {
  constructor(store, entry, view, rollouts) {
    this._store = store;
    this.entry = entry;
    this.view = VIEWS.some(([key]) => key === view) ? view : "conversation";
    this._rollouts = rollouts;
    this._body = el("div", { class: "rollout-body", id: "rollout-body" });
    this.element = el("article", { class: "rollout" }, this._head(), this._body);
  }

  async fill() {
    const rollout = await this._store.detail(this.entry);
    this.tokens = null;
    if (this.view === "tokens") {
      this.tokens = new TokensView(rollout);
      replace(this._body, this.tokens.element);
    } else if (this.view === "group") {
      replace(this._body, await this._sideBySide());
    } else {
      replace(this._body, this._creditSwitch(rollout.detail),
        conversation(rollout.detail, { estimator: this._estimator(rollout.detail) }), more(rollout.detail));
    }
  }

  go(view) {
    location.hash = addressOf(this.entry, view);
  }

  beside(by) {
    const next = this._rollouts.beside(this.entry, by);
    if (next) location.hash = addressOf(next, this.view);
  }

  _members() {
    return this.entry.set.rollouts.filter((one) => one.group === this.entry.group);
  }

  _head() {
    const { entry } = this;
    const members = this._members();
    return el(
      "header",
      { class: "rollout-head" },
      el(
        "div",
        { class: "rollout-nav" },
        el("a", { href: "#/rollouts", class: "link", text: "← all rollouts" }),
        button("previous", () => this.beside(-1), { class: "quiet", title: "key [" }),
        button("next", () => this.beside(1), { class: "quiet", title: "key ]" }),
      ),
      el("h2", { text: rolloutName(entry, this._store) }),
      el(
        "p",
        { class: "chips" },
        el("span", { class: "chip", text: `reward ${formatNumber(entry.reward)}` }),
        entry.win === null ? null : el("span", {
          class: `chip ${entry.win === 1 ? "won" : "lost"}`, text: winText(entry.win),
        }),
        el("span", { class: "chip", text: entry.env }),
        el("span", { class: "chip", dir: "auto", text: `task: ${entry.task}` }),
        ...marks(entry).map((text) => el("span", { class: "chip", text })),
      ),
      members.length > 1 ? this._group(members) : null,
      el("div", { class: "tabs", role: "tablist", "aria-label": "View of the rollout" },
        ...VIEWS.filter(([key]) => key !== "group" || members.length > 1).map(([key, text]) => button(
          text, () => this.go(key),
          { role: "tab", "aria-selected": String(key === this.view), "aria-controls": "rollout-body" },
        ))),
    );
  }

  _group(members) {
    return el("nav", { class: "group", "aria-label": "Rollouts of the group" },
      el("span", { class: "group-title", text: `group of ${members.length}:` }),
      ...members.map((one) => el("a", {
        class: `member${one.win === 1 ? " won" : ""}`,
        href: addressOf(one, this.view),
        "aria-current": one === this.entry ? "true" : null,
        title: `rollout ${one.rollout}: reward ${formatNumber(one.reward)}`,
        text: formatNumber(one.reward),
      })));
  }

  // The estimator whose credit is shown: the chosen one, else that of the run.
  _estimator(detail) {
    const names = estimatorsOf(detail);
    const { estimator } = this._store.sources[this.entry.set.source];
    return [chosenEstimator, estimator].find((name) => names.includes(name)) ?? names[0];
  }

  _creditSwitch(detail) {
    const names = estimatorsOf(detail);
    if (!names.length) return null;
    const { estimator } = this._store.sources[this.entry.set.source];
    const options = names.map((value) => ({
      value, text: value === estimator ? `${value} (the run’s)` : value,
    }));
    const change = (value) => {
      chosenEstimator = value;
      this.fill();
    };
    return el("div", { class: "credit-switch" }, labelled("credit by",
      select(options, this._estimator(detail), change, { name: "estimator" })));
  }

  async _sideBySide() {
    const members = this._members();
    const rollouts = await Promise.all(members.map((one) => this._store.detail(one)));
    return el(
      "div",
      { class: "side-by-side", tabIndex: 0, role: "region", "aria-label": "The group side by side" },
      ...members.map((one, at) => el(
        "section",
        { class: one === this.entry ? "column current" : "column" },
        el("h3", {},
          el("a", { href: addressOf(one), text: `rollout ${one.rollout}` }),
          el("span", { class: "chip", text: `reward ${formatNumber(one.reward)}` }),
          one.win === null ? null : el("span", { class: `chip ${one.win === 1 ? "won" : "lost"}`, text: winText(one.win) })),
        conversation(rollouts[at].detail, { estimator: this._estimator(rollouts[at].detail) }),
      )),
    );
  }
}

// Those with numbers.
function estimatorsOf(detail) {
  const steps = detail.episodes.flatMap((episode) => episode.steps);
  return Object.keys(steps[0]?.credit ?? {}).filter((name) =>
    steps.some((step) => (step.credit?.[name] ?? null) !== null));
}

function more(detail) {
  const values = [
    ["session", detail.session_id], ["seed", detail.seed],
    ["policy of step", String(detail.policy_version)],
    ["task_data", JSON.stringify(detail.task_data, null, 1)],
    ["env_config", JSON.stringify(detail.env_config, null, 1)],
  ];
  return el("details", { class: "notes panel" },
    el("summary", { text: "Task and session" }),
    el("dl", {}, ...values.map(([name, value]) =>
      el("div", {}, el("dt", { text: name }), el("dd", {}, longText(value))))));
}
