/** How much worse the loss becomes when one head is ablated: a coloured cell for each head. */

import { readableOn, signedColour } from "../shared/colours.js";
import { element } from "../shared/dom.js";
import { numberText } from "../shared/numbers.js";
import { KINDS } from "./state.js";

/**
 * @param {import("../shared/api.js").Ablation} ablation
 * @param {(choice: {kind: string, layer: number, head: number}) => void} onChoose
 */
export function drawAblation(ablation, onChoose) {
  const kinds = KINDS.filter((kind) => ablation.changes[kind]?.length);
  const most = Math.max(...kinds.flatMap((kind) => ablation.changes[kind].flat().map(Math.abs)), 1e-9);
  return element(
    "div",
    { class: "ablation" },
    element("p", {}, `The loss is ${numberText(ablation.loss, 3)} with all heads. Each cell shows the change when one head is ablated: orange is worse, blue is better. Rows: layers, columns: heads.`),
    element("div", { class: "ablation-tables" }, ...kinds.map((kind) => ablationTable(kind, ablation.changes[kind], most, onChoose))),
  );
}

function ablationTable(kind, layers, most, onChoose) {
  const heads = layers[0].map((_, head) => element("th", { scope: "col" }, element("span", { class: "unseen" }, "head "), String(head + 1)));
  const rows = layers.map((changes, layer) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("span", { class: "unseen" }, "layer "), String(layer + 1)),
      ...changes.map((change, head) => ablationCell(change, most, { kind, layer, head }, onChoose)),
    ),
  );
  return element(
    "div",
    { class: "ablation-box" },
    element("table", {}, element("caption", {}, kind), element("thead", {}, element("tr", {}, element("td"), ...heads)), element("tbody", {}, ...rows)),
  );
}

function ablationCell(change, most, where, onChoose) {
  const colour = signedColour(change / most);
  const text = signedText(change);
  const button = element(
    "button",
    {
      type: "button",
      title: `${where.kind}, layer ${where.layer + 1}, head ${where.head + 1}: ${text}. Select it to enlarge the head.`,
      on: { click: () => onChoose(where) },
    },
    text,
  );
  button.style.backgroundColor = colour;
  button.style.color = readableOn(colour);
  return element("td", {}, button);
}

function signedText(change) {
  const size = Math.abs(change);
  const digits = size < 0.0005 ? "0" : size.toFixed(size < 0.0995 ? 3 : 2).replace(/^0/, "");
  if (digits === "0") return "0";
  return `${change < 0 ? "−" : "+"}${digits}`;
}
