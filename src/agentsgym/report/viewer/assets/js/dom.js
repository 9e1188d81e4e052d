// Elements. Text enters the page only as text: no function here or elsewhere parses markup.
import { visible } from "./text.js";

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = visible(value);
    else if (name === "on") listen(element, value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "value" || name === "checked" || name === "tabIndex") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function listen(element, handlers) {
  for (const [event, handler] of Object.entries(handlers)) element.addEventListener(event, handler);
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat().filter(Boolean));
}

export function button(text, onClick, properties = {}) {
  return el("button", { type: "button", text, on: { click: onClick }, ...properties });
}

export function select(options, value, onChange, properties = {}) {
  const element = el("select", { ...properties, on: { change: () => onChange(element.value) } });
  for (const option of options) {
    element.append(
      el("option", { value: option.value, text: option.text, disabled: option.disabled }),
    );
  }
  element.value = value;
  return element;
}

export function labelled(text, control) {
  return el("label", { class: "field" }, el("span", { text }), control);
}

// Text that may be a megabyte long: the beginning, and a button for the rest, which is in parts that
// the browser lays out only when they come into view.
const FIRST_CHARACTERS = 6000;
const PART = 4000;

export function longText(text, properties = {}) {
  const whole = String(text);
  const holder = el("div", { class: "text", dir: "auto", ...properties });
  if (whole.length <= FIRST_CHARACTERS) {
    holder.textContent = visible(whole);
    return holder;
  }
  const shown = el("div", { text: whole.slice(0, FIRST_CHARACTERS) });
  const more = button(`… show all ${whole.length.toLocaleString("en")} characters`, () => {
    shown.replaceChildren(...parts(visible(whole)).map((text) => {
      const part = el("div", { class: "text-part" });
      part.textContent = text;
      return part;
    }));
    more.remove();
  }, { class: "link" });
  holder.append(shown, more);
  return holder;
}

// No part ends within a character.
function parts(text) {
  return text.match(new RegExp(`[^]{1,${PART}}`, "gu"));
}
