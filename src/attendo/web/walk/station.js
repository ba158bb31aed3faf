/** What a station is, and how its pictures are redrawn when another token or head is chosen. */

import { element, refill } from "../shared/dom.js";

/**
 * @typedef {import("./server.js").Walk} Walk
 * @typedef {import("./state.js").WalkState} WalkState
 * @typedef {{walk: Walk, choose: (change: Partial<WalkState>) => void}} Context
 * @typedef {{element: HTMLElement, update: (state: WalkState) => void}} View
 *
 * @typedef {Object} Station
 * @property {string} id also its name in the address
 * @property {string} name
 * @property {string} short for the list
 * @property {string} group part of the model that it belongs to
 * @property {(walk: Walk) => string[]} words paragraphs
 * @property {(walk: Walk) => [string, string][]} shapes name, and size in numbers
 * @property {[string, RegExp|null][]} code functions, each with the lines that matter here
 * @property {("token"|"head"|"step")[]} needs what can be chosen here
 * @property {"encoder"|"decoder"|"cross"|"output"|"bert"|"gpt"} [attention] decides what is preselected; the encoder's if absent
 * @property {(context: Context) => View} create
 */

/**
 * A view that is redrawn as a whole at each change.
 * @param {(state: WalkState, context: Context) => (Node|null)[]} draw
 * @returns {(context: Context) => View}
 */
export function drawing(draw) {
  return (context) => {
    const box = element("div", { class: "walk-pictures" });
    return { element: box, update: (state) => refill(box, draw(state, context)) };
  };
}

/** Sizes as text: "8 tokens × 64". */
export function times(...sizes) {
  return sizes.join(" × ");
}
