/** Stations around the attention: residual and normalisation, feed-forward, the stack of layers. */

import { element, svgElement } from "./dom.js";
import { quoted } from "./tokens.js";
import { barList, fluidPicture, lineChart } from "./walk-charts.js";
import { cosine, counted, digits, largestOf, mean, percent, standardised, variance } from "./walk-numbers.js";
import { card, chips, factRow, figureText, note, tickBox, tryCard } from "./walk-parts.js";
import { heatStrip } from "./walk-pictures.js";
import { drawing, refill, times } from "./walk-station.js";

/** @type {import("./walk-station.js").Station} */
export const normStation = {
  id: "norm",
  name: "Residual and normalisation",
  short: "Add & norm",
  group: "The layer",
  words: () => [
    "What attention found is added to what the token was before: the shortcut, or residual. Nothing is lost on the way, and gradients pass through it unchanged.",
    "Then each token's numbers are brought to mean 0 and variance 1, so that they stay in a range where the next part works. A learned gain γ and bias β follow.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["x", times(counted(source_ids.length, "token"), sizes.d_model)],
    ["mean, variance", "one each for a token"],
    ["γ, β", `${sizes.d_model} each`],
  ],
  code: [
    ["add_and_norm", /x \+ sublayer/],
    ["layer_norm", /mean|variance/],
  ],
  needs: ["token"],
  create(context) {
    const box = element("div", { class: "walk-pictures" });
    let [shortcut, shown] = [true, null];
    const update = (state) => {
      shown = state;
      refill(box, normPictures(state, context, shortcut));
    };
    const tick = tickBox("Keep the shortcut (x +)", true, (checked) => {
      shortcut = checked;
      update(shown);
    });
    return {
      element: element("div", { class: "walk-pictures" }, tryCard("Try it: take the shortcut away", [tick]), box),
      update,
    };
  },
};

