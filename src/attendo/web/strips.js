/** A small picture of numbers with the tokens of its rows beside it, and a line that reads the cell under the pointer. */

import { element } from "./dom.js";
import { tokenText } from "./tokens.js";

const MOST_NAMED_ROWS = 40; // more rows are drawn without names, in the same height

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("./maps.js").Matrix} matrix
 * @param {string[]} rowTokens
 */
export function namedPicture(canvas, matrix, rowTokens) {
  const few = matrix.rows <= MOST_NAMED_ROWS;
  const names = rowTokens.map((token) => element("span", { dir: "auto", title: token }, tokenText(token)));
  return element(
    "div",
    { class: few ? "strip-body" : "strip-body unnamed" },
    few ? element("div", { class: "strip-names", "aria-hidden": "true" }, ...names) : null,
    element("div", { class: "strip-picture" }, canvas),
  );
}

/**
 * A line that shows `usual` words, or what `describe` says of the cell under the pointer.
 * @param {HTMLCanvasElement} canvas
 * @param {import("./maps.js").Matrix} matrix
 * @param {string} usual
 * @param {(row: number, column: number, value: number) => string} describe
 */
export function cellReadout(canvas, matrix, usual, describe) {
  const line = element("span", { class: "strip-readout" }, usual);
  canvas.addEventListener("pointermove", (event) => {
    const bounds = canvas.getBoundingClientRect();
    const row = placeAlong(event.clientY - bounds.top, bounds.height, matrix.rows);
    const column = placeAlong(event.clientX - bounds.left, bounds.width, matrix.columns);
    line.textContent = describe(row, column, matrix.weights[row * matrix.columns + column]);
  });
  canvas.addEventListener("pointerleave", () => {
    line.textContent = usual;
  });
  return line;
}

function placeAlong(distance, length, count) {
  return Math.min(Math.max(Math.floor((distance / length) * count), 0), count - 1);
}
