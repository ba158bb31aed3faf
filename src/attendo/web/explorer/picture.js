/** Attention over what a model reads that is no text: drawn on an image, or on a spectrogram. */

import { element } from "../shared/dom.js";
import { weightsOf } from "../shared/focus.js";

const COLOUR = [255, 122, 0]; // visible on grey images and on photographs

/**
 * @param {{onHover: (spot: any) => void, onPin: (spot: any) => void}} listeners
 */
export function createPicture({ onHover, onPin }) {
  const image = element("img", { alt: "" });
  const canvas = element("canvas", { "aria-hidden": "true" });
  const frame = element("div", { class: "picture-frame", role: "img" }, image, canvas);
  const caption = element("p", { class: "picture-caption" });
  const box = element("div", { class: "picture-view", hidden: true }, frame, caption);
  let matrix = null;
  let picture = null;
  let kind = "encoder";

  frame.addEventListener("pointermove", (event) => onHover(spotUnder(event)));
  frame.addEventListener("pointerleave", () => onHover(null));
  frame.addEventListener("click", (event) => onPin(spotUnder(event)));

  /** In self-attention a patch is a query; in attention from text to a recording it is a key. */
  function spotUnder(event) {
    const bounds = frame.getBoundingClientRect();
    const place = (offset, size, count) => Math.min(Math.max(Math.floor((offset / size) * count), 0), count - 1);
    const row = place(event.clientY - bounds.top, bounds.height, picture.rows);
    const column = place(event.clientX - bounds.left, bounds.width, picture.columns);
    return { side: kind === "cross" ? "k" : "q", index: picture.n_before + row * picture.columns + column };
  }

  function paint(weights, marked) {
    const { rows, columns, n_before: before } = picture;
    canvas.width = columns;
    canvas.height = rows;
    const cells = weights.subarray(before, before + rows * columns);
    const most = Math.max(...cells, 1e-6);
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(columns, rows);
    cells.forEach((weight, at) => {
      const isMarked = at === marked - before;
      pixels.data.set(isMarked ? [0, 200, 255, 200] : [...COLOUR, Math.round(200 * (weight / most) ** 2)], 4 * at);
    });
    context.putImageData(pixels, 0, 0);
  }

  return {
    element: box,
    /** Show the weights of one head over the picture of a recording; hidden where there is none. */
    show(newMatrix, recording, newKind) {
      [matrix, picture, kind] = [newMatrix, recording.picture ?? null, newKind];
      box.hidden = picture === null || kind === "decoder";
      if (box.hidden) return;
      image.src = picture.data;
      frame.classList.toggle("sound", picture.rows === 1);
      frame.style.setProperty("--columns", String(picture.columns));
      frame.setAttribute("aria-label", "What is attended to, in orange; the table of weights below has the same numbers.");
      this.highlight(null);
    },
    /** Show the weights of a token; without one, those of the class token, or the mean of all. */
    highlight(spot) {
      if (box.hidden || !matrix) return;
      if (spot && (kind !== "cross" || spot.side === "q")) {
        paint(weightsOf(matrix, spot), kind === "cross" ? -1 : spot.index);
        caption.textContent = spot.side === "q" ? "Orange: what the marked position attends to." : "Orange: which positions attend to the marked one.";
        return;
      }
      const ofClass = picture.n_before > 0 && kind === "encoder";
      paint(ofClass ? weightsOf(matrix, { side: "q", index: 0 }) : meanOfRows(matrix), spot ? spot.index : -1);
      caption.textContent = ofClass ? "Orange: what the class token attends to." : "Orange: attention, mean of all queries.";
    },
  };
}

function meanOfRows({ rows, columns, weights }) {
  const mean = new Float32Array(columns);
  for (let at = 0; at < weights.length; at += 1) mean[at % columns] += weights[at] / rows;
  return mean;
}
