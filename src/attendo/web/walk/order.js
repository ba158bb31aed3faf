/** An experiment: the same words in another order, with and without the positional encoding. */

import { element, pushButton, svgElement, uniqueId } from "../shared/dom.js";
import { tokenText } from "../shared/tokens.js";
import { fluidPicture } from "./charts.js";
import { digits } from "./numbers.js";
import { card, figureText, note, tickBox } from "./parts.js";
import { requestOrder } from "./server.js";

const FIRST = "The dog sees the man.";
const SECOND = "The man sees the dog.";
const ROUNDING = 1e-9; // smaller distances are rounding errors

/** The card of the experiment; it sends its own requests. */
export function createOrder() {
  const inputs = [sentenceField("First sentence", FIRST), sentenceField("The same words, in another order", SECOND)];
  const outcome = element("div", { class: "order-outcome", "aria-live": "polite" });
  const positions = tickBox("Add the positional encoding", true, compare);
  let pending = null; // the newest request; earlier answers are dropped

  async function compare() {
    pending?.abort();
    pending = new AbortController();
    const { signal } = pending;
    const [first, second] = inputs.map((field) => field.querySelector("input").value);
    const withPositions = positions.querySelector("input").checked;
    try {
      const order = await requestOrder(first, second, withPositions, signal);
      outcome.replaceChildren(...orderPicture(order, withPositions));
    } catch (error) {
      if (!signal.aborted) outcome.replaceChildren(element("p", { class: "trouble" }, error.message));
    }
  }

  const form = element(
    "form",
    { class: "order-form" },
    ...inputs,
    pushButton("Compare", () => {}, { type: "submit" }),
    positions,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    compare();
  });
  compare();
  return card(
    "Try it: remove the positional encoding",
    note(
      "Both sentences are encoded by the whole encoder. Each number is the Euclidean distance between the two hidden states of a token, one from each sentence.",
    ),
    form,
    outcome,
  );
}

function sentenceField(label, text) {
  const id = uniqueId("order");
  const input = element("input", {
    type: "text",
    id,
    class: "text-field",
    value: text,
    spellcheck: "false",
    autocomplete: "off",
  });
  return element("div", { class: "field" }, element("label", { class: "field-name", for: id }, label), input);
}

function orderPicture(order, withPositions) {
  const same = order.largest < ROUNDING;
  const words = same
    ? [
        "Without the positional encoding every token has the same hidden state in both sentences, up to rounding errors (",
        figureText(order.largest.toExponential(0)),
        "). The order of the words is lost.",
      ]
    : [
        "Largest distance: ",
        figureText(digits(order.largest, 2)),
        ". The hidden states depend on the order of the words.",
      ];
  if (same && withPositions) words.splice(0, words.length, "The two sentences are equal.");
  return [movesPicture(order), note(...words)];
}

/** Both sentences as lines of words; equal words are connected, by lines as strong as their distance. */
function movesPicture(order) {
  const label = `Distances: ${order.pairs.map((pair) => `${tokenText(pair.token)} ${digits(pair.distance, 2)}`).join(", ")}`;
  return fluidPicture(label, 210, (width) => {
    const x = (at, line) => ((at + 0.5) * width) / order.tokens[line].length;
    const most = Math.max(order.largest, 1);
    const joins = order.pairs.map((pair) => join(pair, x, most));
    const words = order.tokens.flatMap((tokens, line) =>
      tokens.map((token, at) => word(token, x(at, line), line, width / tokens.length)),
    );
    return [...joins.map(([curve]) => curve), ...words, ...joins.map(([, text]) => text)];
  });
}

function join({ here, there, distance }, x, most) {
  const [from, to] = [x(here, 0), x(there, 1)];
  const strength = distance / most;
  const curve = svgElement("path", {
    class: "join",
    d: `M${from} 34C${from} 105 ${to} 105 ${to} 176`,
    "stroke-width": 1.5 + 5 * strength,
    "stroke-opacity": 0.25 + 0.75 * strength,
  });
  // Near its beginning a curve runs apart from the others, so that the numbers do not meet.
  const text = svgElement(
    "text",
    { class: "join-number", x: from, y: 62, "text-anchor": "middle" },
    distance < ROUNDING ? "0" : digits(distance, distance < 10 ? 1 : 0),
  );
  return [curve, text];
}

function word(token, x, line, room) {
  const most = Math.max(Math.floor(room / 8), 2); // letters that fit
  const text = tokenText(token);
  const shown = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return svgElement("text", { class: "join-word", x, y: line ? 196 : 24, "text-anchor": "middle" }, shown);
}
