// Which charts a run's metrics make, and in which section each stands.

const SECTIONS = [
  ["Score", /^(reward|win_rate|exploration_gain|regret)$/],
  ["Episodes of the trial", /^episode_\d+\//],
  ["Environments", /^env\//],
  ["How episodes end", /^stop\//],
  ["Signal and update", /^(groups_without_signal|reward_std|loss|grad_norm|entropy|kl|clipped|aux_loss|learning_rate|staleness.*|ratio\/.*|sampler\/.*)$/],
  ["Time", /^(time\/.*|ahead\/.*|tokens_per_second|occupancy|runtime)$/],
  ["Actions and tokens", /./],
];
const UNSHOWN = /^(seconds|epoch|total_agent_tokens|num_input_tokens_seen|num_tokens)$/;

// One chart shows several metrics where they share a unit and a question.
const TOGETHER = [
  [/^episode_(\d+)\/(.+)$/, (found) => [`${found[2]} by episode`, `episode ${found[1]}`]],
  [/^env\/(.+)\/([^/]+)$/, (found) => [`${found[2]} by environment`, found[1]]],
  [/^stop\/(.+)$/, (found) => ["stop reasons", found[1]]],
  [/^template_breaks\/(.+)$/, (found) => ["rows begun by the template", found[1]]],
  [/^time\/(.+)$/, (found) => ["seconds per step", found[1]]],
];

// Sections of charts: [{ title, charts: [{ title, lines: [{ label, metric, phase, source }] }] }].
// `constant` has the metrics that never change, with their value.
export function chartsOf(sources) {
  const sections = new Map(SECTIONS.map(([title]) => [title, new Map()]));
  const constant = new Map();
  sources.forEach((source, number) => {
    for (const [name, values] of Object.entries(source.metrics.values)) {
      const metric = name.replace(/^eval_/, "");
      const held = metric !== name;
      if (UNSHOWN.test(metric)) continue;
      const section = SECTIONS.find(([, pattern]) => pattern.test(metric))[0];
      const same = sameValue(values);
      if (same !== undefined && section !== "Score") {
        if (!held) constant.set(metric, same);
        continue;
      }
      const [title, label] = place(metric);
      const lines = sections.get(section);
      if (!lines.has(title)) lines.set(title, []);
      lines.get(title).push({ label, metric, name, held, source: number });
    }
  });
  const found = [...sections].map(([title, charts]) => ({
    title,
    charts: [...charts].map(([name, lines]) => ({ title: name, lines })),
  }));
  return { sections: found.filter((section) => section.charts.length), constant };
}

function place(metric) {
  for (const [pattern, names] of TOGETHER) {
    const found = pattern.exec(metric);
    if (found) return names(found);
  }
  return [metric.replace(/_/g, " "), ""];
}

function sameValue(values) {
  const known = values.filter((value) => value !== null);
  return known.every((value) => value === known[0]) ? known[0] : undefined;
}
