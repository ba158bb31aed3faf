/** The list of all stations, which stays in view, and links to the previous and the next one. */

import { element } from "../shared/dom.js";
import { markHidden } from "./scroll.js";
import { STATIONS } from "./stations.js";

/**
 * @param {HTMLElement} list
 * @param {HTMLElement} pager
 * @param {(station: string) => string} addressOf of a station, with everything that is chosen
 */
export function createRoute(list, pager, addressOf) {
  const links = STATIONS.map((station, at) =>
    element(
      "a",
      { class: "route-link", "data-station": station.id },
      element("span", { class: "route-number", "aria-hidden": "true" }, String(at + 1)),
      element("span", {}, station.short),
    ),
  );
  const groups = [...new Set(STATIONS.map((station) => station.group))];
  list.append(...groups.flatMap((group) => groupOf(group, links)));
  markHidden(list, list);
  return {
    /** @param {string} current id of the station that is shown */
    update(current) {
      const here = STATIONS.findIndex((station) => station.id === current);
      links.forEach((link, at) => {
        link.href = addressOf(link.dataset.station);
        link.classList.toggle("passed", at < here);
        if (at === here) link.setAttribute("aria-current", "step");
        else link.removeAttribute("aria-current");
      });
      bringIntoView(list, links[here]);
      pager.replaceChildren(pageLink(STATIONS[here - 1], "previous", addressOf), pageLink(STATIONS[here + 1], "next", addressOf));
    },
  };
}

function groupOf(group, links) {
  const members = STATIONS.flatMap((station, at) => (station.group === group ? [element("li", {}, links[at])] : []));
  const title = element("p", { class: "route-group" }, group);
  return [title, element("ol", {}, ...members)];
}

// Only the list itself scrolls: scrollIntoView would move the page too.
function bringIntoView(list, link) {
  const [box, bounds] = [list.getBoundingClientRect(), link.getBoundingClientRect()];
  list.scrollLeft += bounds.left - box.left - (box.width - bounds.width) / 2;
  if (bounds.top < box.top || bounds.bottom > box.bottom) list.scrollTop += bounds.top - box.top - box.height / 2;
}

function pageLink(station, direction, addressOf) {
  if (!station) return element("span", { class: "pager-end" });
  const words = direction === "previous" ? `← ${station.name}` : `${station.name} →`;
  return element(
    "a",
    {
      class: `pager-link ${direction}`,
      id: `go-${direction}`,
      rel: direction === "previous" ? "prev" : "next",
      href: addressOf(station.id),
    },
    element("span", { class: "pager-direction" }, direction === "previous" ? "Previous" : "Next"),
    element("span", {}, words),
  );
}
