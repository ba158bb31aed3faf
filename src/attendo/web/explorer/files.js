/** What a model reads, from a file: dropped anywhere on the page, or chosen with a button. */

import { element, uniqueId } from "../shared/dom.js";
import { shortened } from "../shared/tokens.js";

const ACCEPTED = {
  text: ".txt,.md,text/plain",
  image: "image/png,image/jpeg,image/gif,image/webp,image/bmp",
  recording: ".wav,audio/wav,audio/x-wav",
};
const EXPECTED = { text: "a text file in UTF-8, such as .txt or .md", image: "an image, such as .png or .jpg", recording: "a recording, .wav" };
const MEDIA = { image: "image", recording: "audio" };
const LARGEST_SIDE = 512; // pixels; larger images are scaled down before they are sent

/**
 * @param {{onFile: (url: string) => void, onText: (text: string) => void, begin: (text: string) => Promise<string>, longest: number}} options
 *   begin: returns as much of a text as the model reads at once; longest: characters of a data URL
 */
export function createFileField({ onFile, onText, begin, longest }) {
  let reads = "";
  let newest = null;
  const input = element("input", { type: "file", id: uniqueId("file") });
  const trouble = element("p", { class: "trouble", role: "alert" });
  const name = element("p", { class: "file-name", "aria-live": "polite" });
  const preview = element("div", { class: "file-preview" });
  const box = element(
    "div",
    { class: "drop-zone" },
    element("div", { class: "file-choice" }, element("label", { class: "button", for: input.id }, "Choose a file"), input, element("span", { class: "for-keys" }, "or drop it on this page")),
    name,
    preview,
    trouble,
  );
  input.addEventListener("change", () => {
    take([...input.files]);
    input.value = ""; // so that the same file can be chosen again
  });
  // Where the page has just been drawn again, a file enters an element and is dropped without being moved over it.
  for (const event of ["dragenter", "dragover", "drop"]) {
    document.addEventListener(event, (/** @type {any} */ drag) => {
      if (!drag.dataTransfer?.types.includes("Files")) return;
      drag.preventDefault(); // or the browser would open the file instead of the page
      box.classList.toggle("dragging", event !== "drop");
      if (event === "drop") take([...drag.dataTransfer.files]);
    });
  }
  document.addEventListener("dragleave", () => box.classList.remove("dragging"));

  async function take(files) {
    const [file] = files;
    if (!file) return;
    trouble.textContent = "";
    newest = file;
    try {
      if (files.length > 1) throw new Error(`${files.length} files were given; expected one.`);
      await (reads === "text" ? takeText(file) : takeMedium(file));
    } catch (error) {
      if (newest === file) trouble.textContent = error.message;
    }
  }

  async function takeText(file) {
    const given = await readText(file, 0.75 * longest);
    const read = await begin(given);
    if (newest !== file) return;
    onText(read);
    const [count, all] = [read, given].map((text) => text.length.toLocaleString("en"));
    const cut = `: the first ${count} of ${all} characters, as much as is read at once`;
    name.textContent = shortened(file.name, 60) + (count === all ? "" : cut);
  }

  async function takeMedium(file) {
    if (file.type && !file.type.startsWith(`${MEDIA[reads]}/`)) throw unexpected(file, reads);
    const url = reads === "image" ? await readImage(file) : await readUrl(file);
    if (newest !== file) return;
    if (url.length > longest) throw tooLarge(file, 0.75 * longest);
    name.textContent = shortened(file.name, 60);
    preview.replaceChildren(reads === "recording" ? "" : element("img", { src: url, alt: `The file ${file.name}` }));
    onFile(url);
  }

  return {
    element: box,
    input,
    /** Offer the field for what a model reads. */
    offer(newReads) {
      if (newReads === reads) return;
      this.clear();
      reads = newReads;
      input.accept = ACCEPTED[reads] ?? "";
      box.classList.toggle("for-text", reads === "text");
    },
    clear() {
      newest = null;
      name.textContent = trouble.textContent = "";
      preview.replaceChildren();
    },
  };
}

function unexpected({ name, type }, reads) {
  return new Error(`${shortened(name, 60)} ${type ? `is of the type ${type}` : "cannot be read as text"}; expected ${EXPECTED[reads]}.`);
}

function tooLarge({ name, size }, most) {
  const [given, limit] = [size, most].map((bytes) => (bytes / 1e6).toFixed(2));
  return new Error(`${shortened(name, 60)} is too large: it has ${given} MB, and up to ${limit} MB can be read here.`);
}

/** A file in UTF-8 without the white space around its text. */
async function readText(file, most) {
  if (/^(image|audio|video)\//.test(file.type)) throw unexpected(file, "text");
  if (file.size > most) throw tooLarge(file, most);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()).replace(/\r\n?/g, "\n").trim();
  } catch {
    throw unexpected({ name: file.name }, "text");
  }
  if (text.includes("\0")) throw unexpected({ name: file.name }, "text");
  if (!text) throw new Error(`${shortened(file.name, 60)} is empty; expected ${EXPECTED.text}.`);
  return text;
}

/** @param {Blob} file @returns {Promise<string>} */
function readUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error("The file cannot be read."));
    reader.readAsDataURL(file);
  });
}

/** An image as a data URL; a photograph is scaled down first, since models read small images. What is no image is left to the server to refuse. */
async function readImage(file) {
  let image;
  try {
    image = await createImageBitmap(file);
  } catch {
    return readUrl(file);
  }
  const scale = LARGEST_SIDE / Math.max(image.width, image.height);
  if (scale >= 1) return readUrl(file);
  const canvas = element("canvas", { width: Math.round(image.width * scale), height: Math.round(image.height * scale) });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}
