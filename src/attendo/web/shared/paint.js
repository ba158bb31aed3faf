/** Matrices as pictures: one pixel a cell, enlarged by the browser without smoothing. Cheap even for a hundred tokens. */

import { currentTheme, signedPixels, weightLevel, weightPixels } from "./colours.js";

/**
 * Paint weights between 0 and 1.
 * @param {HTMLCanvasElement} canvas
 * @param {import("./maps.js").Matrix} matrix
 * @param {{triangle?: boolean, most?: number}} [options] triangle: leave the masked future empty; most: the weight of the deepest colour
 */
export function paintWeights(canvas, matrix, { triangle = false, most = 1 } = {}) {
  const table = weightPixels(currentTheme());
  paintCells(canvas, matrix, (weight, row, column) =>
    triangle && column > row ? 0 : table[Math.round(255 * weightLevel(weight / most))],
  );
}

/** Paint values of either sign; the deepest colours are the largest size. Masked ones (NaN) stay empty. */
export function paintSigned(canvas, matrix, most = largestSize(matrix)) {
  const table = signedPixels(currentTheme());
  const unit = most || 1;
  paintCells(canvas, matrix, (value) =>
    Number.isNaN(value) ? 0 : table[255 + Math.round(255 * Math.min(Math.max(value / unit, -1), 1))],
  );
}

/** Largest absolute value, masked ones left out. */
export function largestSize(matrix) {
  let most = 0;
  for (const value of matrix.weights) if (Math.abs(value) > most) most = Math.abs(value);
  return most;
}

function paintCells(canvas, { rows, columns, weights }, pixelOf) {
  canvas.width = Math.max(columns, 1);
  canvas.height = Math.max(rows, 1);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const at = row * columns + column;
      pixels[at] = pixelOf(weights[at], row, column);
    }
  }
  context.putImageData(image, 0, 0);
}
