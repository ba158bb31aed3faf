/** Station: dividing by √d_k, and the softmax without it. */

import { element, refill } from "../shared/dom.js";
import { quoted } from "../shared/tokens.js";
import { barList, lineChart } from "./charts.js";
import { counted, digits, entropy, jacobianTrace, softmax } from "./numbers.js";
import { card, factRow, note, slider, tickBox, tryCard } from "./parts.js";
import { times } from "./station.js";
import { numberTable } from "./tables.js";

const DOUBLINGS = 7; // simulated widths: 16, 32, … 2,048

/** @type {import("./station.js").Station} */
export const scalingStation = {
  id: "scaling",
  name: "Scaling",
  short: "Scaling",
  group: "Attention",
  words: ({ sizes }) => [
    `A score is a sum of d_k = ${sizes.d_k} products. If the elements of queries and keys are independent with mean 0 and variance 1, it has variance d_k: its standard deviation grows with √d_k. Dividing by √${sizes.d_k} = ${digits(Math.sqrt(sizes.d_k), 0)} compensates for that.`,
    "Large scores push the softmax to where one weight is nearly 1 and its gradients are extremely small (section 3.2.1), which slows training.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["d_k", String(sizes.d_k)],
    ["√d_k", digits(Math.sqrt(sizes.d_k), 0)],
    ["scores", times(counted(sizes.n_heads, "head"), source_ids.length, source_ids.length)],
  ],
  code: [["scaled_dot_product_attention", /math\.sqrt|d_k =/]],
  needs: ["token", "head"],
  create(context) {
    const box = element("div", { class: "walk-pictures" });
    let [scaled, doubling, shown] = [true, 0, null];
    const { d_k: width } = context.walk.sizes;
    const update = (state) => {
      shown = state;
      refill(box, scalingPictures(state, context, scaled, doubling));
    };
    const controls = [
      tickBox("Divide by √d_k", true, (checked) => {
        scaled = checked;
        update(shown);
      }),
      slider({
        label: "Simulated head width",
        min: 0,
        max: DOUBLINGS,
        step: 1,
        value: 0,
        words: (value) => (width * 2 ** value).toLocaleString("en"),
        onInput(value) {
          doubling = value;
          update(shown);
        },
      }),
    ];
    const first = tryCard(
      "Try it: remove the scaling",
      controls,
      note("A simulation: at each doubling of the head width the dot products are multiplied by √2. Clear the box, then move the slider."),
    );
    return { element: element("div", { class: "walk-pictures" }, first, box), update };
  },
};

/** Weights of one row of products for a head that is `2 ** doubling` times as wide. */
function weightsAtWidth(products, width, doubling, scaled) {
  const spread = Math.sqrt(2 ** doubling);
  const divisor = scaled ? Math.sqrt(width * 2 ** doubling) : 1;
  return softmax(products.map((product) => (product * spread) / divisor));
}

function scalingPictures({ token, head }, { walk, choose }, scaled, doubling) {
  const products = walk.encoder.products[head];
  const { d_k: width } = walk.sizes;
  const weights = products.map((row) => weightsAtWidth(row, width, doubling, scaled));
  const table = numberTable({
    title: `Softmax of head ${head + 1}, ${scaled ? "scaled" : "not scaled"}`,
    hint: "rows: queries, columns: keys",
    rows: walk.source_tokens,
    columns: walk.source_tokens,
    values: weights,
    kind: "weights",
    chosen: token,
    onChoose: (row) => choose({ token: row }),
  });
  const pair = [
    weightsCard(walk.source_tokens, token, weights[token], scaled),
    card(null, entropyChart(products[token], width, scaled, doubling)),
  ];
  return [element("div", { class: "side-by-side" }, ...pair), card(null, table)];
}

function weightsCard(tokens, token, weights, scaled) {
  const bars = tokens.map((name, at) => ({ name, share: weights[at], text: digits(weights[at]), classes: scaled ? "" : "warm" }));
  const facts = [
    ["largest weight", digits(Math.max(...weights), 3)],
    ["entropy", `${digits(entropy(weights), 2)} of ${digits(Math.log2(tokens.length), 2)} bits`],
    ["trace of the softmax’s Jacobian", digits(jacobianTrace(weights), 3)],
  ];
  return card(`Attention weights of ${quoted(tokens[token])}`, barList(bars, "Attention weights"), factRow(facts));
}

function entropyChart(products, width, scaled, doubling) {
  const steps = Array.from({ length: DOUBLINGS + 1 }, (_, step) => step);
  const entropies = (divided) => steps.map((step) => entropy(weightsAtWidth(products, width, step, divided)));
  return lineChart({
    title: "Entropy of the attention weights",
    hint: "in bits; 0: one token has weight 1",
    label: "Entropy of the attention weights by head width: constant with scaling, falling without",
    lines: [
      { name: "divided by √d_k", values: entropies(true), classes: scaled ? "" : "faint" },
      { name: "not divided", values: entropies(false), classes: scaled ? "second faint" : "second" },
    ],
    across: "head width",
    up: "bits",
    tickText: (step) => String(width * 2 ** step),
    most: Math.log2(products.length),
    mark: doubling,
    height: 250,
  });
}
