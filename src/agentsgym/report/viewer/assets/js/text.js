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
