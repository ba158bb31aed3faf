/** Two lines of tokens with curves between them; the wider and darker a curve, the larger its weight. */

import { readableOn, weightColour, weightLevel } from "./colours.js";
import { arrowKeys, element, svgElement } from "./dom.js";
import { strongest, weightsOf } from "./focus.js";
import { tokenClasses, tokenText } from "./tokens.js";

const LEAST_DRAWN = 0.03; // thinner curves could not be seen among the others
const MOST_PER_TOKEN = 6;
const MOST_OF_CHOSEN = 40;
const MOST_IN_LINE = 50; // more tokens do not fit into any screen's width: no need to measure
const AIR = 3; // pixels between a token and its curves

/**
 * @param {{onHover: (spot: any) => void, onPin: (spot: any) => void}} listeners
 */
export function createRibbons({ onHover, onPin }) {
  const all = svgElement("g", { class: "all" });
  const own = svgElement("g", { class: "own" });
  const curves = svgElement("svg", { class: "curves", "aria-hidden": "true" }, all, own);
  const sides = { k: sideElement("k"), q: sideElement("q") };
  const inner = element("div", { class: "ribbons-inner" }, curves, sides.k, sides.q);
  const box = element("div", { class: "ribbons" }, inner);
  let matrix = null;
  let tokens = { k: [], q: [] };
  let places = { k: [], q: [] };
  let shownSpot = null;

  new ResizeObserver(() => matrix && layOut()).observe(box);

  function sideElement(side) {
    const line = element("div", { class: `side side-${side}`, role: "toolbar" });
    arrowKeys(line, ".token");
    const spotAt = (event) => {
      const token = event.target.closest(".token");
      return token ? { side, index: Number(token.dataset.index) } : null;
    };
    line.addEventListener("pointerover", (event) => event.pointerType !== "touch" && onHover(spotAt(event)));
    line.addEventListener("pointerleave", () => onHover(null));
    line.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && onHover(spotAt(event)));
    line.addEventListener("focusout", () => onHover(null));
    line.addEventListener("click", (event) => spotAt(event) && onPin(spotAt(event)));
    return line;
  }

  function fill(side, texts, label) {
    sides[side].setAttribute("aria-label", label);
    if (texts.join("\n") === tokens[side].join("\n")) return;
    tokens[side] = texts;
    sides[side].replaceChildren(...texts.map(tokenButton));
  }

  /** Lines if both fit into the width, if need be in small letters; else columns, which need no scrolling sideways. */
  function layOut() {
    const hopeless = Math.max(matrix.rows, matrix.columns) > MOST_IN_LINE;
    box.classList.remove("snug", "tight");
    box.classList.toggle("upright", hopeless);
    const tooWide = () => !hopeless && box.scrollWidth > box.clientWidth + 1;
    for (const narrower of ["snug", "tight", "upright"]) if (tooWide()) box.classList.add(narrower);
    const upright = box.classList.contains("upright");
    curves.setAttribute("width", String(inner.clientWidth));
    curves.setAttribute("height", String(inner.clientHeight));
    for (const side of ["k", "q"]) {
      places[side] = [...sides[side].children].map((token) => endPoint(token, side, upright));
    }
    drawAll();
    drawOwn();
  }

  function drawAll() {
    const paths = [];
    for (let row = 0; row < matrix.rows; row += 1) {
      const weights = weightsOf(matrix, { side: "q", index: row });
      for (const column of strongest(weights, MOST_PER_TOKEN, LEAST_DRAWN)) paths.push(curve(row, column, weights[column]));
    }
    all.replaceChildren(...paths);
  }

  function drawOwn() {
    const spot = inside(shownSpot) ? shownSpot : null;
    box.classList.toggle("focused", spot !== null);
    own.replaceChildren();
    const weights = spot ? weightsOf(matrix, spot) : [];
    if (spot) {
      const pairs = strongest(weights, MOST_OF_CHOSEN, 0.002).map((other) => [other, weights[other]]);
      own.append(...pairs.map(([other, weight]) => (spot.side === "q" ? curve(spot.index, other, weight) : curve(other, spot.index, weight))));
    }
    shade(spot, weights);
  }

  function shade(spot, weights) {
    for (const side of ["k", "q"]) {
      [...sides[side].children].forEach((token, index) => {
        const chosen = spot?.side === side && spot.index === index;
        const opposite = spot && spot.side !== side;
        token.classList.toggle("chosen", Boolean(chosen));
        const colour = opposite && weights[index] >= 0.002 ? weightColour(weightLevel(weights[index])) : "";
        token.style.backgroundColor = colour;
        token.style.color = colour ? readableOn(colour) : "";
      });
    }
  }

  function inside(spot) {
    return spot !== null && spot.index < (spot.side === "q" ? matrix.rows : matrix.columns);
  }

  function curve(row, column, weight) {
    const [from, to] = [places.q[row], places.k[column]];
    if (!from || !to) return svgElement("path");
    return svgElement("path", {
      d: curvePath(to, from, box.classList.contains("upright")),
      "stroke-width": (0.75 + 9 * weight).toFixed(2),
      "stroke-opacity": (0.1 + 0.75 * weightLevel(weight)).toFixed(3),
    });
  }

  return {
    element: box,
    /** @param {import("./maps.js").Matrix} newMatrix */
    show(newMatrix, rowTokens, columnTokens, labels) {
      matrix = newMatrix;
      fill("k", columnTokens, labels.columns);
      fill("q", rowTokens, labels.rows);
      layOut();
    },
    highlight(spot, pinned) {
      shownSpot = spot;
      for (const side of ["k", "q"]) {
        [...sides[side].children].forEach((token, index) => {
          token.setAttribute("aria-pressed", String(pinned?.side === side && pinned.index === index));
        });
      }
      if (matrix) drawOwn();
    },
  };
}

function tokenButton(token, index, sentence) {
  const options = {
    type: "button",
    class: tokenClasses(token, index, sentence),
    dir: "auto",
    title: tokenText(token),
    "data-index": index,
    "aria-pressed": "false",
    tabindex: index === 0 ? "0" : "-1",
  };
  return element("button", options, tokenText(token));
}

/** Where a curve meets a token: the edge that faces the other line. */
function endPoint(token, side, upright) {
  const { offsetLeft: left, offsetTop: top, offsetWidth: width, offsetHeight: height } = token;
  if (upright) return [side === "k" ? left + width + AIR : left - AIR, top + height / 2];
  return [left + width / 2, side === "k" ? top + height + AIR : top - AIR];
}

function curvePath([x1, y1], [x2, y2], upright) {
  const [middleX, middleY] = [(x1 + x2) / 2, (y1 + y2) / 2];
  return upright
    ? `M${x1} ${y1}C${middleX} ${y1} ${middleX} ${y2} ${x2} ${y2}`
    : `M${x1} ${y1}C${x1} ${middleY} ${x2} ${middleY} ${x2} ${y2}`;
}
