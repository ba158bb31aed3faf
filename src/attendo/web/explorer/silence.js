/** Ablated heads: their names, and the buttons that ablate and restore them. */

import { element, pushButton } from "../shared/dom.js";

/** Name of a head as the server knows it, like "cross.1.0". */
export function headName({ kind, layer, head }) {
  return `${kind}.${layer}.${head}`;
}

/** The list with one head ablated, or restored if it was. */
export function toggled(silenced, name) {
  return silenced.includes(name) ? silenced.filter((other) => other !== name) : [...silenced, name];
}

/** The list in which all other heads of this head's layer are ablated. */
export function aloneInLayer(silenced, { kind, layer, head }, headCount) {
  const elsewhere = silenced.filter((name) => !name.startsWith(`${kind}.${layer}.`));
  const others = Array.from({ length: headCount }, (_, each) => each).filter((each) => each !== head);
  return [...elsewhere, ...others.map((each) => headName({ kind, layer, head: each }))];
}

/**
 * Buttons for the chosen head.
 * @param {(silenced: string[]) => void} onChange
 */
export function createSilenceButtons(onChange) {
  let chosen = null;
  let silenced = [];
  let headCount = 0;
  const one = pushButton("", () => onChange(toggled(silenced, headName(chosen))), { "aria-keyshortcuts": "s" });
  const others = pushButton("Ablate all others in this layer", () => onChange(aloneInLayer(silenced, chosen, headCount)));
  const reset = pushButton("Reset", () => onChange([]));
  const buttons = element("div", { class: "actions" }, one, others, reset);
  return {
    element: buttons,
    show(head, names, count) {
      [chosen, silenced, headCount] = [head, names, count];
      const single = typeof head.head === "number";
      const silent = single && names.includes(headName(head));
      one.replaceChildren(silent ? "Restore this head " : "Ablate this head ", element("kbd", {}, "s"));
      one.setAttribute("aria-pressed", String(silent));
      one.hidden = !single;
      others.hidden = !single || count < 2;
      reset.hidden = names.length === 0;
      reset.textContent = names.length === 1 ? "Restore the head" : `Restore all ${names.length} heads`;
      buttons.hidden = !single && names.length === 0;
    },
  };
}
