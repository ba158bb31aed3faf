/** The parts that every station is made of: facts, notes, controls, code. */

import { element, uniqueId } from "../shared/dom.js";
import { markHidden, scrollRegion } from "./scroll.js";

/** A card with a heading. */
export function card(title, ...children) {
  return element("section", { class: "card walk-card" }, title ? element("h3", {}, title) : null, ...children);
}

/** A card for an experiment: a title and its controls in one line. */
export function tryCard(title, controls, ...children) {
  return element(
    "section",
    { class: "card walk-card try" },
    element("div", { class: "controls" }, element("h3", {}, title), ...controls),
    ...children,
  );
}

/** Text with the paper's indices set as such: "d_k", "W^O". @returns {(Node|string)[]} */
export function withIndices(text) {
  return text.split(/(_[a-z]+|_\d|\^[A-Z])/).map((part, at) => (at % 2 === 0 ? part : element(part[0] === "_" ? "sub" : "sup", {}, part.slice(1))));
}

/** A sentence under a picture, of text and elements. */
export function note(...pieces) {
  return element("p", { class: "walk-note" }, ...pieces);
}

/** A number inside a sentence. */
export function figureText(text) {
  return element("strong", { class: "walk-number" }, text);
}

/**
 * Numbers with their names, side by side.
 * @param {[string, string][]} facts name and value
 */
export function factRow(facts) {
  const pairs = facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  return element("dl", { class: "walk-facts" }, ...pairs);
}

/** A box to tick. @param {(checked: boolean) => void} onChange */
export function tickBox(label, checked, onChange) {
  const input = element("input", { type: "checkbox", on: { change: () => onChange(input.checked) } });
  input.checked = checked;
  return element("label", { class: "option walk-switch" }, input, element("span", {}, ...withIndices(label)));
}

/**
 * A slider with its value as text beside it.
 * @param {{label: string, min: number, max: number, step: number, value: number, words: (value: number) => string,
 *   onInput: (value: number) => void}} options
 */
export function slider({ label, min, max, step, value, words, onInput }) {
  const id = uniqueId("slider");
  const shown = element("output", { for: id, class: "walk-slider-value" }, words(value));
  const input = element("input", { type: "range", id, min, max, step, value, "aria-valuetext": words(value) });
  input.addEventListener("input", () => {
    shown.textContent = words(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
    onInput(Number(input.value));
  });
  return element("div", { class: "walk-slider" }, element("label", { for: id }, label), input, shown);
}

/**
 * A row of radio buttons drawn as chips; arrow keys go from one to the next.
 * @param {{legend: string, onChoose: (index: number) => void, onHover?: (index: number|null) => void}} options
 */
export function chips({ legend, onChoose, onHover }) {
  const row = element("div", { class: "chip-row" });
  const name = uniqueId("chips");
  const box = element("fieldset", { class: "chips" }, element("legend", {}, legend), element("div", { class: "scroll-frame" }, row));
  markHidden(row, box);
  row.addEventListener("change", (event) => onChoose(Number(event.target.value)));
  if (onHover) {
    row.addEventListener("pointerover", (event) => event.pointerType === "mouse" && onHover(indexOfChip(event)));
    row.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && onHover(null));
  }
  return {
    element: box,
    /** @param {{text: string, classes?: string, title?: string}[]} items */
    show(items) {
      row.replaceChildren(...items.map((item, index) => chip(name, item, index)));
    },
    choose(index) {
      const inputs = row.querySelectorAll("input");
      if (!inputs[index]) return;
      inputs[index].checked = true;
      bringIntoView(row, inputs[index].parentElement);
    },
  };
}

// Only the row scrolls: scrollIntoView would move the page too.
function bringIntoView(row, item) {
  const [box, bounds] = [row.getBoundingClientRect(), item.getBoundingClientRect()];
  if (bounds.left < box.left || bounds.right > box.right)
    row.scrollLeft += bounds.left - box.left - (box.width - bounds.width) / 2;
}

function chip(name, { text, classes = "", title = text }, index) {
  const id = uniqueId("chip");
  return element(
    "span",
    { class: `chip ${classes}` },
    element("input", { type: "radio", name, id, value: index }),
    element("label", { for: id, dir: "auto", title }, text),
  );
}

function indexOfChip(event) {
  const input = event.target.closest(".chip")?.querySelector("input");
  return input ? Number(input.value) : null;
}

const PYTHON = /(#.*)|("[^"\n]*")|\b(def|return|for|in|if|is|not|None|import|from|else)\b|\b(\d[\d_.e-]*)\b/g;
const KINDS = ["comment", "string", "keyword", "digit"];

/**
 * Lines of Python, the important ones marked.
 * @param {string} source
 * @param {RegExp|null} important which lines the station is about
 * @param {string} name of the function
 */
export function codeListing(source, important, name) {
  const lines = source.split("\n").map((line) => {
    const marked = important?.test(line);
    return element(marked ? "mark" : "span", { class: "code-line" }, ...coloured(line), "\n");
  });
  const listing = element("pre", { class: "walk-code" }, element("code", {}, ...lines));
  return scrollRegion({ label: `Code of ${name}`, hint: "whole lines" }, listing).element;
}

function coloured(line) {
  const pieces = [];
  let from = 0;
  for (const match of line.matchAll(PYTHON)) {
    const kind = KINDS.find((_, at) => match[at + 1] !== undefined);
    pieces.push(line.slice(from, match.index), element("span", { class: `code-${kind}` }, match[0]));
    from = match.index + match[0].length;
  }
  return [...pieces, line.slice(from)];
}
