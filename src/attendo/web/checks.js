/** Attention beside two other answers to the question "which source token mattered here?" */

import { element } from "./dom.js";
import { listMatrix } from "./maps.js";
import { largestSize, paintWeights } from "./paint.js";
import { cellReadout, namedPicture } from "./strips.js";
import { quoted, shortToken } from "./tokens.js";

const CHECKS = [
  { name: "attention", title: "Attention", hint: "where this head looks" },
  { name: "occlusion", title: "Leave one out", hint: "what changes when a source token is taken away" },
  { name: "gradient", title: "Gradient × input", hint: "what a tiny change of a source token would do" },
];

/**
 * @param {import("./api.js").Checks} checks
 * @param {import("./api.js").Looked} looked
 */
export function drawChecks(checks, looked) {
  return element(
    "div",
    { class: "checks" },
    element("p", { class: "verdict" }, checks.words),
    element("div", { class: "check-pictures" }, ...CHECKS.map((check) => checkPicture(check, checks, looked))),
  );
}

function checkPicture({ name, title, hint }, checks, looked) {
  const matrix = listMatrix(checks[name]);
  const agreement = checks.agreement[name];
  const canvas = element("canvas", { role: "img", "aria-label": checkLabel(title, matrix, looked) });
  paintWeights(canvas, absolute(matrix), { most: largestSize(matrix) || 1 });
  const short = (token) => `\u2068${shortToken(token ?? "", 12)}\u2069`;
  const readout = cellReadout(canvas, matrix, hint, (row, column, value) =>
    `${short(looked.target_tokens[row])} → ${short(looked.source_tokens[column])} ${value.toFixed(4).replace("-", "−")}`,
  );
  return element(
    "figure",
    { class: "strip check" },
    element("figcaption", {}, element("strong", {}, title), readout),
    namedPicture(canvas, matrix, looked.target_tokens),
    agreement === undefined ? element("p", { class: "axis" }, "rows: target, columns: source") : agreementMeter(agreement, title),
  );
}

/** Rank correlation as a bar that grows right when the two agree and left when they disagree. */
function agreementMeter(agreement, title) {
  const known = typeof agreement === "number" && Number.isFinite(agreement);
  const bar = element("span", { class: `agreement-bar ${agreement < 0 ? "against" : ""}` });
  bar.style.inlineSize = known ? `${(50 * Math.abs(agreement)).toFixed(1)}%` : "0";
  const text = known ? agreement.toFixed(2).replace("-", "−") : "unknown";
  return element(
    "div",
    { class: "agreement" },
    element("span", { class: "agreement-well", role: "img", "aria-label": `Rank correlation of attention with ${title}: ${text}` }, bar),
    element("p", {}, "rank correlation with attention ", element("strong", {}, text)),
  );
}

function checkLabel(title, matrix, looked) {
  const top = matrix.weights.reduce((most, value, at, all) => (Math.abs(value) > Math.abs(all[most]) ? at : most), 0);
  if (!matrix.rows || !matrix.columns) return `${title}: empty`;
  const [row, column] = [Math.floor(top / matrix.columns), top % matrix.columns];
  return `${title}: ${matrix.rows} target by ${matrix.columns} source tokens, largest from ${quoted(looked.target_tokens[row] ?? "")} to ${quoted(looked.source_tokens[column] ?? "")}`;
}

function absolute(matrix) {
  return { ...matrix, weights: matrix.weights.map((value) => Math.abs(value)) };
}
