// Rollouts of two sets on the same tasks, episode beside episode.

export function pairsOf(left, right) {
  const waiting = new Map();
  for (const entry of right) {
    if (!waiting.has(entry.key)) waiting.set(entry.key, []);
    waiting.get(entry.key).push(entry);
  }
  const pairs = [];
  for (const entry of left) {
    const other = waiting.get(entry.key)?.shift();
    if (other) pairs.push(pair(entry, other));
  }
  return pairs;
}

function pair(left, right) {
  const known = left.reward !== null && right.reward !== null;
  return { left, right, difference: known ? right.reward - left.reward : null };
}

export function byDifference(pairs) {
  const size = ({ difference }) => (difference === null ? Infinity : Math.abs(difference));
  const keyed = pairs.map((one, place) => [size(one), place, one]);
  keyed.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  return keyed.map(([, , one]) => one);
}

export const WHICH = {
  all: { text: "all pairs", test: () => true },
  different: { text: "different rewards", test: (p) => p.difference !== 0 },
  better: { text: "better on the right", test: (p) => p.difference > 0 },
  worse: { text: "better on the left", test: (p) => p.difference < 0 },
};

// The sets that can be compared, and the two that are shown first.
export function firstChoice(sets) {
  const usable = sets.filter((set) => !set.omitted && set.phase !== "warmstart");
  const last = (source, phases) => usable.filter(
    (set) => set.source === source && phases.includes(set.phase)).at(-1);
  const two = usable.some((set) => set.source === 1);
  if (two) {
    const phases = ["after", "eval", "before", "train"];
    for (const phase of phases) {
      const [left, right] = [last(0, [phase]), last(1, [phase])];
      if (left && right) return [left, right];
    }
    return [last(0, phases), last(1, phases)];
  }
  const before = last(0, ["before"]) ?? usable.find((set) => set.phase === "eval");
  return [before ?? usable[0], last(0, ["after", "eval"]) ?? usable.at(-1)];
}
