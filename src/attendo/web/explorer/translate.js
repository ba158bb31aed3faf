/** The text and its translation: typed and translated on a server's page, only shown in a self-contained file. */

import { drawDifferences } from "./differences.js";
import { createFileField } from "./files.js";
import { createHiding } from "./hiding.js";
import { filled } from "./prediction.js";
import { element, pushButton, refill, uniqueId } from "../shared/dom.js";
import { countText, probabilityText } from "../shared/numbers.js";
import { createSentencePicker, markWords, unknownText } from "./sentences.js";
import { textsOf } from "./tasks.js";
import { shortened } from "../shared/tokens.js";

const BEAMS = [1, 2, 4, 8];
const DRAWN = /^drawn:(.*)-\d+$/; // an image or a sound that the server draws
const SHORT_EXAMPLE = 24; // characters; two of them fit beside each other on a phone

/**
 * @param {{onSource: (text: string, how: string) => void, onFile: (url: string) => void, begin: (text: string) => Promise<string>, longestFile: number,
 *   onTarget: (text: string|null) => void, onBeam: (beam: number) => void, onSentence: (index: number) => void, onCaret: () => void}} listeners
 */
export function createTranslate({ onSource, onFile, begin, longestFile, onTarget, onBeam, onSentence, onCaret }) {
  const source = element("textarea", { id: uniqueId("source"), rows: 2, spellcheck: "false", dir: "auto" });
  const marks = element("div", { class: "marks", "aria-hidden": "true", dir: "auto" });
  const target = element("textarea", { id: uniqueId("target"), rows: 2, spellcheck: "false", dir: "auto", placeholder: "Type the translation to inspect" });
  const byHand = element("input", { type: "checkbox", id: uniqueId("by-hand") });
  const beam = element("select", { id: uniqueId("beam") }, ...BEAMS.map((width) => element("option", { value: width }, String(width))));
  const examples = element("div", { class: "examples", role: "group", "aria-label": "Example sentences" });
  const targetBox = element("div", { class: "own-target" }, element("label", { for: target.id }, "Your translation of the inspected sentence"), target);
  const results = element("div", { class: "results" });
  const unknown = element("p", { class: "unknown", role: "status" });
  const picker = createSentencePicker(onSentence);
  const sourceName = element("label", { for: source.id, class: "field-name" });
  const files = createFileField({ onFile, onText: (text) => onSource(text, "push"), begin, longest: longestFile });
  const hiding = createHiding((text) => onSource(text, "push"));
  let isEdited = false;
  source.addEventListener("input", () => {
    isEdited = true;
    files.clear();
    marks.replaceChildren(); // those of the old text
    onSource(source.value, "replace");
  });
  source.addEventListener("scroll", () => (marks.scrollTop = source.scrollTop), { passive: true });
  for (const event of ["click", "keyup"]) {
    source.addEventListener(event, () => {
      isEdited = true;
      onCaret();
    });
  }
  target.addEventListener("input", () => onTarget(target.value));
  byHand.addEventListener("change", () => {
    onTarget(byHand.checked ? target.value : null);
    if (byHand.checked) target.focus();
  });
  beam.addEventListener("change", () => onBeam(Number(beam.value)));
  const options = element(
    "div",
    { class: "options" },
    picker.element,
    element("span", { class: "option" }, element("label", { for: beam.id }, "Beam width"), beam),
    element("span", { class: "option" }, byHand, element("label", { for: byHand.id }, "Inspect my translation")),
  );
  const field = element("div", { class: "marked-field" }, marks, source);
  const nodes = [
    element("div", { class: "sentences" }, element("div", { class: "typing" }, sourceName, field, files.element), results),
    unknown,
    hiding.element,
    element("div", { class: "under" }, examples, options),
    targetBox,
  ];
  return {
    nodes,
    results,
    /** Place of the cursor in the text, once somebody has put it there. */
    caret: () => (isEdited ? source.selectionStart : null),
    /** @param {import("../shared/api.js").Model} model */
    show(state, { task, mask, reads, examples: examplesOfModel }) {
      const isTranslator = task === "translation";
      files.offer(reads);
      field.hidden = reads !== "text";
      sourceName.htmlFor = field.hidden ? files.input.id : source.id;
      ({ field: sourceName.textContent, placeholder: source.placeholder } = textsOf(task));
      options.hidden = !isTranslator;
      hiding.show(state.source, mask);
      if (source.value !== state.source) {
        source.value = state.source;
        isEdited = false;
        if (reads === "text") files.clear();
        marks.replaceChildren();
      }
      if (state.target !== null && target.value !== state.target) target.value = state.target;
      byHand.checked = state.target !== null;
      targetBox.hidden = !isTranslator || state.target === null;
      if (![...beam.options].some((option) => Number(option.value) === state.beam)) beam.append(element("option", { value: state.beam }, String(state.beam)));
      beam.value = String(state.beam);
      showExamples(examplesOfModel, state.source);
    },
    /** Show the translation. @param {import("../shared/api.js").Translation} now */
    mark(now, sentence) {
      picker.show(now.segments, sentence);
      unknown.textContent = unknownText(now.unknown);
      marks.replaceChildren(...(now.unknown.length ? markWords(source.value, now.unknown) : []), "\n");
      marks.scrollTop = source.scrollTop;
    },
    /** Name the unknown words of a text that is not translated. */
    name(words) {
      unknown.textContent = unknownText(words, false);
    },
    unmark() {
      picker.show([], 0);
      unknown.textContent = "";
      marks.replaceChildren();
    },
  };

  function showExamples(texts, chosen) {
    const short = texts.map((text) => shortened(text.replace(DRAWN, "$1"), SHORT_EXAMPLE));
    const differ = new Set(short).size === short.length;
    const onExample = (text, how) => {
      files.clear();
      onSource(text, how);
    };
    examples.replaceChildren(...texts.map((text, at) => exampleButton(text, differ ? short[at] : text, text === chosen, onExample)));
  }
}

