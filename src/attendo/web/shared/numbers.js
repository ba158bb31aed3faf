/** Numbers as people read them. */

/** A number with a real minus sign, and never "−0.00". */
export function numberText(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** A probability in percent; small and nearly certain ones keep their last digits. */
export function percentText(probability) {
  const percent = 100 * probability;
  if (percent >= 99.95) return percent > 99.995 ? "100 %" : `${percent.toFixed(2)} %`;
  return percent < 0.01 ? "< 0.01 %" : `${percent.toFixed(percent < 1 ? 2 : 1)} %`;
}

/** A probability in percent or, if it is tiny, as a power of ten. */
export function probabilityText(probability) {
  if (probability >= 1e-4 || probability === 0) return percentText(probability);
  const [digits, power] = probability.toExponential(0).split("e-");
  return `${digits}·10⁻${[...power].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]).join("")}`;
}

/** How many parameters a model has. */
export function sizeText(count) {
  return count >= 1e6 ? `${(count / 1e6).toFixed(1)} million` : `${Math.round(count / 1e3)} thousand`;
}

/** Number and noun, in the singular for one. */
export function countText(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** Probability of a candidate at a temperature, given the logarithm of the sum over the whole vocabulary. */
export function tempered(logProb, temperature, normalizer) {
  return Math.exp(logProb / temperature - normalizer);
}
