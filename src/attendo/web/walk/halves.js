/** Stations after the paper: the same sentence in a BERT, which keeps the encoder, and in a GPT, which keeps the decoder. */

import { createHalf } from "./half.js";
import { requestBert, requestGpt } from "./server.js";

const GROUP = "After the paper";

/** @type {import("./station.js").Station} */
export const bertStation = {
  id: "bert",
  name: "BERT: predict hidden words",
  short: "BERT",
  group: GROUP,
  words: () => [
    "BERT (Devlin et al. 2018) keeps the left half of figure 1, the encoder, and drops the decoder. It has no look-ahead mask: every token attends to all tokens, to earlier and to later ones.",
    "It is trained on text alone. Some tokens of a sentence are replaced by <mask>, and the model predicts them: the last hidden state of a hidden token gives a probability for each token of the vocabulary. A trained BERT is then adapted to other tasks, such as classification.",
  ],
  shapes: () => [
    ["attention mask", "n × n, all allowed"],
    ["last hidden states", "n tokens × d_model"],
    ["probabilities", "V for each hidden token"],
  ],
  code: [
    ["bert", /encoder_layer|softmax/],
    ["head", /return/],
  ],
  needs: [],
  attention: "bert",
  create: (context) =>
    createHalf(context, {
      name: "BERT",
      asRecording: ({ steps, tokens, hidden }) => ({ steps, source_tokens: tokens, target_tokens: [], mask: tokens[hidden + 1] }),
      request: ({ token }, signal) => requestBert(context.walk.source, token, signal),
      key: ({ token }) => token,
      chosen: (half) => half.hidden,
      choose: (token) => ({ token }),
      title: "Hide a word",
      hint: "Each bar is the probability of the token when it alone is hidden. Choose a token to hide it; the list has the most probable tokens in its place.",
      differences: [
        ["part of figure 1", "encoder and decoder", "encoder"],
        ["attention mask", "look-ahead mask in the decoder", "none: all tokens are allowed"],
        ["predicted", "the next token of a translation", "hidden tokens of the text itself"],
        ["trained on", "sentences and their translations", "text"],
      ],
    }),
};

/** @type {import("./station.js").Station} */
export const gptStation = {
  id: "gpt",
  name: "GPT: predict the next word",
  short: "GPT",
  group: GROUP,
  words: () => [
    "GPT (Radford et al. 2018) keeps the right half of figure 1, the decoder, and drops the encoder, and with it the cross-attention. The look-ahead mask stays: every token attends to itself and to earlier tokens only.",
    "It is trained on text alone, to predict the next token at all positions at once. To write a text, it appends a predicted token to its input and repeats this.",
  ],
  shapes: () => [
    ["attention mask", "n × n, a triangle"],
    ["last hidden states", "n tokens × d_model"],
    ["probabilities", "V after each token"],
  ],
  code: [["gpt", /look_ahead_mask|encoder_layer|softmax/]],
  needs: [],
  attention: "gpt",
  create: (context) =>
    createHalf(context, {
      name: "GPT",
      asRecording: ({ steps, tokens }) => ({ steps, source_tokens: [], target_tokens: tokens, target_inputs: tokens }),
      request: (_, signal) => requestGpt(context.walk.source, signal),
      key: () => "",
      chosen: (half, { step }) => Math.min(step ?? half.start.row, half.steps.length - 1),
      choose: (step) => ({ step }),
      title: "Step by step",
      hint: "Each bar is the probability of the token, given those before it. Choose a step: the list has the most probable next tokens.",
      differences: [
        ["part of figure 1", "encoder and decoder", "decoder, without cross-attention"],
        ["attention mask", "look-ahead mask in the decoder", "look-ahead mask"],
        ["predicted", "the next token of a translation", "the next token of the text itself"],
        ["trained on", "sentences and their translations", "text"],
      ],
    }),
};
