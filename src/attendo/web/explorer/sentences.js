/** The sentences of a text: which of them is inspected, and which of their words the model has never seen. */

import { element, uniqueId } from "../shared/dom.js";
import { shortened } from "../shared/tokens.js";

/** @typedef {{source: string, translation: string, gap: string}} Segment */

/** A text, or as many of its first sentences or lines as have so many characters. */
export function firstSentences(text, longest) {
  if (text.length <= longest) return text;
  const part = text.slice(0, longest).replace(/.$/su, ""); // which might be half a character
  return /^.*[.!?。！？\n]/su.exec(part)?.[0] ?? part;
}

/** Index of the sentence at a place of the text; without one, the first sentence. @param {Segment[]} segments */
export function sentenceAt(segments, place) {
  const first = Math.max(segments.findIndex((segment) => segment.source), 0);
  if (place === null) return first;
  let end = 0;
  for (const [index, segment] of segments.entries()) {
    end += segment.source.length + segment.gap.length;
    if (place < end) return Math.max(index, first);
  }
  return segments.length ? segments.length - 1 : first;
}

/** The index that was requested, if there is such a sentence. */
export function sentenceWithin(segments, index) {
  return index !== null && segments[index]?.source ? index : null;
}

/** Choice of the sentence that is inspected; hidden while there is only one. */
export function createSentencePicker(onChoose) {
  const select = element("select", { id: uniqueId("sentence") });
  const box = element("span", { class: "option sentence-option", hidden: true }, element("label", { for: select.id }, "Sentence"), select);
  select.addEventListener("change", () => onChoose(Number(select.value)));
  return {
    element: box,
    /** @param {Segment[]} segments */
    show(segments, chosen) {
      const full = [...segments.entries()].filter(([, segment]) => segment.source);
      box.hidden = full.length < 2;
      select.replaceChildren(
        ...full.map(([index, segment], number) => element("option", { value: index }, `${number + 1} of ${full.length}: ${shortened(segment.source, 40)}`)),
      );
      select.value = String(chosen);
    },
  };
}

/** The text with its unknown words marked, as nodes. */
export function markWords(text, words) {
  if (words.length === 0) return [text];
  const pattern = new RegExp(`(${words.map(wordPattern).join("|")})`, "giu");
  return text.split(pattern).map((part, at) => (at % 2 ? element("mark", {}, part) : part));
}

/** Where a script puts spaces between words, only whole words match. Words hold letters and apostrophes only. */
function wordPattern(word) {
  return UNSPACED.test(word) ? word : `(?<![\\p{L}\\p{M}])${word}(?![\\p{L}\\p{M}])`;
}

const UNSPACED = /[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Thai}\p{scx=Laoo}\p{scx=Mymr}\p{scx=Khmr}]/u;

/** Which words are unknown, and what that means for a translation. */
export function unknownText(words, isTranslated = true) {
  if (words.length === 0) return "";
  const shown = words.slice(0, 8).map((word) => `“${shortened(word, 24)}”`).join(", ");
  const more = words.length > 8 ? ` and ${words.length - 8} more` : "";
  return `Not in the training data: ${shown}${more}.${isTranslated ? " The translation of such words is a guess." : ""}`;
}