function exampleButton(text, short, chosen, onSource) {
  return pushButton(short, () => onSource(text, "push"), { class: "example", dir: "auto", title: text, "aria-label": text, "aria-pressed": String(chosen) });
}

/** Where one model's translation appears. @param {(index: number) => void} onSentence */
export function createResult(onSentence) {
  const name = element("span", { class: "field-name" }, "Translation");
  const text = element("p", { class: "result-text", dir: "auto" });
  const live = element("div", { class: "live", role: "status", "aria-live": "polite" }, text);
  const facts = element("p", { class: "facts" });
  const waiting = element("span", { class: "waiting", "aria-hidden": "true", hidden: true }, "…");
  const actions = element("div", { class: "examples result-actions", role: "group", "aria-label": "Continue the text" });
  const box = element("div", { class: "result" }, element("div", { class: "result-head" }, name, waiting, facts), live, actions);
  // For the pointer only: with the keyboard, the list of sentences does the same.
  text.addEventListener("click", (event) => {
    const sentence = event.target.closest(".sentence");
    if (sentence) onSentence(Number(sentence.dataset.index));
  });
  return {
    element: box,
    title(words) {
      name.textContent = words;
    },
    busy(isBusy) {
      waiting.hidden = !isBusy;
    },
    /** @param {import("../shared/api.js").Translation} now @param {import("../shared/api.js").Translation|null} usual with all heads */
    show(now, usual, ablatedCount, sentence) {
      box.classList.remove("failed");
      const changed = usual !== null && usual.translation !== now.translation;
      const several = now.segments.filter((segment) => segment.source).length > 1;
      text.replaceChildren(...now.segments.flatMap((segment, index) => sentenceNodes(segment, usual?.segments[index], several, index === sentence, index)));
      if (!now.translation.trim()) text.textContent = "(empty translation)";
      facts.textContent = [ablationText(usual, changed, ablatedCount), resultText(now), `${now.milliseconds.toFixed(0)} ms`].filter(Boolean).join(" · ");
      facts.title = several ? "" : "Probability: product of the probabilities of all tokens of the translation";
    },
    /** Show what a model of another task predicts. @param {import("./prediction.js").Drawn} drawn */
    present(drawn) {
      this.clear();
      text.replaceChildren(...drawn.words);
      facts.textContent = drawn.facts;
      refill(actions, drawn.actions);
    },
    fail(message) {
      this.clear();
      box.classList.add("failed");
      text.textContent = message;
    },
    clear() {
      box.classList.remove("failed");
      text.textContent = facts.textContent = facts.title = "";
      actions.replaceChildren();
    },
  };
}

function sentenceNodes({ translation, gap }, usual, several, chosen, index) {
  const changed = usual && usual.translation !== translation;
  const words = changed ? drawDifferences(usual.translation, translation) : translation;
  if (!several) return [words, gap];
  return [element("span", { class: chosen ? "sentence chosen" : "sentence", "data-index": index }, words), gap];
}

function ablationText(usual, changed, count) {
  return usual === null ? "" : `${countText(count, "head")} ablated: ${changed ? "the marked words changed" : "no change"}`;
}

function resultText({ segments, score }) {
  const count = segments.filter((segment) => segment.source).length;
  return count > 1 ? countText(count, "sentence") : `probability ${probabilityText(Math.exp(score))}`;
}

/** The text of a self-contained file: nothing to type. @param {any} recording */
export function drawSentence(recording) {
  const part = (name, ...text) => element("div", { class: "result" }, element("span", { class: "field-name" }, name), element("p", { class: "result-text", dir: "auto" }, ...text));
  const unknown = recording.unknown ?? [];
  const texts = textsOf(recording.task);
  const text = recording.picture ? [element("img", { src: recording.picture.data, class: "shown-picture", alt: texts.field })] : markWords(recording.source || recording.target, unknown);
  const parts = [part(texts.field, ...text)];
  if (recording.source) parts.push(part(texts.result, ...filled(recording)));
  return element(
    "div",
    {},
    element("div", { class: "sentences" }, ...parts),
    element("p", { class: "unknown" }, unknownText(unknown, recording.task === "translation")),
  );
}
