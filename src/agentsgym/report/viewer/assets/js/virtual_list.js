// A list of any length, of which only the visible rows are in the document.
import { el } from "./dom.js";

const { Virtualizer, observeElementRect, observeElementOffset, elementScroll } =
  globalThis.VirtualCore;

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
        on: { keydown: (event) => this._onKey(event), click: (event) => this._onClick(event) },
      },
      this._inner,
    );
    this._virtualizer = new Virtualizer({
      ...this._options(),
      estimateSize: () => height,
    });
    this._height = height;
  }

  _options() {
    return {
      count: this._items.length,
      estimateSize: () => this._height,
      getScrollElement: () => this.element,
      overscan: 12,
      observeElementRect,
      observeElementOffset,
      scrollToFn: elementScroll,
      initialRect: { width: 1000, height: 700 },
      onChange: () => this._render(),
    };
  }

  attach() {
    this._detach = this._virtualizer._didMount();
    this._virtualizer._willUpdate();
    this._render();
  }

  detach() {
    this._detach?.();
  }

  show(items, current = 0) {
    this._items = items;
    this._current = Math.max(0, Math.min(current, items.length - 1));
    this._virtualizer.setOptions(this._options());
    this._virtualizer._willUpdate();
    this._virtualizer.measure();
    this._render();
  }

  scrollTo(place, align = "auto") {
    this._current = place;
    this._virtualizer.scrollToIndex(place, { align });
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
    this._inner.style.height = `${this._virtualizer.getTotalSize()}px`;
    const rows = this._virtualizer.getVirtualItems().map((place) => {
      const row = this._row(this._items[place.index]);
      row.classList.add("virtual-row");
      row.id = `row-${place.index}`;
      row.dataset.place = place.index;
      row.setAttribute("role", "option");
      row.setAttribute("aria-posinset", place.index + 1);
      row.setAttribute("aria-setsize", this._items.length);
      row.setAttribute("aria-selected", place.index === this._current);
      row.style.transform = `translateY(${place.start}px)`;
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
