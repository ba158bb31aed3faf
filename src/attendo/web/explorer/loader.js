/** Keeps one column of the page up to date: translates the text, then inspects one sentence. Only the newest request counts. */

import { wasDropped } from "../shared/api.js";
import { sentenceAt, sentenceWithin } from "./sentences.js";

/**
 * @param {any} server
 * @param {{onBusy: (busy: boolean) => void, onTranslation: (now: any, usual: any, sentence: number) => void,
 *   onLooked: (looked: any) => void, onUnseen: (message: string) => void,
 *   onError: (message: string) => void, onEmpty: () => void, caret: () => number|null}} listeners
 */
export function createLoader(server, listeners) {
  let asked = "";
  let question = new AbortController();
  let known = { key: "", now: null, usual: null }; // the newest translation: choosing a sentence needs no other
  let lookedKey = "";

  async function load(wish) {
    const key = JSON.stringify(wish);
    if (key === asked) return;
    asked = key;
    question.abort();
    question = new AbortController();
    const { signal } = question;
    listeners.onBusy(false);
    if (!wish.model || !wish.source.trim()) {
      lookedKey = "";
      return listeners.onEmpty();
    }
    const patience = setTimeout(() => listeners.onBusy(true), 150); // quick answers show no sign of waiting
    try {
      await answer(wish, signal);
    } catch (error) {
      if (!signal.aborted && !wasDropped(error)) {
        asked = lookedKey = "";
        listeners.onError(error.message);
      }
    }
    clearTimeout(patience);
    if (!signal.aborted) listeners.onBusy(false);
  }

  async function answer({ model, source, target, silenced, beam, sentence }, signal) {
    const { now, usual } = await translate({ model, source, beam, silenced }, signal);
    if (signal.aborted) return;
    const index = sentenceWithin(now.segments, sentence) ?? sentenceAt(now.segments, listeners.caret());
    listeners.onTranslation(now, usual, index);
    const segment = now.segments[index];
    // What is inspected is what is shown.
    await inspect({ model, source: segment.source, target: target?.trim() || segment.translation || null, silenced }, signal);
  }

  async function translate(wish, signal) {
    const key = JSON.stringify(wish);
    if (known.key === key) return known;
    const [now, usual] = await Promise.all([
      server.translate(wish, signal),
      wish.silenced.length ? server.translate({ ...wish, silenced: [] }, signal) : null,
    ]);
    if (!signal.aborted) known = { key, now, usual };
    return { now, usual };
  }

  async function inspect(wish, signal) {
    const key = JSON.stringify(wish);
    if (key === lookedKey) return;
    try {
      const looked = await server.look(wish, signal);
      if (signal.aborted) return;
      lookedKey = key;
      listeners.onLooked(looked);
    } catch (error) {
      lookedKey = "";
      if (!signal.aborted) listeners.onUnseen(error.message); // there can be a translation nevertheless
    }
  }

  return { load };
}
