/** The only module that talks to a server. Every answer is JSON; every failure becomes one line for the person. */

/**
 * @typedef {{shape: [number, number, number], data: string, deflated?: boolean}} PackedMap base64 of little-endian uint16, weight × 65535
 * @typedef {{token: string, probability: number}} Candidate
 * @typedef {{token: string, probability: number, candidates: Candidate[]}} Step
 * @typedef {{name: string, share: number, entropy: number, distance: number}} HeadFacts
 * @typedef {{name: string, encoder_layers: number, decoder_layers: number, n_heads: number, weights: number,
 *   bleu: number|null, examples: string[]}} Model
 * @typedef {{translation: string, score: number, milliseconds: number}} Translation
 * @typedef {{queries: number[][], keys: number[][], values: number[][], scores: (number|null)[][]}} Vectors
 * @typedef {{attention: number[][], occlusion: number[][], gradient: number[][],
 *   agreement: {occlusion: number, gradient: number}, words: string}} Checks
 * @typedef {{loss: number, changes: Record<string, number[][]>}} Ablation
 * @typedef {{id: number, parent: number|null, token: string, score: number, step: number, state: string}} BeamNode
 * @typedef {{nodes: BeamNode[], best: number[]}} Beams
 */

/**
 * Everything known about one sentence and its translation.
 * @typedef {Object} Looked
 * @property {string} model
 * @property {string} source
 * @property {string} target
 * @property {string[]} silenced
 * @property {string[]} source_tokens
 * @property {string[]} target_tokens
 * @property {string[]} target_inputs
 * @property {number} encoder_layers
 * @property {number} decoder_layers
 * @property {number} n_heads
 * @property {Step[]} steps
 * @property {Record<string, (PackedMap|null)[]>} maps null: large, ask for it
 * @property {Record<string, HeadFacts[][]>} heads
 * @property {{encoder: PackedMap, cross: PackedMap}|null} rollout
 * @property {Record<string, number[][]>} norms
 */

/** What the server can do, each as a function of one object; `signal` lets the caller drop a stale question. */
export function createServer() {
  const post = (path) => (question, signal) => ask(path, question, signal);
  return {
    models: () => ask("api/models").then((answer) => answer.models),
    translate: post("api/translate"),
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
 * @param {any} looked a Looked that may also hold "checks", "ablation" and "beams"
 */
export function createEmbedded(looked) {
  const services = {};
  for (const name of ["checks", "ablation", "beams"]) {
    if (looked[name]) services[name] = () => Promise.resolve(looked[name]);
  }
  return services;
}

/** The object embedded in a self-contained file, or null on a served page. */
export function embeddedData() {
  const holder = document.getElementById("looked");
  return holder ? JSON.parse(holder.textContent ?? "null") : null;
}

/** True when a newer question has replaced the one that failed. */
export function wasDropped(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Send a question (or just get something); every failure becomes one sentence for the person. */
export async function ask(path, question, signal) {
  const request = question
    ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question), signal }
    : { signal };
  const response = await reach(path, request);
  let answer;
  try {
    answer = await response.json();
  } catch (error) {
    if (wasDropped(error)) throw error;
    throw new Error(`The server answered something that cannot be read (status ${response.status}).`);
  }
  if (!response.ok) throw new Error(asSentence(answer.error ?? `the server refused (status ${response.status})`));
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
    throw new Error("The server cannot be reached. Is “attendo serve” still running?");
  }
}
