/** One model's explorer: the grid of heads, the chosen head enlarged, the candidates, and the panels. */

import { createCandidates } from "../shared/candidates.js";
import { drawChecks } from "./checks.js";
import { element, explanation, isTouched, nextTask } from "../shared/dom.js";
import { createFocus, pinOf, spotOf, strongest, weightsOf } from "../shared/focus.js";
import { createGrid } from "./grid.js";
import { axisTokens, chosenHead, createMaps, isPair, kindWithin, layerCount, predictsLabel, realHead, rowOfStep } from "../shared/maps.js";
import { createMatrix } from "./matrix.js";
import { createPicture } from "./picture.js";
import { createPanel } from "./panel.js";
import { countText } from "../shared/numbers.js";
import { createRibbons } from "../shared/ribbons.js";
import { createAblationButtons, drawAblation, headName, toggled } from "./ablation.js";
import { scaleLegend } from "./strips.js";
import { textsOf } from "./tasks.js";
import { quoted } from "../shared/tokens.js";
import { drawTree } from "./tree.js";
import { drawStates, drawVectors } from "./vectors.js";

const SIDE_NAMES = {
  encoder: { rows: "queries: source tokens", columns: "keys: source tokens" },
  cross: { rows: "queries: target tokens", columns: "keys: source tokens" },
  decoder: { rows: "queries: target tokens", columns: "keys: target tokens" },
};
const ONE_TEXT_SIDES = { rows: "queries", columns: "keys" };

/**
 * @param {Object} options
 * @param {any} options.store
 * @param {any} options.services what can be requested; the panel of what is missing is hidden
 * @param {boolean} options.canAblate
 */
