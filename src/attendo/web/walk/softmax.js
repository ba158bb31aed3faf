/** Station: from scores to attention weights. */

import { element, refill, uniqueId } from "../shared/dom.js";
import { quoted, tokenText } from "../shared/tokens.js";
import { counted, digits, largestAt, softmax, total } from "./numbers.js";
import { card, figureText, note, slider } from "./parts.js";
import { scrollRegion } from "./scroll.js";
import { times } from "./station.js";
import { numberTable } from "./tables.js";

/** @type {import("./station.js").Station} */
export const softmaxStation = {
  id: "softmax",
  name: "Softmax",
  short: "Softmax",
  group: "Attention",
  words: () => [
    "The softmax turns the scores of a query into attention weights: e to the power of each score, divided by the sum over all keys. The weights are positive and sum to 1.",
    "A score that is higher by 1 gives a weight e ≈ 2.7 times as large. Only differences matter: adding the same number to all scores changes nothing.",
  ],
  shapes: ({ sizes, source_ids }) => [
    ["scores", times(counted(sizes.n_heads, "head"), source_ids.length, source_ids.length)],
    ["attention weights", times(counted(sizes.n_heads, "head"), source_ids.length, source_ids.length)],
    ["each row", "sums to 1"],
  ],
  code: [["softmax", /exponentials/]],
  needs: ["token", "head"],
  create(context) {
    const { walk } = context;
    const steps = element("div");
    const box = element("div");
    let [added, shown] = [0, null];
    const update = (state) => {
      shown = state;
      const raised = Number(select.querySelector("select").value);
      steps.replaceChildren(...softmaxSteps(state, walk, raised, added));
      refill(box, [card(null, weightTable(state, context))]);
    };
    const select = keySelect(walk.source_tokens, () => update(shown));
    const range = scoreSlider((value) => {
      added = value;
      update(shown);
    });
    const first = card("Three steps: score, exponential, attention weight", element("div", { class: "controls" }, select, range), steps);
    return { element: element("div", { class: "beside" }, first, box), update };
  },
};

function weightTable({ token, head }, { walk, choose }) {
  return numberTable({
    title: `Attention weights of head ${head + 1}`,
    hint: "rows: queries, columns: keys; each row sums to 1",
    rows: walk.source_tokens,
    columns: walk.source_tokens,
    values: walk.encoder.weights[head],
    kind: "weights",
    chosen: token,
    onChoose: (row) => choose({ token: row }),
  });
}

function scoreSlider(onInput) {
  const words = (value) => `${value > 0 ? "+" : ""}${digits(value, 1)}`;
  return slider({ label: "Add", min: -5, max: 5, step: 0.1, value: 0, words, onInput });
}

function keySelect(tokens, onChange) {
  const id = uniqueId("key");
  const options = tokens.map((token, at) => element("option", { value: at }, `${tokenText(token)} (${at})`));
  const select = element("select", { id, on: { change: onChange } }, ...options);
  return element("div", { class: "walk-select" }, element("label", { for: id }, "Try it: change the score of"), select);
}

function softmaxSteps({ token, head }, walk, raised, added) {
  const scores = walk.encoder.scores[head][token].map((score, at) => (at === raised ? score + added : score));
  const weights = softmax(scores);
  const best = largestAt(weights);
  const table = stepsTable(walk.source_tokens, scores, weights, added === 0 ? -1 : raised);
  return [
    scrollRegion({ label: "Softmax in three steps", hint: "all columns" }, table).element,
    note(
      `Largest attention weight of ${quoted(walk.source_tokens[token])}: ${quoted(walk.source_tokens[best])}, `,
      figureText(digits(weights[best])),
      ".",
    ),
  ];
}

/** @param {number} changed row whose score is not the model's, or -1 */
function stepsTable(tokens, scores, weights, changed) {
  const exponentials = scores.map(Math.exp);
  const most = Math.max(...exponentials);
  const rows = tokens.map((name, at) => {
    const cells = [
      digits(scores[at], 3),
      barWell(exponentials[at] / most, "plain"),
      largeDigits(exponentials[at]),
      barWell(weights[at], ""),
      digits(weights[at]),
    ];
    return stepsRow(tokenText(name), cells, at === changed ? "changed" : "");
  });
  const heading = (name, columns) => element("th", { scope: "col", colspan: columns }, name);
  const headings = [heading("token", 1), heading("score", 1), heading("e to the score", 2), heading("weight", 2)];
  const sums = stepsRow("sum", ["", "", largeDigits(total(exponentials)), "", digits(total(weights))], "");
  return element(
    "table",
    { class: "steps-table" },
    element("caption", { class: "unseen" }, "Softmax in three steps"),
    element("thead", {}, element("tr", {}, ...headings)),
    element("tbody", {}, ...rows),
    element("tfoot", {}, sums),
  );
}

function stepsRow(name, cells, classes) {
  return element(
    "tr",
    { class: classes },
    element("th", { scope: "row", dir: "auto" }, name),
    ...cells.map((cell) => element("td", {}, cell)),
  );
}

function largeDigits(value) {
  return digits(value, value >= 1000 ? 0 : value >= 10 ? 1 : 3);
}

function barWell(share, classes) {
  const bar = element("span", { class: `bar ${classes}` });
  bar.style.inlineSize = `${(100 * share).toFixed(2)}%`;
  return element("span", { class: "bar-well", "aria-hidden": "true" }, bar);
}