function normPictures({ token }, { walk, choose }, shortcut) {
  const { entered, projected, sum, normed } = walk.encoder;
  const total = shortcut ? sum : projected;
  const even = standardised(total[token]);
  const rows = [
    ["x", entered[token]],
    ["attention", projected[token]],
    ["added", total[token]],
    ["normalised", even],
  ];
  const shownRows = shortcut ? [...rows, ["times γ, plus β", normed[token]]] : rows.filter(([name]) => name !== "added");
  const alike = cosine(entered[token], even);
  return [
    card(
      null,
      heatStrip({
        title: `The way of ${quoted(walk.source_tokens[token])}`,
        hint: "all on the same scale of colours",
        names: shownRows.map(([name]) => name),
        values: shownRows.map(([, values]) => values),
        height: "tall",
      }),
      note(
        "How much is the result still like x? Cosine ",
        figureText(digits(alike, 3)),
        shortcut ? "." : ": without the shortcut the token has to find itself again in what attention brought.",
      ),
    ),
    element("div", { class: "side-by-side" }, spreadCard("Before", total[token]), spreadCard("After", even)),
    card(
      null,
      heatStrip({
        title: "Normalised, with gain and bias",
        hint: "all tokens, as they go on",
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

/** Each number as a dot on a line, piled up where there are many. */
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

/** @type {import("./walk-station.js").Station} */
export const feedforwardStation = {
  id: "feedforward",
  name: "Feed-forward",
  short: "Feed-forward",
  group: "The layer",
  words: ({ sizes }) => [
    `Now each token thinks alone. Its ${sizes.d_model} numbers are turned into ${sizes.d_ff}; those below 0 are set to 0 (the ReLU); the rest is turned back into ${sizes.d_model}.`,
    "A neuron that is off says nothing. Which ones are on depends on the token: point at a column to see who else switches that neuron on.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["widths", `${sizes.d_model} → ${sizes.d_ff} → ${sizes.d_model}`],
    ["W 1", times(sizes.d_model, sizes.d_ff)],
    ["hidden", times(counted(source_ids.length, "token"), sizes.d_ff)],
    ["W 2", times(sizes.d_ff, sizes.d_model)],
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
      strip("In", `${normed[0].length} numbers a token`, normed),
      strip("Hidden, after the ReLU", `${hidden[0].length} neurons a token; empty: off`, hidden, {
        kind: "weights",
        most: largestOf(hidden),
        columnName: (column) => `neuron ${column + 1}`,
        onCell: (_, column) => showNeuron(column),
      }),
      strip("Out", `${fed[0].length} numbers a token`, fed),
    ),
    element(
      "div",
      { class: "side-by-side" },
      card(
        "Neurons that are off",
        barList(
          names.map((name, at) => ({
            name,
            share: off[at] / hidden[at].length,
            text: percent(off[at] / hidden[at].length),
            classes: at === token ? "chosen" : "dim",
          })),
          "Share of neurons that are off",
        ),
        note(`For ${quoted(names[token])} `, figureText(`${off[token]} of ${hidden[token].length}`), " neurons are off."),
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
    text: hidden[at][column] === 0 ? "off" : digits(hidden[at][column]),
  }));
  return [
    note("Neuron ", figureText(String(column + 1)), ": how strongly each token switches it on."),
    barList(bars, `Neuron ${column + 1}`),
  ];
}

/** @type {import("./walk-station.js").Station} */
export const stackStation = {
  id: "stack",
  name: "The stack",
  short: "Stack",
  group: "The layer",
  words: ({ sizes }) => [
    `A second add & norm ends the layer; what leaves it has the same shape as what entered. So layers can be stacked: ${sizes.encoder_layers} here on each side, 6 in the paper.`,
    "From layer to layer a token's vector moves away from the bare word, towards the word in this sentence.",
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
    return { element: element("div", { class: "walk-pictures" }, tryCard("Choose a side", [sides.element]), box), update };
  },
};

function stackPictures({ token, step }, { walk, choose }, side) {
  const inside = side === "encoder";
  const tokens = inside ? walk.source_tokens : walk.target_inputs;
  const chosen = inside ? token : step;
  const { stack } = walk[side];
  const layers = heatStrip({
    title: `${quoted(tokens[chosen])}, layer by layer`,
    hint: "what enters, and what leaves each layer",
    names: stack.map((_, layer) => layerName(layer)),
    values: stack.map((layer) => layer[chosen]),
    height: "tall",
  });
  const last = heatStrip({
    title: inside ? "The memory" : "What the decoder ends with",
    hint: inside ? "what the encoder hands to the decoder" : "from here the next token is predicted",
    names: tokens,
    values: stack.at(-1),
    chosen,
    onChoose: (row) => choose(inside ? { token: row } : { step: row }),
  });
  const among = stack.map((layer) => mean(layer.map((vector) => cosine(vector, layer[chosen]))));
  const mixing = note(
    "Mean likeness with all tokens of the sentence: ",
    figureText(among.map((value) => digits(value, 2)).join(" → ")),
  );
  return [
    card(null, layers),
    element("div", { class: "side-by-side" }, card(null, ...departure(stack, tokens, chosen)), card(null, last, mixing)),
  ];
}

function layerName(layer) {
  return layer === 0 ? "enters" : `layer ${layer}`;
}

/** How far each token has come from its beginning, the chosen one in front. */
function departure(stack, tokens, chosen) {
  const alike = tokens.map((_, row) => stack.map((layer) => cosine(layer[row], stack[0][row])));
  const others = alike.filter((_, row) => row !== chosen).map((values) => ({ name: "", values, classes: "faint thin" }));
  const inWords = alike[chosen].map((value, layer) => `${layerName(layer)} ${digits(value, 2)}`);
  const chart = lineChart({
    title: "How much is it still like its beginning?",
    hint: "cosine with what entered; thin lines: the other tokens",
    label: `Likeness of ${tokens[chosen]} with its beginning: ${inWords.join(", ")}`,
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
