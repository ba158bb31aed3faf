/** Which token is highlighted: the one under the pointer or the keyboard, else the pinned one. */

import { oncePerFrame } from "./dom.js";

/**
 * A token of a side, "q" (queries) or "k" (keys); `other` is a token of the opposite side, if one is meant.
 * @typedef {{side: "q"|"k", index: number, other?: number}} Spot
 */

/** Read "q3" from the address. @returns {Spot|null} */
export function spotOf(pin) {
  return pin ? { side: /** @type {"q"|"k"} */ (pin[0]), index: Number(pin.slice(1)) } : null;
}

/** Write it. @param {Spot} spot */
export function pinOf(spot) {
  return `${spot.side}${spot.index}`;
}

/** @param {(spot: Spot|null, pinned: Spot|null) => void} onChange */
export function createFocus(onChange) {
  let hovered = null;
  let pinned = null;
  const notify = oncePerFrame(() => onChange(hovered ?? pinned, pinned));
  return {
    hover(spot) {
      hovered = spot;
      notify();
    },
    pin(spot) {
      pinned = spot;
      notify();
    },
    get: () => hovered ?? pinned,
  };
}

/** Weights of a token: its row if it is a query, its column if it is a key. */
export function weightsOf(matrix, spot) {
  const { rows, columns, weights } = matrix;
  if (spot.side === "q") return weights.subarray(spot.index * columns, (spot.index + 1) * columns);
  return Float32Array.from({ length: rows }, (_, row) => weights[row * columns + spot.index]);
}

/** Indices of the largest weights that are at least `least`, largest first. */
export function strongest(weights, count, least) {
  const indices = [];
  for (let i = 0; i < weights.length; i += 1) if (weights[i] >= least) indices.push(i);
  return indices.sort((a, b) => weights[b] - weights[a]).slice(0, count);
}
