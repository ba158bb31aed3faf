/** Keeps one column of the page up to date: translates, then looks. Only the newest question counts. */

import { wasDropped } from "./api.js";

/**
 * @param {any} server
 * @param {{onBusy: (busy: boolean) => void, onTranslation: (now: any, usual: any) => void,
 *   onLooked: (looked: any) => void, onUnseen: (message: string) => void,
 *   onError: (message: string) => void, onEmpty: () => void}} listeners
 */
export function createLoader(server, listeners) {
  let asked = "";
  let question = new AbortController();

  async function load(wish) {
    const key = JSON.stringify(wish);
    if (key === asked) return;
    asked = key;
    question.abort();
    question = new AbortController();
    const { signal } = question;
    listeners.onBusy(false);
    if (!wish.model || !wish.source.trim()) return listeners.onEmpty();
    const patience = setTimeout(() => listeners.onBusy(true), 150); // quick answers show no sign of waiting
    try {
      await answer(wish, signal);
    } catch (error) {
      if (!signal.aborted && !wasDropped(error)) {
        asked = "";
        listeners.onError(error.message);
      }
    }
    clearTimeout(patience);
    if (!signal.aborted) listeners.onBusy(false);
  }

  async function answer({ model, source, target, silenced, beam }, signal) {
    const showLooked = async (given) => {
      try {
        const looked = await server.look({ model, source, target: given, silenced }, signal);
        if (!signal.aborted) listeners.onLooked(looked);
      } catch (error) {
        if (!signal.aborted) listeners.onUnseen(error.message); // a translation there can still be
      }
    };
    const given = target?.trim();
    if (given) await showLooked(given); // reading a translation is much faster than making one
    if (signal.aborted) return;
    const [now, usual] = await Promise.all([
      server.translate({ model, source, beam, silenced }, signal),
      silenced.length ? server.translate({ model, source, beam, silenced: [] }, signal) : null,
    ]);
    if (signal.aborted) return;
    listeners.onTranslation(now, usual);
    if (!given) await showLooked(now.translation || null); // what is looked at is what is shown
  }

  return { load };
}
