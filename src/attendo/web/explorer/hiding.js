/** Hiding words of a text from a masked language model: its words as buttons. */

import { element, pushButton, refill } from "../shared/dom.js";
import { MASK } from "../shared/tokens.js";

const WORD = new RegExp(`(${MASK}|[\\p{L}\\p{M}\\p{N}]+(?:['’-][\\p{L}\\p{M}\\p{N}]+)*)`, "u");
const MOST_BUTTONS = 60; // a longer text is edited by hand

/** A text cut at its words: parts with odd indices are words or masks. */
export function wordParts(text) {
  return text.split(new RegExp(WORD, "gu"));
}

/** The text with its n-th word replaced. */
export function replaceWord(text, number, word) {
  return wordParts(text).map((part, at) => (at === 2 * number + 1 ? word : part)).join("");
}

/** @param {(text: string) => void} onText */
export function createHiding(onText) {
  const row = element("div", { class: "examples", role: "group", "aria-label": "Hide a word" });
  const box = element("div", { class: "hiding", hidden: true }, element("span", { class: "field-name" }, "Choose a word to hide it, and again to show it"), row);
  let known = []; // the words before they were hidden
  let text = null;

  function toggle(number, word) {
    text = replaceWord(text, number, word === MASK ? (known[number] ?? "the") : MASK);
    onText(text);
  }

  return {
    element: box,
    show(newText, isOffered) {
      const words = wordParts(newText).filter((_, at) => at % 2);
      box.hidden = !isOffered || words.length === 0 || words.length > MOST_BUTTONS;
      if (newText !== text) known = []; // typed, not toggled
      text = newText;
      words.forEach((word, number) => {
        if (word !== MASK) known[number] = word;
      });
      refill(row, words.map((word, number) => wordButton(word === MASK ? (known[number] ?? word) : word, word === MASK, () => toggle(number, word))));
    },
  };
}

function wordButton(word, isHidden, onClick) {
  return pushButton(word, onClick, { class: "example word", dir: "auto", "aria-pressed": String(isHidden) });
}
