/** Checks of the page's modules that need no browser. Run: node --test tests/web/ */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, posix } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { weightLevel, weightPixels } from "../../src/attendo/web/shared/colours.js";
import { wordDifferences } from "../../src/attendo/web/explorer/differences.js";
import { strongest, weightsOf } from "../../src/attendo/web/shared/focus.js";
import { deflateSync } from "node:zlib";
import { chosenHead, decodeMap, headMatrix, kindWithin, predictsLabel, realHead, rowOfStep } from "../../src/attendo/web/shared/maps.js";
import { aloneInLayer, toggled } from "../../src/attendo/web/explorer/ablation.js";
import { replaceWord, wordParts } from "../../src/attendo/web/explorer/hiding.js";
import { DEFAULT_STATE, fromFragment, toFragment } from "../../src/attendo/web/explorer/state.js";
import { numberText, percentText, probabilityText, tempered } from "../../src/attendo/web/shared/numbers.js";
import { findsTrees, placeParse, readBrackets } from "../../src/attendo/web/explorer/parse.js";
import { firstSentences, sentenceAt, sentenceWithin } from "../../src/attendo/web/explorer/sentences.js";
import { appended, labelText, shortened, shortToken, tokenText } from "../../src/attendo/web/shared/tokens.js";

const FOLDER = fileURLToPath(new URL("../../src/attendo/web/", import.meta.url));
const MODULES = readdirSync(FOLDER, { recursive: true }).filter((name) => name.endsWith(".js"));
const read = (name) => readFileSync(join(FOLDER, name), "utf8");

/** A module and everything that it imports, each after what it needs. */
function neededBy(name, found = []) {
  for (const [, path] of read(name).matchAll(/^import \{[^}]*\} from "(\.\.?\/[\w/-]+\.js)";$/gm)) {
    const other = posix.join(posix.dirname(name), path);
    if (!found.includes(other)) neededBy(other, found);
  }
  if (!found.includes(name)) found.push(name);
  return found;
}

test("a state survives its way through the address", () => {
  const state = {
    model: "demo & co",
    compare: "other",
    source: "<script>alert('#?&=')</script> \u202e שלום 👩‍👩‍👧‍👦\n+ 100 %",
    target: "",
    kind: "decoder",
    layer: "rollout",
    head: 3,
    pin: "k12",
    ablated: ["cross.1.0", "encoder.0.2"],
    beam: 8,
    sentence: 2,
    temperature: 0.25,
    seed: 7,
    open: ["beams"],
  };
  assert.deepEqual(fromFragment(toFragment(state)), state);
  assert.deepEqual(fromFragment(toFragment(DEFAULT_STATE)), DEFAULT_STATE);
});

test("a fragment that makes no sense is read as usual", () => {
  const state = fromFragment("#kind=evil&layer=-1&head=1e9&pin=z1&ablated=a.b.c,cross.1.0,cross.1.0,,&beam=99&sentence=-1&temperature=1e9&open=../x");
  assert.deepEqual(state, { ...DEFAULT_STATE, ablated: ["cross.1.0"] });
});

test("weights are unpacked in the order heads, rows, columns", async () => {
  const numbers = Uint16Array.from({ length: 12 }, (_, at) => at * 5000);
  const bytes = Buffer.from(numbers.buffer);
  const packed = { shape: [2, 2, 3], data: deflateSync(bytes).toString("base64"), deflated: true };
  assert.deepEqual(await decodeMap(packed), await decodeMap({ shape: [2, 2, 3], data: bytes.toString("base64") }));
  const layer = await decodeMap(packed);
  const second = headMatrix(layer, 1);
  assert.deepEqual([second.rows, second.columns], [2, 3]);
  assert.ok(Math.abs(second.weights[5] - 55000 / 65535) < 1e-6);
  assert.ok(Math.abs(headMatrix(layer, "mean").weights[0] - 15000 / 65535) < 1e-6);
  assert.deepEqual(weightsOf({ rows: 2, columns: 3, weights: Float32Array.of(1, 2, 3, 4, 5, 6) }, { side: "k", index: 1 }), Float32Array.of(2, 5));
});

test("a choice is brought within what the model has", () => {
  const recording = { maps: { encoder: [], decoder: [], cross: [null, null] }, n_heads: 2, rollout: null };
  assert.equal(kindWithin(recording, "encoder"), "cross");
  assert.deepEqual(chosenHead(recording, { kind: "cross", layer: 9, head: 9 }), { kind: "cross", layer: 1, head: 1 });
  assert.deepEqual(chosenHead(recording, { kind: "cross", layer: "rollout", head: "mean" }), { kind: "cross", layer: 1, head: "mean" });
});

