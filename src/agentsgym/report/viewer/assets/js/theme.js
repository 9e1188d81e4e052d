// Dark and light: as the system says, until the reader chooses.

const THEME_PLACE = "agentsgym-theme";
const changed = new EventTarget();

export function startTheme() {
  const stored = recall(THEME_PLACE);
  if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tellTheme);
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function toggleTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  keep(THEME_PLACE, theme);
  tellTheme();
}

export function onTheme(listener) {
  changed.addEventListener("change", listener);
  return () => changed.removeEventListener("change", listener);
}

function tellTheme() {
  changed.dispatchEvent(new Event("change"));
}

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A page from the disk may have no storage of its own.
export function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // The choice then lasts as long as the page is open.
  }
}
