// What every view uses: elements from plain text, requests, and how things are written.

// The only way rendered HTML gets into the page. It comes from our own server, which escapes every transcript.
const rendered = window.trustedTypes
  ? window.trustedTypes.createPolicy("backfill", { createHTML: (html) => html })
  : { createHTML: (html) => html };

// Terminal sequences, control characters and marks that reorder text: a transcript may hold any of them.
const UNSEEN = /\x1b\[[0-?]*[ -/]*[@-~]?|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
export const clean = (text) => text.replace(UNSEEN, "");

const spoken = (child) => (typeof child === "string" ? clean(child) : child);
const isThere = (child) => child !== null && child !== undefined && child !== false;

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, typeof value === "string" ? clean(value) : value);
  }
  element.append(...children.flat(Infinity).filter(isThere).map(spoken));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.flat(Infinity).map(spoken));
  return element;
}

export function fromHtml(html) {
  const element = h("div", { class: "verbatim", dir: "auto" });
  element.innerHTML = rendered.createHTML(html);
  return element;
}

export class Refused extends Error {
  constructor(body, status) {
    super(body?.error?.message ?? `the server answered ${status}`);
    this.hint = body?.error?.hint ?? "";
    this.status = status;
  }
}

// Empty parameters say nothing, but for the group of exchanges without a project.
const says = ([name, value]) => value !== null && value !== undefined && value !== false && (value !== "" || name === "group");

export async function get(path, parameters = {}, signal = undefined) {
  const given = Object.entries(parameters).filter(says);
  const query = new URLSearchParams(given).toString();
  const response = await fetch(query ? `${path}?${query}` : path, { signal });
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Refused(body, response.status);
  return body;
}

let stats = null;
export async function getStats() {
  stats = await get("/api/stats");
  return stats;
}
export const knownStats = () => stats;

export function link(view, parameters = {}) {
  const given = Object.entries(parameters).filter(says);
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

export const exchangeLink = (id, q = "") => link(`exchange/${id.slice(0, 12)}`, { q });
export const roomLink = (type, key) => link(`room/${encodeURIComponent(type ? `${type}:${key}` : key)}`);

const numbers = new Intl.NumberFormat("en");
export const count = (n) => numbers.format(n);
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
export const compact = (n) => new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(n);

export function day(iso) {
  if (!iso) return "undated";
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? "undated" : date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
}

export function moment(iso) {
  if (!iso) return "undated";
  return `${day(iso)}, ${iso.slice(11, 16)} UTC`;
}

export const monthName = (month) =>
  month ? new Date(`${month}-01T00:00:00Z`).toLocaleDateString("en-GB", { month: "short", year: "numeric", timeZone: "UTC" }) : "undated";

export const projectName = (project) => project || "no project";
export const roomName = (key) => key.replaceAll("_", " ");

export function when(iso) {
  return h("time", { datetime: iso ?? null, title: moment(iso) }, day(iso));
}

export function dots(...parts) {
  const shown = parts.filter(Boolean);
  return shown.flatMap((part, at) => (at ? [h("span", { class: "dot", "aria-hidden": "true" }, "·"), part] : [part]));
}

export function roomChip(key, type = "") {
  return h("a", { class: `chip ${type}`, href: roomLink(type, key), title: type ? `${type} room` : "room" }, roomName(key));
}

// Text with the words of the query marked; spans count code points, as the server does.
export function marked(passage) {
  const points = passage.matches.length ? Array.from(passage.text) : null;
  if (!points) return [passage.text];
  const out = [];
  let at = 0;
  for (const [start, end] of passage.matches) {
    out.push(points.slice(at, start).join(""), h("mark", {}, points.slice(start, end).join("")));
    at = end;
  }
  return [...out, points.slice(at).join("")];
}

export function listItem(entry, q = "") {
  return h("li", { class: "entry" },
    h("a", { class: "entry-link", href: exchangeLink(entry.exchange_id, q), "data-item": "" },
      h("span", { class: "entry-core" }, entry.exchange_core || "without a summary")),
    h("div", { class: "meta" }, dots(when(entry.started_at), projectName(entry.project), entry.agent)),
    entry.rooms?.length ? h("div", { class: "chips" }, entry.rooms.map((key) => roomChip(key))) : null);
}

export function problem(error) {
  return h("div", { class: "problem", role: "alert" }, h("p", {}, error.message || String(error)), error.hint ? h("p", { class: "soft" }, error.hint) : null);
}

export function empty(title, text) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", { class: "soft" }, text));
}

// A list that goes on: `load(cursor)` gives {items, cursor}.
export function endless(list, load, cursor) {
  const more = h("button", { type: "button", class: "more" }, "Show more");
  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const page = await load(cursor);
      const first = page.items[0];
      list.append(...page.items);
      cursor = page.cursor;
      first?.querySelector("[data-item]")?.focus();
    } catch (error) {
      more.before(problem(error));
    }
    more.disabled = false;
    if (!cursor) more.remove();
  });
  return cursor ? more : null;
}
