/** All stations, in the order in which the numbers are computed; the mask stands before the softmax, as in figure 2 of the paper. */

import { qkvStation, scoresStation, sumStation } from "./walk-attention.js";
import { crossStation, maskStation, outputStation } from "./walk-decoder.js";
import { concatenationStation, headsStation } from "./walk-heads.js";
import { embeddingsStation, idsStation, positionsStation, tokensStation } from "./walk-input.js";
import { feedforwardStation, normStation, stackStation } from "./walk-layer.js";
import { scalingStation } from "./walk-scaling.js";
import { softmaxStation } from "./walk-softmax.js";

/** @type {import("./walk-station.js").Station[]} */
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
];
