// Keys, and the page that names them. Single keys can be switched off.
import { button, el } from "./dom.js";
import { keep, recall } from "./theme.js";

const KEY = "agentsgym-keys";

export const KEYS = [
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

let on = recall(KEY) !== "off";

// `actions`: key → function. Keys do nothing while one types, or with Ctrl, Alt or Meta.
export function listenToKeys(actions) {
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

export function helpDialog() {
  const box = el("input", {
    type: "checkbox", checked: on,
    on: { change: () => { on = box.checked; keep(KEY, on ? "on" : "off"); } },
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
