/** Attention weights: unpacking them, fetching large layers when they are needed, and choosing what to show. */

/**
 * @typedef {{heads: number, rows: number, columns: number, weights: Uint16Array}} Layer
 * @typedef {{rows: number, columns: number, weights: Float32Array}} Matrix row-major, rows × columns
 */

/** Unpack the weights of one layer. @param {import("./api.js").PackedMap} map @returns {Promise<Layer>} */
export async function decodeMap(map) {
  const text = atob(map.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  const [heads, rows, columns] = map.shape;
  const buffer = map.deflated ? await inflate(bytes) : bytes.buffer;
  return { heads, rows, columns, weights: new Uint16Array(buffer) }; // browsers run on little-endian machines
}

/** Files are kept small this way; what a server sends is not worth the time. */
function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** One head of a layer, or the mean of all. @param {Layer} layer @param {number|"mean"} head @returns {Matrix} */
export function headMatrix(layer, head) {
  const size = layer.rows * layer.columns;
  const weights = new Float32Array(size);
  const chosen = head === "mean" ? Array.from({ length: layer.heads }, (_, each) => each) : [head];
  for (const each of chosen) {
    for (let i = 0; i < size; i += 1) weights[i] += layer.weights[each * size + i];
  }
  const unit = 65535 * chosen.length;
  for (let i = 0; i < size; i += 1) weights[i] /= unit;
  return { rows: layer.rows, columns: layer.columns, weights };
}

/** A matrix from lists of numbers; null (a masked score) becomes NaN. @returns {Matrix} */
export function listMatrix(lists) {
  const flat = lists.flat().map((value) => (value === null ? NaN : value));
  return { rows: lists.length, columns: lists[0]?.length ?? 0, weights: Float32Array.from(flat) };
}

/** Number of layers of a kind of attention; none where the model has no such attention. */
export function layerCount(recording, kind) {
  return recording.maps[kind]?.length ?? 0;
}

/** The kind that was chosen, or the nearest one that this model has. */
export function kindWithin(recording, kind) {
  return [kind, "cross", "decoder", "encoder"].find((each) => layerCount(recording, each) > 0) ?? kind;
}

/** Whether there are a source and a target, as in translation, or one text only. */
export function isPair(recording) {
  return recording.source_tokens.length > 0 && recording.target_tokens.length > 0;
}

/** Whether the model predicts one label for a text, and no tokens. */
export function predictsLabel(recording) {
  return isEncoded(recording) && recording.steps.length === 1 && !recording.mask;
}

/** Whether an encoder alone predicts something at some of its positions. */
export function isEncoded(recording) {
  return recording.source_tokens.length > 0 && recording.target_tokens.length === 0;
}

/** The row of the attention weights with which a step was predicted; null if this kind has none. */
export function rowOfStep(recording, kind, step) {
  if (kind === "encoder" && isPair(recording)) return null;
  return recording.steps[step]?.position ?? null;
}

/** Tokens of the rows (queries) and of the columns (keys). */
export function axisTokens(recording, kind) {
  if (kind === "encoder") return { rows: recording.source_tokens, columns: recording.source_tokens };
  if (kind === "decoder") return { rows: recording.target_inputs, columns: recording.target_inputs };
  return { rows: recording.target_tokens, columns: recording.source_tokens };
}

/** The chosen head itself, or where a mean is chosen, the head of the layer with the lowest entropy. */
export function realHead(recording, { kind, layer, head }) {
  const at = typeof layer === "number" ? layer : layerCount(recording, kind) - 1;
  if (typeof head === "number") return { kind, layer: at, head };
  const facts = recording.heads[kind][at];
  return { kind, layer: at, head: facts.reduce((best, each, index) => (each.entropy < facts[best].entropy ? index : best), 0) };
}

/** The chosen layer and head, brought within what this model has. */
export function chosenHead(recording, state) {
  const { kind } = state;
  if (state.layer === "rollout" && recording.rollout?.[kind]) return { kind, layer: "rollout", head: "mean" };
  const last = layerCount(recording, kind) - 1;
  const layer = typeof state.layer === "number" ? Math.min(state.layer, last) : last;
  const head = recording.n_heads === 1 ? 0 : state.head === "mean" ? "mean" : Math.min(state.head, recording.n_heads - 1);
  return { kind, layer, head };
}

/**
 * The layers of one look; each is unpacked or fetched once.
 * @param {import("./api.js").Recording} recording
 * @param {((kind: string, layer: number) => Promise<any>)|null} fetchLayer
 */
export function createMaps(recording, fetchLayer) {
  const known = new Map();
  const load = async (kind, layer) => {
    const embedded = recording.maps[kind]?.[layer];
    if (embedded) return decodeMap(embedded);
    if (!fetchLayer) throw new Error("This file does not contain the weights of this layer.");
    return decodeMap((await fetchLayer(kind, layer)).map);
  };
  const layerOf = (kind, layer) => {
    const name = `${kind}.${layer}`;
    if (!known.has(name)) {
      const loading = load(kind, layer);
      loading.catch(() => known.delete(name)); // so that it can be tried again
      known.set(name, loading);
    }
    return known.get(name);
  };
  return {
    /** The weights to show, as a promise of a matrix. */
    async matrix({ kind, layer, head }) {
      if (layer === "rollout") return headMatrix(await decodeMap(recording.rollout[kind]), 0);
      return headMatrix(await layerOf(kind, layer), head);
    },
  };
}
