// The rollouts: filters, search, a sorted list.
import { button, el, labelled, replace, select } from "./dom.js";
import { COLUMNS, filtered, MARKS, marks, NO_FILTER, RESULTS, Search, setKey } from "./filters.js";
import { addressOf, formatNumber, plural, setName, winText } from "./text.js";
import { VirtualList } from "./virtual_list.js";

const ROW_HEIGHT = 34;

// The state outlives the view: returning from a rollout finds the same list.
export class RolloutsView {
  constructor(store) {
    this._store = store;
    this.filter = { ...NO_FILTER };
    this.shown = [];
    this._place = 0;
    this._count = el("p", { class: "count", role: "status" });
    this._search = new Search(store, (done, all) => this._onSearch(done, all));
    this._heads = el("div", { class: "row heads" });
    this._list = new VirtualList({
      height: ROW_HEIGHT,
      row: (entry) => this._row(entry),
      open: (entry, place) => this._open(entry, place),
      label: "Rollouts",
    });
    this._fields = el("form", { class: "filters", on: { submit: (e) => e.preventDefault() } });
    this.element = el("div", { class: "rollouts" }, this._fields, this._count,
      el("div", { class: "table" }, this._heads, this._list.element));
  }

  attach() {
    this._drawFields();
    this._update();
    this._list.attach();
    this._list.show(this.shown, this._place);
    if (this._place) this._list.scrollTo(this._place, true);
    return () => {
      this._search.stop();
      this._list.detach();
    };
  }

  focusSearch() {
    this._fields.querySelector("[name=text]")?.focus();
  }

  focusList() {
    this._list.focus();
  }

  // The rollout before or after `entry` in the list.
  beside(entry, by) {
    return this.shown[this.shown.indexOf(entry) + by];
  }

  _entries() {
    const sets = this._store.loaded();
    this._store.sets().forEach((set, place) => { set.place = place; });
    return sets.flatMap((set) => set.rollouts);
  }

  _update() {
    const entries = this._entries();
    this.shown = filtered(entries, this.filter, this._search.hits);
    this._drawHeads();
    this._list.show(this.shown, this._place);
    this._tell(entries.length);
  }

  _tell(loaded) {
    const sets = this._store.sets();
    const parts = [`${formatNumber(this.shown.length)} of ${plural(loaded, "rollout")}`];
    const absent = sets.some((set) => set.omitted);
    const partly = sets.some((set) => set.rollouts && set.total > set.rollouts.length);
    if (absent || partly) parts.push("a sample of the run: --rollouts and --steps of agentsgym view say of what");
    if (!this._search.done) parts.push(this._progress ?? "searching");
    sets.filter((set) => set.problem).forEach((set) => parts.push(set.problem));
    this._count.textContent = parts.join(" · ");
  }

  _set(name, value) {
    this.filter[name] = value;
    this._place = 0;
    if (name === "text") this._search.start(value, this._entries()).then(() => this._update());
    this._update();
  }

  _onSearch(done, all) {
    this._progress = `searched ${formatNumber(done)} of ${formatNumber(all)}`;
    this._update();
  }

  _drawFields() {
    const entries = this._entries();
    const envs = [...new Set(entries.map((e) => e.env))];
    const stops = [...new Set(entries.flatMap((e) => e.stop))].sort();
    const any = { value: "", text: "any" };
    const choice = (name, options) => select([any, ...options], this.filter[name],
      (value) => this._set(name, value), { name });
    const input = (name, properties) => el("input", {
      name, value: this.filter[name], ...properties,
      on: { input: (event) => this._set(name, event.target.value) },
    });
    const optionsOf = (table) => Object.entries(table).map(([value, { text }]) => ({ value, text }));
    replace(this._fields,
      labelled("search the conversations", input("text", { type: "search", class: "wide" })),
      labelled("played", choice("set", this._setOptions())),
      envs.length > 1
        ? labelled("environment", choice("env", envs.map((value) => ({ value, text: value })))) : null,
      labelled("result", choice("result", optionsOf(RESULTS))),
      labelled("ended", choice("stop", stops.map((value) => ({ value, text: value })))),
      labelled("task", input("task", { type: "text" })),
      labelled("group", input("group", { type: "number", min: 0, class: "short" })),
      labelled("reward from", input("least", { type: "number", step: "any", class: "short" })),
      labelled("to", input("most", { type: "number", step: "any", class: "short" })),
      labelled("marks", choice("marked", optionsOf(MARKS))),
      button("Clear", () => this._clear(), { class: "quiet" }),
    );
  }

  _setOptions() {
    const loaded = this._store.sets().filter((set) => !set.omitted);
    const options = loaded.map((set) => ({ value: setKey(set), text: setName(set, this._store) }));
    const training = loaded.filter((set) => set.phase === "train").length > 1;
    return [...(training ? [{ value: "train", text: "all training" }] : []), ...options];
  }

  _clear() {
    Object.assign(this.filter, NO_FILTER);
    this._search.start("", []);
    this._drawFields();
    this._update();
  }

  _drawHeads() {
    replace(this._heads, COLUMNS.map((column) => {
      const on = this.filter.sort === column.key;
      return button(`${column.title}${on ? (this.filter.down ? " ▾" : " ▴") : ""}`, () => {
        this.filter.down = on ? !this.filter.down : Boolean(column.number);
        this._set("sort", column.key);
        this._heads.querySelector(`.c-${column.key}`).focus();
      }, {
        class: `cell c-${column.key}`,
        "aria-label": `sort by ${column.title}${on ? (this.filter.down ? ", now falling" : ", now rising") : ""}`,
      });
    }));
  }

  _row(entry) {
    const values = {
      set: setName(entry.set, this._store),
      group: String(entry.group),
      rollout: String(entry.rollout),
      reward: formatNumber(entry.reward),
      win: winText(entry.win),
      steps: formatNumber(entry.steps),
      tokens: formatNumber(entry.tokens),
      stop: entry.stop.join(", "),
      task: entry.task,
      marks: marks(entry).join(", "),
    };
    return el("div", { class: `row${entry.failed ? " failed" : ""}` }, ...COLUMNS.map(({ key }) => {
      const tone = key === "win" && entry.win !== null ? (entry.win === 1 ? " won" : " lost") : "";
      return el("span", { class: `cell c-${key}${tone}`, text: values[key], title: values[key] });
    }));
  }

  _open(entry, place) {
    this._place = place;
    location.hash = addressOf(entry);
  }
}