export function createExplorer({ store, services, canAblate }) {
  let recording = null;
  let maps = null;
  let matrix = null;
  let shownKind = null;

  const focus = createFocus(highlight);
  const pin = (spot) => store.set({ pin: store.get().pin === pinOf(spot) ? null : pinOf(spot) }, "replace");
  const listeners = { onHover: focus.hover, onPin: pin };
  const grid = createGrid({
    onChoose: ({ layer, head }) => store.set({ layer, head }),
    onAblate: (where) => mayAblate() && typeof where.head === "number" && store.set({ ablated: toggled(store.get().ablated, headName(where)) }),
  });
  const ribbons = createRibbons(listeners);
  const matrixView = createMatrix(listeners);
  const picture = createPicture(listeners);
  const candidates = createCandidates({
    onHover: (step) => focus.hover(step === null ? null : spotOfStep(step)),
    onPin(step) {
      const spot = spotOfStep(step);
      if (spot) pin(spot);
    },
    onTemperature: (temperature) => store.set({ temperature }, "replace"),
  });
  const ablationButtons = createAblationButtons((ablated) => store.set({ ablated }));
  const panels = makePanels(services, store);

  const title = element("h3", { class: "enlarged-title" });
  const facts = element("p", { class: "head-facts" });
  const words = element("p", { class: "in-words", "aria-live": "polite" });
  const trouble = element("p", { class: "trouble", role: "status" });
  const legend = element("div", {});
  const missing = element("p", { class: "missing-note" });
  const headsTitle = element("h3", {}, "All heads");
  const nextTitle = element("h3", {}, "Next-token candidates");
  const nextHelp = candidatesExplanation();
  const heads = element("section", { class: "heads card" }, headsTitle, gridExplanation(), grid.element, legend);
  const enlarged = element("section", { class: "enlarged card" }, title, facts, canAblate ? ablationButtons.element : null, trouble, picture.element, ribbons.element, words, matrixView.element);
  const root = element(
    "div",
    { class: "explorer", hidden: true },
    missing,
    element(
      "div",
      { class: "split" },
      heads,
      enlarged,
      element("section", { class: "next card" }, nextTitle, nextHelp, candidates.element),
    ),
    ...Object.values(panels).map((panel) => panel.element),
  );

  /** The state, brought within what this model has. */
  function seenState() {
    const state = store.get();
    return { ...state, kind: kindWithin(recording, state.kind) };
  }

  function hasAttention() {
    return layerCount(recording, kindWithin(recording, "cross")) > 0;
  }

  function mayAblate() {
    return canAblate && recording?.can_ablate;
  }

  function spotOfStep(step) {
    const row = hasAttention() ? rowOfStep(recording, seenState().kind, step) : null;
    return row === null ? null : { side: "q", index: row };
  }

  function highlight(spot, pinned) {
    const fits = spot && matrix && spot.index < (spot.side === "q" ? matrix.rows : matrix.columns);
    const shown = fits ? spot : null;
    ribbons.highlight(shown, pinned);
    matrixView.highlight(shown);
    picture.highlight(shown);
    words.replaceChildren(inWords(shown, matrix, recording, shownKind));
    if (shown?.side === "q") candidates.showStep(recording.steps.findIndex((_, step) => rowOfStep(recording, shownKind, step) === shown.index));
  }

  async function enlarge(state) {
    const where = chosenHead(recording, state);
    const current = maps;
    title.textContent = headTitle(where, recording);
    facts.textContent = headFacts(where, recording);
    if (mayAblate()) ablationButtons.show(where, state.ablated, recording.n_heads);
    ablationButtons.element.hidden ||= !mayAblate();
    root.classList.toggle("is-ablated", state.ablated.includes(headName(where)));
    try {
      trouble.textContent = "";
      const found = await current.matrix(where);
      const stale = () => current !== maps || JSON.stringify(where) !== JSON.stringify(chosenHead(recording, seenState()));
      if (stale()) return;
      await draw(found, where, stale);
    } catch (error) {
      trouble.textContent = error.message;
    }
  }

  async function draw(found, where, stale) {
    const tokens = axisTokens(recording, where.kind);
    picture.show(found, recording, where.kind);
    ribbons.element.hidden = !picture.element.hidden; // a picture shows the same, and where
    ribbons.show(found, tokens.rows, tokens.columns, isPair(recording) ? SIDE_NAMES[where.kind] : ONE_TEXT_SIDES);
    await nextTask();
    if (stale()) return;
    [matrix, shownKind] = [found, where.kind];
    matrixView.show(matrix, tokens.rows, tokens.columns, { triangle: where.kind === "decoder", title: headTitle(where, recording) });
    focus.pin(spotOf(store.get().pin));
  }

  function wantPanels(state) {
    const about = recording.asked ?? {};
    const { model, source, ablated } = about;
    const want = (name, body, drawer, texts) => {
      const load = (signal) => services[name](body, signal);
      panels[name]?.want(JSON.stringify(body), load, drawer, texts);
    };
    if (isPair(recording)) want("beams", { model, source, ablated, beam: state.beam }, drawTree);
    if (recording.can_ablate) want("ablation", about, (ablation) => drawAblation(ablation, (choice) => store.set({ ...choice, pin: null })));
    if (hasAttention()) wantAttentionPanels(chosenHead(recording, state), about, want);
    else if (isPair(recording)) want("checks", { ...about, kind: "cross" }, (checks) => drawChecks(checks, recording), WITHOUT_ATTENTION);
    panels.norms.want(JSON.stringify(about), () => Promise.resolve(recording), (now) => drawStates(now.norms, now.states, now));
    for (const [name, shown] of [["ablation", recording.can_ablate], ["vectors", hasAttention()], ["beams", isPair(recording)], ["checks", isPair(recording)]]) {
      if (panels[name]) panels[name].element.hidden = !shown;
    }
  }

  function wantAttentionPanels(where, about, want) {
    const ofCross = where.kind === "cross" && typeof where.layer === "number";
    const layer = ofCross ? where.layer : null;
    const head = ofCross && where.head !== "mean" ? where.head : null;
    if (isPair(recording)) want("checks", { ...about, kind: "cross", layer, head }, (checks) => drawChecks(checks, recording), PANELS.checks);
    const real = realHead(recording, where);
    const caption = `${headTitle(real, recording)}${real.head === where.head ? "" : ", the head with the lowest entropy. Choose another one under “All heads”."}`;
    want("vectors", { ...about, ...real }, (vectors) => drawVectors(vectors, axisTokens(recording, real.kind), caption));
  }

  return {
    element: root,
    /** Show another recording. @param {import("../shared/api.js").Recording|null} newRecording */
    show(newRecording) {
      recording = newRecording;
      matrix = null; // the old weights do not belong to the new tokens
      root.hidden = recording === null;
      if (recording === null) return;
      heads.hidden = enlarged.hidden = !hasAttention();
      root.classList.toggle("without-attention", !hasAttention());
      missing.textContent = recording.missing ?? "";
      if (!hasAttention()) missing.append(` Shown below: candidates, ${isPair(recording) ? "beam search, the effect of source tokens, " : ""}hidden states.`);
      nextTitle.textContent = textsOf(recording.task).candidates;
      nextHelp.hidden = predictsLabel(recording);
      headsTitle.textContent = recording.n_heads === 1 ? "All layers" : "All heads";
      const fetchLayer = services.layer ? (kind, layer) => services.layer({ ...newRecording.asked, kind, layer }) : null;
      maps = createMaps(recording, fetchLayer);
      candidates.setTemperature(store.get().temperature);
      candidates.show(recording);
      nextTask().then(() => recording === newRecording && this.refresh());
    },
    /** Show the same recording with the current state. */
    refresh() {
      if (!recording || root.hidden) return;
      const state = seenState();
      for (const panel of Object.values(panels)) panel.setOpen(state.open.includes(panel.name));
      if (hasAttention()) {
        const ablated = canAblate ? state.ablated : recording.ablated; // what can be changed shows at once
        grid.show(recording, maps, { ...state, ablated });
        enlarge(state);
      }
      wantPanels(state);
    },
    pin() {
      focus.pin(spotOf(store.get().pin));
    },
    setTemperature: (temperature) => candidates.setTemperature(temperature),
    /** Colours have changed. */
    recolour() {
      legend.replaceChildren(scaleLegend("weight", 1));
      if (!recording || root.hidden) return;
      if (hasAttention()) grid.repaint();
      matrixView.repaint();
      highlight(focus.get(), spotOf(store.get().pin));
      for (const panel of Object.values(panels)) panel.redraw();
    },
    /** The chosen head, if it can be ablated, for the keyboard shortcut. */
    chosen: () => (mayAblate() ? chosenHead(recording, seenState()) : null),
  };
}

