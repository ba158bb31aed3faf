/** What a model predicts for one text: its continuation, its hidden words, its label or its tree. */

import { drawDifferences } from "./differences.js";
import { element, pushButton } from "../shared/dom.js";
import { drawParse, findsTrees } from "./parse.js";
import { countText, percentText } from "../shared/numbers.js";
import { appended, tokenText } from "../shared/tokens.js";

const NEXT = 6; // candidates that can be appended

/**
 * @typedef {{recording: import("../shared/api.js").Recording, continuation?: string, milliseconds?: number}} Prediction
 * @typedef {{words: (Node|string)[], facts: string, actions: Node[]}} Drawn
 */

/**
 * @param {Prediction} now
 * @param {Prediction|null} usual with all heads
 * @param {{onText: (text: string) => void, onSeed: (seed: number|null) => void, seed: number|null}} choices
 * @returns {Drawn}
 */
export function drawPrediction(now, usual, choices) {
  const { recording } = now;
  const changed = usual !== null && predictedText(usual) !== predictedText(now);
  const ablated = usual === null ? "" : `${countText(recording.ablated.length, "head")} ablated: ${changed ? changeText(usual) : "no change"}`;
  const facts = [ablated, ...factsOf(now)].filter(Boolean).join(" · ");
  const differences = changed ? [/^\s*/u.exec(predictedText(now))[0], drawDifferences(predictedText(usual), predictedText(now))] : null;
  if (recording.task === "language-model") {
    const written = differences ?? [element("span", { class: "predicted" }, now.continuation || "(the text ends here)")];
    return { words: [recording.target, ...written], facts, actions: continuationActions(now, choices) };
  }
  const drawn = findsTrees(recording.task) ? null : differences;
  return { words: drawn ?? filled(recording), facts, actions: [] };
}

/** The prediction as text. @param {Prediction} prediction */
export function predictedText({ recording, continuation }) {
  if (recording.task === "language-model") return continuation ?? "";
  if (findsTrees(recording.task)) return recording.target;
  return filled(recording).map((part) => (typeof part === "string" ? part : part.textContent)).join("");
}

/** A text with the most probable words in place of the hidden ones; else the tree or the label. @returns {(HTMLElement|string)[]} */
export function filled({ task, mask, source, target, steps }) {
  if (findsTrees(task)) return [drawParse(target)];
  if (!mask) return [target];
  return source.split(mask).flatMap((part, at) => (at && steps[at - 1] ? [element("span", { class: "predicted" }, tokenText(steps[at - 1].token)), part] : [part]));
}

function changeText({ recording }) {
  if (findsTrees(recording.task)) return "the tree changed";
  return recording.task === "classification" ? `before, ${recording.target} ${percentText(recording.steps[0].probability)}` : "the marked words changed";
}

function factsOf({ recording, milliseconds }) {
  const { task, steps } = recording;
  if (task === "language-model") return [`perplexity of the text ${perplexity(steps.slice(0, -1)).toFixed(1)}`, `${milliseconds?.toFixed(0)} ms`];
  if (recording.mask && !recording.source.includes(recording.mask)) return ["no word is hidden"];
  return steps.length === 1 && !findsTrees(task) ? [`probability ${percentText(steps[0].probability)}`] : [];
}

/** The exponential of the mean loss; the last step, the end of the text, is not part of an unfinished text. */
function perplexity(steps) {
  return Math.exp(-steps.reduce((sum, step) => sum + step.log_prob, 0) / Math.max(steps.length, 1));
}

function continuationActions({ recording, continuation }, { onText, onSeed, seed }) {
  const text = recording.target;
  const next = recording.steps.at(-1).candidates
    .map(({ token, probability }) => ({ longer: appended(text, token), token, probability }))
    .filter(({ longer }) => longer !== null)
    .slice(0, NEXT);
  return [
    element("span", { class: "field-name" }, "Append the next token"),
    ...next.map(({ longer, token, probability }) => pushButton(`${tokenText(token)} ${percentText(probability)}`, () => onText(longer), { class: "example", dir: "auto" })),
    pushButton("Append all", () => onText(text + continuation), { class: "example", disabled: !continuation }),
    pushButton(seed === null ? "Sample" : "Sample again", () => onSeed((seed ?? 0) + 1), { class: "example", title: "Draw each token by its probability, at the temperature below" }),
    ...(seed === null ? [] : [pushButton("Most probable tokens", () => onSeed(null), { class: "example" })]),
  ];
}
