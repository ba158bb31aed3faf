/** Stations of the decoder: mask, attention across, output probabilities. */

import { createCandidates } from "./candidates.js";
import { element, pushButton, uniqueId } from "./dom.js";
import { quoted } from "./tokens.js";
import { createCheat } from "./walk-cheat.js";
import { counted, digits, largestAt, percent, total } from "./walk-numbers.js";
import { card, figureText, note, tickBox, tryCard } from "./walk-parts.js";
import { createRibbonCard } from "./walk-ribbons.js";
import { refill, times } from "./walk-station.js";
import { numberTable } from "./walk-tables.js";

/** @type {import("./walk-station.js").Station} */
export const maskStation = {
  id: "mask",
  name: "Mask",
  short: "Mask",
  group: "Attention",
  words: () => [
    "The decoder learns to predict the next token, at all positions at once. It must not see what it is to predict: everything to the right of a token is masked with minus infinity, and the softmax makes exactly 0 of it.",
    "What remains is a triangle. The encoder needs no such mask: the source sentence is known from the start.",
  ],
  shapes: ({ sizes, target_ids }) => [
    ["mask", times(target_ids.length, target_ids.length)],
    ["scores", times(counted(sizes.n_heads, "head"), target_ids.length, target_ids.length)],
  ],
  code: [
    ["look_ahead_mask", /tri/],
    ["masked_softmax", /where/],
  ],
  needs: ["step", "head"],
  create(context) {
    const box = element("div", { class: "walk-pictures" });
    let [masked, shown] = [true, null];
    const update = (state) => {
      shown = state;
      refill(box, maskPictures(state, context, masked));
    };
    const tick = tickBox("Use the look-ahead mask", true, (checked) => {
      masked = checked;
      update(shown);
    });
    const first = tryCard("Try it: take the mask away", [tick]);
    return { element: element("div", { class: "walk-pictures" }, first, box, createCheat(context.walk.source)), update };
  },
};

function maskPictures({ step, head }, { walk, choose }, masked) {
  const { scores, weights, weights_without_mask: unmasked, mask } = walk.decoder;
  const tokens = walk.target_inputs;
  const common = {
    rows: tokens,
    columns: tokens,
    chosen: step,
    mask: masked ? mask : undefined,
    onChoose: (row) => choose({ step: row }),
  };
  const before = numberTable({
    ...common,
    title: `Scores of head ${head + 1} in the decoder`,
    hint: "rows ask, columns answer",
    values: scores[head],
    kind: "signed",
    verb: "asks",
  });
  const after = numberTable({
    ...common,
    title: masked ? "Weights with the mask" : "Weights without the mask",
    hint: "after the softmax; each row sums to 1",
    values: masked ? weights[head] : unmasked[head],
    kind: "weights",
    verb: "looks at",
  });
  return [
    element("div", { class: "side-by-side" }, card(null, before), card(null, after)),
    futureNote(tokens, step, unmasked[head][step]),
  ];
}

function futureNote(tokens, step, unmasked) {
  const future = figureText(percent(total(unmasked.slice(step + 1))));
  const next = step + 1 < tokens.length ? ` (the very next, ${quoted(tokens[step + 1])}, is what it has to predict).` : ".";
  return note(
    `Without the mask ${quoted(tokens[step])} would give `,
    future,
    ` of its attention to tokens that are not yet written${next}`,
  );
}

/** @type {import("./walk-station.js").Station} */
export const crossStation = {
  id: "cross",
  name: "Cross-attention",
  short: "Cross-attention",
  group: "The answer",
  words: () => [
    "Here the two halves meet. The queries come from the decoder, the keys and values from the encoder’s memory: each target token looks for what it needs in the source sentence.",
    "In a trained translator the weights often resemble an alignment of words. The row of a token shows where the model looks while it decides on the next one.",
  ],
  shapes: ({ sizes, source_ids, target_ids }) => [
    ["Q", times(sizes.n_heads, counted(target_ids.length, "token"), sizes.d_k)],
    ["K, V", times(sizes.n_heads, counted(source_ids.length, "token"), sizes.d_k)],
    ["weights", times(counted(sizes.n_heads, "head"), target_ids.length, source_ids.length)],
  ],
  code: [["decoder_layer", /memory, memory|encoder_decoder/]],
  needs: ["step", "head"],
  create(context) {
    const { choose } = context;
    const ribbons = createRibbonCard(({ side, index }) => choose(side === "q" ? { step: index } : { token: index }));
    const table = element("div");
    const update = (state) => {
      ribbons.show(crossRibbons(state, context));
      refill(table, [card(null, crossTable(state, context))]);
    };
    return { element: element("div", { class: "beside" }, ribbons.element, table), update };
  },
};

