/** How a token is shown: as text, whatever it holds. */

const WORD_STARTS = ["▁", "Ġ"]; // marks of tokenizers at the beginning of a word
const SPECIALS = new Set(["<s>", "</s>", "<pad>", "<unk>", "<mask>"]);
const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });

const startsWord = (token) => WORD_STARTS.some((mark) => token.startsWith(mark));

/** Text of a token without the mark of a word's beginning. */
export function tokenText(token) {
  const text = startsWord(token) ? token.slice(1) : token;
  return text === "" ? "␣" : text;
}

/** A text with one more token; null if the token is no text. */
export function appended(text, token) {
  if (SPECIALS.has(token) || !/[\p{L}\p{N}\p{P}]/u.test(tokenText(token)) || /^<0x..>$/.test(token)) return null;
  return `${text}${startsWord(token) && text && !/\s$/u.test(text) ? " " : ""}${tokenText(token)}`;
}

/** Text of a token that stands alone, with a dot before a part of a word. */
export function labelText(token, index, sentence) {
  const part = continuesWord(token, index, sentence) && /[\p{L}\p{N}]/u.test(token);
  return part ? `·${token}` : tokenText(token);
}

/** Like `tokenText`, cut to a number of characters as people count them. */
export function shortToken(token, length) {
  const parts = [...graphemes.segment(tokenText(token).slice(0, 40 * length))];
  if (parts.length <= length) return parts.map((part) => part.segment).join("");
  return `${parts.slice(0, length - 1).map((part) => part.segment).join("")}…`;
}

/** A text cut in the middle, between words where possible: sentences often differ at their ends only. */
export function shortened(text, length) {
  if (text.length > 100 * length) return shortened(`${text.slice(0, 40 * length)} ${text.slice(-40 * length)}`, length);
  const parts = [...graphemes.segment(text)].map((part) => part.segment);
  if (parts.length <= length) return text;
  const half = Math.floor(length / 2);
  let [start, end] = [parts.slice(0, half).join(""), parts.slice(-half).join("")];
  if (/\S/u.test(parts[half])) start = start.replace(/\s+\S*$/u, "");
  if (/\S/u.test(parts[parts.length - half - 1])) end = end.replace(/^\S*\s+/u, "");
  return `${start.trimEnd()} … ${end.trimStart()}`;
}

/** Token for a sentence in words: quoted, and kept from turning the text around it when it runs right to left. */
export function quoted(token) {
  return `\u2068“${shortToken(token, 24)}”\u2069`;
}

/** Classes that distinguish beginnings of words, continuations and specials, where the tokens of a sentence carry marks. */
export function tokenClasses(token, index, sentence) {
  if (SPECIALS.has(token)) return "token special";
  return continuesWord(token, index, sentence) ? "token continues" : "token";
}

function continuesWord(token, index, sentence) {
  return index > 0 && !startsWord(token) && !SPECIALS.has(token) && sentence.some(startsWord);
}
