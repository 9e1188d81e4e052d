// The rollouts of one or two runs, from the data in the page.

const MOST_BLOCKS = 48;

export class Store {
  constructor(sources) {
    this.sources = sources;
    this._comparisons = new Map();
    this._blocks = new Map();
    sources.forEach((source, number) => {
      source.sets.forEach((set) => { set.source = number; });
    });
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
    Object.assign(set, await read(`set/${set.source}/${set.id}`));
    set.rollouts.forEach((entry, at) => Object.assign(entry, { set, at }));
    return set.rollouts;
  }

  // The difference right minus left with its interval, null where the sets can't be compared.
  comparison(left, right) {
    const key = `comparison/${left.source}/${left.id}/${right.source}/${right.id}`;
    if (!this._comparisons.has(key)) {
      const answer = read(key).catch(() => ({}));  // the page has those of the evaluations
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
      block = read(key).then((content) => {
        content.specialSet = new Set(content.special);
        return content;
      });
      block.catch(() => this._blocks.delete(key));
    }
    this._blocks.set(key, block);
    if (this._blocks.size > MOST_BLOCKS) this._blocks.delete(this._blocks.keys().next().value);
    return block;
  }
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

// A piece of the page.
async function read(address) {
  const element = document.getElementById(address);
  if (!element) throw new Error("the page does not contain these rollouts");
  return unpack(JSON.parse(element.textContent));
}

export async function openStore() {
  const { sources } = await read("overview");
  const store = new Store(sources);
  const contained = store.sets().filter((set) => !set.omitted);
  await Promise.all(contained.map((set) => store.loadSet(set)));
  return store;
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
