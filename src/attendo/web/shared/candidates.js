/** Which tokens the model considered at each step, or which labels, and the probability of each at a temperature. */

import { arrowKeys, element, uniqueId } from "./dom.js";
import { isEncoded, predictsLabel } from "./maps.js";
import { percentText, tempered } from "./numbers.js";
import { quoted, shortToken, tokenClasses, tokenText } from "./tokens.js";

/**
 * @param {{onHover: (step: number|null) => void, onPin: (step: number) => void,
 *   onTemperature?: (temperature: number) => void}} listeners
 */
export function createCandidates({ onHover, onPin, onTemperature = () => {} }) {
  const line = element("div", { class: "certainty", role: "toolbar", "aria-label": "Predicted tokens, with the probability of each" });
  const title = element("p", { class: "step-title" });
  const list = element("ol", { class: "candidates" });
  const dial = createTemperature((temperature) => onTemperature(temperature));
  const box = element("div", { class: "steps" }, line, element("div", { class: "step" }, title, list), dial.element);
  let recording = null;
  let shownStep = -1;
  let temperature = 1;

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
    if (step === shownStep || !recording?.steps[step]) return;
    shownStep = step;
    [...line.children].forEach((button, index) => button.classList.toggle("chosen", index === step));
    title.replaceChildren(...(predictsLabel(recording) ? ["Probability of each label:"] : stepTitle(step)));
    drawList();
  }

  function stepTitle(step) {
    if (isEncoded(recording)) return positionTitle(recording, recording.steps[step].position);
    const context = recording.target_inputs.slice(Math.max(0, step - 3), step + 1).map((token) => shortToken(token, 16));
    return [`Step ${step + 1}. Next token after “${step > 3 ? "… " : ""}`, element("bdi", {}, context.join(" ")), "”:"];
  }

  /** Probability at the chosen temperature, of the written token or of a candidate of its step. */
  function probability(one, step) {
    const at = recording.temperatures?.indexOf(temperature) ?? -1;
    return at < 0 ? one.probability : tempered(one.log_prob, temperature, step.normalizers[at]);
  }

  function drawList() {
    const step = recording.steps[shownStep];
    if (!step) return list.replaceChildren();
    const shares = step.candidates.map((candidate) => probability(candidate, step));
    const items = step.candidates.map((candidate, at) => candidateItem(candidate.token, shares[at], candidate.token === step.token));
    const rest = 1 - shares.reduce((sum, share) => sum + share, 0);
    list.replaceChildren(...items, ...(rest > 5e-5 ? [restItem(rest)] : []));
  }

  function drawLine() {
    line.replaceChildren(...recording.steps.map((step, index) => certaintyButton(step, index, probability(step, step), recording.steps.map(({ token }) => token))));
  }

  return {
    element: box,
    /** @param {import("./api.js").Recording} newRecording */
    show(newRecording) {
      recording = newRecording;
      shownStep = -1;
      line.hidden = predictsLabel(recording);
      dial.offer(predictsLabel(recording) ? [] : (recording.temperatures ?? []), temperature);
      drawLine();
      list.replaceChildren();
      title.textContent = recording.steps.length ? "" : isEncoded(recording) ? "There is nothing to predict." : "The translation is empty.";
      showStep(recording.task === "language-model" ? recording.steps.length - 1 : leastSure(recording.steps));
    },
    showStep,
    /** Change the temperature of all probabilities. */
    setTemperature(value) {
      if (value === temperature) return;
      temperature = value;
      dial.show(value);
      if (!recording) return;
      drawLine();
      line.children[shownStep]?.classList.add("chosen");
      drawList();
    },
  };
}

/** A slider over the temperatures for which the data has exact probabilities. */
function createTemperature(onChange) {
  const slider = element("input", { type: "range", min: 0, step: 1, id: uniqueId("temperature") });
  const value = element("output", { for: slider.id, class: "number" });
  const hint = element("span", { class: "dial-hint" });
  const box = element("p", { class: "dial", hidden: true }, element("label", { for: slider.id }, "Temperature"), slider, value, hint);
  let offered = [];
  slider.addEventListener("input", () => onChange(offered[Number(slider.value)]));
  const show = (temperature) => {
    const at = offered.indexOf(temperature);
    slider.value = String(at < 0 ? offered.indexOf(1) : at);
    value.textContent = String(offered[Number(slider.value)]);
    slider.setAttribute("aria-valuetext", value.textContent);
    hint.textContent = temperature === 1 ? "as in training and search" : temperature < 1 ? "sharper" : "flatter";
  };
  return {
    element: box,
    offer(temperatures, chosen) {
      offered = temperatures;
      box.hidden = temperatures.length === 0;
      slider.max = String(Math.max(temperatures.length - 1, 0));
      if (!box.hidden) show(chosen);
    },
    show: (temperature) => offered.length && show(temperature),
  };
}

/** A token between its neighbours; where tokens are hidden, it is one of them. */
function positionTitle({ mask, source_tokens: tokens }, position) {
  const isHidden = Boolean(mask) && tokens.includes(mask);
  const shown = tokens.map((token, at) => (isHidden && at === position ? mask : shortToken(token, 16)));
  const around = shown.slice(Math.max(0, position - 2), position + 3).join(" ");
  return [isHidden ? "Hidden token in “" : `${quoted(tokens[position])} in “`, element("bdi", {}, around), "”:"];
}

/** The step with the smallest probability. */
function leastSure(steps) {
  return steps.reduce((least, step, index) => (step.probability < steps[least].probability ? index : least), 0);
}

function certaintyButton(step, index, probability, sentence) {
  const bar = element("span", { class: "level" });
  bar.style.height = `${(100 * probability).toFixed(1)}%`;
  const percent = Math.round(100 * probability);
  return element(
    "button",
    {
      type: "button",
      class: `certain ${tokenClasses(step.token, index, sentence)}`,
      title: `${tokenText(step.token)} ${percent} %`,
      "aria-label": `${quoted(step.token)} ${percent} percent`,
      "data-index": index,
      tabindex: index === 0 ? "0" : "-1",
    },
    element("span", { class: "well" }, bar),
    element("span", { class: "certain-text", dir: "auto" }, tokenText(step.token)),
  );
}

function candidateItem(token, probability, isWritten) {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.inlineSize = `${Math.max(100 * probability, 0.4).toFixed(2)}%`;
  return element(
    "li",
    { class: isWritten ? "written" : "" },
    element("span", { class: "candidate", dir: "auto", title: tokenText(token) }, tokenText(token)),
    element("span", { class: "bar-well" }, bar),
    element("span", { class: "number" }, percentText(probability)),
  );
}

/** Everything that is not in the list, so that the list sums to 1. */
function restItem(probability) {
  const item = candidateItem("all others", probability, false);
  item.classList.add("rest");
  return item;
}
