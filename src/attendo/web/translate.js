/** The sentence and its translation: typed and translated on a server's page, only shown in a self-contained file. */

import { drawDifferences } from "./differences.js";
import { element, pushButton, uniqueId } from "./dom.js";

const BEAMS = [1, 2, 4, 8];

/**
 * @param {{onSource: (text: string, how: string) => void, onTarget: (text: string|null) => void, onBeam: (beam: number) => void}} listeners
 */
export function createTranslate({ onSource, onTarget, onBeam }) {
  const source = element("textarea", { id: uniqueId("source"), rows: 3, spellcheck: "false", dir: "auto", placeholder: "Type a sentence" });
  const target = element("textarea", { id: uniqueId("target"), rows: 2, spellcheck: "false", dir: "auto", placeholder: "Type a translation to look at" });
  const byHand = element("input", { type: "checkbox", id: uniqueId("by-hand") });
  const beam = element("select", { id: uniqueId("beam") }, ...BEAMS.map((width) => element("option", { value: width }, String(width))));
  const examples = element("div", { class: "examples", role: "group", "aria-label": "Example sentences" });
  const targetBox = element("div", { class: "own-target" }, element("label", { for: target.id }, "Your own translation"), target);
  const results = element("div", { class: "results" });
  source.addEventListener("input", () => onSource(source.value, "replace"));
  target.addEventListener("input", () => onTarget(target.value));
  byHand.addEventListener("change", () => {
    onTarget(byHand.checked ? target.value : null);
    if (byHand.checked) target.focus();
  });
  beam.addEventListener("change", () => onBeam(Number(beam.value)));
  const options = element(
    "div",
    { class: "options" },
    element("span", { class: "option" }, element("label", { for: beam.id }, "Beam width"), beam),
    element("span", { class: "option" }, byHand, element("label", { for: byHand.id }, "Look at my own translation")),
  );
  const nodes = [
    element("div", { class: "sentences" }, element("div", { class: "typing" }, element("label", { for: source.id, class: "field-name" }, "Source"), source), results),
    element("div", { class: "under" }, examples, options),
    targetBox,
  ];
  return {
    nodes,
    results,
    show(state, examplesOfModel) {
      if (source.value !== state.source) source.value = state.source;
      if (state.target !== null && target.value !== state.target) target.value = state.target;
      byHand.checked = state.target !== null;
      targetBox.hidden = state.target === null;
      if (![...beam.options].some((option) => Number(option.value) === state.beam)) beam.append(element("option", { value: state.beam }, String(state.beam)));
      beam.value = String(state.beam);
      examples.replaceChildren(...examplesOfModel.map((text) => exampleButton(text, text === state.source, onSource)));
    },
  };
}

function exampleButton(text, chosen, onSource) {
  return pushButton(text, () => onSource(text, "push"), { class: "example", dir: "auto", title: text, "aria-pressed": String(chosen) });
}

/** Where one model's translation appears. */
export function createResult() {
  const name = element("span", { class: "field-name" }, "Translation");
  const text = element("p", { class: "result-text", dir: "auto" });
  const live = element("div", { class: "live", role: "status", "aria-live": "polite" }, text);
  const facts = element("p", { class: "facts" });
  const waiting = element("span", { class: "waiting", "aria-hidden": "true", hidden: true }, "…");
  const box = element("div", { class: "result" }, element("div", { class: "result-head" }, name, waiting, facts), live);
  return {
    element: box,
    title(words) {
      name.textContent = words;
    },
    busy(isBusy) {
      waiting.hidden = !isBusy;
    },
    /** @param {import("./api.js").Translation} now @param {import("./api.js").Translation|null} usual without silencing */
    show(now, usual, silencedCount) {
      box.classList.remove("failed");
      const changed = usual !== null && usual.translation !== now.translation;
      text.replaceChildren(changed ? drawDifferences(usual.translation, now.translation) : now.translation || "(nothing)");
      const silence = usual === null ? "" : `${silencedCount === 1 ? "1 head" : `${silencedCount} heads`} silenced: ${changed ? "the marked words changed" : "nothing changed"} · `;
      facts.textContent = `${silence}score ${now.score.toFixed(2).replace("-", "−")} · ${now.milliseconds.toFixed(0)} ms`;
    },
    /** Say something beside the translation. */
    remark(message) {
      facts.textContent = message;
    },
    fail(message) {
      box.classList.add("failed");
      text.textContent = message;
      facts.textContent = "";
    },
    clear() {
      box.classList.remove("failed");
      text.textContent = "";
      facts.textContent = "";
    },
  };
}

/** The sentence of a self-contained file: nothing to type. @param {import("./api.js").Looked} looked */
export function drawSentence(looked) {
  const part = (name, text) => element("div", { class: "result" }, element("span", { class: "field-name" }, name), element("p", { class: "result-text", dir: "auto" }, text));
  return element("div", { class: "sentences" }, part("Source", looked.source), part("Translation", looked.target));
}
