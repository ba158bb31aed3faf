/** Light or dark colours: the system's choice, or the one that was made here, which is remembered. */

import { currentTheme } from "./colours.js";
import { element, pushButton } from "./dom.js";

const THEME_KEY = "attendo-theme";

/** Set the remembered theme; a browser that forbids storage just follows the system. */
export function restoreTheme() {
  try {
    const remembered = localStorage.getItem(THEME_KEY);
    if (remembered === "light" || remembered === "dark") document.documentElement.dataset.theme = remembered;
  } catch {
    // Storage is forbidden, for instance in some private windows.
  }
}

/**
 * The button that changes the theme.
 * @param {() => void} onChange called whenever colours have changed, also by the system
 */
export function themeButton(onChange) {
  const button = pushButton("", () => {
    const next = currentTheme() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    rememberTheme(next);
    refresh();
  });
  const refresh = () => {
    const other = currentTheme() === "dark" ? "light" : "dark";
    const sign = element("span", { "aria-hidden": "true" }, other === "dark" ? "☾ " : "☀ ");
    button.replaceChildren(sign, element("span", { class: "wide" }, other === "dark" ? "Dark" : "Light"), element("span", { class: "unseen" }, " colours"));
    onChange();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  refresh();
  return button;
}

function rememberTheme(theme) {
  try {
    localStorage.setItem(THEME_KEY, theme);
  } catch {
    // As above: then the choice lasts as long as the page.
  }
}
