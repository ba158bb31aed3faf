/** Station: dividing by √d_k, and what the softmax does without it. */

import { element } from "./dom.js";
import { quoted } from "./tokens.js";
import { barList, lineChart } from "./walk-charts.js";
import { counted, digits, entropy, openness, softmax } from "./walk-numbers.js";
import { card, factRow, note, slider, tickBox, tryCard } from "./walk-parts.js";
import { refill, times } from "./walk-station.js";
import { numberTable } from "./walk-tables.js";

const DOUBLINGS = 7; // widths in thought: 16, 32, … 2,048

/** @type {import("./walk-station.js").Station} */
export const scalingStation = {
  id: "scaling",
  name: "Scaling",
  short: "Scaling",
  group: "Attention",
  words: ({ sizes }) => [
    `A score adds up d_k = ${sizes.d_k} products. The more there are, the further the sums lie apart: their spread grows with √d_k. Dividing by √${sizes.d_k} = ${digits(Math.sqrt(sizes.d_k), 2)} takes that growth away.`,
    "Without it the softmax gives nearly everything to one token. Then hardly any change of the scores gets through, and learning slows to a crawl.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["d_k", String(sizes.d_k)],
    ["√d_k", digits(Math.sqrt(sizes.d_k), 2)],
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
        label: "Imagine wider heads",
        min: 0,
        max: DOUBLINGS,
        step: 1,
        value: 0,
        words: (value) => `d_k = ${(width * 2 ** value).toLocaleString("en")}`,
        onInput(value) {
          doubling = value;
          update(shown);
        },
      }),
    ];
    const first = tryCard(
      "Try it: take the scaling away",
      controls,
      note("With wider heads the products spread by √2 at each doubling. Untick the box, then move the slider."),
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
    hint: "rows ask, columns are looked at",
    rows: walk.source_tokens,
    columns: walk.source_tokens,
    values: weights,
    kind: "weights",
    chosen: token,
    onChoose: (row) => choose({ token: row }),
    verb: "looks at",
  });
  const pair = [
    sharesCard(walk.source_tokens, token, weights[token], scaled),
    card(null, entropyChart(products[token], width, scaled, doubling)),
  ];
  return [element("div", { class: "side-by-side" }, ...pair), card(null, table)];
}

function sharesCard(tokens, token, weights, scaled) {
  const bars = tokens.map((name, at) => ({ name, share: weights[at], text: digits(weights[at]), classes: scaled ? "" : "warm" }));
  const facts = [
    ["largest share", digits(Math.max(...weights), 3)],
    ["entropy", `${digits(entropy(weights), 2)} of ${digits(Math.log2(tokens.length), 2)} bits`],
    ["change that gets through", digits(openness(weights), 3)],
  ];
  return card(`Where ${quoted(tokens[token])} looks`, barList(bars, "Shares of attention"), factRow(facts));
}

function entropyChart(products, width, scaled, doubling) {
  const steps = Array.from({ length: DOUBLINGS + 1 }, (_, step) => step);
  const entropies = (divided) => steps.map((step) => entropy(weightsAtWidth(products, width, step, divided)));
  return lineChart({
    title: "How spread out the attention is",
    hint: "entropy in bits; 0: everything on one token",
    label: "Entropy of the weights by width of the head: constant when divided, falling when not",
    lines: [
      { name: "divided by √d_k", values: entropies(true), classes: scaled ? "" : "faint" },
      { name: "not divided", values: entropies(false), classes: scaled ? "second faint" : "second" },
    ],
    across: "d_k",
    up: "bits",
    tickText: (step) => String(width * 2 ** step),
    most: Math.log2(products.length),
    mark: doubling,
    height: 250,
  });
}
