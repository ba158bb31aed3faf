/** The requests of the walk-through. */

import { send } from "../shared/api.js";

/**
 * Nested lists of numbers. S: source tokens, T: target tokens, D: d_model, H: heads, K: d_k, F: d_ff.
 * @typedef {number[]} Vector
 * @typedef {Vector[]} Rows
 * @typedef {Rows[]} Heads one matrix per head
 */

/**
 * Every step of the first layer of the encoder, and the hidden states after each layer.
 * @typedef {Object} EncoderNumbers
 * @property {Rows} embedded (S, D) rows of the embedding matrix, times √d_model
 * @property {Rows} positions (S, D)
 * @property {Rows} entered (S, D) the sum of both
 * @property {Heads} queries (H, S, K)
 * @property {Heads} keys (H, S, K)
 * @property {Heads} values (H, S, K)
 * @property {Heads} products (H, S, S) queries times keys
 * @property {Heads} scores (H, S, S) divided by √d_k
 * @property {Heads} weights_without_scaling (H, S, S)
 * @property {Heads} weights (H, S, S)
 * @property {Heads} heads (H, S, K) weighted sums
 * @property {Rows} joined (S, D)
 * @property {Rows} projected (S, D)
 * @property {Rows} sum (S, D)
 * @property {Rows} normed (S, D)
 * @property {Rows} hidden (S, F) after the ReLU
 * @property {Rows} fed (S, D)
 * @property {Rows} left (S, D)
 * @property {Rows[]} stack (layers + 1, S, D)
 * @property {Rows} memory (S, D)
 */

/**
 * @typedef {Object} DecoderNumbers
 * @property {Rows} entered (T, D)
 * @property {boolean[][]} mask (T, T) true: may attend
 * @property {Heads} scores (H, T, T) before the mask
 * @property {Heads} weights (H, T, T)
 * @property {Heads} weights_without_mask (H, T, T)
 * @property {Heads} cross_scores (H, T, S)
 * @property {Heads} cross_weights (H, T, S)
 * @property {Rows[]} stack (layers + 1, T, D)
 */

/**
 * One sentence in the small model.
 * @typedef {Object} Walk
 * @property {string} source
 * @property {string} target
 * @property {string[]} source_tokens
 * @property {number[]} source_ids
 * @property {string[]} target_tokens what is predicted
 * @property {string[]} target_inputs input of the decoder: the target, shifted right
 * @property {number[]} target_ids
 * @property {{d_model: number, d_k: number, d_ff: number, n_heads: number, vocabulary: number,
 *   encoder_layers: number, decoder_layers: number}} sizes
 * @property {Rows} position_table (50, D)
 * @property {EncoderNumbers} encoder
 * @property {DecoderNumbers} decoder
 * @property {Record<"encoder"|"decoder"|"cross"|"output", {head: number, row: number}>} start what is preselected
 * @property {import("../shared/api.js").Step[]} steps
 */

/**
 * @typedef {{token: string, here: number, there: number, distance: number}} Pair
 * @typedef {{tokens: [string[], string[]], pairs: Pair[], largest: number}} Order
 * @typedef {{with_mask: number[], without_mask: number[], source: string,
 *   translations: {with_mask: string, without_mask: string}}} Unmasked
 */

/**
 * One sentence in a small BERT or GPT.
 * @typedef {Object} Half
 * @property {string[]} tokens that the model reads
 * @property {number|null} hidden of a BERT: index of the hidden token, without <s>
 * @property {(import("../shared/api.js").Step & {position: number})[]} steps
 * @property {boolean[][]} mask true: may attend
 * @property {Heads[]} weights (layers, H, T, T)
 * @property {{d_model: number, n_heads: number, layers: number, vocabulary: number, parameters: number}} sizes
 * @property {{layer: number, head: number, row: number}} start what is preselected
 */

/** A sentence in the small BERT, with one token hidden. @returns {Promise<Half>} */
export function requestBert(source, hidden, signal) {
  return send("api/walk/bert", { source, hidden }, signal);
}

/** A sentence in the small GPT. @returns {Promise<Half>} */
export function requestGpt(source, signal) {
  return send("api/walk/gpt", { source }, signal);
}

/** All numbers of a sentence. @returns {Promise<Walk>} */
export function requestWalk(source, target, signal) {
  return send("api/walk", { source, target }, signal);
}

/** The code of the stations, by the name of the function. @returns {Promise<Record<string, string>>} */
export async function requestCode() {
  return (await send("api/walk/code")).code;
}

/** Distances between the same words of two sentences. @returns {Promise<Order>} */
export function requestOrder(first, second, positions, signal) {
  return send("api/walk/order", { first, second, positions }, signal);
}

/** Train with and without the mask. @returns {Promise<Unmasked>} */
export function requestUnmasked(source) {
  return send("api/walk/cheat", { source });
}
