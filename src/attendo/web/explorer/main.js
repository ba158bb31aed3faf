/** Builds the page: a served one that translates as you type, or a self-contained file that only shows. */

import { createEmbedded, createServer, embeddedData } from "../shared/api.js";
import { afterPause, element, pushButton, uniqueId } from "../shared/dom.js";
import { createExplorer } from "./explorer.js";
import { createLoader } from "./loader.js";
import { isPair, layerCount } from "../shared/maps.js";
import { countText, sizeText } from "../shared/numbers.js";
import { firstSentences, sentenceAt } from "./sentences.js";
import { headName, toggled } from "./ablation.js";
import { drawPrediction } from "./prediction.js";
import { bindToAddress, createStore, fromFragment, KINDS } from "./state.js";
import { restoreTheme, themeButton } from "../shared/theme.js";
import { textsOf } from "./tasks.js";
import { createResult, createTranslate, drawSentence } from "./translate.js";

const TYPING_PAUSE = 250; // milliseconds

const KIND_TEXTS = {
  encoder: ["Encoder", "Encoder self-attention. Rows: queries, columns: keys, both source tokens."],
  cross: ["Cross", "Encoder-decoder attention. Rows: queries (target tokens), columns: keys (source tokens)."],
  decoder: ["Decoder", "Decoder self-attention. Rows: queries, columns: keys, both target tokens; later tokens are masked."],
};

/** The same for a model with one text. */
const ONE_TEXT_HINTS = {
  encoder: "Encoder self-attention. Rows: queries, columns: keys, both tokens of the text.",
  decoder: "Decoder self-attention. Rows: queries, columns: keys, both tokens of the text; later tokens are masked.",
};

const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Start the page. */
async function start() {
  restoreTheme();
  const store = createStore(fromFragment(location.hash));
  const kinds = createKinds(store);
  byId("kinds").append(kinds.element);
  skipLink();
  const embedded = embeddedData();
  if (embedded) startFile(store, embedded, kinds);
  else await startServed(store, kinds);
}

/** A file may hold what to show first, in "start": kind, layer, head, pin. A link has priority. */
function startFile(store, recording, kinds) {
  if (!location.hash) store.set(recording.start ?? {}, "location");
  kinds.offer("model", recording);
  byId("models").append(modelLine("", recording.facts));
  for (const part of document.querySelectorAll("[data-server]")) /** @type {HTMLElement} */ (part).hidden = true;
  byId("translate").append(drawSentence(recording));
  const explorer = createExplorer({ store, services: createEmbedded(recording), canAblate: false });
  byId("columns").append(explorer.element);
  byId("tools").append(themeButton(() => explorer.recolour()));
  bindToAddress(store);
  keys(store, null);
  explorer.show(recording);
  store.subscribe((state, before) => follow(explorer, state, before));
}

async function startServed(store, kinds) {
  const server = createServer();
  let answer;
  try {
    answer = await server.models();
    if (answer.models.length === 0) throw new Error("The server has no models.");
  } catch (error) {
    byId("translate").append(element("p", { class: "trouble", role: "alert" }, error.message));
    byId("tools").append(themeButton(() => {}));
    return;
  }
  completeState(store, answer.models);
  bindToAddress(store);
  buildPage(store, limited(server, answer.longest_text), answer, kinds);
}

/** A server that refuses texts that are too long before they are sent. */
function limited(server, longest) {
  const translate = (body, signal) => {
    const length = [...body.source].length;
    if (length <= longest) return server.translate(body, signal);
    const [given, limit] = [length, longest].map((count) => count.toLocaleString("en"));
    return Promise.reject(new Error(`The text is too long: it has ${given} characters, and up to ${limit} can be translated here. Shorten it, or use “attendo translate”.`));
  };
  return { ...server, translate };
}

function buildPage(store, server, { models, longest_file: longestFile, longest_text: longestText }, kinds) {
  let segments = [];
  let file = ""; // as a data URL; too long for the address
  const choose = (sentence) => store.set({ sentence, pin: null, target: null });
  const form = createTranslate({
    longestFile,
    async begin(text) {
      return (await server.beginning({ model: store.get().model, source: firstSentences(text, longestText) })).source;
    },
    onFile(url) {
      file = url;
      store.set({ source: "", pin: null }, "replace");
      for (const column of [first, second]) column?.reload();
    },
    onSource(source, how) {
      file = "";
      store.set({ source, sentence: null, pin: null }, how);
      for (const column of [first, second]) column?.reload();
    },
    onTarget: (target) => store.set({ target, pin: null }, "replace"),
    onBeam: (beam) => store.set({ beam }),
    onSentence: choose,
    onCaret() {
      const isKnown = segments.map(({ source, gap }) => source + gap).join("") === store.get().source;
      if (isKnown && segments.length > 1) choose(sentenceAt(segments, form.caret()));
    },
  });
  byId("translate").append(...form.nodes);
  const shared = { store, server, models, form, kinds, onSentence: choose, file: () => file };
  const onTranslation = (now, sentence) => {
    ({ segments } = now);
    form.mark(now, sentence);
  };
  const first = createColumn({ ...shared, role: "model", onTranslation });
  let second = null;
  const tools = modelTools(store, models);
  byId("tools").append(...tools.nodes, copyButton(), themeButton(() => [first, second].forEach((column) => column?.recolour())));
  keys(store, first);

  let reads = "text"; // of the first model
  const showAll = (state, before, how) => {
    const now = models.find((model) => model.name === state.model)?.reads ?? "text";
    if (now !== reads) [file, reads] = ["", now]; // an image is of no use to a model of recordings
    if (Boolean(state.compare) !== Boolean(second)) {
      second?.remove();
      second = state.compare ? createColumn({ ...shared, role: "compare", onTranslation: () => {} }) : null;
      second?.recolour();
      document.body.classList.toggle("comparing", second !== null);
    }
    form.show(state, models.find((model) => model.name === state.model) ?? models[0]);
    tools.show(state);
    for (const column of [first, second]) column?.follow(state, before, how);
  };
  store.subscribe(showAll);
  showAll(store.get(), null, "push");
}

