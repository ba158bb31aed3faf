/** All stations, in the order in which the numbers are computed, then the models that came after the paper; the mask stands before the softmax, as in figure 2 of the paper. */

import { qkvStation, scoresStation, sumStation } from "./attention.js";
import { crossStation, maskStation, outputStation } from "./decoder.js";
import { bertStation, gptStation } from "./halves.js";
import { concatenationStation, headsStation } from "./heads.js";
import { embeddingsStation, idsStation, positionsStation, tokensStation } from "./input.js";
import { feedforwardStation, normStation, stackStation } from "./layer.js";
import { scalingStation } from "./scaling.js";
import { softmaxStation } from "./softmax.js";

/** @type {import("./station.js").Station[]} */
export const STATIONS = [
  tokensStation,
  idsStation,
  embeddingsStation,
  positionsStation,
  qkvStation,
  scoresStation,
  scalingStation,
  maskStation,
  softmaxStation,
  sumStation,
  headsStation,
  concatenationStation,
  normStation,
  feedforwardStation,
  stackStation,
  crossStation,
  outputStation,
  bertStation,
  gptStation,
];