function makePanels(services, store) {
  const onToggle = (name, open) => {
    const others = store.get().open.filter((other) => other !== name);
    store.set({ open: open ? [...others, name] : others }, "replace");
  };
  const made = Object.entries(PANELS)
    .filter(([name]) => name === "norms" || services[name]) // the norms come with every answer
    .map(([name, texts]) => [name, createPanel({ name, ...texts, onToggle })]);
  return Object.fromEntries(made);
}

const PANELS = {
  beams: {
    title: "Beam search",
    hint: "The hypotheses of the search: kept, dropped, ended.",
    sentences: [
      "Beam search extends several hypotheses at once. At each step it keeps the most probable ones, as many as the beam is wide, and drops the others.",
      "The number under a token is the probability of the hypothesis up to this token: the product of the probabilities of its tokens.",
    ],
  },
  checks: {
    title: "Is attention an explanation?",
    hint: "Compare the weights with what changes the translation.",
    sentences: [
      "A large attention weight does not prove that the translation depends on this token.",
      "Two other measurements do not use the weights. “Leave one out” masks each source token in turn and measures how much less probable the translation becomes. “Gradient × input” is the first-order effect of each source token.",
      "The rank correlation compares the order of the source tokens: 1 is the same order, 0 is no relation, −1 is the reverse.",
    ],
  },
  ablation: {
    title: "Which heads matter?",
    hint: "How the loss changes when one head is ablated.",
    sentences: ["Each head is ablated alone: its output is set to zero. The loss is the mean negative log-probability of the tokens of this text, or of the predicted label. Select a cell to enlarge the head."],
  },
  vectors: {
    title: "Queries, keys, values",
    hint: "The vectors from which a head computes its weights.",
    sentences: ["Each token has a query, a key and a value. A score is the dot product of a query and a key, divided by the square root of their dimension. The softmax turns each row of scores into weights that sum to 1. The output of the head is the mean of the values with these weights."],
  },
  norms: {
    title: "Hidden states",
    hint: "Size of the vector of each token in each layer.",
    sentences: ["A hidden state is the vector of a token between two layers. Its norm grows where a layer adds much to it."],
  },
};

