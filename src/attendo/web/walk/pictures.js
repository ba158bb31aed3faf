/** Numbers as colours, with one row per token. Pointing at a cell shows its number. */

import { signedColour, weightColour, weightLevel } from "../shared/colours.js";
import { element } from "../shared/dom.js";
import { listMatrix } from "../shared/maps.js";
import { paintSigned, paintWeights } from "../shared/paint.js";
import { tokenText } from "../shared/tokens.js";
import { cellCursor, cellWithin } from "./cursor.js";
import { digits, largestOf, shortDigits } from "./numbers.js";

/**
 * @typedef {Object} StripOptions
 * @property {string} title
 * @property {string} [hint]
 * @property {string[]} names of the rows
 * @property {number[][]} values
 * @property {"signed"|"weights"} [kind] weights run from 0 to 1, or to `most`
 * @property {number} [most] the absolute value of the darkest colour, to share a scale
 * @property {number} [chosen] row that is marked
 * @property {(row: number) => void} [onChoose]
 * @property {(row: number, column: number) => void} [onCell]
 * @property {(column: number) => string} [columnName] for the readout
 * @property {number} [groups] parts of equal width, divided by a line
 * @property {"normal"|"tall"|"flat"} [height] of a row
 */

/** A picture with one row of coloured cells per token. @param {StripOptions} options */
export function heatStrip(options) {
  const { title, hint = "", names, values, kind = "signed", chosen = -1, groups = 1, height = "normal" } = options;
  const most = options.most ?? (kind === "weights" ? 1 : largestOf(values));
  const columns = values[0]?.length ?? 0;
  const picture = stripPicture(values, kind, most, groups);
  if (height === "flat" && chosen >= 0) picture.append(rowOutline(chosen, values.length));
  const readout = element("output", { class: "walk-readout", "aria-live": "polite" });
  const rest = () => readout.replaceChildren(element("span", {}, `${columns} columns`));
  rest();
  listenToStrip(picture, options, readout, rest);
  const limits = kind === "weights" ? `0 to ${digits(most, 2)}` : `between −${digits(most, 2)} and ${digits(most, 2)}`;
  picture.setAttribute("aria-label", `${title}: ${values.length} by ${columns} numbers ${limits}. The arrow keys read them.`);
  return element(
    "figure",
    { class: `heat ${height}` },
    element("figcaption", {}, element("strong", {}, title), hint ? element("span", {}, hint) : null),
    element("div", { class: "heat-body" }, rowNames(names, chosen, options.onChoose), picture),
    element("div", { class: "heat-foot" }, readout, scaleBar(kind, most)),
  );
}

function stripPicture(values, kind, most, groups) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  const matrix = listMatrix(values);
  if (kind === "weights") paintWeights(canvas, matrix, { most });
  else paintSigned(canvas, matrix, most);
  const dividers = Array.from({ length: groups - 1 }, (_, at) => {
    const divider = element("span", { class: "heat-divider" });
    divider.style.left = `${(100 * (at + 1)) / groups}%`;
    return divider;
  });
  const lines = element("span", { class: "heat-lines" });
  lines.style.backgroundSize = `100% ${100 / values.length}%`;
  const mark = element("span", { class: "heat-mark", hidden: true });
  return element("div", { class: "heat-picture", tabindex: "0", role: "application" }, canvas, lines, ...dividers, mark);
}

/** Where rows are too low for labels, the chosen one gets a frame. */
function rowOutline(chosen, rows) {
  const outline = element("span", { class: "heat-row" });
  place(outline, chosen / rows, 0, 1 / rows, 1);
  return outline;
}

function listenToStrip(picture, options, readout, rest) {
  const { names, values, onChoose, onCell, columnName = (column) => `dimension ${column + 1}` } = options;
  const [rows, columns] = [values.length, values[0]?.length ?? 0];
  const mark = picture.querySelector(".heat-mark");
  cellCursor(picture, {
    rows,
    columns,
    cellUnder: cellWithin(picture, rows, columns),
    onCell(row, column) {
      mark.hidden = false;
      place(mark, row / rows, column / columns, 1 / rows, 1 / columns);
      readout.replaceChildren(named(names[row]), `, ${columnName(column)}: `, element("strong", {}, digits(values[row][column])));
      onCell?.(row, column);
    },
    onLeave() {
      mark.hidden = true;
      rest();
    },
    onChoose: (row) => onChoose?.(row),
  });
}

function place(mark, top, left, height, width) {
  const share = (value) => `${100 * value}%`;
  Object.assign(mark.style, { top: share(top), left: share(left), height: share(height), width: share(width) });
}

/** A token inside a sentence, isolated so that right-to-left text does not reorder what surrounds it. */
export function named(token) {
  return element("bdi", {}, tokenText(token));
}

function rowNames(names, chosen, onChoose) {
  const labels = names.map((name, row) => {
    const label = element("span", { class: row === chosen ? "chosen" : "", dir: "auto", title: name }, tokenText(name));
    if (onChoose) label.addEventListener("click", () => onChoose(row));
    return label;
  });
  return element("div", { class: onChoose ? "heat-names choosable" : "heat-names", "aria-hidden": "true" }, ...labels);
}

/** The colour scale, from least to most. */
export function scaleBar(kind, most) {
  const bar = element("span", { class: "scale-bar" });
  const stops = Array.from({ length: 9 }, (_, at) => at / 8);
  const colours = stops.map((share) => (kind === "weights" ? weightColour(weightLevel(share)) : signedColour(2 * share - 1)));
  bar.style.backgroundImage = `linear-gradient(to right, ${colours.join(", ")})`;
  const least = kind === "weights" ? "0" : `−${shortDigits(most)}`;
  return element("span", { class: "scale" }, least, bar, shortDigits(most));
}
