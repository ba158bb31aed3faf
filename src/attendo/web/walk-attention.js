/** Stations inside one head: queries, keys and values, scores, weighted sum. */

import { element } from "./dom.js";
import { quoted, tokenText } from "./tokens.js";
import { counted, digits, largestAt, largestOf, total } from "./walk-numbers.js";
import { card, figureText, note } from "./walk-parts.js";
import { heatStrip } from "./walk-pictures.js";
import { drawing, refill, times } from "./walk-station.js";
import { numberTable } from "./walk-tables.js";

/** @type {import("./walk-station.js").Station} */
export const qkvStation = {
  id: "qkv",
  name: "Queries, keys and values",
  short: "Q, K, V",
  group: "Attention",
  words: ({ sizes }) => [
    "Every token is multiplied by three learned matrices. Its query says what it is looking for, its key what it can be found by, its value what it hands on when it is found.",
    `The ${sizes.d_model} numbers of each are cut into ${sizes.n_heads} heads of ${sizes.d_k}, and each head works on its own piece.`,
  ],
  shapes: ({ sizes, source_ids }) => [
    ["X", times(counted(source_ids.length, "token"), sizes.d_model)],
    ["each W", times(sizes.d_model, sizes.d_model)],
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
          strip("Queries", "what each token looks for", queries),
          strip("Keys", "what each token is found by", keys),
          strip("Values", "what each token hands on", values),
        ),
      ),
      card(
        null,
        heatStrip({
          title: "Where they come from: X",
          hint: `what entered, all ${entered[0].length} numbers of each token`,
          names: walk.source_tokens,
          values: entered,
          chosen: token,
          onChoose: (at) => choose({ token: at }),
        }),
      ),
    ];
  }),
};

/** @type {import("./walk-station.js").Station} */
export const scoresStation = {
  id: "scores",
  name: "Scores",
  short: "Scores",
  group: "Attention",
  words: () => [
    "How well does a query fit a key? Multiply them number by number and add up: one score for each pair of tokens. Large: they fit. Negative: they do not.",
    "All pairs at once are a single matrix product. That is why attention is fast, and why its cost grows with the square of the length.",
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
    let other = null; // the key whose product is unfolded; at first the one that fits best
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
        hint: "rows ask, columns answer; click a cell to see how it is made",
        rows: tokens,
        columns: tokens,
        values: products[head],
        kind: "signed",
        chosen: token,
        chosenColumn: other,
        onChoose,
        verb: "asks",
      }),
    ),
    card(
      null,
      heatStrip({
        title: `How the score of ${quoted(tokens[token])} and ${quoted(tokens[other])} is made`,
        hint: "query and key, multiplied number by number; the last row is added up",
        names: ["query", "key", "product"],
        values: [query, key, parts],
        height: "tall",
      }),
      note("Sum of the products: ", figureText(digits(total(parts), 4))),
    ),
  ];
  return [element("div", { class: "beside" }, ...pictures)];
}

/** @type {import("./walk-station.js").Station} */
export const sumStation = {
  id: "sum",
  name: "Weighted sum",
  short: "Weighted sum",
  group: "Attention",
  words: () => [
    "Each value is multiplied by its share of attention, and all are added up. What the token receives is a mixture of the others, mostly of those that it looks at most.",
    "This is the only place in a layer where tokens learn of each other.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["weights", times(counted(sizes.n_heads, "head"), source_ids.length, source_ids.length)],
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
    title: `The sums of all tokens in head ${head + 1}`,
    hint: `choose another token to see its mixture; ${quoted(names[token])} listens most to ${quoted(names[largestAt(weights[head][token])])}`,
    names,
    values: heads[head],
    chosen: token,
    onChoose: (at) => choose({ token: at }),
  });
  const mixture = mixing(names, token, weights[head][token], values[head], heads[head][token]);
  return [card(`What ${quoted(names[token])} receives in head ${head + 1}`, ...mixture), card(null, all)];
}

function mixing(names, token, shares, values, sum) {
  const most = largestOf(values); // one scale for all, so that small shares are seen to fade
  const mixed = values.map((value, at) => value.map((number) => number * shares[at]));
  const strips = [
    heatStrip({ title: "Values", hint: "what each token hands on", names, values, most }),
    shareColumn(names, shares),
    heatStrip({ title: "Share × value", hint: "the same colours: small shares fade", names, values: mixed, most }),
  ];
  return [
    element("div", { class: "mixing" }, ...strips),
    heatStrip({
      title: "Their sum",
      hint: `what this head gives to ${quoted(names[token])}`,
      names: ["sum"],
      values: [sum],
      most,
      height: "tall",
    }),
    note("First number: ", figureText(digits(sum[0])), ` = ${largestTerms(shares, values)}`),
  ];
}

function largestTerms(shares, values) {
  const order = shares.map((_, at) => at).sort((one, other) => shares[other] - shares[one]);
  const terms = order.slice(0, 3).map((at) => `${digits(shares[at], 2)} × ${digits(values[at][0], 2)}`);
  return [...terms, ...(order.length > 3 ? ["…"] : [])].join(" + ");
}

function shareColumn(names, shares) {
  const rows = shares.map((share, at) => {
    const bar = element("span", { class: "bar" });
    bar.style.inlineSize = `${(100 * share).toFixed(2)}%`;
    return element(
      "li",
      {},
      element("span", { class: "share-name", dir: "auto" }, tokenText(names[at])),
      element("span", { class: "bar-well", "aria-hidden": "true" }, bar),
      element("span", { class: "number" }, digits(share)),
    );
  });
  return element(
    "figure",
    { class: "heat shares" },
    element("figcaption", {}, element("strong", {}, "Shares"), element("span", {}, "from the softmax")),
    element("ol", {}, ...rows),
  );
}
