// A rollout as a conversation: episodes, observations, actions, rewards, the environment's notes.
import { el, longText } from "./dom.js";
import { formatNumber, formatSigned, winText } from "./text.js";

export function conversation(detail, options = {}) {
  const several = detail.episodes.length > 1;
  return el(
    "div",
    { class: "conversation" },
    detail.error ? problem(detail.error) : null,
    ...detail.episodes.map((episode, number) => episodeOf(episode, number, several, options)),
  );
}

function problem(error) {
  return el("details", { class: "problem", open: true },
    el("summary", { text: "The rollout failed" }), longText(error, { class: "text mono" }));
}

export function episodeTitle(episode, number) {
  const shot = episode.scored ? "" : " (free shot: not scored)";
  return `Episode ${number + 1}${shot}`;
}

function episodeOf(episode, number, several, options) {
  return el(
    "section",
    { class: episode.scored ? "episode" : "episode free" },
    el(
      "h3",
      {},
      el("span", { text: several || !episode.scored ? episodeTitle(episode, number) : "Episode" }),
      el("span", { class: "chip", text: `reward ${formatNumber(episode.reward)}` }),
      episode.win === null ? null
        : el("span", { class: `chip ${episode.win ? "won" : "lost"}`, text: winText(episode.win) }),
      el("span", { class: "chip", text: `ended: ${episode.stop}` }),
    ),
    episode.system === null ? null : turn("system", "system prompt", episode.system),
    ...episode.steps.flatMap((step, at) => stepOf(step, at, options)),
  );
}

export function stepOf(step, at, options = {}) {
  const note = step.kind === "reflection";
  return el(
    "div",
    { class: "step", data: { step: at } },
    turn("observation", note ? "question for a note" : "observation", step.observation),
    el(
      "div",
      { class: note ? "turn action note" : "turn action" },
      el("h4", {}, el("span", { text: note ? "note" : `action ${at + 1}` }),
        ...badges(step, options)),
      longText(step.action),
    ),
    alternatives(step.replay),
    notes(step.info),
  );
}

function turn(kind, title, text) {
  return el("div", { class: `turn ${kind}` }, el("h4", {}, el("span", { text: title })), longText(text));
}

function badges(step, { estimator }) {
  const chips = [];
  if (step.kind !== "reflection") {
    const tone = step.reward > 0 ? " plus" : step.reward < 0 ? " minus" : "";
    chips.push(el("span", { class: `chip${tone}`, text: `reward ${formatNumber(step.reward)}` }));
  }
  const credit = step.credit?.[estimator];
  if (credit !== undefined && credit !== null) {
    chips.push(el("span", { class: "chip", text: `${estimator} ${formatSigned(credit)}` }));
  }
  if (step.malformed) chips.push(el("span", { class: "chip minus", text: "malformed" }));
  if (step.truncated) chips.push(el("span", { class: "chip minus", text: "cut off" }));
  if (step.anchor) {
    chips.push(el("span", {
      class: "chip anchor",
      text: `state ⚓${step.anchor[0]}, in ${step.anchor[1]} steps of the group`,
    }));
  }
  return chips;
}

// What the action was worth, by playing on, and what the policy does in its place.
function alternatives(replay) {
  if (!replay) return null;
  const [low, high] = (replay.interval ?? []).map((end) => formatSigned(end));
  const between = replay.interval ? ` (${low} to ${high})` : "";
  return el("details", { class: "notes replay" },
    el("summary", { text: `effect ${formatSigned(replay.effect)}${between}, ${replay.pairs} plays from here` }),
    el("dl", {}, ...replay.alternatives.map((one) => el("div", {},
      el("dt", { text: `${one.plays}×, mean reward ${formatNumber(one.reward)}` }),
      el("dd", {}, longText(one.action))))));
}

// What the environment told in `info`, without what the badges already say: short values in a line,
// the others below it.
function notes(info) {
  const facts = Object.entries(info ?? {}).filter(([name, value]) => !isKnown(name, value));
  if (!facts.length) return null;
  const short = facts.filter(([, value]) => isShort(value));
  const long = facts.filter(([, value]) => !isShort(value));
  const line = short.map(([name, value]) => `${name}: ${value}`);
  if (!long.length) return el("p", { class: "notes", text: line.join(" · ") });
  return el(
    "details",
    { class: "notes" },
    el("summary", { text: [...line, ...long.map(([name]) => `${name} …`)].join(" · ") }),
    el("dl", {}, ...long.map(([name, value]) => el(
      "div",
      {},
      el("dt", { text: name }),
      el("dd", {}, longText(typeof value === "string" ? value : JSON.stringify(value))),
    ))),
  );
}

function isKnown(name, value) {
  if (value === null || ["win", "anchor", "stop_reason"].includes(name)) return true;
  if (name === "metrics") return Object.values(value).every((number) => number === 0);
  return typeof value === "object" && Object.keys(value).length === 0;
}

function isShort(value) {
  return typeof value !== "object" && String(value).length <= 60;
}
