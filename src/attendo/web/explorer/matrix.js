/** One map, enlarged; rows: queries, columns: keys. A readout names the cell under the pointer or the arrow keys. */

import { element, isTouched, showOverflow } from "../shared/dom.js";
import { paintWeights } from "../shared/paint.js";
import { labelText, quoted, tokenClasses } from "../shared/tokens.js";

const SMALLEST_CELL = 14; // pixels; below this labels cannot be read, so the box scrolls instead
const LARGEST_CELL = 40;

/**
 * @param {{onHover: (spot: any) => void, onPin: (spot: any) => void}} listeners
 */
export function createMatrix({ onHover, onPin }) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  const lines = element("div", { class: "cell-lines" });
  const before = element("div", { class: "veil" });
  const after = element("div", { class: "veil" });
  const mark = element("div", { class: "cell-mark", hidden: true });
  const picture = element("div", { class: "picture" }, canvas, lines, before, after, mark);
  const rowLabels = element("div", { class: "row-labels", "aria-hidden": "true" });
  const columnLabels = element("div", { class: "column-labels", "aria-hidden": "true" });
  const sheet = element("div", { class: "sheet" }, element("div", { class: "corner" }), columnLabels, rowLabels, picture);
  const scroller = element("div", { class: "matrix-scroll", tabindex: "0", role: "application" }, sheet);
  const readout = element("output", { class: "readout", "aria-live": "polite" });
  const frame = element("div", { class: "matrix-frame" }, scroller);
  const box = element("div", { class: "matrix" }, frame, readout);
  let matrix = null;
  let tokens = { rows: [], columns: [] };
  let triangle = false;
  let cellSize = LARGEST_CELL;
  let at = null; // the cell that is named, as {row, column}

  new ResizeObserver(() => matrix && fit()).observe(box);
  showOverflow(scroller, frame);

  picture.addEventListener("pointermove", (event) => goTo(cellUnder(event)));
  picture.addEventListener("pointerdown", (event) => goTo(cellUnder(event)));
  picture.addEventListener("pointerleave", () => document.activeElement !== scroller && leave());
  picture.addEventListener("click", (event) => onPin({ side: "q", index: cellUnder(event).row }));
  scroller.addEventListener("focus", () => scroller.matches(":focus-visible") && goTo(at ?? { row: 0, column: 0 }));
  scroller.addEventListener("blur", leave);
  scroller.addEventListener("keydown", moveByKey);
  for (const [side, labels] of [["q", rowLabels], ["k", columnLabels]]) {
    labels.addEventListener("pointerover", (event) => onHover(labelSpot(event, side)));
    labels.addEventListener("pointerleave", () => onHover(null));
    labels.addEventListener("click", (event) => labelSpot(event, side) && onPin(labelSpot(event, side)));
  }

  function cellUnder(event) {
    const bounds = picture.getBoundingClientRect();
    return within({ row: Math.floor((event.clientY - bounds.top) / cellSize), column: Math.floor((event.clientX - bounds.left) / cellSize) });
  }

  function within({ row, column }) {
    return { row: Math.min(Math.max(row, 0), matrix.rows - 1), column: Math.min(Math.max(column, 0), matrix.columns - 1) };
  }

  function goTo(cell) {
    if (!matrix || matrix.rows === 0 || (at && at.row === cell.row && at.column === cell.column && !mark.hidden)) return;
    at = cell;
    updateReadout();
    onHover({ side: "q", index: cell.row, other: cell.column });
  }

  function updateReadout() {
    const weight = matrix.weights[at.row * matrix.columns + at.column];
    const masked = triangle && at.column > at.row;
    mark.hidden = false;
    place(mark, at.column, at.row, 1, 1);
    readout.replaceChildren(
      `${quoted(tokens.rows[at.row])} → ${quoted(tokens.columns[at.column])} `,
      element("strong", {}, masked ? "masked" : weight.toFixed(4)),
    );
  }

  function leave() {
    mark.hidden = true;
    readout.replaceChildren(usualReadout(matrix));
    onHover(null);
  }

  function moveByKey(event) {
    const [down, right] = CELL_STEP_OF_KEY[event.key] ?? [0, 0];
    if (event.key === "Enter" && at) onPin({ side: "q", index: at.row });
    if (!matrix || (!down && !right)) return;
    event.preventDefault();
    const from = at ?? { row: 0, column: 0 };
    goTo(within({ row: from.row + down, column: from.column + right }));
    keepInView();
  }

  function keepInView() {
    const [left, top] = [at.column * cellSize, at.row * cellSize];
    const room = { width: scroller.clientWidth - picture.offsetLeft, height: scroller.clientHeight - picture.offsetTop };
    scroller.scrollLeft = Math.min(Math.max(scroller.scrollLeft, left + 2 * cellSize - room.width), Math.max(left - cellSize, 0));
    scroller.scrollTop = Math.min(Math.max(scroller.scrollTop, top + 2 * cellSize - room.height), Math.max(top - cellSize, 0));
  }

  function place(part, column, row, width, height) {
    Object.assign(part.style, {
      left: `${column * cellSize}px`,
      top: `${row * cellSize}px`,
      width: `${Math.max(width, 0) * cellSize}px`,
      height: `${Math.max(height, 0) * cellSize}px`,
    });
  }

  function fit() {
    const room = box.clientWidth - 130; // labels of the rows, and the slant of the last column's label
    const natural = Math.floor(room / Math.max(matrix.columns, 1));
    cellSize = Math.min(Math.max(natural, SMALLEST_CELL), LARGEST_CELL);
    box.classList.toggle("dense", cellSize < 20);
    sheet.style.setProperty("--cell", `${cellSize}px`);
    picture.style.width = `${matrix.columns * cellSize}px`;
    picture.style.height = `${matrix.rows * cellSize}px`;
  }

  function fill() {
    rowLabels.replaceChildren(...tokens.rows.map(matrixLabel));
    columnLabels.replaceChildren(...tokens.columns.map(matrixLabel));
    const longest = Math.max(...tokens.columns.map((token) => token.length), 0);
    columnLabels.style.height = `${Math.min(1.2 + 0.36 * longest, 5.4)}rem`;
  }

  return {
    element: box,
    show(newMatrix, rowTokens, columnTokens, options) {
      const same = rowTokens.join("\n") === tokens.rows.join("\n") && columnTokens.join("\n") === tokens.columns.join("\n");
      [matrix, triangle] = [newMatrix, options.triangle];
      tokens = { rows: rowTokens, columns: columnTokens };
      scroller.setAttribute("aria-label", `${options.title}. Matrix of ${matrix.rows} rows and ${matrix.columns} columns; the arrow keys go from cell to cell.`);
      if (!same) fill();
      fit();
      this.repaint();
      if (!same) at = null;
      mark.hidden = true;
      readout.replaceChildren(usualReadout(matrix));
    },
    repaint() {
      if (matrix) paintWeights(canvas, matrix, { triangle });
    },
    /** Veil everything but the row or column of the token. */
    highlight(spot) {
      if (!matrix) return;
      const index = spot?.index ?? 0;
      const { rows, columns } = matrix;
      before.hidden = after.hidden = spot === null;
      if (spot?.side === "q") {
        place(before, 0, 0, columns, index);
        place(after, 0, index + 1, columns, rows - index - 1);
      } else if (spot) {
        place(before, 0, 0, index, rows);
        place(after, index + 1, 0, columns - index - 1, rows);
      }
      mark.hidden ||= spot?.other === undefined;
      markLabels(rowLabels, spot?.side === "q" ? index : -1);
      markLabels(columnLabels, spot?.side === "k" ? index : (spot?.other ?? -1));
    },
  };
}

const CELL_STEP_OF_KEY = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function matrixLabel(token, index, sentence) {
  const text = labelText(token, index, sentence);
  return element("span", { class: `label ${tokenClasses(token, index, sentence).replace("token", "")}`, title: text, "data-index": index }, element("span", { class: "label-text", dir: "auto" }, text));
}

function labelSpot(event, side) {
  const label = event.target.closest(".label");
  return label ? { side, index: Number(label.dataset.index) } : null;
}

function markLabels(labels, chosen) {
  labels.querySelector(".marked")?.classList.remove("marked");
  if (chosen >= 0) labels.children[chosen]?.classList.add("marked");
}

function usualReadout(matrix) {
  if (!matrix || matrix.rows === 0) return "";
  return `${isTouched() ? "Tap" : "Point at"} a cell to read its weight. Rows: queries, columns: keys. Each row sums to 1.`;
}
