/** Stations before the first layer: tokens, ids, embeddings, positional encoding. */

import { element, refill, svgElement } from "../shared/dom.js";
import { quoted, tokenClasses, tokenText } from "../shared/tokens.js";
import { fluidPicture, lineChart, vectorBars } from "./charts.js";
import { cosine, counted, digits, largestOf } from "./numbers.js";
import { createOrder } from "./order.js";
import { card, figureText, note } from "./parts.js";
import { heatStrip } from "./pictures.js";
import { drawing, times } from "./station.js";

/** @type {import("./station.js").Station} */
export const tokensStation = {
  id: "tokens",
  name: "Tokens",
  short: "Tokens",
  group: "Input",
  words: () => [
    "A model computes with numbers, not with letters. The sentence is first split into tokens: frequent words are one token, rarer words are split into subwords that were learned from the corpus (byte-pair encoding, as in the paper’s English-German model).",
    "“▁” marks the beginning of a word. The last token, </s>, marks the end of the sentence.",
  ],
  shapes: (walk) => [
    ["sentence", counted([...walk.source].length, "character")],
    ["tokens", String(walk.source_tokens.length)],
    ["vocabulary", counted(walk.sizes.vocabulary, "token")],
  ],
  code: [],
  needs: ["token"],
  create: drawing(({ token }, { walk, choose }) => [
    card(
      "The sentence as tokens",
      tokenCards(
        walk.source_tokens,
        token,
        (at) => choose({ token: at }),
        (at) => `position ${at}`,
      ),
      note(
        "Position ",
        figureText(String(token)),
        " is ",
        quoted(walk.source_tokens[token]),
        ". Choose any token: the choice holds at all stations.",
      ),
    ),
    card(
      "The translation as tokens",
      tokenCards(walk.target_tokens, -1, null, (at) => `step ${at + 1}`),
      note("The decoder generates one token per step: “", element("bdi", {}, walk.target), "”"),
    ),
  ]),
};

function tokenCards(tokens, chosen, onChoose, below) {
  const cards = tokens.map((token, at) => {
    const content = [element("span", { class: "piece", dir: "auto" }, token), element("span", { class: "place" }, below(at))];
    const classes = `token-card ${tokenClasses(token, at, tokens).replace("token", "")}`;
    if (!onChoose) return element("span", { class: classes }, ...content);
    return element(
      "button",
      { type: "button", class: classes, "aria-pressed": String(at === chosen), on: { click: () => onChoose(at) } },
      ...content,
    );
  });
  return element("div", { class: "token-cards" }, ...cards);
}

/** @type {import("./station.js").Station} */
export const idsStation = {
  id: "ids",
  name: "Ids",
  short: "Ids",
  group: "Input",
  words: () => [
    "Every token has a fixed index in the vocabulary, its id. From here on the sentence is a list of integers.",
    "The ids have no meaning of their own: tokens with neighbouring ids are not similar. An id only selects a row of the embedding matrix.",
  ],
  shapes: (walk) => [
    ["ids", counted(walk.source_ids.length, "integer")],
    ["vocabulary V", walk.sizes.vocabulary.toLocaleString("en")],
  ],
  code: [["embed", /embedding\[ids\]/]],
  needs: ["token"],
  create: drawing(({ token }, { walk, choose }) => [
    card(
      "From tokens to ids",
      tokenCards(
        walk.source_tokens,
        token,
        (at) => choose({ token: at }),
        (at) => String(walk.source_ids[at]),
      ),
      vocabularyLine(walk, token),
      note(
        quoted(walk.source_tokens[token]),
        " has id ",
        figureText(String(walk.source_ids[token])),
        ` in a vocabulary of ${counted(walk.sizes.vocabulary, "token")}.${repeatedWords(walk, token)}`,
      ),
    ),
  ]),
};

function repeatedWords(walk, token) {
  const again = walk.source_ids.filter((id) => id === walk.source_ids[token]).length;
  return again > 1 ? ` It occurs ${again} times in the sentence, with the same id.` : "";
}

function vocabularyLine(walk, chosen) {
  const size = walk.sizes.vocabulary;
  return fluidPicture(`Ids of the tokens on a line from 0 to ${size - 1}`, 92, (width) => {
    const x = (id) => 6 + (id / size) * (width - 12);
    const ticks = walk.source_ids.map((id, at) =>
      svgElement("line", {
        class: at === chosen ? "pin chosen" : "pin",
        x1: x(id),
        x2: x(id),
        y1: at === chosen ? 26 : 38,
        y2: 58,
      }),
    );
    const label = svgElement(
      "text",
      { class: "pin-name", x: Math.min(Math.max(x(walk.source_ids[chosen]), 30), width - 30), y: 18, "text-anchor": "middle" },
      tokenText(walk.source_tokens[chosen]),
    );
    return [
      svgElement("rect", { class: "well-line", x: 6, y: 44, width: width - 12, height: 14, rx: 3 }),
      ...ticks,
      label,
      svgElement("text", { class: "tick", x: 6, y: 78 }, "0"),
      svgElement("text", { class: "tick", x: width - 6, y: 78, "text-anchor": "end" }, String(size - 1)),
      svgElement("text", { class: "tick", x: width / 2, y: 78, "text-anchor": "middle" }, "id in the vocabulary"),
    ];
  });
}

