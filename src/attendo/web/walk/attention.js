/** Stations inside one head: queries, keys and values, scores, weighted sum. */

import { element, refill } from "../shared/dom.js";
import { quoted, tokenText } from "../shared/tokens.js";
import { counted, digits, largestAt, largestOf, total } from "./numbers.js";
import { card, figureText, note } from "./parts.js";
import { heatStrip } from "./pictures.js";
import { drawing, times } from "./station.js";
import { numberTable } from "./tables.js";

/** @type {import("./station.js").Station} */
export const qkvStation = {
  id: "qkv",
  name: "Queries, keys and values",
  short: "Q, K, V",
  group: "Attention",
  words: ({ sizes }) => [
    "The vector of each token is multiplied by three learned matrices. This gives its query, its key and its value. The queries are compared with the keys, and the values are averaged with the weights that follow from the comparison.",
    `The ${sizes.d_model} numbers of each are split into ${sizes.n_heads} heads of ${sizes.d_k}; each head computes attention by itself. This model adds biases b, which the paper’s formulas leave out.`,
  ],
  shapes: ({ sizes, source_ids }) => [
    ["X", times(counted(source_ids.length, "token"), sizes.d_model)],
    ["each matrix W", times(sizes.d_model, sizes.d_model)],
    ["Q, K, V each", times(counted(sizes.n_heads, "head"), counted(source_ids.length, "token"), sizes.d_k)],
  ],
  code: [
    ["multi_head_attention", /split_heads/],
    ["split_heads", /reshape/],
  ],
  needs: ["token", "head"],
  create: drawing(({ token, head }, { walk, choose }) => {
    const { queries, keys, values, entered } = walk.encoder;
    const strip = (title, hint, table) =>
      heatStrip({
        title,
        hint,
        names: walk.source_tokens,
        values: table[head],
        chosen: token,
        onChoose: (at) => choose({ token: at }),
      });
    return [
      card(
        null,
        element(
          "div",
          { class: "three" },
          strip("Queries", "compared with all keys", queries),
          strip("Keys", "compared with all queries", keys),
          strip("Values", "averaged with the attention weights", values),
        ),
      ),
      card(
        null,
        heatStrip({
          title: "X, the input of the layer",
          hint: `all ${entered[0].length} numbers of each token`,
          names: walk.source_tokens,
          values: entered,
          chosen: token,
          onChoose: (at) => choose({ token: at }),
        }),
      ),
    ];
  }),
};

/** @type {import("./station.js").Station} */
export const scoresStation = {
  id: "scores",
  name: "Scores",
  short: "Scores",
  group: "Attention",
  words: () => [
    "The score of a query and a key is their dot product: multiply element by element and add up. The higher the score, the larger the attention weight will be.",
    "All scores are computed by one matrix product. That is fast on parallel hardware, but the number of scores grows with the square of the length.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["Q", times(counted(source_ids.length, "token"), sizes.d_k)],
    ["K transposed", times(sizes.d_k, counted(source_ids.length, "token"))],
    ["scores", times(counted(sizes.n_heads, "head"), source_ids.length, source_ids.length)],
  ],
  code: [["scaled_dot_product_attention", /query @ key/]],
  needs: ["token", "head"],
  create(context) {
    const box = element("div", { class: "walk-pictures" });
    let other = null; // the key whose dot product is shown; at first the one with the highest score
    let shown = null;
    const update = (state) => {
      shown = state;
      const best = largestAt(context.walk.encoder.products[state.head][state.token]);
      refill(box, scorePictures(state, context.walk, other ?? best, pick));
    };
    const pick = (row, column) => {
      other = column;
      if (row === shown.token) update(shown);
      else context.choose({ token: row });
    };
    return { element: box, update };
  },
};

