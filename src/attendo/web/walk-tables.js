/** Who looks at whom: a table of numbers in coloured cells, rows asking and columns answering. */

import { readableOn, signedColour, weightColour, weightLevel } from "./colours.js";
import { element } from "./dom.js";
import { tokenText } from "./tokens.js";
import { cellCursor } from "./walk-cursor.js";
import { digits, largestOf, shortDigits } from "./walk-numbers.js";
import { named, scaleBar } from "./walk-pictures.js";

const ROOMY_COLUMNS = 9;
const WIDE_COLUMNS = 11; // from here on a table needs the whole width of the page
const SHORT_WORD = 5; // letters; longer heads of columns are turned upright

/**
 * @typedef {Object} TableOptions
 * @property {string} title
 * @property {string} [hint]
 * @property {string[]} rows tokens that ask
 * @property {string[]} columns tokens that are looked at
 * @property {number[][]} values
 * @property {"signed"|"weights"} kind
 * @property {number} [most]
 * @property {boolean[][]} [mask] false: cannot be seen
 * @property {number} [chosen] row that is marked
 * @property {number} [chosenColumn] column that is marked
 * @property {(row: number, column: number) => void} [onChoose]
 * @property {string} [verb] between the two tokens in the readout
 */

/** @param {TableOptions} options */
export function numberTable(options) {
  const { title, hint, rows, columns, values, kind, chosen = -1 } = options;
  const most = options.most ?? (kind === "weights" ? 1 : largestOf(values));
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
        element("td", { class: "corner" }),
        ...columns.map((token, at) => headCell(token, "col", at === options.chosenColumn)),
      ),
    ),
    element("tbody", {}, ...rows.map((token, row) => tableRow(token, row, chosen, values[row], { ...options, most }))),
  );
  table.style.maxWidth = `${4 * columns.length + 7}rem`;
  const scroller = element(
    "div",
    { class: "table-scroll", tabindex: "0", role: "group", "aria-label": `${title}. The arrow keys read the cells.` },
    table,
  );
  listenToTable(scroller, table, options, readout);
  return element(
    "figure",
    { class: "heat" },
    element("figcaption", {}, element("strong", {}, title), hint ? element("span", {}, hint) : null),
    scroller,
    element("div", { class: "heat-foot" }, readout, scaleBar(kind, most)),
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
    hidden && kind === "signed" ? "−∞" : hidden ? "0" : kind === "weights" ? weightText(value) : shortDigits(value);
  if (hidden) return cell;
  const colour = kind === "weights" ? weightColour(weightLevel(value / most)) : signedColour(value / (most || 1));
  cell.style.backgroundColor = colour;
  cell.style.color = readableOn(colour);
  return cell;
}

function weightText(value) {
  return value < 0.005 ? "0" : value.toFixed(2).replace(/^0/, "");
}

function listenToTable(scroller, table, options, readout) {
  const { rows, columns, values, mask, onChoose, kind, verb = "→" } = options;
  const rest = () => {
    table.querySelector(".read")?.classList.remove("read");
    readout.textContent = onChoose ? "Point at a cell to read it, click to choose it" : "Point at a cell to read it";
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
      const value = hidden ? (kind === "signed" ? "−∞, masked" : "0, masked") : digits(values[row][column]);
      readout.replaceChildren(named(rows[row]), ` ${verb} `, named(columns[column]), ": ", element("strong", {}, value));
    },
    onLeave: rest,
    onChoose,
  });
}

function keepInView(scroller, cell) {
  const [box, bounds] = [scroller.getBoundingClientRect(), cell.getBoundingClientRect()];
  if (bounds.right > box.right) scroller.scrollLeft += bounds.right - box.right;
  if (bounds.left < box.left + 80) scroller.scrollLeft -= box.left + 80 - bounds.left; // beside the names of the rows
}
