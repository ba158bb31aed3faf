/** Keeps one column of the page up to date: translates the text, then inspects one sentence; or predicts what another task asks for. Only the newest request counts. */

import { wasDropped } from "../shared/api.js";
import { sentenceAt, sentenceWithin } from "./sentences.js";

/**
 * @param {any} server
 * @param {{onBusy: (busy: boolean) => void, onPrediction: (now: any, usual: any) => void, onTranslation: (now: any, usual: any, sentence: number) => void,
 *   onRecording: (recording: any) => void, onUnseen: (message: string) => void,
 *   onError: (message: string) => void, onEmpty: () => void, caret: () => number|null}} listeners
 */
export function createLoader(server, listeners) {
  let requested = "";
  let pending = new AbortController();
  let known = { key: "", now: null, usual: null }; // the newest translation: choosing a sentence needs no other
  let recordingKey = "";

  async function load(wish) {
    const key = JSON.stringify(wish);
    if (key === requested) return;
    requested = key;
    pending.abort();
    pending = new AbortController();
    const { signal } = pending;
    listeners.onBusy(false);
    if (!wish.model || !wish.source.trim()) {
      recordingKey = "";
      return listeners.onEmpty();
    }
    const patience = setTimeout(() => listeners.onBusy(true), 150); // quick answers show no sign of waiting
    try {
      await answer(wish, signal);
    } catch (error) {
      if (!signal.aborted && !wasDropped(error)) {
        requested = recordingKey = "";
        listeners.onError(error.message);
      }
    }
    clearTimeout(patience);
    if (!signal.aborted) listeners.onBusy(false);
  }

  function answer(wish, signal) {
    return wish.task === "translation" ? translateAndInspect(wish, signal) : predict(wish, signal);
  }

  async function predict({ model, task, source, ablated, seed, temperature }, signal) {
    const predictWithout = async (heads) => {
      const about = { model, source, ablated: heads };
      const [recording, written] = await Promise.all([
        server.look(about, signal),
        task === "language-model" ? server.generate({ ...about, seed, temperature }, signal) : {},
      ]);
      return { recording: { ...recording, asked: about }, ...written };
    };
    const [now, usual] = await Promise.all([predictWithout(ablated), ablated.length ? predictWithout([]) : null]);
    if (signal.aborted) return;
    listeners.onPrediction(now, usual);
    const key = JSON.stringify({ model, source, ablated });
    if (key === recordingKey) return;
    recordingKey = key;
    listeners.onRecording(now.recording);
  }

  async function translateAndInspect({ model, source, target, ablated, beam, sentence }, signal) {
    const { now, usual } = await translate({ model, source, beam, ablated }, signal);
    if (signal.aborted) return;
    const index = sentenceWithin(now.segments, sentence) ?? sentenceAt(now.segments, listeners.caret());
    listeners.onTranslation(now, usual, index);
    const segment = now.segments[index];
    // What is inspected is what is shown.
    await inspect({ model, source: segment.source, target: target?.trim() || segment.translation || null, ablated }, signal);
  }

  async function translate(wish, signal) {
    const key = JSON.stringify(wish);
    if (known.key === key) return known;
    const [now, usual] = await Promise.all([
      server.translate(wish, signal),
      wish.ablated.length ? server.translate({ ...wish, ablated: [] }, signal) : null,
    ]);
    if (!signal.aborted) known = { key, now, usual };
    return { now, usual };
  }

  async function inspect(wish, signal) {
    const key = JSON.stringify(wish);
    if (key === recordingKey) return;
    try {
      const recording = await server.look(wish, signal);
      if (signal.aborted) return;
      recordingKey = key;
      listeners.onRecording({ ...recording, asked: wish });
    } catch (error) {
      recordingKey = "";
      if (!signal.aborted) listeners.onUnseen(error.message); // there can be a translation nevertheless
    }
  }

  return { load };
}
