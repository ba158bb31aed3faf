/** The walk-through: one sentence in a small model, station by station. */

import { restoreTheme, themeButton } from "../shared/theme.js";
import { createChooser } from "./chooser.js";
import { stationFrame } from "./frame.js";
import { createRoute } from "./route.js";
import { createSentence } from "./sentence.js";
import { requestCode, requestWalk } from "./server.js";
import { completed, FIRST_STATE, fromFragment, toFragment } from "./state.js";
import { STATIONS } from "./stations.js";

const IDS = STATIONS.map((station) => station.id);
const NOT_CHOSEN = { token: null, head: null, step: null };
const PRESELECTED = {
  encoder: "the head and the token with the largest attention weight between two different content words",
  decoder: "the head and the token with the largest attention weight that the mask removes",
  cross: "the head and the step with the largest attention weight on a content word",
  output: "the step with the least probable token",
  bert: "the content word with the highest probability below 90 %",
  gpt: "the step with the largest attention weight on an earlier content word",
};
const page = (id) => document.getElementById(id);

let state = fromFragment(location.hash, IDS);
let walk = null; // of the sentence that is shown
let view = null; // of the station that is shown
let loading = null; // the newest request; earlier answers are dropped
let code = {}; // without it the stations are shown all the same
const codeArrives = requestCode().then(
  (answer) => {
    code = answer;
  },
  () => {},
);

restoreTheme();
const sentence = createSentence((source) => changeSentence({ source, target: null, ...NOT_CHOSEN }));
page("sentence").append(sentence.element);
const chooser = createChooser(page("chooser"), { onChoose: choose, onPreview: preview });
const route = createRoute(page("route"), page("pager"), (station) => toFragment({ ...state, station }));
page("tools").append(themeButton(() => view?.update(shown())));
addEventListener("hashchange", followAddress);
addEventListener("keydown", goByKey);
page("skip").addEventListener("click", skipToStation);
start();

async function start() {
  sentence.show(state.source);
  route.update(state.station);
  await load(state);
  // A link with a sentence that cannot be shown still opens a page with something on it.
  if (!walk) await load({ ...state, source: FIRST_STATE.source, target: null }, { keepTrouble: true });
}

/** Request the numbers of a sentence and show them; on an error, show the reason and change nothing. */
async function load(wanted, { keepTrouble = false } = {}) {
  loading?.abort();
  loading = new AbortController();
  const { signal } = loading;
  sentence.setBusy(true);
  const trouble = await requestWalk(wanted.source, wanted.target, signal).then(
    async (answer) => {
      await codeArrives;
      walk = answer;
      return "";
    },
    (error) => error.message,
  );
  if (signal.aborted) return;
  sentence.setBusy(false);
  if (!keepTrouble) sentence.showMessage(trouble);
  if (trouble) return;
  state = { ...wanted, station: state.station };
  sentence.show(state.source);
  chooser.fill(walk);
  showStation();
}

function changeSentence(change) {
  load({ ...state, ...change });
}

/** The state with everything that has not been chosen completed for the station that is shown. */
function shown() {
  return completed(state, walk, stationShown());
}

function stationShown() {
  return STATIONS[IDS.indexOf(state.station)];
}

/** Choose a token, a head or a step; the address follows. */
function choose(change) {
  if ("target" in change) {
    changeSentence(change);
    return;
  }
  state = { ...state, ...change };
  update();
}

/** Show another choice while the pointer rests on it. */
function preview(change) {
  view?.update({ ...shown(), ...change });
}

function showStation() {
  const station = stationShown();
  view = station.create({ walk, choose });
  page("station").replaceChildren(
    ...stationFrame(station, { walk, number: STATIONS.indexOf(station) + 1, count: STATIONS.length, code, pictures: view.element }),
  );
  page("station").setAttribute("aria-busy", "false");
  page("preselected").textContent = `Preselected here: ${PRESELECTED[station.attention ?? "encoder"]}.`;
  document.title = `${station.name} · attendo: walk-through`;
  update();
}

function update() {
  const complete = shown();
  chooser.update(complete, stationShown().needs);
  route.update(state.station);
  view.update(complete);
  history.replaceState(null, "", toFragment(state));
}

/** After a link, a key or the back button: show what the address names. */
function followAddress() {
  const wanted = fromFragment(location.hash, IDS);
  const moved = wanted.station !== state.station;
  const other = wanted.source !== state.source || wanted.target !== state.target;
  state = { ...state, station: wanted.station };
  if (other) load(wanted);
  else if (walk) {
    state = wanted;
    showStation();
  }
  if (moved) arrive();
}

function arrive() {
  const top = page("station").getBoundingClientRect().top;
  const covered = page("chooser").getBoundingClientRect().bottom; // by the bars that stay in view
  if (top < covered || top > innerHeight / 2) scrollBy({ top: top - covered });
  page("station-title")?.focus({ preventScroll: true });
}

function goByKey(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  const next = STATIONS[IDS.indexOf(state.station) + step];
  if (!next) return;
  event.preventDefault();
  location.hash = toFragment({ ...state, station: next.id });
}

// The fragment holds the state, so the link must not change it.
function skipToStation(event) {
  event.preventDefault();
  page("station").focus();
}
