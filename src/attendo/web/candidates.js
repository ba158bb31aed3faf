/** Which tokens the model considered at each step, and how sure it was. */

import { arrowKeys, element } from "./dom.js";
import { quoted, shortToken, tokenClasses, tokenText } from "./tokens.js";

/**
 * @param {{onHover: (step: number|null) => void, onPin: (step: number) => void}} listeners
 */
export function createCandidates({ onHover, onPin }) {
  const line = element("div", { class: "certainty", role: "toolbar", "aria-label": "Target tokens, with the probability of each" });
  const title = element("p", { class: "step-title" });
  const list = element("ol", { class: "candidates" });
  const box = element("div", { class: "steps" }, line, element("div", { class: "step" }, title, list));
  let looked = null;
  let shownStep = -1;

  arrowKeys(line, "button");
  const stepAt = (event) => {
    const button = event.target.closest("button");
    return button ? Number(button.dataset.index) : null;
  };
  line.addEventListener("pointerover", (event) => stepAt(event) !== null && choose(stepAt(event)));
  line.addEventListener("pointerleave", () => onHover(null));
  line.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && choose(stepAt(event)));
  line.addEventListener("focusout", () => onHover(null));
  line.addEventListener("click", (event) => {
    if (stepAt(event) === null) return;
    showStep(stepAt(event));
    onPin(stepAt(event));
  });

  function choose(step) {
    showStep(step);
    onHover(step);
  }

  function showStep(step) {
    if (step === shownStep || !looked?.steps[step]) return;
    shownStep = step;
    [...line.children].forEach((button, index) => button.classList.toggle("chosen", index === step));
    const context = looked.target_inputs.slice(Math.max(0, step - 3), step + 1).map((token) => shortToken(token, 16));
    title.replaceChildren(
      `Step ${step + 1}. After “${step > 3 ? "… " : ""}`,
      element("bdi", {}, context.join(" ")),
      "” the model considers:",
    );
    list.replaceChildren(...looked.steps[step].candidates.map((candidate) => candidateItem(candidate, looked.target_tokens[step])));
  }

  return {
    element: box,
    /** @param {import("./api.js").Looked} newLooked */
    show(newLooked) {
      looked = newLooked;
      shownStep = -1;
      line.replaceChildren(...looked.steps.map((step, index) => certaintyButton(step, index, looked.target_tokens)));
      list.replaceChildren();
      title.textContent = looked.steps.length ? "" : "Nothing was written.";
      showStep(leastSure(looked.steps));
    },
    showStep,
  };
}

/** The step with the smallest probability: the one worth talking about. */
function leastSure(steps) {
  return steps.reduce((least, step, index) => (step.probability < steps[least].probability ? index : least), 0);
}

function certaintyButton(step, index, sentence) {
  const bar = element("span", { class: "level" });
  bar.style.height = `${(100 * step.probability).toFixed(1)}%`;
  const percent = Math.round(100 * step.probability);
  return element(
    "button",
    {
      type: "button",
      class: `certain ${tokenClasses(step.token, index, sentence)}`,
      title: `${step.token} ${percent} %`,
      "aria-label": `${quoted(step.token)} ${percent} percent`,
      "data-index": index,
      tabindex: index === 0 ? "0" : "-1",
    },
    element("span", { class: "well" }, bar),
    element("span", { class: "certain-text", dir: "auto" }, tokenText(step.token)),
  );
}

function candidateItem({ token, probability }, written) {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.inlineSize = `${Math.max(100 * probability, 0.4).toFixed(2)}%`;
  return element(
    "li",
    { class: token === written ? "written" : "" },
    element("span", { class: "candidate", dir: "auto", title: token }, tokenText(token)),
    element("span", { class: "bar-well" }, bar),
    element("span", { class: "number" }, percentText(probability)),
  );
}

function percentText(probability) {
  const percent = 100 * probability;
  if (percent >= 99.95) return percent > 99.995 ? "100 %" : `${percent.toFixed(2)} %`;
  return percent < 0.01 ? "< 0.01 %" : `${percent.toFixed(percent < 1 ? 2 : 1)} %`;
}
