/** An experiment: training without the look-ahead mask. The server trains two small models on request. */

import { element, pushButton } from "../shared/dom.js";
import { lineChart } from "./charts.js";
import { digits, mean } from "./numbers.js";
import { card, figureText, note } from "./parts.js";
import { requestUnmasked } from "./server.js";

const USUAL_SECONDS = 15;
const LAST_STEPS = 10;

/** The card of the experiment. @param {string} source the sentence that both translate after training */
export function createUnmasked(source) {
  const outcome = element("div", { class: "unmasked-outcome" });
  const status = element("p", { class: "walk-note", role: "status" });
  const progress = element("progress", { max: 1, value: 0, hidden: true, "aria-label": "Training" });
  const button = pushButton("Train both models", train, { class: "button main-button" });

  async function train() {
    button.disabled = true;
    const stop = countSeconds(status, progress);
    try {
      outcome.replaceChildren(...outcomePictures(await requestUnmasked(source)));
      status.textContent = "Training is complete.";
    } catch (error) {
      status.textContent = "";
      outcome.replaceChildren(element("p", { class: "trouble", role: "alert" }, error.message));
    } finally {
      stop();
      button.disabled = false;
    }
  }

  return card(
    "Try it: train without the mask",
    note(
      "The server trains two small models on the same sentences, with the same initial parameters: one with the mask, one without. This takes about 15 seconds.",
    ),
    element("div", { class: "controls" }, button, progress),
    status,
    outcome,
  );
}

/** Show progress; the server does not report it, so the bar follows the usual time. */
function countSeconds(status, progress) {
  const began = performance.now();
  progress.hidden = false;
  const tick = () => {
    const seconds = (performance.now() - began) / 1000;
    progress.value = 1 - Math.exp((-2 * seconds) / USUAL_SECONDS);
  };
  status.textContent = "Training two models …";
  tick();
  const timer = setInterval(tick, 250);
  return () => {
    clearInterval(timer);
    progress.hidden = true;
  };
}

function outcomePictures(trained) {
  const last = (losses) => digits(mean(losses.slice(-LAST_STEPS)), 2);
  const lines = [
    { name: "with the mask", values: trained.with_mask },
    { name: "without the mask", values: trained.without_mask, classes: "second" },
  ];
  return [
    lineChart({
      title: "Training loss",
      label: `Training loss. With the mask it ends at ${last(trained.with_mask)}, without at ${last(trained.without_mask)}.`,
      lines,
      across: "training step",
      up: "loss",
      tickText: (at) => String(at),
    }),
    element(
      "div",
      { class: "side-by-side" },
      answer("With the mask", last(trained.with_mask), trained.translations.with_mask, ""),
      answer("Without the mask", last(trained.without_mask), trained.translations.without_mask, "warm"),
    ),
    note(
      "Without the mask the training loss falls lower, because the decoder can copy the next token from its own input. Generation fails: the next token is not in the input then.",
    ),
  ];
}

function answer(title, loss, translation, classes) {
  return element(
    "div",
    { class: `answer ${classes}` },
    element("h4", {}, title),
    element("p", {}, "training loss ", figureText(loss)),
    element("p", { class: "answer-text", dir: "auto" }, translation || "(empty)"),
  );
}
