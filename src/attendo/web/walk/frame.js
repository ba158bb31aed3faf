/** What surrounds the pictures of a station: its name, place in figure 1, text, formulas, shapes and code. */

import { element } from "../shared/dom.js";
import { createFigure, placeOf } from "./figure.js";
import { FORMULAS } from "./formulas.js";
import { codeListing, withIndices } from "./parts.js";
import { scrollRegion } from "./scroll.js";

let codeIsOpen = true; // as the person left it at the station before

/**
 * @param {import("./station.js").Station} station
 * @param {{walk: import("./server.js").Walk, number: number, count: number, code: Record<string, string>, pictures: HTMLElement}} content
 * @returns {HTMLElement[]}
 */
export function stationFrame(station, { walk, number, count, code, pictures }) {
  const words = station.words(walk).map((sentence) => element("p", {}, ...withIndices(sentence)));
  return [
    element(
      "header",
      { class: "station-head" },
      element(
        "div",
        { class: "station-words" },
        element("p", { class: "station-number" }, `Station ${number} of ${count} · ${placeOf(station.id, walk.sizes)}`),
        element("h2", { id: "station-title", tabindex: "-1" }, station.name),
        ...words,
      ),
      createFigure(station.id, walk.sizes),
      element(
        "div",
        { class: "station-sums" },
        scrollRegion({ label: "Formula", hint: "the whole formula", classes: "formulas" }, ...FORMULAS[station.id]()).element,
        shapeList(station.shapes(walk)),
      ),
    ),
    pictures,
    codePart(station, code),
  ].filter(Boolean);
}

function shapeList(shapes) {
  const rows = shapes.map(([name, size]) => element("div", {}, element("dt", {}, ...withIndices(name)), element("dd", {}, ...withIndices(size))));
  return element("dl", { class: "shapes", "aria-label": "Shapes" }, ...rows);
}

function codePart(station, code) {
  const listings = station.code
    .filter(([name]) => code[name])
    .map(([name, important]) => codeListing(code[name], important, name));
  if (listings.length === 0) return null;
  const details = element(
    "details",
    { class: "code-part", open: codeIsOpen },
    element("summary", {}, "Code of this step, from the reference implementation in NumPy"),
    ...listings,
  );
  details.addEventListener("toggle", () => {
    codeIsOpen = details.open;
  });
  return details;
}
