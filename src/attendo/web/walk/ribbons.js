/** Curves from queries to keys, as wide as the attention weights, in a card with a title and a sentence. */

import { element } from "../shared/dom.js";
import { listMatrix } from "../shared/maps.js";
import { createRibbons } from "../shared/ribbons.js";
import { note } from "./parts.js";

const LABELS = { rows: "Queries", columns: "Keys" };

/**
 * @param {(spot: {side: "q"|"k", index: number}) => void} onPin q: a query, k: a key
 */
export function createRibbonCard(onPin) {
  const title = element("h3");
  const words = note();
  let query = 0;
  const highlight = (spot) => ribbons.highlight(spot ?? { side: "q", index: query }, { side: "q", index: query });
  const ribbons = createRibbons({ onHover: highlight, onPin });
  return {
    element: element("section", { class: "card walk-card" }, title, ribbons.element, words),
    /**
     * @param {{title: string, words: (Node|string)[], weights: number[][], rows: string[], columns: string[], chosen: number}} content
     */
    show(content) {
      title.textContent = content.title;
      words.replaceChildren(...content.words);
      query = content.chosen;
      ribbons.show(listMatrix(content.weights), content.rows, content.columns, LABELS);
      highlight(null);
    },
  };
}
