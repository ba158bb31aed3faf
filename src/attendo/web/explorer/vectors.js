/** Queries, keys, values and scores of one head, and hidden states, as coloured strips. */

import { element } from "../shared/dom.js";
import { listMatrix } from "../shared/maps.js";
import { countText, numberText } from "../shared/numbers.js";
import { largestSize, paintSigned, paintWeights } from "../shared/paint.js";
import { cellReadout, namedPicture } from "./strips.js";

/**
 * @param {import("../shared/api.js").Vectors} vectors
 * @param {{rows: string[], columns: string[]}} tokens
 * @param {string} caption which head this is
 */
export function drawVectors(vectors, tokens, caption) {
  const width = vectors.queries[0]?.length ?? 0;
  const dimensions = `columns: ${countText(width, "dimension")}`;
  return element(
    "div",
    {},
    element("p", { class: "strips-caption" }, caption),
    element(
      "div",
      { class: "vectors" },
      strip("Queries", "one row for each query token", vectors.queries, tokens.rows, dimensions),
      strip("Keys", "one row for each key token", vectors.keys, tokens.columns, dimensions),
      strip("Values", "one row for each key token", vectors.values, tokens.columns, dimensions),
      strip("Scores", "before the softmax", vectors.scores, tokens.rows, "columns: keys"),
    ),
  );
}

const LAYERS_ACROSS = "columns: input of the first layer, then output of each layer";

/** Norms of the hidden states of each layer; where they are given, the states of the last layer too. */
export function drawStates(norms, states, recording) {
  const tokens = { encoder: recording.source_tokens, decoder: recording.target_inputs };
  const parts = [];
  for (const [side, name] of [["encoder", "Encoder"], ["decoder", "Decoder"]]) {
    if (states) parts.push(strip(`${name}, last layer`, "hidden state of each token", states[side], tokens[side], `columns: ${countText(states[side][0]?.length ?? 0, "dimension")}`));
    if (norms[side]?.length) parts.push(strip(`${name}, norms`, "norm of the hidden state of each token", across(norms[side]), tokens[side], LAYERS_ACROSS, true));
  }
  return element("div", { class: "vectors norms" }, ...parts);
}

function across(layers) {
  return layers[0].map((_, token) => layers.map((layer) => layer[token]));
}

function strip(title, hint, lists, tokens, axis, positive = false) {
  const matrix = listMatrix(lists);
  const most = largestSize(matrix);
  const label = `${title}: ${matrix.rows} by ${matrix.columns} numbers between ${positive ? "0" : `−${most.toFixed(2)}`} and ${most.toFixed(2)}`;
  const canvas = element("canvas", { role: "img", "aria-label": label });
  if (positive) paintWeights(canvas, matrix, { most: most || 1 });
  else paintSigned(canvas, matrix, most);
  const readout = cellReadout(canvas, matrix, axis, (row, column, value) => {
    const number = Number.isNaN(value) ? "masked" : numberText(value, 4);
    return `row ${row + 1}, column ${column + 1}: ${number}`;
  });
  return element(
    "figure",
    { class: "strip" },
    element("figcaption", {}, element("strong", {}, title), element("span", {}, hint)),
    namedPicture(canvas, matrix, tokens),
    element("p", { class: "axis" }, readout, element("span", {}, `${positive ? "0 to" : "±"} ${most.toFixed(2)}`)),
  );
}
