/** Arithmetic on vectors, and numbers as text; independent of the page. */

/** @typedef {import("./server.js").Vector} Vector */

/** @param {Vector} values */
export function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

/** @param {Vector} values */
export function mean(values) {
  return total(values) / values.length;
}

/** Mean of the squared distances from the mean, as in layer normalisation. @param {Vector} values */
export function variance(values) {
  const middle = mean(values);
  return mean(values.map((value) => (value - middle) ** 2));
}

/** Mean 0 and variance 1: layer normalisation before its gain and bias. @param {Vector} values */
export function standardised(values, epsilon = 1e-5) {
  const middle = mean(values);
  const spread = Math.sqrt(variance(values) + epsilon);
  return values.map((value) => (value - middle) / spread);
}

/** @param {Vector} one @param {Vector} other */
export function dot(one, other) {
  return one.reduce((sum, value, at) => sum + value * other[at], 0);
}

/** Cosine similarity of two vectors: 1 same direction, 0 orthogonal, −1 opposite. */
export function cosine(one, other) {
  const lengths = Math.sqrt(dot(one, one) * dot(other, other));
  return lengths === 0 ? 0 : dot(one, other) / lengths;
}

/** @param {Vector} scores −Infinity becomes exactly 0 */
export function softmax(scores) {
  const highest = Math.max(...scores);
  const exponentials = scores.map((score) => Math.exp(score - highest));
  const sum = total(exponentials);
  return exponentials.map((value) => value / sum);
}

/** In bits: 0 when one weight is 1, log₂ n when n weights are equal. @param {Vector} weights */
export function entropy(weights) {
  return -total(weights.map((weight) => (weight > 0 ? weight * Math.log2(weight) : 0))) || 0;
}

/** Trace of the softmax's Jacobian: how strongly the weights react to the scores; 0 when one weight is 1. */
export function jacobianTrace(weights) {
  return total(weights.map((weight) => weight * (1 - weight)));
}

/** Place of the largest value. @param {Vector} values */
export function largestAt(values) {
  return values.reduce((best, value, at) => (value > values[best] ? at : best), 0);
}

/** Largest absolute value of a matrix. @param {number[][]} rows */
export function largestOf(rows) {
  return rows.reduce((most, row) => row.reduce((size, value) => Math.max(size, Math.abs(value)), most), 0);
}

/** A number with a real minus sign. */
export function digits(value, count = 4) {
  if (value === -Infinity) return "−∞";
  const text = value.toFixed(count);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** A number for a narrow cell: two digits after the point, fewer when it is large. */
export function shortDigits(value) {
  return digits(value, Math.abs(value) >= 9.95 ? 0 : Math.abs(value) >= 0.995 ? 1 : 2);
}

/** A share as a whole percentage. */
export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

/** "1 token", "7 tokens". */
export function counted(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}
