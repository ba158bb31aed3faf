/** Figure 1 of the paper beside every station: the part that the station is about is highlighted. */

import { element, svgElement } from "../shared/dom.js";

const WIDTH = 362;
const HEIGHT = 396;
const LINE = 15; // height of a line of a label
const GAP = 8; // between two blocks
const BLOCK = { width: 136, padding: 3 };
const FRAME = { width: 154, height: 9 }; // height: above and below its blocks
const CENTRES = { encoder: 106, decoder: 256 };
const RESIDUAL = 74; // from the centre of a column to its residual connections

/** Both columns from bottom to top: id and the lines of its label. Those in `layers` are framed. */
const COLUMNS = {
  encoder: {
    before: [
      ["inputs", "Inputs"],
      ["source-embedding", "Input Embedding"],
      ["source-positions", "+ Positional", "Encoding"],
    ],
    layers: [
      ["encoder-attention", "Multi-Head", "Attention"],
      ["encoder-norm-1", "Add & Norm"],
      ["encoder-feed-forward", "Feed Forward"],
      ["encoder-norm-2", "Add & Norm"],
    ],
    after: [],
  },
  decoder: {
    before: [
      ["outputs", "Outputs (shifted right)"],
      ["target-embedding", "Output Embedding"],
      ["target-positions", "+ Positional", "Encoding"],
    ],
    layers: [
      ["decoder-attention", "Masked Multi-", "Head Attention"],
      ["decoder-norm-1", "Add & Norm"],
      ["cross-attention", "Multi-Head", "Attention"],
      ["decoder-norm-2", "Add & Norm"],
      ["decoder-feed-forward", "Feed Forward"],
      ["decoder-norm-3", "Add & Norm"],
    ],
    after: [
      ["linear", "Linear"],
      ["softmax", "Softmax"],
      ["probabilities", "Output Probabilities"],
    ],
  },
};
const PLAIN = new Set(["inputs", "outputs", "probabilities"]); // text without a block

/**
 * Where each station is in the figure: its place and the name of its part in words, and the parts that are highlighted.
 * @type {Record<string, {place: (sizes: Sizes) => string, part: string, ids: string[], isKept?: boolean}>}
 * @typedef {import("./server.js").Walk["sizes"]} Sizes
 */
const PLACES = {
  tokens: at("Before the encoder", "Inputs", "inputs"),
  ids: at("Before the encoder", "Inputs", "inputs"),
  embeddings: at("Before encoder layer 1", "Input Embedding", "source-embedding"),
  positions: at("Before encoder layer 1", "Positional Encoding", "source-positions"),
  mask: at("Decoder, layer 1", "Masked Multi-Head Attention", "decoder-attention"),
  norm: at("Encoder, layer 1", "Add & Norm", "encoder-norm-1"),
  feedforward: at("Encoder, layer 1", "Feed Forward", "encoder-feed-forward"),
  stack: at(
    ({ encoder_layers, decoder_layers }) => `Encoder, layers 1–${encoder_layers}; decoder, layers 1–${decoder_layers}`,
    "both stacks",
    "encoder-stack",
    "decoder-stack",
  ),
  cross: at("Decoder, layer 1", "encoder-decoder attention", "cross-attention"),
  bert: kept(
    "The encoder, layers 1–N",
    "the encoder, Linear and Softmax",
    ...["inputs", "source-embedding", "source-positions", "encoder-stack"],
    ...["encoder-attention", "encoder-norm-1", "encoder-feed-forward", "encoder-norm-2"],
    ...["linear", "softmax", "probabilities"],
  ),
  gpt: kept(
    "The decoder, layers 1–N",
    "the decoder without cross-attention",
    ...["outputs", "target-embedding", "target-positions", "decoder-stack"],
    ...["decoder-attention", "decoder-norm-1", "decoder-feed-forward", "decoder-norm-3"],
    ...["linear", "softmax", "probabilities"],
  ),
  output: at(({ decoder_layers }) => `After decoder layer ${decoder_layers}`, "Linear and Softmax", "linear", "softmax"),
};
const ENCODER_ATTENTION = at("Encoder, layer 1", "Multi-Head Attention", "encoder-attention");

function at(place, part, ...ids) {
  return { place: typeof place === "string" ? () => place : place, part, ids };
}

/** The parts that a later model keeps; all others are faded. The number of its layers is its own. */
function kept(place, part, ...ids) {
  return { ...at(place, part, ...ids), isKept: true };
}

/** Place of a station in the model, such as "Encoder, layer 1". @param {string} station @param {Sizes} sizes */
export function placeOf(station, sizes) {
  return placed(station).place(sizes);
}

function placed(station) {
  return PLACES[station] ?? ENCODER_ATTENTION;
}

const roomy = matchMedia("(min-width: 48rem)");
let isOpen = null; // as the person left it at the station before; null: open where there is room

