/** The only module that sends requests. Every answer is JSON; every failure becomes one sentence. */

/**
 * @typedef {{shape: [number, number, number], data: string, deflated?: boolean}} PackedMap base64 of little-endian uint16, weight × 65535
 * @typedef {{token: string, probability: number, log_prob: number}} Candidate
 * @typedef {{token: string, probability: number, log_prob: number, position: number, normalizers: number[], candidates: Candidate[]}} Step
 * @typedef {{name: string, share: number, entropy: number, distance: number}} HeadFacts
 * @typedef {{name: string, task: string, mask: string, reads: string, languages: string, architecture: string, encoder_layers: number, decoder_layers: number,
 *   n_heads: number, parameters: number, bleu: number|null, score: string, about: string, examples: string[]}} Model
 * @typedef {{translation: string, score: number, milliseconds: number, unknown: string[],
 *   segments: import("../explorer/sentences.js").Segment[]}} Translation
 * @typedef {{queries: number[][], keys: number[][], values: number[][], scores: (number|null)[][]}} Vectors
 * @typedef {{attention: number[][]|null, occlusion: number[][], gradient: number[][],
 *   agreement: {occlusion?: number, gradient?: number}, words: string}} Checks
 * @typedef {{loss: number, changes: Record<string, number[][]>}} Ablation
 * @typedef {{id: number, parent: number|null, token: string, score: number, step: number, state: string}} BeamNode
 * @typedef {{nodes: BeamNode[], best: number[]}} Beams
 */

/**
 * Everything known about one text: a sentence and its translation, a text of a language model (no source), or a text that an encoder alone reads (no target tokens).
 * @typedef {Object} Recording
 * @property {string} model
 * @property {{model: string, source: string, target?: string|null, ablated: string[]}} [asked] what a server was asked for
 * @property {string} task
 * @property {string} mask how a hidden word is written
 * @property {string} source
 * @property {{data: string, rows: number, columns: number, n_before: number}|null} [picture] an image or a spectrogram that the model reads, as a data URL
 * @property {string} target what the model predicts; of a classified text, the label
 * @property {string[]} unknown words that are not in the training data
 * @property {string[]} ablated
 * @property {string[]} source_tokens
 * @property {string[]} target_tokens
 * @property {string[]} target_inputs
 * @property {number} encoder_layers
 * @property {number} decoder_layers
 * @property {number} n_heads
 * @property {boolean} can_ablate
 * @property {string} missing which kinds of attention the model does not have
 * @property {number[]} temperatures for which steps have normalizers
 * @property {Step[]} steps one for each target token, for each hidden word, or for the label
 * @property {Record<string, (PackedMap|null)[]>} maps null: large, ask for it
 * @property {Record<string, HeadFacts[][]>} heads
 * @property {Record<string, PackedMap>|null} rollout
 * @property {Record<string, number[][]>} norms
 * @property {Record<string, number[][]>|null} states hidden states of the last layers, where there is no attention
 */

/** What the server can do, each as a function of one object; `signal` cancels a stale request. */
export function createServer() {
  const post = (path) => (body, signal) => send(path, body, signal);
  return {
    models: () => send("api/models"),
    translate: post("api/translate"),
    generate: post("api/generate"),
    beginning: post("api/beginning"),
    look: post("api/look"),
    layer: post("api/layer"),
    vectors: post("api/vectors"),
    checks: post("api/checks"),
    ablation: post("api/ablation"),
    beams: post("api/beams"),
  };
}

/**
 * The same, answered by the data inside a self-contained file. What is not in it is missing here, and so hidden on the page.
 * @param {any} recording a Recording that may also hold "checks", "ablation" and "beams"
 */
export function createEmbedded(recording) {
  const services = {};
  for (const name of ["checks", "ablation", "beams"]) {
    if (recording[name]) services[name] = () => Promise.resolve(recording[name]);
  }
  return services;
}

/** The object embedded in a self-contained file, or null on a served page. */
export function embeddedData() {
  const holder = document.getElementById("recording");
  return holder ? JSON.parse(holder.textContent ?? "null") : null;
}

/** True when a newer request has replaced the one that failed. */
export function wasDropped(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Send a request; every failure becomes one sentence. */
export async function send(path, body, signal) {
  const request = body
    ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal }
    : { signal };
  const response = await reach(path, request);
  let answer;
  try {
    answer = await response.json();
  } catch (error) {
    if (wasDropped(error)) throw error;
    throw new Error(`The answer of the server is not JSON (status ${response.status}).`);
  }
  if (!response.ok) throw new Error(asSentence(answer.error ?? `the server refused the request (status ${response.status})`));
  return answer;
}

function asSentence(message) {
  return `${message.charAt(0).toUpperCase()}${message.slice(1)}${/[.?!]$/.test(message) ? "" : "."}`;
}

async function reach(path, request) {
  try {
    return await fetch(path, request);
  } catch (error) {
    if (wasDropped(error)) throw error;
    throw new Error("The server cannot be reached. Check that “attendo serve” is still running.");
  }
}
