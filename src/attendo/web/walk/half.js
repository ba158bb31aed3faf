/** The pictures of a station about one half of figure 1, a small BERT or GPT: what differs, predictions, mask, attention. */

import { createCandidates } from "../shared/candidates.js";
import { element, refill } from "../shared/dom.js";
import { percentText } from "../shared/numbers.js";
import { quoted } from "../shared/tokens.js";
import { counted, digits, largestAt } from "./numbers.js";
import { card, chips, figureText, note } from "./parts.js";
import { createRibbonCard } from "./ribbons.js";
import { numberTable } from "./tables.js";

/**
 * @typedef {import("./server.js").Half} Half
 * @typedef {import("./state.js").WalkState} WalkState
 * @typedef {Object} HalfOptions
 * @property {string} name
 * @property {(half: Half) => any} asRecording what the list of candidates shows
 * @property {(state: WalkState, signal: AbortSignal) => Promise<Half>} request
 * @property {(state: WalkState) => any} key what the numbers depend on
 * @property {(half: Half, state: WalkState) => number} chosen index of the step that is shown
 * @property {(step: number) => Partial<WalkState>} choose
 * @property {string} title
 * @property {string} hint
 * @property {[string, string, string][]} differences name, in the paper, in this model
 */

/**
 * A view that requests its own numbers: the model is another one than at the other stations.
 * @param {import("./station.js").Context} context
 * @param {HalfOptions} options
 * @returns {import("./station.js").View}
 */
export function createHalf({ choose }, options) {
  const status = element("p", { class: "walk-note", role: "status" }, "Computing …");
  const sizes = note();
  const words = note();
  const candidates = createCandidates({ onHover: () => {}, onPin: (step) => choose(options.choose(step)) });
  const steps = card(options.title, note(options.hint), candidates.element, words);
  const layers = chips({ legend: "Layer", onChoose: (layer) => showAttention({ layer }) });
  const heads = chips({ legend: "Head", onChoose: (head) => showAttention({ head }) });
  const tables = element("div", { class: "walk-pictures" });
  const ribbons = createRibbonCard(({ index }) => pick(index));
  const places = element("div", { class: "controls" }, layers.element, heads.element);
  const pictures = element("div", { class: "walk-pictures", hidden: true }, steps, places, tables, ribbons.element);
  let half = null;
  let wanted = null; // what the newest request was for
  let pending = null;
  let place = { step: 0 }; // with a layer and a head, if they were chosen

  async function load(state) {
    pending?.abort();
    pending = new AbortController();
    const { signal } = pending;
    try {
      const found = await options.request(state, signal);
      if (!signal.aborted) draw(found, state);
    } catch (error) {
      if (!signal.aborted) [status.textContent, status.hidden] = [error.message, false];
    }
  }

  function draw(found, state) {
    half = found;
    status.hidden = true;
    sizes.textContent = sizesText(options.name, half.sizes);
    candidates.show(options.asRecording(half));
    layers.show(numbered("Layer", half.sizes.layers));
    heads.show(numbered("Head", half.sizes.n_heads));
    pictures.hidden = false;
    show(state);
  }

  function show(state) {
    const step = options.chosen(half, state);
    candidates.showStep(step);
    words.replaceChildren(...stepWords(half.steps[step]));
    showAttention({ step });
  }

  function showAttention(change) {
    place = { ...place, ...change };
    const { layer, head, step } = { ...half.start, ...place };
    layers.choose(layer);
    heads.choose(head);
    const row = half.steps[step].position;
    const shown = { name: `head ${head + 1} of layer ${layer + 1}`, weights: half.weights[layer][head], row };
    refill(tables, [attentionTables(half, shown, pick)]);
    ribbons.show(ribbonsOf(half, shown));
  }

  /** Choose the step of a row; <s> and </s> have none in a BERT. */
  function pick(row) {
    const step = half.steps.findIndex(({ position }) => position === row);
    if (step >= 0) choose(options.choose(step));
  }

  return {
    element: element("div", { class: "walk-pictures" }, card(`${options.name} and the paper`, differencesTable(options), sizes, status), pictures),
    update(state) {
      const key = options.key(state);
      if (half && key === wanted) return show(state);
      wanted = key;
      load(state);
    },
  };
}

function differencesTable({ name, differences }) {
  const head = ["", "The paper", name].map((text) => (text ? element("th", { scope: "col" }, text) : element("td")));
  const rows = differences.map(([what, ...both]) => element("tr", {}, element("th", { scope: "row" }, what), ...both.map((text) => element("td", {}, text))));
  return element("table", { class: "differences" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function sizesText(name, { layers, n_heads, d_model, vocabulary, parameters }) {
  return `This small ${name} has ${counted(layers, "layer")} with ${counted(n_heads, "head")}, hidden states of ${d_model} numbers, ${counted(vocabulary, "token")} and ${counted(parameters, "parameter")}. Positional encoding and feed-forward networks are the paper’s.`;
}

function numbered(name, count) {
  return Array.from({ length: count }, (_, at) => ({ text: String(at + 1), title: `${name} ${at + 1}` }));
}

function stepWords({ token, probability, candidates: [best] }) {
  const words = ["The most probable token is ", quoted(best.token), " (", figureText(percentText(best.probability)), ")"];
  if (best.token === token) return [...words, ", the token of the sentence."];
  return [...words, "; the sentence has ", quoted(token), " (", figureText(percentText(probability)), ")."];
}

function attentionTables({ tokens, mask }, { name, weights, row }, onChoose) {
  const common = { rows: tokens, columns: tokens, chosen: row, onChoose };
  const allowed = numberTable({ ...common, title: "Attention mask", hint: "1: the query may attend to the key", values: mask.map((cells) => cells.map(Number)), kind: "mask", mask });
  const table = numberTable({ ...common, title: `Attention weights of ${name}`, hint: "rows: queries, columns: keys; each row sums to 1", values: weights, kind: "weights", mask });
  return element("div", { class: "side-by-side" }, card(null, allowed), card(null, table));
}

function ribbonsOf({ tokens }, { name, weights, row }) {
  const best = largestAt(weights[row]);
  return {
    title: `Attention weights of ${quoted(tokens[row])} in ${name}`,
    words: ["The largest weight is on ", quoted(tokens[best]), " (", figureText(digits(weights[row][best])), ")."],
    weights,
    rows: tokens,
    columns: tokens,
    chosen: row,
  };
}
