// The rollouts of one or two runs, from the page itself or, piece by piece, from its server.

const MOST_BLOCKS = 48;

export class Store {
  constructor(sources, read, served) {
    this.sources = sources;
    this._comparisons = new Map();
    this.served = served;
    this._read = read;
    this._blocks = new Map();
    sources.forEach((source, number) => prepare(source, number));
  }

  sets() {
    return this.sources.flatMap((source) => source.sets);
  }

  set(source, id) {
    return this.sources[source]?.sets.find((one) => one.id === id);
  }

  loaded() {
    return this.sets().filter((set) => set.rollouts);
  }

  // The list of a set's rollouts.
  async loadSet(set) {
    if (set.rollouts) return set.rollouts;
    set.loading ??= this._read(`set/${set.source}/${set.id}`).then((list) => {
      Object.assign(set, list, { loading: undefined });
      number(set);
    }, (error) => {
      set.loading = undefined;
      throw error;
    });
    await set.loading;
    return set.rollouts;
  }

  // The difference right minus left with its interval, null where the sets can't be compared.
  comparison(left, right) {
    const key = `comparison/${left.source}/${left.id}/${right.source}/${right.id}`;
    if (!this._comparisons.has(key)) {
      const answer = this._read(key).catch((error) => {
        if (this.served) throw error;
        return {};  // a page in a file has those of the evaluations
      });
      this._comparisons.set(key, answer.then((one) => (one.pairs ? one : null)));
    }
    return this._comparisons.get(key);
  }

  // Everything about one rollout: { detail, pieces, special }.
  async detail(entry) {
    const place = blockOf(entry);
    const block = await this._block(entry.set, place.block);
    return { detail: block.rollouts[place.at], pieces: block.pieces, special: block.specialSet };
  }

  async _block(set, number) {
    const key = `block/${set.source}/${set.id}/${number}`;
    let block = this._blocks.get(key);
    this._blocks.delete(key);
    if (!block) {
      block = this._read(key).then((content) => {
        content.specialSet = new Set(content.special);
        return content;
      });
      block.catch(() => this._blocks.delete(key));
    }
    this._blocks.set(key, block);
    if (this._blocks.size > MOST_BLOCKS) this._blocks.delete(this._blocks.keys().next().value);
    return block;
  }

  // A growing run: newer figures and sets that were not there before.
  async refresh() {
    const fresh = (await this._read("overview")).sources;
    let changed = false;
    fresh.forEach((source, number) => {
      const known = this.sources[number];
      const added = source.sets.filter((set) => !known.sets.some((old) => old.id === set.id));
      const grown = source.metrics.step.length !== known.metrics.step.length;
      if (!added.length && !grown && statusOf(source) === statusOf(known)) return;
      changed = true;
      const order = new Map(source.sets.map((set, place) => [set.id, place]));
      const sets = [...known.sets, ...added].sort((a, b) => order.get(a.id) - order.get(b.id));
      Object.assign(known, source, { sets });
      prepare(known, number);
    });
    return changed;
  }
}

function prepare(source, place) {
  for (const set of source.sets) {
    set.source = place;
    if (set.rollouts) number(set);
  }
}

function number(set) {
  set.rollouts.forEach((entry, at) => Object.assign(entry, { set, at }));
}

function blockOf(entry) {
  let start = 0;
  let block = 0;
  for (const size of entry.set.blocks) {
    if (entry.at < start + size) break;
    start += size;
    block += 1;
  }
  return { block, at: entry.at - start };
}

// A piece of the page in a file.
async function embedded(address) {
  const element = document.getElementById(address);
  if (!element) throw new Error("the page does not contain these rollouts");
  return unpack(JSON.parse(element.textContent));
}

// A piece from the page's server.
async function fetched(address) {
  const answer = await fetch(`data/${address}`);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

export async function openStore() {
  const served = document.getElementById("overview") === null;
  const read = served ? fetched : embedded;
  const { sources } = await read("overview");
  const store = new Store(sources, read, served);
  if (!served) {
    const contained = store.sets().filter((set) => !set.omitted);
    await Promise.all(contained.map((set) => store.loadSet(set)));
  }
  return store;
}

function statusOf(source) {
  return (source.summary ?? source.evaluation)?.status;
}

// From the page's data, base64 of gzipped JSON, to values.

async function unpack(base64) {
  return JSON.parse(await inflate(decodeBase64(base64)));
}

function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place += 1) bytes[place] = binary.charCodeAt(place);
  return bytes;
}

function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
