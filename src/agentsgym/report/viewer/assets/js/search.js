// Text search through conversations, block by block, so that the page answers meanwhile.

export class Search {
  constructor(store, onProgress) {
    this._store = store;
    this._onProgress = onProgress;
    this._run = 0;
    this.hits = new Set();
    this.done = true;
  }

  async start(text, entries) {
    const run = ++this._run;
    const wanted = text.trim().toLowerCase();
    this.hits = new Set();
    this.done = wanted === "";
    if (this.done) return;
    let told = performance.now();
    for (const [place, entry] of entries.entries()) {
      const { detail } = await this._store.detail(entry);
      if (run !== this._run) return;
      if (says(detail, entry, wanted)) this.hits.add(entry);
      if (performance.now() - told > 120) {
        this._onProgress(place + 1, entries.length);
        await new Promise((resolve) => setTimeout(resolve));
        if (run !== this._run) return;
        told = performance.now();
      }
    }
    this.done = true;
    this._onProgress(entries.length, entries.length);
  }

  stop() {
    this._run += 1;
  }
}

function says(detail, entry, wanted) {
  detail.searchable ??= [
    entry.task,
    detail.error ?? "",
    ...detail.episodes.flatMap((episode) => [
      episode.system ?? "",
      ...episode.steps.flatMap((step) => [step.observation, step.action]),
    ]),
  ].join("\n").toLowerCase();
  return detail.searchable.includes(wanted);
}