function crossRibbons({ step, head }, { walk }) {
  const weights = walk.decoder.cross_weights[head];
  const best = largestAt(weights[step]);
  const [read, written] = [quoted(walk.target_inputs[step]), quoted(walk.target_tokens[step])];
  const share = figureText(digits(weights[step][best]));
  return {
    title: `Where ${read} looks in head ${head + 1}`,
    words: [
      `Having read ${read}, the decoder looks most at ${quoted(walk.source_tokens[best])} (`,
      share,
      `) and will write ${written}.`,
    ],
    weights,
    rows: walk.target_inputs,
    columns: walk.source_tokens,
    chosen: step,
  };
}

function crossTable({ step, head }, { walk, choose }) {
  return numberTable({
    title: `Cross-attention weights of head ${head + 1}`,
    hint: "rows: what the decoder reads; columns: the source",
    rows: walk.target_inputs,
    columns: walk.source_tokens,
    values: walk.decoder.cross_weights[head],
    kind: "weights",
    chosen: step,
    onChoose: (row) => choose({ step: row }),
    verb: "looks at",
  });
}

/** @type {import("./walk-station.js").Station} */
export const outputStation = {
  id: "output",
  name: "Output probabilities",
  short: "Output",
  group: "The answer",
  words: ({ sizes }) => [
    `The last vector of the decoder is compared with the embeddings of all ${sizes.vocabulary.toLocaleString("en")} tokens; a softmax turns the results into probabilities.`,
    "The most probable token is written, read again as the next input, and so on, until </s> comes out. That is the whole Transformer.",
  ],
  shapes: ({ sizes, target_ids }) => [
    ["decoder’s output", times(counted(target_ids.length, "token"), sizes.d_model)],
    ["E transposed", times(sizes.d_model, sizes.vocabulary.toLocaleString("en"))],
    ["probabilities", times(counted(target_ids.length, "step"), sizes.vocabulary.toLocaleString("en"))],
  ],
  code: [
    ["output_projection", /return/],
    ["transformer", /softmax|hidden|memory =/],
  ],
  needs: ["step"],
  create(context) {
    const { walk, choose } = context;
    const candidates = createCandidates({ onHover: () => {}, onPin: (step) => choose({ step }) });
    candidates.show(walk);
    const surest = note();
    const first = card(
      "Step by step",
      note("Each bar is the probability of the token that was written. Choose a step to see what else the model considered."),
      candidates.element,
      surest,
    );
    return {
      element: element("div", { class: "walk-pictures" }, first, ownTarget(walk, choose)),
      update({ step }) {
        candidates.showStep(step);
        surest.replaceChildren(
          "Probability of the whole translation: ",
          figureText(wholeProbability(walk.steps)),
          ", the product over all steps.",
        );
      },
    };
  },
};

function wholeProbability(steps) {
  const product = steps.reduce((soFar, step) => soFar * step.probability, 1);
  if (product >= 0.0001) return digits(product);
  return product === 0 ? "practically 0" : product.toExponential(1).replace("-", "−");
}

function ownTarget(walk, choose) {
  const id = uniqueId("target");
  const input = element("input", {
    type: "text",
    id,
    class: "text-field",
    value: walk.target,
    autocomplete: "off",
    spellcheck: "false",
  });
  const form = element(
    "form",
    { class: "own-form" },
    element(
      "div",
      { class: "field" },
      element("label", { class: "field-name", for: id }, "Translation that the decoder reads"),
      input,
    ),
    pushButton("Let it read this", () => {}, { type: "submit" }),
    pushButton("The model’s own", () => choose({ target: null })),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    choose({ target: input.value.trim() || null });
  });
  return card(
    "Try it: put words into its mouth",
    note("Give another translation and see how probable the model finds each of its tokens, and what it would rather say."),
    form,
  );
}