test("the strongest weights come first and small ones not at all", () => {
  assert.deepEqual(strongest([0.1, 0.5, 0.01, 0.3], 2, 0.05), [1, 3]);
  assert.deepEqual(strongest([0.01], 2, 0.05), []);
});

test("differences are told by word", () => {
  const told = wordDifferences("das Tier war müde", "das Tier ist sehr müde");
  assert.deepEqual(told.map(({ word, change }) => `${change} ${word}`), ["same das", "same Tier", "gone war", "new ist", "new sehr", "same müde"]);
  assert.deepEqual(wordDifferences("", ""), []);
});

test("a word is hidden and shown again, whatever surrounds it", () => {
  for (const mask of ["<mask>", "[MASK]", "<|mask|>"]) {
    const text = `The dog's  ${mask} über-groß, 3 times.\n`;
    assert.deepEqual(wordParts(text, mask).filter((_, at) => at % 2), ["The", "dog's", mask, "über-groß", "3", "times"]);
    assert.equal(wordParts(text, mask).join(""), text);
    const hidden = replaceWord(text, mask, 1, mask);
    assert.equal(hidden, `The ${mask}  ${mask} über-groß, 3 times.\n`);
    assert.equal(replaceWord(hidden, mask, 1, "dog's"), text);
  }
});

test("a token is appended as text", () => {
  assert.equal(appended("The old", "▁dog"), "The old dog");
  assert.equal(appended("The old ", "Ġdog"), "The old dog");
  assert.equal(appended("", "▁The"), "The");
  assert.equal(appended("The dog", "."), "The dog.");
  for (const token of ["</s>", "<mask>", "▁", "<0x0A>"]) assert.equal(appended("The", token), null);
});

test("steps belong to rows of the attention that predicted them", () => {
  const steps = [{ position: 2 }, { position: 4 }];
  const pair = { task: "translation", steps, source_tokens: ["a"], target_tokens: ["b"] };
  const written = { task: "language-model", steps, source_tokens: [], target_tokens: ["a"] };
  const labelled = { task: "classification", steps: [{ position: 0 }], source_tokens: ["a"], target_tokens: [] };
  const hidden = { ...labelled, task: "masked-language-model", mask: "<mask>", steps };
  assert.equal(rowOfStep(pair, "encoder", 0), null);
  assert.deepEqual([0, 1, 2].map((step) => rowOfStep(hidden, "encoder", step)), [2, 4, null]);
  assert.deepEqual([pair, written, labelled, hidden].map(predictsLabel), [false, false, true, false]);
});

test("ablation", () => {
  assert.deepEqual(toggled(["cross.0.0"], "cross.0.0"), []);
  assert.deepEqual(aloneInLayer(["encoder.0.1", "cross.1.0"], { kind: "cross", layer: 1, head: 0 }, 3), ["encoder.0.1", "cross.1.1", "cross.1.2"]);
});