const WITHOUT_ATTENTION = {
  title: "Which source tokens matter?",
  hint: "Two measurements of what the translation depends on.",
};

function headTitle({ kind, layer, head }, recording) {
  const name = { encoder: "Encoder", cross: "Cross-attention", decoder: "Decoder" }[kind];
  if (layer === "rollout") return `${name} · rollout`;
  if (recording.n_heads === 1) return `${name} · layer ${layer + 1}`;
  return `${name} · layer ${layer + 1} · ${head === "mean" ? "mean of heads" : `head ${head + 1}`}`;
}

function headFacts(where, recording) {
  if (where.layer === "rollout") return "Product of all layers, each mixed with its residual connection (attention rollout).";
  if (where.head === "mean") return `Mean of the weights of ${countText(recording.n_heads, "head")}.`;
  const facts = recording.heads[where.kind]?.[where.layer]?.[where.head];
  if (!facts) return "";
  const name = facts.name ? `${facts.name}, ${Math.round(100 * facts.share)} % of its weight` : "no simple pattern";
  return `${name} · entropy ${facts.entropy.toFixed(2)} bits · mean distance ${facts.distance.toFixed(1)} tokens`;
}

/** What a token attends to, as a sentence. */
function inWords(spot, matrix, recording, kind) {
  if (!spot) return isTouched() ? "Tap a token to show only its weights; tap it again to unpin it." : "Point at a token to show only its weights; click to pin it.";
  const tokens = axisTokens(recording, kind);
  const weights = weightsOf(matrix, spot);
  const others = spot.side === "q" ? tokens.columns : tokens.rows;
  const self = quoted((spot.side === "q" ? tokens.rows : tokens.columns)[spot.index]);
  const list = strongest(weights, 4, 0.005).map((other) => `${quoted(others[other])} ${weights[other].toFixed(4)}`);
  return `${self} ${spot.side === "k" ? "is attended to by" : "attends to"} ${list.join(", ") || "no token with more than 0.005"}.`;
}

function gridExplanation() {
  return explanation(
    "the small maps",
    "Each small map is one head. Rows: queries, columns: keys. Each row sums to 1. Darker (in dark colours: brighter) is more.",
    "The colour follows the square root of the weight, so that small weights are visible.",
    "The name under a map is what the head attends to most, and with how much of its weight.",
    "The rollout multiplies the layers: it follows attention from the last layer down to the input.",
  );
}

function candidatesExplanation() {
  return explanation(
    "next-token candidates",
    "At each step the model gives every token of its vocabulary a probability. The bars over the tokens show the probability of each token of the text; the list shows the best candidates of one step. The least certain step comes first.",
    "The temperature divides the logits before the softmax: below 1 the distribution becomes sharper, above 1 flatter. The order of the candidates stays the same. Training and beam search use temperature 1.",
  );
}
