/** The bar that stays in view: the token whose query is shown, and the head. A choice holds at all stations. */

import { tokenClasses, tokenText } from "../shared/tokens.js";
import { chips } from "./parts.js";

/**
 * @param {HTMLElement} box
 * @param {{onChoose: (change: any) => void, onPreview: (change: any) => void}} listeners preview: while the pointer rests on a token
 */
export function createChooser(box, { onChoose, onPreview }) {
  const row = (legend, name) =>
    chips({
      legend,
      onChoose: (index) => onChoose({ [name]: index }),
      onHover: (index) => onPreview(index === null ? {} : { [name]: index }),
    });
  const rows = { token: row("Token", "token"), step: row("Decoder input", "step"), head: row("Head", "head") };
  box.append(...Object.values(rows).map((each) => each.element));
  return {
    /** @param {import("./server.js").Walk} walk */
    fill(walk) {
      rows.token.show(walk.source_tokens.map(tokenItem));
      rows.step.show(walk.target_inputs.map(tokenItem));
      rows.head.show(
        Array.from({ length: walk.sizes.n_heads }, (_, head) => ({ text: String(head + 1), title: `Head ${head + 1}` })),
      );
    },
    /** @param {import("./state.js").WalkState} state @param {string[]} needs */
    update(state, needs) {
      for (const [name, each] of Object.entries(rows)) {
        each.element.hidden = !needs.includes(name);
        each.choose(state[name]);
      }
      box.hidden = needs.length === 0;
    },
  };
}

function tokenItem(token, index, sentence) {
  return { text: tokenText(token), classes: tokenClasses(token, index, sentence), title: token };
}
