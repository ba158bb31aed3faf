/** What the page calls the text, the prediction and its candidates, by the task of a model. */

/** @typedef {{field: string, placeholder: string, result: string, candidates: string}} TaskTexts */

/** @type {Record<string, TaskTexts>} */
const TEXTS = {
  translation: { field: "Source", placeholder: "Type text to translate", result: "Translation", candidates: "Next-token candidates" },
  "language-model": { field: "Text", placeholder: "Type the beginning of a text", result: "Continuation", candidates: "Next-token candidates" },
  "masked-language-model": {
    field: "Text with hidden words",
    placeholder: "Type a text, then choose words to hide",
    result: "Text with the most probable words",
    candidates: "Candidates for hidden words",
  },
  "pair-classification": { field: "Two texts", placeholder: "Paste two texts with a TAB between them", result: "Predicted label", candidates: "Labels" },
  "token-classification": { field: "Text", placeholder: "Type a text to label", result: "Predicted labels", candidates: "Labels" },
  parsing: { field: "Sentence", placeholder: "Type a sentence to parse", result: "Tree", candidates: "Next-bracket candidates" },
  "parsing-spans": { field: "Sentence", placeholder: "Type a sentence to parse", result: "Tree", candidates: "Parts of speech" },
  classification: { field: "Text", placeholder: "Type a text to classify", result: "Predicted label", candidates: "Labels" },
  "image-classification": { field: "Image", placeholder: "", result: "Predicted label", candidates: "Labels" },
  "audio-classification": { field: "Recording", placeholder: "", result: "Predicted label", candidates: "Labels" },
  "speech-recognition": { field: "Recording", placeholder: "", result: "Transcript", candidates: "Next-token candidates" },
};

const OTHER = { field: "Text", placeholder: "Type a text", result: "Prediction", candidates: "Candidates" };

/** @param {string} task @returns {TaskTexts} */
export function textsOf(task) {
  return TEXTS[task] ?? OTHER;
}
