/** Stations around attention: residual connection and normalisation, feed-forward, the stack of layers. */

import { element, refill, svgElement } from "../shared/dom.js";
import { quoted } from "../shared/tokens.js";
import { barList, fluidPicture, lineChart } from "./charts.js";
import { cosine, counted, digits, largestOf, mean, percent, standardised, variance } from "./numbers.js";
import { card, chips, factRow, figureText, note, tickBox, tryCard } from "./parts.js";
import { heatStrip } from "./pictures.js";
import { drawing, times } from "./station.js";

/** @type {import("./station.js").Station} */
export const normStation = {
  id: "norm",
  name: "Add & norm",
  short: "Add & norm",
  group: "Layer",
  words: () => [
    "The output of attention is added to its input x: the residual connection. The layer only has to learn a change of x, and gradients reach earlier layers through the sum.",
    "Then layer normalisation gives the numbers of each token mean 0 and variance 1, followed by a learned gain γ and bias β. The paper normalises after the addition (post-norm); many later models normalise before the sub-layer (pre-norm).",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["x", times(counted(source_ids.length, "token"), sizes.d_model)],
    ["mean, variance", "one of each per token"],
    ["γ, β", `${sizes.d_model} each`],
  ],
  code: [
    ["add_and_norm", /x \+ sublayer/],
    ["layer_norm", /mean|variance/],
  ],
  needs: ["token"],
  create(context) {
    const box = element("div", { class: "walk-pictures" });
    let [residual, shown] = [true, null];
    const update = (state) => {
      shown = state;
      refill(box, normPictures(state, context, residual));
    };
    const tick = tickBox("Add the input (x +)", true, (checked) => {
      residual = checked;
      update(shown);
    });
    return {
      element: element("div", { class: "walk-pictures" }, tryCard("Try it: remove the residual connection", [tick]), box),
      update,
    };
  },
};

function normPictures({ token }, { walk, choose }, residual) {
  const { entered, projected, sum, normed } = walk.encoder;
  const total = residual ? sum : projected;
  const even = standardised(total[token]);
  const rows = [
    ["x", entered[token]],
    ["attention", projected[token]],
    ["sum", total[token]],
    ["normalised", even],
  ];
  const shownRows = residual ? [...rows, ["times γ, plus β", normed[token]]] : rows.filter(([name]) => name !== "sum");
  const alike = cosine(entered[token], even);
  return [
    card(
      null,
      heatStrip({
        title: `${quoted(walk.source_tokens[token])}, step by step`,
        hint: "all rows on the same colour scale",
        names: shownRows.map(([name]) => name),
        values: shownRows.map(([, values]) => values),
        height: "tall",
      }),
      note(
        "Cosine similarity of x and the normalised result: ",
        figureText(digits(alike, 3)),
        residual ? "." : ". Without the residual connection x reaches the next part only through attention.",
      ),
    ),
    element("div", { class: "side-by-side" }, spreadCard("Before", total[token]), spreadCard("After", even)),
    card(
      null,
      heatStrip({
        title: "Normalised, with gain and bias",
        hint: "all tokens; the input of the feed-forward network",
        names: walk.source_tokens,
        values: normed,
        chosen: token,
        onChoose: (at) => choose({ token: at }),
      }),
    ),
  ];
}

function spreadCard(title, values) {
  return card(
    title,
    spreadPicture(values),
    factRow([
      ["mean", digits(mean(values))],
      ["variance", digits(variance(values))],
    ]),
  );
}

const SPREAD = 6; // the picture shows −6 to 6

