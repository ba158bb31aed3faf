/** Hiding words of a text from a masked language model: its words as buttons. */

import { element, pushButton, refill } from "../shared/dom.js";

const WORD = "[\\p{L}\\p{M}\\p{N}]+(?:['’-][\\p{L}\\p{M}\\p{N}]+)*";
const MOST_BUTTONS = 60; // a longer text is edited by hand

/** A text cut at its words: parts with odd indices are words or masks. */
export function wordParts(text, mask) {
  return text.split(new RegExp(`(${mask.replace(/[[\]{}()*+?.\\^$|]/g, "\\$&")}|${WORD})`, "u"));
}

/** The text with its n-th word replaced. */
export function replaceWord(text, mask, number, word) {
  return wordParts(text, mask).map((part, at) => (at === 2 * number + 1 ? word : part)).join("");
}

/** @param {(text: string) => void} onText */
export function createHiding(onText) {
  const row = element("div", { class: "examples", role: "group", "aria-label": "Hide a word" });
  const box = element("div", { class: "hiding", hidden: true }, element("span", { class: "field-name" }, "Choose a word to hide it, and again to show it"), row);
  let known = []; // the words before they were hidden
  let text = null;

  function toggle(number, word, mask) {
    text = replaceWord(text, mask, number, word === mask ? known[number] : mask);
    onText(text);
  }

  return {
    element: box,
    /** @param {string} newText @param {string} mask how a hidden word is written; empty: none can be hidden */
    show(newText, mask) {
      const words = mask ? wordParts(newText, mask).filter((_, at) => at % 2) : [];
      box.hidden = words.length === 0 || words.length > MOST_BUTTONS;
      if (newText !== text) known = []; // typed, not toggled
      text = newText;
      words.forEach((word, number) => {
        if (word !== mask) known[number] = word;
      });
      refill(row, words.map((word, number) => wordButton(known[number] ?? mask, word === mask, known[number] ? () => toggle(number, word, mask) : null)));
    },
  };
}

/** A word whose text is not known cannot be shown again. */
function wordButton(word, isHidden, onClick) {
  return pushButton(word, onClick, { class: "example word", dir: "auto", "aria-pressed": String(isHidden), disabled: onClick === null });
}
