/** How a token is shown: as text, whatever it holds. */

const SPACE_MARK = "▁"; // sentencepiece writes it where a word begins
const SPECIALS = new Set(["<s>", "</s>", "<pad>", "<unk>"]);
const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Text of a token without the mark of a word's beginning. */
export function tokenText(token) {
  const text = token.startsWith(SPACE_MARK) ? token.slice(1) : token;
  return text === "" ? "␣" : text;
}

/** Like `tokenText`, cut to a number of characters as people count them. */
export function shortToken(token, length) {
  const parts = [...graphemes.segment(tokenText(token).slice(0, 40 * length))];
  if (parts.length <= length) return parts.map((part) => part.segment).join("");
  return `${parts.slice(0, length - 1).map((part) => part.segment).join("")}…`;
}

/** Token for a sentence in words: quoted, and kept from turning the text around it when it runs right to left. */
export function quoted(token) {
  return `\u2068“${shortToken(token, 24)}”\u2069`;
}

/** Classes that tell beginnings of words, continuations and specials apart, where the tokens of a sentence carry marks. */
export function tokenClasses(token, index, sentence) {
  if (SPECIALS.has(token)) return "token special";
  const marked = sentence.some((other) => other.startsWith(SPACE_MARK));
  return marked && index > 0 && !token.startsWith(SPACE_MARK) ? "token continues" : "token";
}
