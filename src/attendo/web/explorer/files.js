/** A file for models that read images or recordings: dropped anywhere on the page, or chosen with a button. */

import { element, uniqueId } from "../shared/dom.js";
import { shortened } from "../shared/tokens.js";

const ACCEPTED = { image: "image/png,image/jpeg,image/gif,image/webp,image/bmp", recording: ".wav,audio/wav,audio/x-wav" };
const LARGEST_SIDE = 512; // pixels; larger images are scaled down before they are sent

/**
 * @param {{onFile: (url: string, name: string) => void, longest: number}} options longest: characters of a data URL
 */
export function createFileField({ onFile, longest }) {
  let reads = "text";
  const input = element("input", { type: "file", id: uniqueId("file") });
  const trouble = element("p", { class: "trouble", role: "alert" });
  const name = element("p", { class: "file-name", "aria-live": "polite" });
  const preview = element("div", { class: "file-preview" });
  const box = element(
    "div",
    { class: "drop-zone", hidden: true },
    element("label", { class: "button", for: input.id }, "Choose a file"),
    input,
    element("span", { class: "for-keys" }, "or drop it on this page"),
    name,
    preview,
    trouble,
  );
  input.addEventListener("change", () => {
    take(input.files?.[0]);
    input.value = ""; // so that the same file can be chosen again
  });
  for (const event of ["dragover", "drop"]) {
    document.addEventListener(event, (/** @type {any} */ drag) => {
      if (box.hidden || !drag.dataTransfer?.types.includes("Files")) return;
      drag.preventDefault(); // or the browser would open the file instead of the page
      box.classList.toggle("dragging", event === "dragover");
      if (event === "drop") take(drag.dataTransfer.files[0]);
    });
  }
  document.addEventListener("dragleave", () => box.classList.remove("dragging"));

  async function take(file) {
    if (!file) return;
    trouble.textContent = "";
    try {
      const url = reads === "image" ? await readImage(file) : await readUrl(file);
      if (url.length > longest) throw new Error(`${file.name} is too large: up to ${Math.floor((longest * 0.75) / 1e6)} MB can be sent.`);
      show(url, file.name);
      onFile(url, file.name);
    } catch (error) {
      trouble.textContent = error.message;
    }
  }

  function show(url, fileName) {
    name.textContent = shortened(fileName, 60);
    const isSound = reads === "recording";
    preview.replaceChildren(isSound ? "" : element("img", { src: url, alt: `The file ${fileName}` }));
  }

  return {
    element: box,
    input,
    /** Offer the field for a model that reads files, hide it for others. */
    offer(newReads) {
      if (newReads !== reads) this.clear();
      reads = newReads;
      box.hidden = reads === "text";
      if (!box.hidden) input.accept = ACCEPTED[reads] ?? "";
    },
    clear() {
      name.textContent = trouble.textContent = "";
      preview.replaceChildren();
    },
  };
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
