/** Attention beside two other measurements of which source tokens each target token depends on. */

import { element } from "../shared/dom.js";
import { listMatrix } from "../shared/maps.js";
import { numberText } from "../shared/numbers.js";
import { largestSize, paintWeights } from "../shared/paint.js";
import { cellReadout, namedPicture, scaleLegend } from "./strips.js";
import { quoted, shortToken } from "../shared/tokens.js";

const CHECKS = [
  { name: "attention", title: "Attention", hint: "weights of the chosen head or heads", unit: "weight" },
  { name: "occlusion", title: "Leave one out", hint: "change of the log-probability without a source token", unit: "change" },
  { name: "gradient", title: "Gradient × input", hint: "first-order effect of a source token on the log-probability", unit: "effect" },
];

/**
 * @param {import("../shared/api.js").Checks} checks
 * @param {import("../shared/api.js").Recording} recording
 */
export function drawChecks(checks, recording) {
  const shown = CHECKS.filter(({ name }) => checks[name]);
  return element(
    "div",
    { class: "checks" },
    element("p", { class: "verdict" }, checks.words),
    element("div", { class: "check-pictures" }, ...shown.map((check) => checkPicture(check, checks, recording))),
  );
}

function checkPicture({ name, title, hint, unit }, checks, recording) {
  const matrix = listMatrix(checks[name]);
  const agreement = checks.agreement[name];
  const most = name === "attention" ? 1 : largestSize(matrix) || 1; // weights have the scale of all other maps
  const canvas = element("canvas", { role: "img", "aria-label": checkLabel(title, matrix, recording) });
  paintWeights(canvas, absolute(matrix), { most });
  const short = (token) => `\u2068${shortToken(token ?? "", 12)}\u2069`;
  const readout = cellReadout(canvas, matrix, hint, (row, column, value) =>
    `${short(recording.target_tokens[row])} → ${short(recording.source_tokens[column])} ${numberText(value, 4)}`,
  );
  return element(
    "figure",
    { class: "strip check" },
    element("figcaption", {}, element("strong", {}, title), readout),
    namedPicture(canvas, matrix, recording.target_tokens, recording.source_tokens),
    element("p", { class: "axis" }, "rows: target, columns: source"),
    scaleLegend(name === "attention" ? unit : `size of the ${unit}`, most),
    agreement === undefined ? null : agreementMeter(agreement, title),
  );
}

/** Rank correlation as a bar that grows right when the two agree and left when they disagree. */
function agreementMeter(agreement, title) {
  const known = typeof agreement === "number" && Number.isFinite(agreement);
  const bar = element("span", { class: `agreement-bar ${agreement < 0 ? "against" : ""}` });
  bar.style.inlineSize = known ? `${(50 * Math.abs(agreement)).toFixed(1)}%` : "0";
  const text = known ? numberText(agreement, 2) : "unknown";
  return element(
    "div",
    { class: "agreement" },
    element("span", { class: "agreement-well", role: "img", "aria-label": `Rank correlation of attention with ${title}: ${text}` }, bar),
    element("p", {}, "rank correlation with attention ", element("strong", {}, text)),
  );
}

function checkLabel(title, matrix, recording) {
  const top = matrix.weights.reduce((most, value, at, all) => (Math.abs(value) > Math.abs(all[most]) ? at : most), 0);
  if (!matrix.rows || !matrix.columns) return `${title}: empty`;
  const [row, column] = [Math.floor(top / matrix.columns), top % matrix.columns];
  return `${title}: ${matrix.rows} target by ${matrix.columns} source tokens, largest from ${quoted(recording.target_tokens[row] ?? "")} to ${quoted(recording.source_tokens[column] ?? "")}`;
}

function absolute(matrix) {
  return { ...matrix, weights: matrix.weights.map((value) => Math.abs(value)) };
}
