/** An experiment: training without the look-ahead mask. Two small models learn on the server while the person waits. */

import { element, pushButton } from "./dom.js";
import { lineChart } from "./walk-charts.js";
import { digits, mean } from "./walk-numbers.js";
import { card, figureText, note } from "./walk-parts.js";
import { askCheat } from "./walk-server.js";

const USUAL_SECONDS = 15;
const LAST_STEPS = 10;

/** The card of the experiment. @param {string} source the sentence that both translate afterwards */
export function createCheat(source) {
  const outcome = element("div", { class: "cheat-outcome" });
  const status = element("p", { class: "walk-note", role: "status" });
  const progress = element("progress", { max: 1, value: 0, hidden: true, "aria-label": "Training" });
  const button = pushButton("Train both", train, { class: "button main-button" });

  async function train() {
    button.disabled = true;
    const stop = countSeconds(status, progress);
    try {
      outcome.replaceChildren(...cheatPictures(await askCheat(source)));
      status.textContent = "Trained.";
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
      "Two small models with the same beginning learn the same sentences here and now: one with the mask, one without. It takes about 15 seconds.",
    ),
    element("div", { class: "controls" }, button, progress),
    status,
    outcome,
  );
}

/** Say that work goes on; the server does not tell how far it is, so the bar follows the usual time. */
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

function cheatPictures(cheat) {
  const last = (losses) => digits(mean(losses.slice(-LAST_STEPS)), 2);
  const lines = [
    { name: "with the mask", values: cheat.with_mask },
    { name: "without the mask", values: cheat.without_mask, classes: "second" },
  ];
  return [
    lineChart({
      label: `Training loss. With the mask it ends at ${last(cheat.with_mask)}, without at ${last(cheat.without_mask)}.`,
      lines,
      across: "training step",
      up: "loss",
      tickText: (at) => String(at),
    }),
    element(
      "div",
      { class: "side-by-side" },
      answer("With the mask", last(cheat.with_mask), cheat.translations.with_mask, ""),
      answer("Without the mask", last(cheat.without_mask), cheat.translations.without_mask, "warm"),
    ),
    note(
      "Without the mask the loss looks better: the model reads the answer that it is to predict. When it translates, there is no answer to read, and it has learned nothing else.",
    ),
  ];
}

function answer(title, loss, translation, classes) {
  return element(
    "div",
    { class: `answer ${classes}` },
    element("h4", {}, title),
    element("p", {}, "loss ", figureText(loss)),
    element("p", { class: "answer-text", dir: "auto" }, translation || "(nothing)"),
  );
}