/** The figure with a summary that names the highlighted part. @param {string} station @param {Sizes} sizes */
export function createFigure(station, sizes) {
  const { part } = placed(station);
  const words = element("span", {}, "Figure 1 of the paper: ", element("strong", {}, part));
  const small = drawFigure(station, sizes);
  small.setAttribute("aria-hidden", "true");
  small.classList.add("small");
  const figure = drawFigure(station, sizes);
  const name = `Figure 1 of the paper, the Transformer. Highlighted: ${part}. ${placeOf(station, sizes)}.`;
  figure.setAttribute("role", "img");
  figure.setAttribute("aria-label", name);
  figure.prepend(svgElement("title", {}, name));
  const box = element("details", { class: "figure-1", open: isOpen ?? roomy.matches }, element("summary", {}, small, words), figure);
  box.addEventListener("toggle", () => {
    if (box.open !== (isOpen ?? roomy.matches)) isOpen = box.open;
  });
  return box;
}

function drawFigure(station, sizes) {
  const { ids, isKept } = placed(station);
  const columns = Object.entries(COLUMNS).map(([name, column]) => layOut(name, column));
  const [encoder, decoder] = columns;
  return svgElement(
    "svg",
    { class: `figure-1-drawing ${isKept ? "halved" : ""}`, viewBox: `0 0 ${WIDTH} ${HEIGHT}` },
    stackFrame(encoder, ids, isKept ? "" : `${sizes.encoder_layers}×`),
    stackFrame(decoder, ids, isKept ? "" : `${sizes.decoder_layers}×`),
    ...columns.flatMap(connections),
    isKept ? null : memoryConnection(encoder, decoder),
    ...columns.flatMap(({ blocks }) => blocks.map((block) => drawBlock(block, ids.includes(block.id)))),
  );
}

/** Give every block of a column its place, from the bottom up. */
function layOut(name, { before, layers, after }) {
  let bottom = HEIGHT - 2;
  const centre = CENTRES[name];
  const place = ([id, ...lines]) => {
    const height = lines.length * LINE + 2 * BLOCK.padding;
    const block = { id, lines, centre, top: bottom - height, bottom };
    bottom = block.top - GAP;
    return block;
  };
  const placeAll = (blocks, room) => {
    bottom -= room; // for the frame
    return blocks.map(place);
  };
  const [below, framed, above] = [placeAll(before, 0), placeAll(layers, 4), placeAll(after, 4)];
  return { name, centre, framed, blocks: [...below, ...framed, ...above] };
}

function drawBlock({ id, lines, centre, top, bottom }, highlighted) {
  const classes = `part ${PLAIN.has(id) ? "plain" : ""} ${highlighted ? "here" : ""}`;
  const first = (top + bottom) / 2 - ((lines.length - 1) * LINE) / 2;
  const texts = lines.map((line, row) =>
    svgElement("text", { x: centre, y: first + row * LINE, "text-anchor": "middle", "dominant-baseline": "central" }, line),
  );
  const frame = svgElement("rect", { x: centre - BLOCK.width / 2, y: top, width: BLOCK.width, height: bottom - top, rx: 4 });
  return svgElement("g", { class: classes, "data-part": id }, frame, ...texts);
}

/** The frame around a layer, with how often it is repeated. */
function stackFrame({ name, centre, framed }, highlighted, count) {
  const id = `${name}-stack`;
  const [top, bottom] = [framed.at(-1).top - FRAME.height, framed[0].bottom + FRAME.height];
  const outside = name === "encoder" ? -1 : 1;
  const middle = centre + 5 * outside; // the residual connections are on the outside
  const words = svgElement(
    "text",
    { x: middle + outside * (FRAME.width / 2 + 3), y: (top + bottom) / 2, "text-anchor": outside < 0 ? "end" : "start" },
    count,
  );
  return svgElement(
    "g",
    { class: `stack ${highlighted.includes(id) ? "here" : ""}`, "data-part": id },
    svgElement("rect", { x: middle - FRAME.width / 2, y: top, width: FRAME.width, height: bottom - top, rx: 8 }),
    words,
  );
}

/** The way up a column, and past each sub-layer into its Add & Norm. */
function connections({ name, centre, framed, blocks }) {
  const outside = centre + (name === "encoder" ? -RESIDUAL : RESIDUAL);
  const up = blocks.slice(1).map((block, index) => arrow(`M${centre} ${blocks[index].top}V${block.bottom}`, "up"));
  const past = framed.flatMap((block, index) => {
    if (!block.id.includes("norm")) return [];
    const from = framed[index - 1].bottom + 4;
    const edge = centre + (outside < centre ? -1 : 1) * (BLOCK.width / 2);
    return [arrow(`M${centre} ${from}H${outside}V${(block.top + block.bottom) / 2}H${edge}`, outside < centre ? "right" : "left")];
  });
  return [...up, ...past];
}

/** From the top of the encoder to the attention over its output. */
function memoryConnection(encoder, decoder) {
  const from = encoder.blocks.at(-1).top;
  const into = decoder.blocks.find(({ id }) => id === "cross-attention");
  const middle = (CENTRES.encoder + CENTRES.decoder) / 2;
  const y = (into.top + into.bottom) / 2;
  return arrow(`M${encoder.centre} ${from}V${from - FRAME.height - 6}H${middle}V${y}H${decoder.centre - BLOCK.width / 2}`, "right");
}

const HEADS = { up: "m-3 4l3-4l3 4", right: "m-4-3l4 3l-4 3", left: "m4-3l-4 3l4 3" };

function arrow(d, direction) {
  return svgElement("path", { class: "way", d: d + HEADS[direction] });
}