/** A dot plot: one dot per number. */
function spreadPicture(values) {
  const label = `Distribution of ${values.length} numbers: mean ${digits(mean(values), 2)}, variance ${digits(variance(values), 2)}`;
  return fluidPicture(label, 150, (width) => {
    const [size, floor] = [Math.min(Math.max(width / 60, 5), 10), 122];
    const x = (value) => ((Math.min(Math.max(value, -SPREAD), SPREAD) + SPREAD) / (2 * SPREAD)) * (width - size) + size / 2;
    const piles = new Map();
    const dots = [...values]
      .sort((one, other) => one - other)
      .map((value) => {
        const pile = Math.round(x(value) / size);
        const height = piles.get(pile) ?? 0;
        piles.set(pile, height + 1);
        return svgElement("circle", {
          class: value < 0 ? "bar-down" : "bar-up",
          cx: pile * size,
          cy: Math.max(floor - size * (height + 0.6), 4),
          r: size * 0.42,
        });
      });
    const ticks = [-6, -3, 0, 3, 6].map((value) =>
      svgElement(
        "text",
        { class: "tick", x: Math.min(Math.max(x(value), 8), width - 8), y: floor + 18, "text-anchor": "middle" },
        digits(value, 0),
      ),
    );
    const middle = x(mean(values));
    return [
      svgElement("line", { class: "rule", x1: 0, x2: width, y1: floor, y2: floor }),
      ...dots,
      svgElement("line", { class: "mean-line", x1: middle, x2: middle, y1: 8, y2: floor }),
      ...ticks,
    ];
  });
}

/** @type {import("./station.js").Station} */
export const feedforwardStation = {
  id: "feedforward",
  name: "Feed-forward",
  short: "Feed-forward",
  group: "Layer",
  words: ({ sizes }) => [
    `The same two-layer network is applied to each position separately. It projects the ${sizes.d_model} numbers of a token to d_ff = ${sizes.d_ff} (from 512 to 2,048 in the paper), sets negative ones to 0 (ReLU), and projects back to ${sizes.d_model}.`,
    "A neuron whose output is 0 contributes nothing. Which neurons are active depends on the token: point at a column to compare the tokens.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["widths", `${sizes.d_model} → ${sizes.d_ff} → ${sizes.d_model}`],
    ["W_1", times(sizes.d_model, sizes.d_ff)],
    ["hidden layer", times(counted(source_ids.length, "token"), sizes.d_ff)],
    ["W_2", times(sizes.d_ff, sizes.d_model)],
  ],
  code: [["feed_forward", /maximum/]],
  needs: ["token"],
  create: drawing(({ token }, { walk, choose }) => feedPictures(token, walk, choose)),
};

function feedPictures(token, walk, choose) {
  const { normed, hidden, fed } = walk.encoder;
  const names = walk.source_tokens;
  const onChoose = (at) => choose({ token: at });
  const strip = (title, hint, values, more = {}) => heatStrip({ title, hint, names, values, chosen: token, onChoose, ...more });
  const off = hidden.map((row) => row.filter((value) => value === 0).length);
  const neuron = element("div", { class: "neuron" });
  const showNeuron = (column) => neuron.replaceChildren(...neuronBars(column, hidden, names));
  showNeuron(hidden[token].indexOf(Math.max(...hidden[token])));
  return [
    card(
      null,
      strip("Input", `${normed[0].length} numbers per token`, normed),
      strip("Hidden layer, after the ReLU", `${hidden[0].length} neurons per token; empty: 0`, hidden, {
        kind: "weights",
        most: largestOf(hidden),
        columnName: (column) => `neuron ${column + 1}`,
        onCell: (_, column) => showNeuron(column),
      }),
      strip("Output", `${fed[0].length} numbers per token`, fed),
    ),
    element(
      "div",
      { class: "side-by-side" },
      card(
        "Inactive neurons",
        barList(
          names.map((name, at) => ({
            name,
            share: off[at] / hidden[at].length,
            text: percent(off[at] / hidden[at].length),
            classes: at === token ? "chosen" : "dim",
          })),
          "Percentage of inactive neurons",
        ),
        note(`For ${quoted(names[token])} `, figureText(`${off[token]} of ${hidden[token].length}`), " neurons are inactive (output 0)."),
      ),
      card("One neuron", neuron),
    ),
  ];
}

function neuronBars(column, hidden, names) {
  const most = Math.max(...hidden.map((row) => row[column])) || 1;
  const bars = names.map((name, at) => ({
    name,
    share: hidden[at][column] / most,
    text: hidden[at][column] === 0 ? "0" : digits(hidden[at][column]),
  }));
  return [
    note("Neuron ", figureText(String(column + 1)), ": its output for each token."),
    barList(bars, `Neuron ${column + 1}`),
  ];
}

