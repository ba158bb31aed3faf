/** Stations of the decoder: mask, cross-attention, output probabilities. */

import { createCandidates } from "../shared/candidates.js";
import { element, pushButton, refill, uniqueId } from "../shared/dom.js";
import { quoted } from "../shared/tokens.js";
import { counted, digits, largestAt, percent, total } from "./numbers.js";
import { card, figureText, note, tickBox, tryCard } from "./parts.js";
import { createRibbonCard } from "./ribbons.js";
import { times } from "./station.js";
import { numberTable } from "./tables.js";
import { createUnmasked } from "./unmasked.js";

/** @type {import("./station.js").Station} */
export const maskStation = {
  id: "mask",
  name: "Mask",
  short: "Mask",
  group: "Attention",
  words: () => [
    "The decoder is trained to predict the next token at all positions at once. A position must not attend to later positions, because they hold the tokens that it has to predict: their scores are set to −∞, so their attention weights become 0.",
    "The allowed positions form a triangle. The encoder needs no such mask, since the whole source sentence is known. The mask comes between scaling and softmax, as in figure 2 of the paper.",
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
  attention: "decoder",
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
    const first = tryCard("Try it: remove the mask", [tick]);
    return { element: element("div", { class: "walk-pictures" }, first, box, createUnmasked(context.walk.source)), update };
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
    hint: "rows: queries, columns: keys",
    values: scores[head],
    kind: "signed",
  });
  const after = numberTable({
    ...common,
    title: masked ? "Attention weights with the mask" : "Attention weights without the mask",
    hint: "after the softmax; each row sums to 1",
    values: masked ? weights[head] : unmasked[head],
    kind: "weights",
  });
  return [
    element("div", { class: "side-by-side" }, card(null, before), card(null, after)),
    laterNote(tokens, step, unmasked[head][step]),
  ];
}

function laterNote(tokens, step, unmasked) {
  const later = figureText(percent(total(unmasked.slice(step + 1))));
  const next = step + 1 < tokens.length ? ` The next one, ${quoted(tokens[step + 1])}, is the token to predict.` : "";
  return note(`Without the mask ${quoted(tokens[step])} has `, later, ` of its attention weights on later positions.${next}`);
}

/** @type {import("./station.js").Station} */
export const crossStation = {
  id: "cross",
  name: "Cross-attention",
  short: "Cross-attention",
  group: "Output",
  words: () => [
    "The queries come from the decoder, the keys and values from the output of the encoder, the memory. So every position of the decoder can attend to all positions of the source sentence (section 3.2.3).",
    "In a trained translator the weights often resemble a word alignment. The row of an input token has the attention weights with which the next token is predicted.",
  ],
  shapes: ({ sizes, source_ids, target_ids }) => [
    ["Q", times(sizes.n_heads, counted(target_ids.length, "token"), sizes.d_k)],
    ["K, V", times(sizes.n_heads, counted(source_ids.length, "token"), sizes.d_k)],
    ["attention weights", times(counted(sizes.n_heads, "head"), target_ids.length, source_ids.length)],
  ],
  code: [["decoder_layer", /memory, memory|encoder_decoder/]],
  needs: ["step", "head"],
  attention: "cross",
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
  return {
    title: `Attention weights of ${read} in head ${head + 1}`,
    words: [
      `Input ${read}: the largest weight is on ${quoted(walk.source_tokens[best])} (`,
      figureText(digits(weights[step][best])),
      `); the next token is ${written}.`,
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
    hint: "rows: queries (decoder input), columns: keys (source)",
    rows: walk.target_inputs,
    columns: walk.source_tokens,
    values: walk.decoder.cross_weights[head],
    kind: "weights",
    chosen: step,
    onChoose: (row) => choose({ step: row }),
  });
}

/** @type {import("./station.js").Station} */
export const outputStation = {
  id: "output",
  name: "Output probabilities",
  short: "Output",
  group: "Output",
  words: ({ sizes }) => [
    `The last hidden states of the decoder are multiplied by the transposed embedding matrix E, which the paper shares with both embeddings (section 3.4). This gives one logit for each of the ${sizes.vocabulary.toLocaleString("en")} tokens; a softmax turns the logits into probabilities.`,
    "Greedy search takes the most probable token as the next input and repeats this until </s>. The paper uses beam search, which keeps several candidates.",
  ],
  shapes: ({ sizes, target_ids }) => [
    ["decoder output", times(counted(target_ids.length, "token"), sizes.d_model)],
    ["E transposed", times(sizes.d_model, sizes.vocabulary.toLocaleString("en"))],
    ["probabilities", times(counted(target_ids.length, "step"), sizes.vocabulary.toLocaleString("en"))],
  ],
  code: [
    ["output_projection", /return/],
    ["transformer", /softmax|hidden|memory =/],
  ],
  needs: ["step"],
  attention: "output",
  create(context) {
    const { walk, choose } = context;
    const candidates = createCandidates({ onHover: () => {}, onPin: (step) => choose({ step }) });
    candidates.show(walk);
    const whole = note();
    const first = card(
      "Step by step",
      note("Each bar is the probability of the token at that step. Choose a step to see the most probable candidates."),
      candidates.element,
      whole,
    );
    return {
      element: element("div", { class: "walk-pictures" }, first, ownTarget(walk, choose)),
      update({ step }) {
        candidates.showStep(step);
        whole.replaceChildren(
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
      element("label", { class: "field-name", for: id }, "Translation to score"),
      input,
    ),
    pushButton("Score it", () => {}, { type: "submit" }),
    pushButton("Use the model’s own", () => choose({ target: null })),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    choose({ target: input.value.trim() || null });
  });
  return card(
    "Try it: score another translation",
    note("Enter another translation to see the probability of each of its tokens, and which candidates are more probable."),
    form,
  );
}