function scorePictures({ token, head }, walk, other, onChoose) {
  const tokens = walk.source_tokens;
  const { products, queries, keys } = walk.encoder;
  const [query, key] = [queries[head][token], keys[head][other]];
  const parts = query.map((value, at) => value * key[at]);
  const pictures = [
    card(
      null,
      numberTable({
        title: `Scores of head ${head + 1}`,
        hint: "rows: queries, columns: keys; choose a cell to see its dot product",
        rows: tokens,
        columns: tokens,
        values: products[head],
        kind: "signed",
        chosen: token,
        chosenColumn: other,
        onChoose,
      }),
    ),
    card(
      null,
      heatStrip({
        title: `Dot product of the query of ${quoted(tokens[token])} and the key of ${quoted(tokens[other])}`,
        hint: "multiplied element by element; the products are added up",
        names: ["query", "key", "product"],
        values: [query, key, parts],
        height: "tall",
      }),
      note("Sum of the products, the score: ", figureText(digits(total(parts), 4))),
    ),
  ];
  return [element("div", { class: "beside" }, ...pictures)];
}

/** @type {import("./station.js").Station} */
export const sumStation = {
  id: "sum",
  name: "Weighted sum",
  short: "Weighted sum",
  group: "Attention",
  words: () => [
    "Each value is multiplied by its attention weight, and the products are added. The result for a token is a weighted average of all values; the largest weights dominate it.",
    "In an encoder layer this is the only step that combines different positions. All other steps work on each position separately.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["attention weights", times(counted(sizes.n_heads, "head"), source_ids.length, source_ids.length)],
    ["values", times(counted(sizes.n_heads, "head"), counted(source_ids.length, "token"), sizes.d_k)],
    ["result", times(counted(sizes.n_heads, "head"), counted(source_ids.length, "token"), sizes.d_k)],
  ],
  code: [["scaled_dot_product_attention", /weights @ value|return weights/]],
  needs: ["token", "head"],
  create: drawing(({ token, head }, { walk, choose }) => sumPictures(token, head, walk, choose)),
};

function sumPictures(token, head, walk, choose) {
  const names = walk.source_tokens;
  const { values, weights, heads } = walk.encoder;
  const all = heatStrip({
    title: `Output of head ${head + 1} for all tokens`,
    hint: `largest attention weight of ${quoted(names[token])}: ${quoted(names[largestAt(weights[head][token])])}`,
    names,
    values: heads[head],
    chosen: token,
    onChoose: (at) => choose({ token: at }),
  });
  const average = averaging(names, token, weights[head][token], values[head], heads[head][token]);
  return [card(`Output of head ${head + 1} for ${quoted(names[token])}`, ...average), card(null, all)];
}

function averaging(names, token, weights, values, sum) {
  const most = largestOf(values); // one scale for all, so that values with small weights fade
  const weighted = values.map((value, at) => value.map((number) => number * weights[at]));
  const strips = [
    heatStrip({ title: "Values", hint: "one row per token", names, values, most }),
    weightColumn(names, weights),
    heatStrip({ title: "Weight × value", hint: "same colour scale", names, values: weighted, most }),
  ];
  return [
    element("div", { class: "mixing" }, ...strips),
    heatStrip({
      title: "Sum",
      hint: `output of this head for ${quoted(names[token])}`,
      names: ["sum"],
      values: [sum],
      most,
      height: "tall",
    }),
    note("First number: ", figureText(digits(sum[0])), ` = ${largestTerms(weights, values)}`),
  ];
}

function largestTerms(weights, values) {
  const order = weights.map((_, at) => at).sort((one, other) => weights[other] - weights[one]);
  const terms = order.slice(0, 3).map((at) => `${digits(weights[at], 2)} × ${digits(values[at][0], 2)}`);
  return [...terms, ...(order.length > 3 ? ["…"] : [])].join(" + ");
}

function weightColumn(names, weights) {
  const rows = weights.map((weight, at) => {
    const bar = element("span", { class: "bar" });
    bar.style.inlineSize = `${(100 * weight).toFixed(2)}%`;
    return element(
      "li",
      {},
      element("span", { class: "share-name", dir: "auto" }, tokenText(names[at])),
      element("span", { class: "bar-well", "aria-hidden": "true" }, bar),
      element("span", { class: "number" }, digits(weight)),
    );
  });
  return element(
    "figure",
    { class: "heat shares" },
    element("figcaption", {}, element("strong", {}, "Attention weights"), element("span", {}, "from the softmax")),
    element("ol", {}, ...rows),
  );
}
