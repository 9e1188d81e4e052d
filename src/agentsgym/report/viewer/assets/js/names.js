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
