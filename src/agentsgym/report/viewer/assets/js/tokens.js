// The tokens of a rollout's rows, each with everything that is known about it.

// Rows of a rollout: [{ begins, rewrites, sampled, tokens }]. A token has id, text, special, row, place and, if
// the agent sampled it, episode, step, mask, logprob, reward, advantage, trainer, gap, ratio, entropy.
export function rowsOf({ detail, pieces, special }) {
  return detail.rows.map((row, number) => {
    const tokens = row.ids.map((id, place) => ({
      id, place, row: number, text: pieces[id] ?? `⟨${id}⟩`, special: special.has(id), mask: 0,
    }));
    joinCharacters(tokens);
    addNumbers(row, tokens);
    row.spans.forEach((span) => addStep(span, tokens, detail));
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

function addNumbers(row, tokens) {
  let at = 0;
  for (const [start, stop] of row.runs) {
    for (let place = start; place < stop; place += 1, at += 1) {
      Object.assign(tokens[place], {
        mask: row.mask[at],
        logprob: row.sampled ? row.logprobs[at] : null,
        reward: row.rewards[at],
        advantage: row.advantages?.[at] ?? null,
      });
    }
  }
}

function addStep([episode, number, start, stop], tokens, detail) {
  const step = detail.episodes[episode]?.steps[number];
  for (let place = start; place < stop; place += 1) {
    Object.assign(tokens[place], { episode, step: number, credit: step?.credit });
    addRecord(tokens[place], step?.record, place - start);
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