/** @type {import("./station.js").Station} */
export const embeddingsStation = {
  id: "embeddings",
  name: "Embeddings",
  short: "Embeddings",
  group: "Input",
  words: ({ sizes }) => [
    `Each id selects a row of a learned matrix: d_model = ${sizes.d_model} numbers, the embedding of the token (512 in the paper). Training gives similar rows to tokens that are used in similar ways.`,
    `The rows are multiplied by √${sizes.d_model} = ${digits(Math.sqrt(sizes.d_model), 0)} (section 3.4). The paper gives no reason; one effect is that the positional encoding, added next, does not outweigh them.`,
  ],
  shapes: ({ sizes, source_ids }) => [
    ["matrix E", times(sizes.vocabulary.toLocaleString("en"), sizes.d_model)],
    ["embeddings", times(counted(source_ids.length, "token"), sizes.d_model)],
  ],
  code: [["embed", /rows \*|embedding\[ids\]/]],
  needs: ["token"],
  create: drawing(({ token }, { walk, choose }) => {
    const values = walk.encoder.embedded;
    const most = largestOf(values);
    return [
      card(
        null,
        heatStrip({
          title: "Embeddings of the sentence",
          hint: "one row per token, one column per dimension",
          names: walk.source_tokens,
          values,
          chosen: token,
          onChoose: (at) => choose({ token: at }),
        }),
      ),
      card(
        `Embedding of ${quoted(walk.source_tokens[token])}`,
        vectorBars(`The ${values[token].length} numbers of the embedding as bars`, values[token], most),
        note(
          "First numbers: ",
          figureText(
            values[token]
              .slice(0, 4)
              .map((value) => digits(value))
              .join(", "),
          ),
          `, … ${nearestWords(walk, token)}`,
        ),
      ),
    ];
  }),
};

function nearestWords(walk, token) {
  const others = walk.source_tokens
    .map((name, at) => ({ name, at, alike: cosine(walk.encoder.embedded[token], walk.encoder.embedded[at]) }))
    .filter(({ at }) => walk.source_ids[at] !== walk.source_ids[token])
    .sort((one, other) => other.alike - one.alike);
  if (others.length === 0) return "";
  return `Most similar in this sentence: ${quoted(others[0].name)}, cosine similarity ${digits(others[0].alike, 2)}.`;
}

/** @type {import("./station.js").Station} */
export const positionsStation = {
  id: "positions",
  name: "Positional encoding",
  short: "Positions",
  group: "Input",
  words: () => [
    "Self-attention does not depend on the order of the tokens: permuting the input permutes the output. So a vector that depends only on the position is added to each embedding.",
    "Each pair of dimensions is a sine and a cosine of the same frequency. The wavelengths grow from 2π on the left towards 10,000 · 2π on the right (section 3.5). Nearby positions get similar vectors.",
  ],
  shapes: ({ sizes, source_ids, position_table }) => [
    ["positions", times(`${position_table.length} shown`, sizes.d_model)],
    ["embeddings", times(counted(source_ids.length, "token"), sizes.d_model)],
  ],
  code: [
    ["positional_encoding", /angle =|np\.sin/],
    ["encode", /positional_encoding/],
  ],
  needs: ["token"],
  create(context) {
    const box = element("div", { class: "walk-pictures" });
    const whole = element("div", { class: "walk-pictures" }, box, createOrder());
    return { element: whole, update: (state) => refill(box, positionPictures(state, context)) };
  },
};

function positionPictures({ token }, { walk }) {
  const { embedded, positions, entered } = walk.encoder;
  const sum = heatStrip({
    title: `Input of the first layer for ${quoted(walk.source_tokens[token])}`,
    hint: "embedding plus positional encoding, element by element",
    names: ["embedding", "+ position", "= input"],
    values: [embedded[token], positions[token], entered[token]],
    height: "tall",
  });
  const pair = [card(null, waves(walk.position_table, token)), card(null, ...similarity(walk.position_table, token))];
  return [element("div", { class: "side-by-side wide-first" }, ...pair), card(null, sum)];
}

function waves(table, token) {
  return heatStrip({
    title: `The first ${table.length} positions`,
    hint: `one row per position; position ${token} is marked`,
    names: table.map((_, at) => (at % 5 === 0 ? String(at) : " ")),
    values: table,
    most: 1,
    chosen: token,
    height: "flat",
    columnName: (column) => `${column % 2 ? "cosine" : "sine"} ${Math.floor(column / 2) + 1}`,
  });
}

function similarity(table, token) {
  const alike = table.map((row) => cosine(row, table[token]));
  const chart = lineChart({
    title: `Similarity to position ${token}`,
    hint: "cosine similarity of the positional encodings",
    label: `Cosine similarity of all positions to position ${token}: highest at ${token}, falling to both sides`,
    lines: [{ name: "", values: alike }],
    across: "position",
    up: "cosine",
    least: Math.min(0, ...alike),
    most: 1,
    mark: token,
    height: 300,
  });
  const next = figureText(digits(alike[token + 1]));
  return [chart, note("One position later: ", next, "; twenty later: ", figureText(digits(alike[token + 20])), ".")];
}
