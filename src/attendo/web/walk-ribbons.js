/** Ribbons between the tokens that ask and the tokens that are looked at, in a card with a title and a sentence. */

import { element } from "./dom.js";
import { listMatrix } from "./maps.js";
import { createRibbons } from "./ribbons.js";
import { note } from "./walk-parts.js";

const LABELS = { rows: "Tokens that ask", columns: "Tokens that are looked at" };

/**
 * @param {(spot: {side: "q"|"k", index: number}) => void} onPin q: a token that asks, k: one that is looked at
 */
export function createRibbonCard(onPin) {
  const title = element("h3");
  const words = note();
  let asking = 0;
  const highlight = (spot) => ribbons.highlight(spot ?? { side: "q", index: asking }, { side: "q", index: asking });
  const ribbons = createRibbons({ onHover: highlight, onPin });
  return {
    element: element("section", { class: "card walk-card" }, title, ribbons.element, words),
    /**
     * @param {{title: string, words: (Node|string)[], weights: number[][], rows: string[], columns: string[], chosen: number}} content
     */
    show(content) {
      title.textContent = content.title;
      words.replaceChildren(...content.words);
      asking = content.chosen;
      ribbons.show(listMatrix(content.weights), content.rows, content.columns, LABELS);
      highlight(null);
    },
  };
}
