/** Puts the page together: a served one that asks as you type, or a self-contained file that only shows. */

import { createEmbedded, createServer, embeddedData } from "./api.js";
import { afterPause, element, pushButton, uniqueId } from "./dom.js";
import { createExplorer } from "./explorer.js";
import { createLoader } from "./loader.js";
import { layerCount } from "./maps.js";
import { headName, toggled } from "./silence.js";
import { bindToAddress, createStore, fromFragment, KINDS } from "./state.js";
import { restoreTheme, themeButton } from "./theme.js";
import { createResult, createTranslate, drawSentence } from "./translate.js";

const TYPING_PAUSE = 250; // milliseconds

const KIND_TEXTS = {
  encoder: ["Encoder", "Source tokens look at source tokens."],
  cross: ["Cross", "Each target token looks at the source while it is written."],
  decoder: ["Decoder", "Target tokens look at the tokens already written. The future is masked."],
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

/** A file may say what to show first, in "start": kind, layer, head, pin. A link says it better. */
function startFile(store, looked, kinds) {
  if (!location.hash) store.set(looked.start ?? {}, "location");
  kinds.offer(looked);
  for (const part of document.querySelectorAll("[data-server]")) /** @type {HTMLElement} */ (part).hidden = true;
  byId("translate").append(drawSentence(looked));
  const explorer = createExplorer({ store, services: createEmbedded(looked), canSilence: false });
  byId("columns").append(explorer.element);
  byId("tools").append(themeButton(() => explorer.recolour()));
  bindToAddress(store);
  keys(store, null);
  explorer.show(looked);
  store.subscribe((state, before) => follow(explorer, state, before));
}

async function startServed(store, kinds) {
  const server = createServer();
  let models;
  try {
    models = await server.models();
    if (models.length === 0) throw new Error("The server has no models.");
  } catch (error) {
    byId("translate").append(element("p", { class: "trouble", role: "alert" }, error.message));
    byId("tools").append(themeButton(() => {}));
    return;
  }
  completeState(store, models);
  bindToAddress(store);
  buildPage(store, server, models, kinds);
}

function buildPage(store, server, models, kinds) {
  const form = createTranslate({
    onSource: (source, how) => store.set({ source, pin: null }, how),
    onTarget: (target) => store.set({ target, pin: null }, "replace"),
    onBeam: (beam) => store.set({ beam }),
  });
  byId("translate").append(...form.nodes);
  const first = createColumn({ store, server, models, results: form.results, role: "model", onLooked: kinds.offer });
  let second = null;
  const tools = modelTools(store, models);
  byId("tools").append(...tools.nodes, copyButton(), themeButton(() => [first, second].forEach((column) => column?.recolour())));
  keys(store, first);

  const showAll = (state, before, how) => {
    if (Boolean(state.compare) !== Boolean(second)) {
      second?.remove();
      second = state.compare ? createColumn({ store, server, models, results: form.results, role: "compare", onLooked: () => {} }) : null;
      second?.recolour();
      document.body.classList.toggle("comparing", second !== null);
    }
    form.show(state, models.find((model) => model.name === state.model)?.examples ?? []);
    tools.show(state);
    for (const column of [first, second]) column?.follow(state, before, how);
  };
  store.subscribe(showAll);
  showAll(store.get(), null, "push");
}

/** One model's translation and explorer; `role` is "model" or "compare". */
function createColumn({ store, server, models, results, role, onLooked }) {
  const result = createResult();
  const explorer = createExplorer({ store, services: server, canSilence: role === "model" });
  const name = element("h3", { class: "column-name" });
  const about = element("p", { class: "model-facts" });
  const box = element("div", { class: "column" }, name, about, explorer.element);
  results.append(result.element);
  byId("columns").append(box);
  const loader = createLoader(server, {
    onBusy: result.busy,
    onTranslation: (now, usual) => result.show(now, usual, store.get().silenced.length),
    onLooked(looked) {
      explorer.element.inert = false;
      onLooked(looked);
      explorer.show(looked);
    },
    onUnseen(message) {
      result.remark(message);
      explorer.show(null);
    },
    onError(message) {
      result.fail(message);
      explorer.element.inert = true; // what is below belongs to an earlier sentence
    },
    onEmpty() {
      result.clear();
      explorer.show(null);
    },
  });
  const wishOf = (state) => ({
    model: state[role],
    source: state.source,
    target: state.target,
    silenced: role === "model" ? state.silenced : [], // so a model can be compared with its whole self
    beam: state.beam,
  });
  const loadNow = () => loader.load(wishOf(store.get()));
  const loadSoon = afterPause(loadNow, TYPING_PAUSE);
  return {
    follow(state, before, how) {
      name.textContent = state[role];
      const facts = modelFacts(models.find((model) => model.name === state[role]));
      about.textContent = state.compare ? facts : `${state[role]}: ${facts}`;
      result.title(state.compare ? `Translation by ${state[role]}` : "Translation");
      const typed = before !== null && how === "replace" && (state.source !== before.source || state.target !== before.target);
      if (typed) loadSoon();
      else loadNow();
      follow(explorer, state, before);
    },
    recolour: () => explorer.recolour(),
    chosen: () => explorer.chosen(),
    remove() {
      box.remove();
      result.element.remove();
    },
  };
}

/** Redraw what a change of state touches, and no more. */
function follow(explorer, state, before) {
  if (!before) return;
  const changed = (name) => String(state[name]) !== String(before[name]);
  if (["kind", "layer", "head", "silenced", "open", "beam"].some(changed)) explorer.refresh();
  else if (changed("pin")) explorer.pin();
}

/** Fill in what the link did not say. */
function completeState(store, models) {
  const state = store.get();
  const model = models.find(({ name }) => name === state.model) ?? models[0];
  const compare = models.some(({ name }) => name === state.compare) ? state.compare : "";
  const source = state.source || model.examples?.[0] || "";
  store.set({ model: model.name, compare, source }, "location");
}

/** The choice between the kinds of attention that the model has. */
function createKinds(store) {
  const group = uniqueId("kind");
  const hint = element("p", { class: "kind-hint" });
  const radios = KINDS.map((kind) => {
    const radio = element("input", { type: "radio", name: group, value: kind, id: uniqueId("kind") });
    radio.addEventListener("change", () => store.set({ kind, pin: null }));
    return radio;
  });
  const labels = radios.map((radio) => element("label", { for: radio.id }, KIND_TEXTS[radio.value][0]));
  const show = ({ kind }) => {
    for (const radio of radios) radio.checked = radio.value === kind;
    hint.textContent = KIND_TEXTS[kind][1];
  };
  store.subscribe(show);
  show(store.get());
  const legend = element("legend", { class: "unseen" }, "Kind of attention");
  const choices = radios.flatMap((radio, index) => [radio, labels[index]]);
  return {
    element: element("div", { class: "kind-row" }, element("fieldset", { class: "segments" }, legend, ...choices), hint),
    offer(looked) {
      for (const radio of radios) radio.disabled = layerCount(looked, radio.value) === 0;
    },
  };
}

function modelTools(store, models) {
  const choose = (label, name, options) => {
    const select = element("select", { id: uniqueId(name) }, ...options);
    select.addEventListener("change", () => store.set({ [name]: select.value, pin: null, ...(name === "model" ? { silenced: [] } : {}) }));
    return { select, box: element("span", { class: "option" }, element("label", { for: select.id }, label), select) };
  };
  const optionsOf = () => models.map((model) => element("option", { value: model.name, title: modelFacts(model) }, model.name));
  const model = choose("Model", "model", optionsOf());
  const compare = choose("Compare with", "compare", [element("option", { value: "" }, "none"), ...optionsOf()]);
  model.box.hidden = compare.box.hidden = models.length < 2;
  return {
    nodes: [model.box, compare.box],
    show(state) {
      model.select.value = state.model;
      compare.select.value = state.compare;
    },
  };
}

function modelFacts(model) {
  if (!model) return "";
  const { encoder_layers, decoder_layers, n_heads, weights, bleu } = model;
  const size = weights >= 1e6 ? `${(weights / 1e6).toFixed(1)} million` : `${Math.round(weights / 1e3)} thousand`;
  const score = typeof bleu === "number" ? ` · BLEU ${bleu.toFixed(1)}` : "";
  return `${encoder_layers} + ${decoder_layers} layers · ${n_heads} heads · ${size} weights${score}`;
}

function copyButton() {
  const button = pushButton("Copy link", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copy it from the address bar"; // not every browser lets a page write there
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
      store.set({ silenced: toggled(store.get().silenced, headName(where)) });
    }
  });
}

/** The fragment holds the state, so this link moves by hand. */
function skipLink() {
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("look").focus();
  });
}

start();
