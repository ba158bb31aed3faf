/** Stations with all heads: side by side, and joined again. */

import { element } from "./dom.js";
import { listMatrix } from "./maps.js";
import { paintWeights } from "./paint.js";
import { quoted } from "./tokens.js";
import { counted, digits, entropy, largestAt, largestOf, mean } from "./walk-numbers.js";
import { card } from "./walk-parts.js";
import { heatStrip } from "./walk-pictures.js";
import { createRibbonCard } from "./walk-ribbons.js";
import { drawing, refill, times } from "./walk-station.js";

/** @type {import("./walk-station.js").Station} */
export const headsStation = {
  id: "heads",
  name: "Heads side by side",
  short: "Heads",
  group: "Attention",
  words: ({ sizes }) => [
    `All of this happens ${sizes.n_heads} times at once, with different matrices. One mixture for each token would have to serve every purpose; ${sizes.n_heads} heads can look at ${sizes.n_heads} different things.`,
    "Nobody tells a head what to look for. Compare where they look: some follow the neighbour, some the same word, some nothing you could name. A head that finds nothing to fetch often rests on </s>.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["heads", `${sizes.n_heads}, each ${sizes.d_model} / ${sizes.n_heads} = ${sizes.d_k} wide`],
    ["weights", times(counted(sizes.n_heads, "head"), source_ids.length, source_ids.length)],
  ],
  code: [["multi_head_attention", /split_heads|scaled_dot/]],
  needs: ["token", "head"],
  create({ walk, choose }) {
    const maps = element("div", { class: "walk-pictures" });
    const ribbons = createRibbonCard(({ index }) => choose({ token: index }));
    const update = (state) => {
      refill(maps, [card("The same sentence in each head", headMaps(state, walk, choose))]);
      ribbons.show({
        title: `Where ${quoted(walk.source_tokens[state.token])} looks in head ${state.head + 1}`,
        words: ["First the tokens that are looked at, then the tokens that ask. The wider a curve, the larger the share."],
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
      element("span", { class: "quiet" }, `entropy ${digits(mean(weights.map(entropy)), 2)} bits`),
    );
  });
  return element("div", { class: "head-maps" }, ...buttons);
}

/** @type {import("./walk-station.js").Station} */
export const concatenationStation = {
  id: "concatenation",
  name: "Concatenation",
  short: "Concatenation",
  group: "Attention",
  words: ({ sizes }) => [
    `The results of the heads are laid side by side: ${sizes.n_heads} × ${sizes.d_k} = ${sizes.d_model} numbers for each token again.`,
    "Until here the heads know nothing of each other. One more learned matrix, W with the index O, mixes what they found.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["heads", times(sizes.n_heads, counted(source_ids.length, "token"), sizes.d_k)],
    ["joined", times(counted(source_ids.length, "token"), sizes.d_model)],
    ["W of the output", times(sizes.d_model, sizes.d_model)],
    ["result", times(counted(source_ids.length, "token"), sizes.d_model)],
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
        `The heads of ${quoted(names[token])}`,
        element(
          "div",
          { class: "head-pieces" },
          ...heads.map((rows, at) => headPiece(rows[token], at, at === head, most, choose)),
        ),
      ),
      card(
        null,
        heatStrip({
          title: "Side by side",
          hint: "lines divide the heads",
          names,
          values: joined,
          chosen: token,
          onChoose,
          groups: heads.length,
          columnName: (column) => `head ${Math.floor(column / rowWidth(heads)) + 1}, number ${(column % rowWidth(heads)) + 1}`,
        }),
        heatStrip({
          title: "Mixed by W",
          hint: "no lines any more: every number is made from all heads",
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
