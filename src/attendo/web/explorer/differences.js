/** Two translations, word by word: what stayed, what went, what came. */

import { element } from "../shared/dom.js";

const MOST_WORDS = 1500; // beyond this the table below takes too long to fill

/**
 * @param {string} before
 * @param {string} after
 * @returns {{word: string, change: "same"|"gone"|"new"}[]}
 */
export function wordDifferences(before, after) {
  const [old, fresh] = [before, after].map((text) => text.split(/\s+/u).filter(Boolean));
  if (old.length > MOST_WORDS || fresh.length > MOST_WORDS) return [...tagged(old, "gone"), ...tagged(fresh, "new")];
  const table = commonLengths(old, fresh);
  const width = fresh.length + 1;
  const result = [];
  let [i, j] = [0, 0];
  while (i < old.length && j < fresh.length) {
    if (old[i] === fresh[j]) {
      result.push({ word: old[i], change: "same" });
      i += 1;
      j += 1;
    } else if (table[(i + 1) * width + j] >= table[i * width + j + 1]) {
      result.push({ word: old[i++], change: "gone" });
    } else {
      result.push({ word: fresh[j++], change: "new" });
    }
  }
  return [...result, ...tagged(old.slice(i), "gone"), ...tagged(fresh.slice(j), "new")];
}

/** The differences as text with deletions and insertions marked. */
export function drawDifferences(before, after) {
  const tags = { same: "span", gone: "del", new: "ins" };
  const words = wordDifferences(before, after).flatMap(({ word, change }) => [element(tags[change], {}, word), " "]);
  return element("bdi", {}, ...words);
}

function tagged(words, change) {
  return words.map((word) => ({ word, change }));
}

/** Length of the longest common subsequence of every pair of endings; row-major. */
function commonLengths(old, fresh) {
  const width = fresh.length + 1;
  const table = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = fresh.length - 1; j >= 0; j -= 1) {
      table[i * width + j] =
        old[i] === fresh[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  return table;
}
