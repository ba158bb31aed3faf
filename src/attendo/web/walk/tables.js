/** Matrices with a row per query and a column per key, as tables of numbers in coloured cells. */

import { readableOn, signedColour, weightColour, weightLevel } from "../shared/colours.js";
import { element } from "../shared/dom.js";
import { tokenText } from "../shared/tokens.js";
import { cellCursor } from "./cursor.js";
import { digits, largestOf, shortDigits } from "./numbers.js";
import { named, scaleBar } from "./pictures.js";
import { scrollRegion } from "./scroll.js";

const ROOMY_COLUMNS = 8;
const WIDE_COLUMNS = 11; // from here on a table gets the whole width of the page
const ALLOWED = 0.35; // colour of what a mask allows
const SHORT_WORD = 5; // letters; longer column labels are rotated

/**
 * @typedef {Object} TableOptions
 * @property {string} title
 * @property {string} [hint]
 * @property {string[]} rows tokens of the queries
 * @property {string[]} columns tokens of the keys
 * @property {number[][]} values
 * @property {"signed"|"weights"|"mask"} kind
 * @property {number} [most]
 * @property {boolean[][]} [mask] false: masked
 * @property {number} [chosen] row that is marked
 * @property {number} [chosenColumn] column that is marked
 * @property {(row: number, column: number) => void} [onChoose]
 */

/** @param {TableOptions} options */
export function numberTable(options) {
  const { title, hint, rows, columns, values, kind, chosen = -1 } = options;
  const most = options.most ?? (kind === "signed" ? largestOf(values) : 1);
  const readout = element("output", { class: "walk-readout", "aria-live": "polite" });
  const upright = columns.some((token) => tokenText(token).length > SHORT_WORD);
  const table = element(
    "table",
    { class: `weights ${sizeClass(columns.length)}${upright ? " upright-heads" : ""}` },
    element("caption", { class: "unseen" }, title),
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        element("td", { class: "corner", "aria-hidden": "true" }),
        ...columns.map((token, at) => headCell(token, "col", at === options.chosenColumn)),
      ),
    ),
    element("tbody", {}, ...rows.map((token, row) => tableRow(token, row, chosen, values[row], { ...options, most }))),
  );
  table.style.maxWidth = `${4 * columns.length + 7}rem`;
  const label = `${title}. The arrow keys read the cells.`;
  const { element: region, scroller } = scrollRegion({ label, hint: `all ${columns.length} columns` }, table);
  listenToTable(scroller, table, options, readout);
  return element(
    "figure",
    { class: "heat" },
    element("figcaption", {}, element("strong", {}, title), hint ? element("span", {}, hint) : null),
    region,
    element("div", { class: "heat-foot" }, readout, kind === "mask" ? null : scaleBar(kind, most)),
  );
}

function sizeClass(columns) {
  return columns <= ROOMY_COLUMNS ? "roomy" : columns >= WIDE_COLUMNS ? "wide" : "";
}

function headCell(token, scope, chosen) {
  return element(
    "th",
    { scope, class: chosen ? "chosen" : "", title: token },
    element("span", { dir: "auto" }, tokenText(token)),
  );
}

function tableRow(token, row, chosen, values, options) {
  const cells = values.map((value, column) => numberCell(value, row, column, options));
  return element("tr", { class: row === chosen ? "chosen" : "" }, headCell(token, "row", row === chosen), ...cells);
}

function numberCell(value, row, column, { kind, most, mask, chosenColumn, chosen }) {
  const hidden = mask && !mask[row][column];
  const marked = chosenColumn === column && chosen === row;
  const cell = element("td", {
    "data-row": row,
    "data-column": column,
    class: `${hidden ? "masked" : ""}${marked ? " marked" : ""}`,
  });
  cell.textContent =
    hidden && kind === "signed" ? "−∞" : hidden ? "0" : kind === "weights" ? weightText(value) : kind === "mask" ? "1" : shortDigits(value);
  if (hidden) return cell;
  const colour = kind === "signed" ? signedColour(value / (most || 1)) : weightColour(kind === "mask" ? ALLOWED : weightLevel(value / most));
  cell.style.backgroundColor = colour;
  cell.style.color = readableOn(colour);
  return cell;
}

function weightText(value) {
  return value < 0.005 ? "0" : value.toFixed(2).replace(/^0/, "");
}

function listenToTable(scroller, table, options, readout) {
  const { rows, columns, values, mask, onChoose, kind } = options;
  const rest = () => {
    table.querySelector(".read")?.classList.remove("read");
    readout.textContent = onChoose ? "Point at or tap a cell to read it and choose its row" : "Point at or tap a cell to read it";
  };
  rest();
  cellCursor(scroller, {
    rows: rows.length,
    columns: columns.length,
    cellUnder(event) {
      const cell = event.target.closest("td[data-row]");
      return cell ? { row: Number(cell.dataset.row), column: Number(cell.dataset.column) } : null;
    },
    onCell(row, column) {
      rest();
      const cell = table.tBodies[0].rows[row].cells[column + 1];
      cell.classList.add("read");
      if (document.activeElement === scroller) keepInView(scroller, cell);
      const hidden = mask && !mask[row][column];
      const value = hidden ? (kind === "signed" ? "−∞, masked" : "0, masked") : kind === "mask" ? "1, allowed" : digits(values[row][column]);
      readout.replaceChildren("query ", named(rows[row]), ", key ", named(columns[column]), ": ", element("strong", {}, value));
    },
    onLeave: rest,
    onChoose,
  });
}

function keepInView(scroller, cell) {
  const [box, bounds] = [scroller.getBoundingClientRect(), cell.getBoundingClientRect()];
  const start = cell.parentElement.cells[0].getBoundingClientRect().right; // the row labels stay in place
  if (bounds.right > box.right) scroller.scrollLeft += bounds.right - box.right;
  if (bounds.left < start) scroller.scrollLeft -= start - bounds.left;
}
