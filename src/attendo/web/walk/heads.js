/** Stations with all heads: side by side, and concatenated. */

import { element, refill } from "../shared/dom.js";
import { listMatrix } from "../shared/maps.js";
import { paintWeights } from "../shared/paint.js";
import { quoted } from "../shared/tokens.js";
import { counted, digits, entropy, largestAt, largestOf, mean } from "./numbers.js";
import { card, note } from "./parts.js";
import { heatStrip } from "./pictures.js";
import { createRibbonCard } from "./ribbons.js";
import { drawing, times } from "./station.js";

/** @type {import("./station.js").Station} */
export const headsStation = {
  id: "heads",
  name: "Heads side by side",
  short: "Heads",
  group: "Attention",
  words: ({ sizes }) => [
    `Multi-head attention does all of this ${sizes.n_heads} times in parallel, with different learned matrices. Several heads can attend to different positions at once; a single head would average them (section 3.2.2).`,
    "What a head attends to is learned, not prescribed. Some heads attend to a neighbouring token, some to a related word, some show no pattern that has a name. Where a head has nothing to contribute, its weights are often on </s> or punctuation.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["heads", `${sizes.n_heads}, each ${sizes.d_model} / ${sizes.n_heads} = ${sizes.d_k} wide`],
    ["attention weights", times(counted(sizes.n_heads, "head"), source_ids.length, source_ids.length)],
  ],
  code: [["multi_head_attention", /split_heads|scaled_dot/]],
  needs: ["token", "head"],
  create({ walk, choose }) {
    const maps = element("div", { class: "walk-pictures" });
    const ribbons = createRibbonCard(({ index }) => choose({ token: index }));
    const update = (state) => {
      refill(maps, [card(
          "Attention weights of each head",
          headMaps(state, walk, choose),
          note(`Rows: queries, columns: keys. The frame marks the row of ${quoted(walk.source_tokens[state.token])}.`),
        )]);
      ribbons.show({
        title: `Attention weights of ${quoted(walk.source_tokens[state.token])} in head ${state.head + 1}`,
        words: ["First the keys, then the queries. The wider a curve, the larger the attention weight."],
        weights: walk.encoder.weights[state.head],
        rows: walk.source_tokens,
        columns: walk.source_tokens,
        chosen: state.token,
      });
    };
    return { element: element("div", { class: "walk-pictures" }, maps, ribbons.element), update };
  },
};

function headMaps({ token, head }, walk, choose) {
  const buttons = walk.encoder.weights.map((weights, at) => {
    const canvas = element("canvas", { "aria-hidden": "true" });
    paintWeights(canvas, listMatrix(weights));
    const best = largestAt(weights[token]);
    const line = element("span", { class: "row-mark", "aria-hidden": "true" });
    line.style.top = `${(100 * token) / weights.length}%`;
    line.style.height = `${100 / weights.length}%`;
    return element(
      "button",
      { type: "button", class: "head-map", "aria-pressed": String(at === head), on: { click: () => choose({ head: at }) } },
      element("strong", {}, `Head ${at + 1}`),
      element("span", { class: "head-picture" }, canvas, line),
      element(
        "span",
        {},
        quoted(walk.source_tokens[token]),
        " → ",
        quoted(walk.source_tokens[best]),
        ` ${digits(weights[token][best], 2)}`,
      ),
      element("span", { class: "quiet" }, `mean entropy ${digits(mean(weights.map(entropy)), 2)} bits`),
    );
  });
  return element("div", { class: "head-maps" }, ...buttons);
}

/** @type {import("./station.js").Station} */
export const concatenationStation = {
  id: "concatenation",
  name: "Concatenation",
  short: "Concatenation",
  group: "Attention",
  words: ({ sizes }) => [
    `The outputs of the heads are concatenated: ${sizes.n_heads} × ${sizes.d_k} = ${sizes.d_model} numbers for each token again.`,
    "Up to here the heads are independent of each other. One more learned matrix, W^O, combines them.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["heads", times(sizes.n_heads, counted(source_ids.length, "token"), sizes.d_k)],
    ["concatenated", times(counted(source_ids.length, "token"), sizes.d_model)],
    ["W^O", times(sizes.d_model, sizes.d_model)],
    ["output", times(counted(source_ids.length, "token"), sizes.d_model)],
  ],
  code: [
    ["concatenate_heads", /swapaxes/],
    ["multi_head_attention", /w_o/],
  ],
  needs: ["token", "head"],
  create: drawing(({ token, head }, { walk, choose }) => {
    const { heads, joined, projected } = walk.encoder;
    const names = walk.source_tokens;
    const onChoose = (at) => choose({ token: at });
    const most = largestOf(joined);
    return [
      card(
        `Outputs of the heads for ${quoted(names[token])}`,
        element(
          "div",
          { class: "head-pieces" },
          ...heads.map((rows, at) => headPiece(rows[token], at, at === head, most, choose)),
        ),
      ),
      card(
        null,
        heatStrip({
          title: "Concatenated",
          hint: "lines separate the heads",
          names,
          values: joined,
          chosen: token,
          onChoose,
          groups: heads.length,
          columnName: (column) => `head ${Math.floor(column / rowWidth(heads)) + 1}, number ${(column % rowWidth(heads)) + 1}`,
        }),
        heatStrip({
          title: "Multiplied by the output matrix",
          hint: "every number now depends on all heads",
          names,
          values: projected,
          chosen: token,
          onChoose,
        }),
      ),
    ];
  }),
};

function rowWidth(heads) {
  return heads[0][0].length;
}

function headPiece(values, at, chosen, most, choose) {
  const strip = heatStrip({
    title: `Head ${at + 1}`,
    names: [" "],
    values: [values],
    most,
    height: "tall",
    onChoose: () => choose({ head: at }),
  });
  strip.classList.toggle("chosen", chosen);
  return strip;
}
