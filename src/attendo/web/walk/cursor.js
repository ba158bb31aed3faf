/** Moving from cell to cell of a matrix, by pointer or by arrow keys. */

const STEP_OF_KEY = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/**
 * @typedef {Object} CursorOptions
 * @property {number} rows
 * @property {number} columns
 * @property {(event: PointerEvent|MouseEvent) => ({row: number, column: number}|null)} cellUnder
 * @property {(row: number, column: number) => void} onCell
 * @property {() => void} onLeave
 * @property {((row: number, column: number) => void)} [onChoose] click or Enter
 */

/** Let pointer and arrow keys move over the cells of `box`. @param {HTMLElement} box @param {CursorOptions} options */
export function cellCursor(box, { rows, columns, cellUnder, onCell, onLeave, onChoose }) {
  let at = { row: 0, column: 0 };
  const go = (cell) => {
    if (!cell) return;
    at = cell;
    onCell(cell.row, cell.column);
  };
  box.addEventListener("pointermove", (event) => go(cellUnder(event)));
  box.addEventListener("pointerleave", () => (document.activeElement === box ? go(at) : onLeave()));
  box.addEventListener("focus", () => box.matches(":focus-visible") && go(at));
  box.addEventListener("blur", onLeave);
  box.addEventListener("click", (event) => {
    go(cellUnder(event));
    onChoose?.(at.row, at.column);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") onChoose?.(at.row, at.column);
    const step = STEP_OF_KEY[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault(); // or the page would scroll, or the next station open
    go({ row: bounded(at.row + step[0], rows), column: bounded(at.column + step[1], columns) });
  });
}

/** Cell of a regular grid that fills `picture`. */
export function cellWithin(picture, rows, columns) {
  return (event) => {
    const bounds = picture.getBoundingClientRect();
    return {
      row: bounded(Math.floor(((event.clientY - bounds.top) / bounds.height) * rows), rows),
      column: bounded(Math.floor(((event.clientX - bounds.left) / bounds.width) * columns), columns),
    };
  };
}

function bounded(place, count) {
  return Math.min(Math.max(place, 0), count - 1);
}