/** @type {import("./station.js").Station} */
export const stackStation = {
  id: "stack",
  name: "Stack of layers",
  short: "Stack",
  group: "Layer",
  words: ({ sizes }) => [
    `A second add & norm ends the layer. Its output has the same shape as its input, so layers can be stacked: ${sizes.encoder_layers} in the encoder and ${sizes.decoder_layers} in the decoder here, 6 and 6 in the paper.`,
    "From layer to layer the hidden state of a token depends less on the token alone and more on its context. The last hidden states of the encoder are the memory that the decoder attends to.",
  ],
  shapes: ({ sizes, source_ids, target_ids }) => [
    ["encoder", `${sizes.encoder_layers} layers of ${times(counted(source_ids.length, "token"), sizes.d_model)}`],
    ["decoder", `${sizes.decoder_layers} layers of ${times(counted(target_ids.length, "token"), sizes.d_model)}`],
  ],
  code: [
    ["encoder_layer", /add_and_norm/],
    ["encode", /for layer|encoder_layer/],
  ],
  needs: ["token", "step"],
  create(context) {
    const box = element("div", { class: "walk-pictures" });
    let [side, shown] = [0, null];
    const update = (state) => {
      shown = state;
      refill(box, stackPictures(state, context, side === 0 ? "encoder" : "decoder"));
    };
    const sides = chips({
      legend: "Layers of the",
      onChoose(index) {
        side = index;
        update(shown);
      },
    });
    sides.show([{ text: "encoder" }, { text: "decoder" }]);
    sides.choose(0);
    return { element: element("div", { class: "walk-pictures" }, tryCard("Encoder or decoder", [sides.element]), box), update };
  },
};

function stackPictures({ token, step }, { walk, choose }, side) {
  const isEncoder = side === "encoder";
  const tokens = isEncoder ? walk.source_tokens : walk.target_inputs;
  const chosen = isEncoder ? token : step;
  const { stack } = walk[side];
  const layers = heatStrip({
    title: `${quoted(tokens[chosen])}, layer by layer`,
    hint: "input of the first layer, and output of each layer",
    names: stack.map((_, layer) => layerName(layer)),
    values: stack.map((layer) => layer[chosen]),
    height: "tall",
  });
  const last = heatStrip({
    title: isEncoder ? "Output of the encoder, the memory" : "Output of the decoder",
    hint: isEncoder ? "keys and values of cross-attention are computed from it" : "the next token is predicted from it",
    names: tokens,
    values: stack.at(-1),
    chosen,
    onChoose: (row) => choose(isEncoder ? { token: row } : { step: row }),
  });
  const among = stack.map((layer) => mean(layer.map((vector) => cosine(vector, layer[chosen]))));
  const mixing = note(
    "Mean cosine similarity to all tokens of the sentence: ",
    figureText(among.map((value) => digits(value, 2)).join(" → ")),
    " (input, then after each layer).",
  );
  return [
    card(null, layers),
    element("div", { class: "side-by-side" }, card(null, ...departure(stack, tokens, chosen)), card(null, last, mixing)),
  ];
}

function layerName(layer) {
  return layer === 0 ? "input" : `layer ${layer}`;
}

/** How similar each hidden state still is to the input, the chosen token in front. */
function departure(stack, tokens, chosen) {
  const alike = tokens.map((_, row) => stack.map((layer) => cosine(layer[row], stack[0][row])));
  const others = alike.filter((_, row) => row !== chosen).map((values) => ({ name: "", values, classes: "faint thin" }));
  const inWords = alike[chosen].map((value, layer) => `${layerName(layer)} ${digits(value, 2)}`);
  const chart = lineChart({
    title: "Similarity to the input",
    hint: "cosine similarity; thin lines: the other tokens",
    label: `Cosine similarity of ${tokens[chosen]} to its input: ${inWords.join(", ")}`,
    lines: [...others, { name: "", values: alike[chosen] }],
    across: "",
    up: "cosine",
    tickText: layerName,
    least: Math.min(0, ...alike.flat()),
    most: 1,
    mark: stack.length - 1,
  });
  return [chart, note(inWords.join(" · "))];
}
