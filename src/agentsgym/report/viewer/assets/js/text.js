// Texts of models, tasks and environments, and numbers, as the page shows them.

// The same characters as agentsgym.types.visible: they move a cursor, reverse text or are invisible.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]/gu;

export function visible(text) {
  return String(text).replace(HIDDEN, (character) => {
    const code = character.codePointAt(0);
    return code < 256 ? `\\x${hex(code, 2)}` : `\\u${hex(code, 4)}`;
  });
}

function hex(code, digits) {
  return code.toString(16).padStart(digits, "0");
}

// A token's text: a space or a line end can be seen.
export function tokenText(text) {
  return visible(text).replace(/\n/g, "↵\n").replace(/\t/g, "→\t");
}

export function formatNumber(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value < 0) return `−${formatNumber(-value, digits)}`;
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return grouped(value);
  if (value !== 0 && (value < 1e-3 || value >= 1e6)) return value.toExponential(2);
  return value.toFixed(value >= 100 ? 1 : digits);
}

function grouped(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

export function formatSigned(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value) < 10 ** -digits && value !== 0
    ? Math.abs(value).toExponential(1)
    : Math.abs(value).toFixed(digits);
  return value < 0 ? `−${text}` : `+${text}`;
}

export function formatShare(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)}\u202f%`;
}

export function formatSeconds(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function plural(count, noun) {
  return `${formatNumber(count)} ${noun}${count === 1 ? "" : "s"}`;
}

// What sets and rollouts are called on the page, and where they lie in its address.

const PHASES = {
  before: "before",
  after: "after",
  train: "training",
  eval: "held-out",
  warmstart: "warm start",
  warmstarted: "after warm start",
  probe: "probe",
};

// A run's own name, or its directory's if the other run has the same one.
export function nameOf(source, store) {
  const own = (one) => one.summary?.name ?? one.name;
  const alike = store.sources.some((one) => one !== source && own(one) === own(source));
  return alike ? source.path : own(source);
}

export function setName(set, store) {
  const phase = PHASES[set.phase] ?? set.phase;
  const step = ["before", "after"].includes(set.phase) ? "" : ` ${set.step}`;
  const dataset = set.dataset ? ` (${set.dataset})` : "";
  const run = store.sources.length > 1 ? `${"AB"[set.source]} · ` : "";
  return `${run}${phase}${step}${dataset}`;
}

export function rolloutName(entry, store) {
  return `${setName(entry.set, store)}, group ${entry.group}, rollout ${entry.rollout}`;
}

export function addressOf(entry, view) {
  const parts = ["rollout", entry.set.source, encodeURIComponent(entry.set.id), entry.at];
  return `#/${parts.join("/")}${view && view !== "conversation" ? `/${view}` : ""}`;
}

export function winText(win) {
  if (win === null || win === undefined) return "–";
  if (win === 1 || win === true) return "won";
  if (win === 0 || win === false) return "lost";
  return `${Math.round(100 * win)} %`;
}
