// The tokens of a rollout's rows, each with everything that is known about it.
import { formatNumber, formatSigned } from "./text.js";

// Rows of a rollout: [{ begins, rewrites, sampled, tokens }]. A token has id, text, special, row, place and, if
// the agent sampled it, episode, step, mask, logprob, reward, advantage, trainer, gap, ratio, entropy.
export function rowsOf({ detail, pieces, special }) {
  return detail.rows.map((row, number) => {
    const tokens = row.ids.map((id, place) => ({
      id, place, row: number, text: pieces[id] ?? `⟨${id}⟩`, special: special.has(id), mask: 0,
    }));
    joinCharacters(tokens);
    addNumbers(row, tokens, detail);
    return { begins: row.begins, rewrites: row.rewrites, sampled: row.sampled, tokens };
  });
}

const BYTES = /^(\\x[0-9a-f]{2})+$/;
const CONTINUED = "◦";

// A character of several tokens, each only some of its bytes, is shown at the first of them.
function joinCharacters(tokens) {
  for (let start = 0; start < tokens.length; start += 1) {
    if (!BYTES.test(tokens[start].text)) continue;
    let bytes = "";
    for (let stop = start; stop < tokens.length && BYTES.test(tokens[stop].text); stop += 1) {
      bytes += tokens[stop].text;
      const text = decoded(bytes);
      if (text === null) continue;
      for (let place = start; place <= stop; place += 1) tokens[place].text = CONTINUED;
      tokens[start].text = text;
      start = stop;
      break;
    }
  }
}

function decoded(escapes) {
  const bytes = Uint8Array.from(escapes.matchAll(/\\x(..)/g), ([, code]) => parseInt(code, 16));
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

// Of the tokens in the spans.
function addNumbers(row, tokens, detail) {
  let at = 0;
  for (const [episode, number, start, stop] of row.spans) {
    const step = detail.episodes[episode]?.steps[number];
    for (let place = start; place < stop; place += 1, at += 1) {
      Object.assign(tokens[place], {
        episode,
        step: number,
        credit: step?.credit,
        mask: detail.error === null ? 1 : 0,
        logprob: row.sampled ? row.logprobs[at] : null,
        reward: row.rewards[at],
        advantage: row.advantages?.[at] ?? null,
      });
      addRecord(tokens[place], step?.record, place - start);
    }
  }
}

// The trainer's numbers, if they are stored for this rollout.
function addRecord(token, record, at) {
  if (!record) return;
  token.trainer = record.logprobs[at];
  token.ratio = record.ratios[at];
  token.entropy = record.entropies?.[at] ?? null;
  if (token.logprob !== null && token.trainer !== null) token.gap = token.trainer - token.logprob;
}

// What the color of a token can mean, and the color's place on its scale.

const LEVELS = 8;

// `of(token)` is the number, null where there is none; `scale` is "both" (around a middle), "one"
// (from nothing to much) or "flag".
export function colorings(estimators) {
  return [
    { key: "mask", text: "agent tokens", scale: "flag", of: (t) => t.mask },
    { key: "advantage", text: "advantage (used in training)", scale: "both", of: (t) => t.advantage },
    ...estimators.map((name) => ({
      key: `credit:${name}`, text: `advantage by ${name}`, scale: "both", of: (t) => t.credit?.[name],
    })),
    { key: "reward", text: "reward on the token", scale: "both", of: (t) => t.reward },
    { key: "logprob", text: "sampler’s log-probability", scale: "one", of: negative("logprob"), least: 3 },
    { key: "trainer", text: "trainer’s log-probability", scale: "one", of: negative("trainer"), least: 3 },
    { key: "gap", text: "trainer’s − sampler’s log-probability", scale: "both", of: (t) => t.gap, least: 1e-3 },
    { key: "ratio", text: "importance ratio", scale: "both", of: (t) => logarithm(t.ratio), least: 0.02, show: (v) => formatNumber(Math.exp(v)) },
    { key: "entropy", text: "entropy", scale: "one", of: (t) => t.entropy, least: 0.1 },
  ];
}

function negative(name) {
  return (token) => (token[name] === null || token[name] === undefined ? null : -token[name]);
}

function logarithm(value) {
  return value === null || value === undefined || value <= 0 ? null : Math.log(value);
}

// The coloring's classes for these tokens: { classes, legend }. Without any number, `legend` is null.
export function paint(tokens, coloring) {
  const values = tokens.map((token) => coloring.of(token) ?? null);
  const known = values.filter((value) => value !== null);
  if (!known.length) return { classes: values.map(() => ""), legend: null };
  if (coloring.scale === "flag") {
    return { classes: values.map((v) => (v ? "s5" : "")), legend: { kind: "flag" } };
  }
  const most = Math.max(coloring.least ?? 1e-9, ...known.map(Math.abs));
  const classes = values.map((value) => levelClass(value, most, coloring.scale));
  return { classes, legend: { kind: coloring.scale, ...ends(coloring, most) } };
}

function levelClass(value, most, scale) {
  if (value === null) return "";
  const level = Math.min(LEVELS, Math.ceil((Math.abs(value) / most) * LEVELS - 1e-9));
  if (level === 0) return "zero";
  if (scale === "one") return value > 0 ? `s${level}` : "zero";
  return value > 0 ? `p${level}` : `n${level}`;
}

function ends(coloring, most) {
  if (coloring.key === "logprob" || coloring.key === "trainer") {
    return { low: "0 (certain)", high: formatSigned(-most) };
  }
  if (coloring.show) return { low: coloring.show(-most), middle: "1", high: coloring.show(most) };
  if (coloring.scale === "one") return { low: "0", high: formatNumber(most) };
  return { low: formatSigned(-most), middle: "0", high: formatSigned(most) };
}
