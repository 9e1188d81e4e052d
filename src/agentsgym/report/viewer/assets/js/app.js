// The page: its frame, its addresses (#/run, #/rollouts, #/rollout/…, #/compare), its keys.
import { CompareView } from "./compare_view.js";
import { button, el, replace } from "./dom.js";
import { RolloutView, VIEWS } from "./rollout_view.js";
import { RolloutsView } from "./rollouts_view.js";
import { runView } from "./run_view.js";
import { openStore } from "./store.js";
import { nameOf, visible } from "./text.js";
import { keep, recall, startTheme, toggleTheme } from "./theme.js";

const PAGES = [["run", "Run"], ["rollouts", "Rollouts"], ["compare", "Compare"]];

// Keys, and the page that names them. Single keys can be switched off.
const KEYS_PLACE = "agentsgym-keys";

const KEYS = [
  ["1, 2, 3", "run, rollouts, compare"],
  ["/", "search the conversations"],
  ["j, k or ↓, ↑", "next, previous in a list"],
  ["Enter", "open what is marked"],
  ["Escape", "back to the list"],
  ["], [", "next, previous rollout or pair"],
  ["v", "conversation, tokens, group"],
  ["c, C", "next, previous coloring of the tokens"],
  ["→, ←, ↓, ↑", "in the tokens: next, previous token or step"],
  ["d", "dark or light"],
  ["?", "this page"],
];

let on = recall(KEYS_PLACE) !== "off";

// `actions`: key → function. Keys do nothing while one types, or with Ctrl, Alt or Meta.
function listenToKeys(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    const typing = event.target.closest?.("input, select, textarea, dialog");
    if (typing && event.key !== "Escape") return;
    if (!on && event.key.length === 1) return;
    const action = actions[event.key];
    if (!action) return;
    action();
    event.preventDefault();
  });
}

function helpDialog() {
  const box = el("input", {
    type: "checkbox", checked: on,
    on: { change: () => { on = box.checked; keep(KEYS_PLACE, on ? "on" : "off"); } },
  });
  const dialog = el(
    "dialog",
    { class: "help", "aria-labelledby": "help-title" },
    el("h2", { id: "help-title", text: "Keys" }),
    el("dl", {}, ...KEYS.map(([key, meaning]) =>
      el("div", {}, el("dt", {}, el("kbd", { text: key })), el("dd", { text: meaning })))),
    el("label", {}, box, el("span", { text: " single keys work" })),
    el("p", {}, button("Close", () => dialog.close())),
  );
  return dialog;
}

class App {
  constructor(store) {
    this._store = store;
    this._rollouts = new RolloutsView(store);
    this._main = el("main", { id: "main", tabIndex: -1 });
    this._help = helpDialog();
    this._tabs = PAGES.map(([page, text]) => el("a", { href: `#/${page}`, text, data: { page } }));
    const names = store.sources.map((source) => nameOf(source, store));
    document.title = `${visible(names.join(" and "))} – agentsgym`;
    replace(root(), this._header(names), this._main, this._help);
    addEventListener("hashchange", () => this.show());
    listenToKeys(this._keys());
  }

  _header(names) {
    return el(
      "header",
      { class: "top" },
      el("a", { class: "skip", href: "#main", text: "to the content", on: { click: (event) => {
        event.preventDefault();
        this._main.focus();
      } } }),
      el("span", { class: "brand", text: "agentsgym" }),
      el("span", { class: "names", dir: "auto", text: names.join(" · ") }),
      el("nav", { "aria-label": "Pages" }, ...this._tabs),
      el("span", { class: "tools" },
        button("◐", toggleTheme, { "aria-label": "dark or light", title: "dark or light (d)" }),
        button("?", () => this._help.showModal(), { "aria-label": "keys", title: "keys (?)" })),
    );
  }

  async show() {
    const [page, ...rest] = location.hash.replace(/^#\//, "").split("/");
    const turn = (this._turn = (this._turn ?? 0) + 1);
    const from = this._rollout;
    this._detach?.();
    this._detach = this._rollout = this._compare = null;
    if (page === "rollout") await this._showRollout(rest, turn);
    else if (page === "rollouts") this._put(this._rollouts, true);
    else if (page === "compare") this._put((this._compare = new CompareView(this._store)), true);
    else this._put(runView(this._store));
    if (turn !== this._turn) return;
    this._mark(page === "rollout" ? "rollouts" : page || "run");
    if (!(page === "rollout" && from)) scrollTo(0, 0);
  }

  _mark(page) {
    const known = PAGES.some(([name]) => name === page) ? page : "run";
    for (const tab of this._tabs) {
      if (tab.dataset.page === known) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
  }

  _put(view, withList = false) {
    replace(this._main, view.element);
    this._detach = view.attach();
    if (withList) view.focusList();
  }

  async _showRollout([source, id, at, view], turn) {
    const set = this._store.set(Number(source), decodeURIComponent(id ?? ""));
    if (!set) return this._say("The page has no such rollout.");
    try {
      const rollouts = await this._store.loadSet(set);
      const entry = entryAt(rollouts, at);
      if (!entry) return this._say("The page has no such rollout.");
      const shown = new RolloutView(this._store, entry, view, this._rollouts);
      await shown.fill();
      if (turn !== this._turn) return undefined;
      this._rollout = shown;
      replace(this._main, shown.element);
      this._main.focus({ preventScroll: true });
    } catch (error) {
      this._say(error.message);
    }
    return undefined;
  }

  _say(text) {
    replace(this._main, el("p", { class: "problem", role: "alert", text }));
  }

  _keys() {
    const page = (name) => () => { location.hash = `#/${name}`; };
    const beside = (by) => () => (this._rollout ?? this._compare)?.beside(by);
    return {
      1: page("run"),
      2: page("rollouts"),
      3: page("compare"),
      "/": () => { this._search(); },
      "]": beside(1),
      "[": beside(-1),
      v: () => this._nextView(),
      c: () => this._rollout?.tokens?.cycle(1),
      C: () => this._rollout?.tokens?.cycle(-1),
      d: toggleTheme,
      "?": () => this._help.showModal(),
      Escape: () => this._back(),
    };
  }

  _search() {
    if (this._rollouts.element.isConnected) {
      this._rollouts.focusSearch();
      return;
    }
    location.hash = "#/rollouts";
    addEventListener("hashchange", () => setTimeout(() => this._rollouts.focusSearch()), { once: true });
  }

  _nextView() {
    if (!this._rollout) return;
    const keys = VIEWS.map(([key]) => key);
    this._rollout.go(keys[(keys.indexOf(this._rollout.view) + 1) % keys.length]);
  }

  _back() {
    if (this._help.open) this._help.close();
    else if (this._rollout) location.hash = "#/rollouts";
    else if (this._rollouts.element.isConnected) this._rollouts.focusList();
  }
}

// A rollout by its place in the list, or by its group and number as in "3.1".
function entryAt(rollouts, at) {
  if (!at?.includes(".")) return rollouts[Number(at)];
  const [group, rollout] = at.split(".").map(Number);
  return rollouts.find((one) => one.group === group && one.rollout === rollout);
}

function root() {
  return document.getElementById("app");
}

async function start() {
  startTheme();
  try {
    const store = await openStore();
    const app = new App(store);
    await app.show();
    document.documentElement.dataset.ready = "yes";
    performance.mark("ready");
  } catch (error) {
    replace(root(), el("p", { class: "problem", role: "alert", text: `The page cannot be shown: ${error.message}` }));
  }
}

start();