test("tokens are cut between characters as people see them", () => {
  assert.equal(tokenText("▁Haus"), "Haus");
  assert.equal(shortToken("▁👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 2), "👩‍👩‍👧‍👦…");
  assert.equal(shortToken("x".repeat(10000), 4), "xxx…");
});

test("sentences that differ at their ends differ when they are shortened", () => {
  const start = "The animal did not cross the street because it was too";
  assert.deepEqual([`${start} tired.`, `${start} wide.`].map((text) => shortened(text, 24)), ["The animal … too tired.", "The animal … too wide."]);
  assert.equal(shortened("Short.", 24), "Short.");
  assert.ok(shortened("x".repeat(100000), 24).length < 30);
});

test("marks of words are not shown, parts of words are", () => {
  const tokens = ["▁The", "▁dog", "▁b", "ite", "s", ".", "</s>"];
  assert.deepEqual(tokens.map(labelText), ["The", "dog", "b", "·ite", "·s", ".", "</s>"]);
  assert.deepEqual(["Ġdog", "s"].map(labelText), ["dog", "·s"]);
});

test("a place in the text belongs to a sentence", () => {
  const segments = [["", "  "], ["One.", " "], ["Two.", "\n\n"], ["Three.", ""]].map(([source, gap]) => ({ source, gap, translation: "" }));
  assert.equal(sentenceAt(segments, null), 1);
  assert.deepEqual([0, 2, 6, 7, 12, 13, 19].map((place) => sentenceAt(segments, place)), [1, 1, 1, 2, 2, 3, 3]);
  assert.equal(sentenceWithin(segments, 0), null);
  assert.equal(sentenceWithin(segments, 3), 3);
  assert.equal(sentenceWithin(segments, 9), null);
});

test("a long text is cut after a sentence or a line, never within a character", () => {
  assert.equal(firstSentences("One. Two.", 9), "One. Two.");
  assert.equal(firstSentences("One. Two.", 8), "One.");
  assert.equal(firstSentences("One\nTwo and three", 9), "One\n");
  assert.equal(firstSentences("👩👩👩", 3), "👩");
});

test("numbers never read as minus zero, and tiny probabilities stay apart", () => {
  assert.equal(numberText(-0.001, 2), "0.00");
  assert.equal(numberText(-1.5, 2), "−1.50");
  assert.deepEqual([1, 0.99972, 0.5, 0.00001].map(percentText), ["100 %", "99.97 %", "50.0 %", "< 0.01 %"]);
  assert.equal(probabilityText(3e-12), "3·10⁻¹²");
});

test("a temperature changes all probabilities and not their sum", () => {
  const logits = [3, 1, 0.5, -2];
  for (const temperature of [0.25, 1, 5]) {
    const logSum = (values) => Math.log(values.reduce((sum, value) => sum + Math.exp(value), 0));
    const logProbs = logits.map((value) => value - logSum(logits));
    const normalizer = logSum(logProbs.map((value) => value / temperature));
    const shares = logProbs.map((value) => tempered(value, temperature, normalizer));
    assert.ok(Math.abs(shares.reduce((sum, share) => sum + share) - 1) < 1e-9);
    const direct = Math.exp(logits[1] / temperature - logSum(logits.map((value) => value / temperature)));
    assert.ok(Math.abs(shares[1] - direct) < 1e-9);
  }
});

test("where a mean is chosen, vectors are of the head with the lowest entropy", () => {
  const recording = { maps: { cross: [null, null] }, heads: { cross: [[], [{ entropy: 2 }, { entropy: 1 }]] } };
  assert.deepEqual(realHead(recording, { kind: "cross", layer: 1, head: "mean" }), { kind: "cross", layer: 1, head: 1 });
  assert.deepEqual(realHead(recording, { kind: "cross", layer: "rollout", head: "mean" }), { kind: "cross", layer: 1, head: 1 });
  assert.deepEqual(realHead(recording, { kind: "cross", layer: 0, head: 3 }), { kind: "cross", layer: 0, head: 3 });
});

test("the scale of weights only ever becomes darker (light) or brighter (dark)", () => {
  const brightness = (pixel) => 0.2126 * (pixel & 255) + 0.7152 * ((pixel >> 8) & 255) + 0.0722 * ((pixel >> 16) & 255);
  for (const [theme, sign] of [["light", -1], ["dark", 1]]) {
    const levels = weightPixels(theme).map(brightness);
    assert.equal(levels.length, 256);
    levels.slice(1).forEach((level, at) => assert.ok(sign * (level - levels[at]) > -1.5, `${theme} ${at}`));
  }
  assert.equal(weightLevel(0.25), 0.5);
});

test("text is never inserted as markup, and nothing is evaluated", () => {
  for (const name of MODULES) {
    assert.doesNotMatch(read(name), /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment/, name);
  }
  assert.doesNotMatch(read("explorer/index.html"), /\son\w+=|\sstyle=|<style|<script(?![^>]*src=)/);
  assert.doesNotMatch(read("shared/style.css"), /url\(|@import/);
});

test("the explorer's modules fit into one script, as a self-contained file needs", () => {
  const texts = neededBy("explorer/main.js").map((name) => {
    const text = read(name);
    assert.doesNotMatch(text, /export default|export \{|^import (?!\{[^}]*\} from "\.\.?\/[a-z/-]+\.js";$)|<\/script|<!--/m, name);
    return text.replace(/^import .*$/gm, "").replace(/^export /gm, "");
  });
  const file = join(mkdtempSync(join(tmpdir(), "attendo-")), "all.mjs");
  writeFileSync(file, texts.join("\n")); // a name declared twice would be an error of syntax
  execFileSync(process.execPath, ["--check", file]);
});

test("a tree in brackets is read, and no two words are placed over each other", () => {
  const tree = readBrackets("(S (NP (DT The) (NN cat)) (VP (VBD sat)) (-RRB- -RRB-))");
  assert.deepEqual(tree.children.map((child) => child.label), ["NP", "VP", "-RRB-"]);
  assert.equal(tree.children[0].children[1].word, "cat");
  const placed = placeParse(tree);
  const leaves = [...placed.children[0].children, ...placed.children[1].children, placed.children[2]];
  assert.deepEqual(leaves.map((leaf) => leaf.word), ["The", "cat", "sat", ")"]);
  assert.ok(leaves.every((leaf, at) => at === 0 || leaf.x > leaves[at - 1].x));
  assert.ok(placed.height > placed.children[0].height);
  assert.deepEqual(readBrackets("").children, []);
  assert.ok(findsTrees("parsing-spans") && !findsTrees("translation"));
});