/** One model's translation and explorer; `role` is "model" or "compare". */
function createColumn({ store, server, models, form, kinds, role, onSentence, onTranslation, file }) {
  const result = createResult(onSentence);
  const explorer = createExplorer({ store, services: server, canAblate: role === "model" });
  const name = element("h3", { class: "column-name" });
  const facts = element("div", {});
  const notice = element("p", { class: "trouble", role: "status" });
  const box = element("div", { class: "column" }, name, notice, explorer.element);
  form.results.append(result.element);
  byId("models").append(facts);
  byId("columns").append(box);
  const modelOf = (state) => models.find((model) => model.name === state[role]);
  const onText = (source) => store.set({ source, sentence: null, pin: null });
  const onSeed = (seed) => store.set({ seed });
  const loader = createLoader(server, {
    onBusy: result.busy,
    onPrediction(now, usual) {
      form.unmark();
      form.name(now.recording.unknown);
      result.present(drawPrediction(now, usual, { onText, onSeed, seed: store.get().seed }));
    },
    caret: form.caret,
    onTranslation(now, usual, sentence) {
      onTranslation(now, sentence);
      result.show(now, usual, store.get().ablated.length, sentence);
    },
    onRecording(recording) {
      explorer.element.inert = false;
      notice.textContent = "";
      kinds.offer(role, recording);
      explorer.show(recording);
    },
    onUnseen(message) {
      kinds.offer(role, null);
      notice.textContent = message;
      explorer.show(null);
    },
    onError(message) {
      result.fail(message);
      form.unmark();
      notice.textContent = "";
      explorer.element.inert = true; // what is below belongs to an earlier sentence
    },
    onEmpty() {
      result.clear();
      form.unmark();
      notice.textContent = "";
      kinds.offer(role, null);
      explorer.show(null);
    },
  });
  const wishOf = (state) => ({
    model: state[role],
    task: modelOf(state)?.task,
    source: sourceOf(state, modelOf(state), file()),
    target: state.target,
    ablated: role === "model" ? state.ablated : [], // so that a model can be compared with itself before ablation
    beam: state.beam,
    sentence: state.sentence,
    seed: state.seed,
    temperature: state.seed === null ? 1 : state.temperature,
  });
  const loadNow = () => loader.load(wishOf(store.get()));
  const loadSoon = afterPause(loadNow, TYPING_PAUSE);
  return {
    follow(state, before, how) {
      name.textContent = state[role];
      facts.replaceChildren(modelLine(state[role], modelOf(state)));
      const title = textsOf(modelOf(state)?.task).result;
      result.title(state.compare ? `${title} by ${state[role]}` : title);
      const typed = before !== null && how === "replace" && (state.source !== before.source || state.target !== before.target);
      if (typed) loadSoon();
      else loadNow();
      follow(explorer, state, before);
    },
    /** Ask again if anything has changed; typing has its own pause. */
    reload() {
      if (modelOf(store.get())?.reads !== "text") loadNow();
    },
    recolour: () => explorer.recolour(),
    chosen: () => explorer.chosen(),
    remove() {
      kinds.offer(role, null);
      for (const part of [box, facts, result.element]) part.remove();
    },
  };
}

/** What a model reads: the text; or the chosen file, else one that the server can draw. */
function sourceOf(state, model, file) {
  if (!model || model.reads === "text") return state.source;
  return file || (model.examples.includes(state.source) ? state.source : "");
}

/** Redraw what a change of state touches, and no more. */
function follow(explorer, state, before) {
  if (!before) return;
  const changed = (name) => String(state[name]) !== String(before[name]);
  if (changed("temperature")) explorer.setTemperature(state.temperature);
  if (["kind", "layer", "head", "ablated", "open", "beam"].some(changed)) explorer.refresh();
  else if (changed("pin")) explorer.pin();
}

