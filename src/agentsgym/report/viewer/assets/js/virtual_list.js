// A list of any length, of which only the visible rows are in the document. All have one height.
import { el } from "./dom.js";

const BEYOND = 12; // rows before and after the visible ones

// `row(item)` makes the element of a row; `open(item)` is called for a click or Enter on it.
export class VirtualList {
  constructor({ height, row, open, label }) {
    this._row = row;
    this._open = open;
    this._items = [];
    this._current = 0;
    this._inner = el("div", { class: "virtual-inner", role: "presentation" });
    this.element = el(
      "div",
      {
        class: "virtual",
        role: "listbox",
        "aria-label": label,
        tabIndex: 0,
        on: {
          keydown: (event) => this._onKey(event),
          click: (event) => this._onClick(event),
          scroll: () => this._render(),
        },
      },
      this._inner,
    );
    this._height = height;
    this._watcher = new ResizeObserver(() => this._render());
  }

  attach() {
    this._watcher.observe(this.element);
  }

  detach() {
    this._watcher.disconnect();
  }

  show(items, current = 0) {
    this._items = items;
    this._current = Math.max(0, Math.min(current, items.length - 1));
    this._render();
  }

  // Brings a row into view, or to the middle.
  scrollTo(place, middle = false) {
    this._current = place;
    const last = place * this._height;
    const first = last + this._height - this.element.clientHeight;
    this.element.scrollTop = middle
      ? (first + last) / 2 : Math.min(last, Math.max(first, this.element.scrollTop));
    this._render();
  }

  focus() {
    this.element.focus();
  }

  move(by) {
    if (!this._items.length) return;
    this.scrollTo(Math.max(0, Math.min(this._items.length - 1, this._current + by)));
  }

  openCurrent() {
    const item = this._items[this._current];
    if (item) this._open(item, this._current);
  }

  _render() {
    this._inner.style.height = `${this._items.length * this._height}px`;
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this._height) - BEYOND);
    const end = Math.ceil((scrollTop + clientHeight) / this._height) + BEYOND;
    const rows = this._items.slice(first, end).map((item, number) => {
      const [row, place] = [this._row(item), first + number];
      row.classList.add("virtual-row");
      row.id = `row-${place}`;
      row.dataset.place = place;
      row.setAttribute("role", "option");
      row.setAttribute("aria-posinset", place + 1);
      row.setAttribute("aria-setsize", this._items.length);
      row.setAttribute("aria-selected", place === this._current);
      row.style.transform = `translateY(${place * this._height}px)`;
      return row;
    });
    this._inner.replaceChildren(...rows);
    this.element.setAttribute("aria-activedescendant", `row-${this._current}`);
  }

  _onClick(event) {
    const row = event.target.closest(".virtual-row");
    if (!row) return;
    this._current = Number(row.dataset.place);
    this.openCurrent();
  }

  _onKey(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this._height) - 1);
    const moves = {
      ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page,
      Home: -Infinity, End: Infinity,
    };
    if (event.key === "Enter") this.openCurrent();
    else if (event.key in moves && !event.ctrlKey && !event.metaKey) this.move(moves[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
