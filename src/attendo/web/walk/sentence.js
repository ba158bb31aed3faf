/** The sentence at the top of the page: a field, a button and examples. */

import { element, pushButton } from "../shared/dom.js";

const EXAMPLES = [
  "The brothers want to sell the car.",
  "The dog sees the cat.",
  "The old farmer sells the car.",
  "The animal did not cross the street because it was too tired.",
  "The animal did not cross the street because it was too wide.",
];

/** @param {(source: string) => void} onRun */
export function createSentence(onRun) {
  const input = element("input", {
    type: "text",
    id: "source",
    class: "text-field",
    autocomplete: "off",
    spellcheck: "false",
    "aria-describedby": "sentence-trouble",
    dir: "auto",
  });
  const trouble = element("p", { class: "trouble", id: "sentence-trouble", role: "alert" });
  const button = pushButton("Run", () => {}, { type: "submit", class: "button main-button" });
  const form = element(
    "form",
    { class: "sentence-form" },
    element(
      "div",
      { class: "field" },
      element("label", { class: "field-name", for: "source" }, "A short sentence using the demo vocabulary"),
      input,
    ),
    button,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onRun(input.value.trim());
  });
  const examples = EXAMPLES.map((text) => pushButton(text, () => onRun(text), { class: "example", title: text }));
  const box = element(
    "div",
    { class: "sentence" },
    form,
    trouble,
    element("div", { class: "examples", role: "group", "aria-label": "Examples" }, ...examples),
  );
  return {
    element: box,
    show(source) {
      input.value = source;
      for (const example of examples) example.setAttribute("aria-pressed", String(example.textContent === source));
    },
    setBusy(busy) {
      button.textContent = busy ? "Running …" : "Run";
      box.setAttribute("aria-busy", String(busy));
    },
    showMessage(message) {
      trouble.textContent = message;
      input.setAttribute("aria-invalid", String(message !== ""));
    },
  };
}
