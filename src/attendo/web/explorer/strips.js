/** A small picture of numbers with the tokens of its rows and columns, a legend, and a line that reads one cell. */

import { weightColour } from "../shared/colours.js";
import { element } from "../shared/dom.js";
import { labelText } from "../shared/tokens.js";

const MOST_NAMED = 40; // more rows or columns are drawn without names, in the same size

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("../shared/maps.js").Matrix} matrix
 * @param {string[]} rowTokens
 * @param {string[]} [columnTokens]
 */
export function namedPicture(canvas, matrix, rowTokens, columnTokens = []) {
  const named = matrix.rows <= MOST_NAMED;
  const above = columnTokens.length > 0 && matrix.columns <= MOST_NAMED;
  const names = (tokens) => tokens.map((token, index) => {
    const text = labelText(token, index, tokens);
    return element("span", { dir: "auto", title: text }, text);
  });
  return element(
    "div",
    { class: named ? "strip-body" : "strip-body unnamed" },
    above && named ? element("div", {}) : null,
    above ? element("div", { class: "strip-columns", "aria-hidden": "true" }, ...names(columnTokens)) : null,
    named ? element("div", { class: "strip-names", "aria-hidden": "true" }, ...names(rowTokens)) : null,
    element("div", { class: "strip-picture" }, canvas),
  );
}

/** The colour scale from 0 to `most`; the colour follows the square root of the value. */
export function scaleLegend(name, most) {
  const stops = Array.from({ length: 17 }, (_, at) => `${weightColour(at / 16)} ${(100 * at) / 16}%`);
  const bar = element("div", { class: "legend-bar", role: "img", "aria-label": `Colour scale: ${name} from 0 to ${scaleText(most)}` });
  bar.style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
  const ticks = [0, 0.05, 0.25, 0.5, 1].map((share) => {
    const tick = element("span", {}, scaleText(share * most));
    tick.style.left = `${100 * Math.sqrt(share)}%`;
    return tick;
  });
  return element("div", { class: "legend" }, element("span", {}, name), bar, element("div", { class: "legend-ticks", "aria-hidden": "true" }, ...ticks));
}

function scaleText(value) {
  return String(Number(value.toPrecision(2)));
}

/**
 * A line that shows `usual` words, or what `describe` returns for the cell under the pointer.
 * @param {HTMLCanvasElement} canvas
 * @param {import("../shared/maps.js").Matrix} matrix
 * @param {string} usual
 * @param {(row: number, column: number, value: number) => string} describe
 */
export function cellReadout(canvas, matrix, usual, describe) {
  const line = element("span", { class: "strip-readout" }, usual);
  const read = (event) => {
    const bounds = canvas.getBoundingClientRect();
    const row = placeAlong(event.clientY - bounds.top, bounds.height, matrix.rows);
    const column = placeAlong(event.clientX - bounds.left, bounds.width, matrix.columns);
    line.textContent = describe(row, column, matrix.weights[row * matrix.columns + column]);
  };
  canvas.addEventListener("pointermove", read);
  canvas.addEventListener("pointerdown", read);
  canvas.addEventListener("pointerleave", () => {
    line.textContent = usual;
  });
  return line;
}

function placeAlong(distance, length, count) {
  return Math.min(Math.max(Math.floor((distance / length) * count), 0), count - 1);
}
