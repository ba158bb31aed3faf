/** The numbers behind one head: queries, keys, values, and the scores before the softmax, as coloured strips. */

import { element } from "./dom.js";
import { listMatrix } from "./maps.js";
import { largestSize, paintSigned, paintWeights } from "./paint.js";
import { cellReadout, namedPicture } from "./strips.js";

/**
 * @param {import("./api.js").Vectors} vectors
 * @param {{rows: string[], columns: string[]}} tokens
 */
export function drawVectors(vectors, tokens) {
  const width = vectors.queries[0]?.length ?? 0;
  return element(
    "div",
    { class: "vectors" },
    strip("Queries", "what each token asks for", vectors.queries, tokens.rows, `${width} numbers across`),
    strip("Keys", "what each token answers to", vectors.keys, tokens.columns, `${width} numbers across`),
    strip("Values", "what each token hands on", vectors.values, tokens.columns, `${width} numbers across`),
    strip("Scores", "queries · keys / √K, before the softmax", vectors.scores, tokens.rows, "one column for each token looked at"),
  );
}

const LAYERS_ACROSS = "before the first layer, then after each";

/** Lengths of the vectors in the residual stream, after each layer. */
export function drawNorms(norms, looked) {
  const parts = [];
  if (norms.encoder?.length) parts.push(strip("Encoder", "length of each source token's vector", across(norms.encoder), looked.source_tokens, LAYERS_ACROSS, true));
  if (norms.decoder?.length) parts.push(strip("Decoder", "length of each target token's vector", across(norms.decoder), looked.target_inputs, LAYERS_ACROSS, true));
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
    const number = Number.isNaN(value) ? "masked" : value.toFixed(4).replace("-", "−");
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