/** Fill in what the link leaves open. */
function completeState(store, models) {
  const state = store.get();
  const model = models.find(({ name }) => name === state.model) ?? models[0];
  const compare = models.some(({ name }) => name === state.compare) ? state.compare : "";
  const source = state.source || model.examples?.[0] || "";
  store.set({ model: model.name, compare, source }, "location");
}

/** The choice between the kinds of attention that the models have; hidden where there is none. */
function createKinds(store) {
  const group = uniqueId("kind");
  const hint = element("p", { class: "kind-hint" });
  const radios = KINDS.map((kind) => {
    const radio = element("input", { type: "radio", name: group, value: kind, id: uniqueId("kind") });
    radio.addEventListener("change", () => store.set({ kind, pin: null }));
    return radio;
  });
  const labels = radios.map((radio) => element("label", { for: radio.id }, KIND_TEXTS[radio.value][0]));
  const offered = {};
  let hints = {};
  const show = (state) => {
    const there = radios.filter((radio) => !radio.hidden).map((radio) => radio.value);
    const kind = there.includes(state.kind) || !there.length ? state.kind : there[0];
    for (const radio of radios) radio.checked = radio.value === kind;
    hint.textContent = hints[kind] ?? KIND_TEXTS[kind][1];
  };
  store.subscribe(show);
  show(store.get());
  const legend = element("legend", { class: "unseen" }, "Kind of attention");
  const choices = radios.flatMap((radio, index) => [radio, labels[index]]);
  const row = element("div", { class: "kind-row" }, element("fieldset", { class: "segments" }, legend, ...choices), hint);
  return {
    element: row,
    /** Offer the kinds that any of the shown models has. */
    offer(role, recording) {
      offered[role] = recording ? KINDS.filter((kind) => layerCount(recording, kind) > 0) : [];
      const all = new Set(Object.values(offered).flat());
      hints = recording && !isPair(recording) ? ONE_TEXT_HINTS : {};
      radios.forEach((radio, index) => {
        radio.hidden = labels[index].hidden = !all.has(radio.value);
      });
      row.hidden = all.size === 0;
      show(store.get());
    },
  };
}

function modelTools(store, models) {
  const choose = (label, name, options) => {
    const select = element("select", { id: uniqueId(name) }, ...options);
    select.addEventListener("change", () => store.set({ [name]: select.value, pin: null, ...(name === "model" ? { ablated: [] } : {}) }));
    return { select, box: element("span", { class: "option" }, element("label", { for: select.id }, label), select) };
  };
  const optionsOf = () => models.map((model) => element("option", { value: model.name, title: model.architecture }, model.name));
  const model = choose("Model", "model", optionsOf());
  const compare = choose("Compare with", "compare", [element("option", { value: "" }, "no other"), ...optionsOf()]);
  model.box.hidden = compare.box.hidden = models.length < 2;
  return {
    nodes: [model.box, compare.box],
    show(state) {
      model.select.value = state.model;
      compare.select.value = state.compare;
    },
  };
}

/** Which languages a model translates, if any, what it is, and what it was trained on. @param {import("../shared/api.js").Model} model */
function modelLine(name, model) {
  if (!model) return element("p", { class: "model-facts" });
  const languages = model.languages ? [element("strong", { class: "languages" }, model.languages), " "] : [];
  return element(
    "div",
    {},
    element("p", { class: "model-facts" }, ...languages, name ? `${name}: ` : "", ...modelFacts(model)),
    model.about ? element("p", { class: "model-about" }, model.about) : null,
  );
}

function modelFacts({ architecture, encoder_layers, decoder_layers, n_heads, parameters, score }) {
  const layers = layersText(encoder_layers, decoder_layers);
  const heads = n_heads ? ` · ${countText(n_heads, "head")}` : "";
  const size = element("span", { class: "wide" }, ` · ${layers}${heads} · ${sizeText(parameters)} parameters`);
  return [architecture, size, score ? ` · ${score} on its test set` : ""];
}

function layersText(encoder, decoder) {
  if (!decoder) return countText(encoder, "encoder layer");
  return `${encoder ? `${encoder} encoder and ` : ""}${countText(decoder, "decoder layer")}`;
}

function copyButton() {
  const button = pushButton("Copy link", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copy the address bar"; // not every browser lets a page write to the clipboard
    }
    setTimeout(() => (button.textContent = "Copy link"), 2000);
  }, { class: "button", "aria-live": "polite" });
  return button;
}

function keys(store, column) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") store.set({ pin: null }, "replace");
    const typing = /** @type {HTMLElement} */ (event.target).closest("input, textarea, select");
    const where = column?.chosen();
    if (event.key === "s" && !typing && typeof where?.head === "number") {
      store.set({ ablated: toggled(store.get().ablated, headName(where)) });
    }
  });
}

/** The fragment holds the state, so this link moves the focus itself. */
function skipLink() {
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("look").focus();
  });
}

start();
