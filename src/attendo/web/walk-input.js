/** Stations before the first layer: tokens, ids, embeddings, positional encoding. */

import { element, svgElement } from "./dom.js";
import { quoted, tokenClasses, tokenText } from "./tokens.js";
import { fluidPicture, lineChart, vectorBars } from "./walk-charts.js";
import { cosine, counted, digits, largestOf } from "./walk-numbers.js";
import { createOrder } from "./walk-order.js";
import { card, figureText, note } from "./walk-parts.js";
import { heatStrip } from "./walk-pictures.js";
import { drawing, refill, times } from "./walk-station.js";

/** @type {import("./walk-station.js").Station} */
export const tokensStation = {
  id: "tokens",
  name: "Tokens",
  short: "Tokens",
  group: "Into numbers",
  words: () => [
    "A model cannot read letters. The sentence is first cut into tokens: frequent words stay whole, rarer ones fall into pieces that were learned from the corpus.",
    "“▁” marks where a word begins. The last token, </s>, says that the sentence is over.",
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
      "The sentence, cut into tokens",
      tokenCards(
        walk.source_tokens,
        token,
        (at) => choose({ token: at }),
        (at) => `position ${at}`,
      ),
      note(
        "Position ",
        figureText(String(token)),
        " holds ",
        quoted(walk.source_tokens[token]),
        ". Choose any token: it stays chosen at all stations.",
      ),
    ),
    card(
      "Its translation is made of tokens too",
      tokenCards(walk.target_tokens, -1, null, (at) => `step ${at + 1}`),
      note("The decoder will write these, one a step: “", element("bdi", {}, walk.target), "”"),
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

/** @type {import("./walk-station.js").Station} */
export const idsStation = {
  id: "ids",
  name: "Ids",
  short: "Ids",
  group: "Into numbers",
  words: () => [
    "Every token has a fixed place in the vocabulary. From here on the sentence is a list of whole numbers.",
    "The numbers mean nothing by themselves: neighbours in the list are not alike. They only say which row of a table to fetch next.",
  ],
  shapes: (walk) => [
    ["ids", `${walk.source_ids.length} whole numbers`],
    ["vocabulary V", walk.sizes.vocabulary.toLocaleString("en")],
  ],
  code: [["embed", /embedding\[ids\]/]],
  needs: ["token"],
  create: drawing(({ token }, { walk, choose }) => [
    card(
      "From pieces to numbers",
      tokenCards(
        walk.source_tokens,
        token,
        (at) => choose({ token: at }),
        (at) => String(walk.source_ids[at]),
      ),
      vocabularyLine(walk, token),
      note(
        quoted(walk.source_tokens[token]),
        " is number ",
        figureText(String(walk.source_ids[token])),
        ` of ${walk.sizes.vocabulary.toLocaleString("en")}.${repeatedWords(walk, token)}`,
      ),
    ),
  ]),
};

function repeatedWords(walk, token) {
  const again = walk.source_ids.filter((id) => id === walk.source_ids[token]).length;
  return again > 1 ? ` It stands in the sentence ${again} times, with the same id.` : "";
}

function vocabularyLine(walk, chosen) {
  const size = walk.sizes.vocabulary;
  return fluidPicture(`Places of the tokens among ${size} entries of the vocabulary`, 92, (width) => {
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
      svgElement("text", { class: "tick", x: width / 2, y: 78, "text-anchor": "middle" }, "the vocabulary"),
    ];
  });
}

/** @type {import("./walk-station.js").Station} */
export const embeddingsStation = {
  id: "embeddings",
  name: "Embeddings",
  short: "Embeddings",
  group: "Into numbers",
  words: ({ sizes }) => [
    `Each id fetches its row of a learned table: ${sizes.d_model} numbers that stand for the token. Training moves the rows until tokens that are used alike have rows alike.`,
    `The rows are multiplied by √${sizes.d_model} = ${digits(Math.sqrt(sizes.d_model), 0)}, so that the positions, added next, do not drown them.`,
  ],
  shapes: ({ sizes, source_ids }) => [
    ["table E", times(sizes.vocabulary.toLocaleString("en"), sizes.d_model)],
    ["embedded", times(counted(source_ids.length, "token"), sizes.d_model)],
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
          title: "The sentence as numbers",
          hint: "a row for each token, a column for each of its numbers",
          names: walk.source_tokens,
          values,
          chosen: token,
          onChoose: (at) => choose({ token: at }),
        }),
      ),
      card(
        `The vector of ${quoted(walk.source_tokens[token])}`,
        vectorBars(`The ${values[token].length} numbers of the chosen token as bars`, values[token], most),
        note(
          "It begins ",
          figureText(
            values[token]
              .slice(0, 4)
              .map((value) => digits(value))
              .join(", "),
          ),
          ` … ${nearestWords(walk, token)}`,
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
  return `Most alike in this sentence: ${quoted(others[0].name)}, with a cosine of ${digits(others[0].alike, 2)}.`;
}

/** @type {import("./walk-station.js").Station} */
export const positionsStation = {
  id: "positions",
  name: "Positional encoding",
  short: "Positions",
  group: "Into numbers",
  words: () => [
    "Attention looks at a set: it does not know which word came first. So a pattern that depends only on the position is added to each embedding.",
    "Each pair of columns is a sine and a cosine; to the left they swing fast, to the right slowly, like the hands of many clocks. Positions that are near each other get patterns that are alike.",
  ],
  shapes: ({ sizes, source_ids, position_table }) => [
    ["positions", times(`${position_table.length} shown`, sizes.d_model)],
    ["added to", times(counted(source_ids.length, "token"), sizes.d_model)],
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
    title: `What enters the first layer for ${quoted(walk.source_tokens[token])}`,
    hint: "embedding plus position, number by number",
    names: ["embedding", "+ position", "= enters"],
    values: [embedded[token], positions[token], entered[token]],
    height: "tall",
  });
  const pair = [card(null, waves(walk.position_table, token)), card(null, ...likeness(walk.position_table, token))];
  return [element("div", { class: "side-by-side wide-first" }, ...pair), card(null, sum)];
}

function waves(table, token) {
  return heatStrip({
    title: `The first ${table.length} positions`,
    hint: `a row for each position; position ${token} is marked`,
    names: table.map((_, at) => (at % 5 === 0 ? String(at) : " ")),
    values: table,
    most: 1,
    chosen: token,
    height: "flat",
    columnName: (column) => `${column % 2 ? "cosine" : "sine"} ${Math.floor(column / 2) + 1}`,
  });
}

function likeness(table, token) {
  const alike = table.map((row) => cosine(row, table[token]));
  const chart = lineChart({
    title: `How much is each position like position ${token}?`,
    hint: "cosine of the two patterns",
    label: `Likeness of all positions to position ${token}: highest at ${token}, falling to both sides`,
    lines: [{ name: "", values: alike }],
    across: "position",
    up: "cosine",
    least: Math.min(0, ...alike),
    most: 1,
    mark: token,
    height: 300,
  });
  const next = figureText(digits(alike[token + 1]));
  return [chart, note("One position further: ", next, ", twenty further: ", figureText(digits(alike[token + 20])))];
}
