// The shell: which view is shown, the search field, the keyboard, light and dark.
import { compact, day, getStats, h, plural, problem, link } from "./parts.js";
import * as search from "./search.js";
import * as palace from "./palace.js";
import * as exchange from "./exchange.js";
import * as timeline from "./timeline.js";
import * as claims from "./claims.js";

const VIEWS = { "": search, palace, room: palace, exchange, timeline, claims };
const main = document.getElementById("main");
const field = document.getElementById("q");
const keys = document.getElementById("keys");
let shown = { name: "", parameters: {}, abort: null };

function place() {
  const hash = decodeHash();
  const [path, query = ""] = hash.split(/\?(.*)/s);
  const [name = "", ...rest] = path.split("/");
  return { name, argument: decoded(rest.join("/")), parameters: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    return text;
  }
}

const decodeHash = () => location.hash.replace(/^#\/?/, "");

async function show() {
  const { name, argument, parameters } = place();
  const view = VIEWS[name] ?? search;
  shown.abort?.abort();
  const abort = new AbortController();
  const before = shown;
  shown = { name, parameters, abort };
  if (document.activeElement !== field) field.value = parameters.q ?? "";
  field.placeholder = name === "claims" ? "Search the claims" : "Search everything you worked on";
  const current = name === "room" ? "palace" : name === "exchange" ? "" : name || "search";
  for (const tab of document.querySelectorAll("nav a")) {
    if (tab.dataset.view === current) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  try {
    const { title, content } = await view.show({ name, argument, parameters, signal: abort.signal, go, typing: document.activeElement === field });
    if (abort.signal.aborted) return;
    document.title = title ? `${title} – backfill` : "backfill";
    main.replaceChildren(...[content].flat(Infinity).filter(Boolean));
    main.querySelectorAll("[data-mounted]").forEach((element) => element.dispatchEvent(new Event("mounted")));
    if (before.name !== name || name === "exchange" || name === "room") scrollTo(0, 0);
  } catch (error) {
    if (error.name === "AbortError" || abort.signal.aborted) return;
    main.replaceChildren(problem(error));
  } finally {
    if (!abort.signal.aborted) main.removeAttribute("aria-busy");
  }
}

// While someone types, the address follows without filling the history.
function go(hash, replace = false) {
  if (replace) {
    history.replaceState(null, "", hash);
    show();
  } else location.hash = hash;
}

function ask(replace) {
  const { name, parameters } = place();
  const q = field.value.trim();
  if (name === "claims") return go(link("claims", { ...parameters, q }), true);
  return go(link("", name === "" ? { ...parameters, q, k: "" } : { q }), replace && name === "");
}

let timer = 0;
field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => ask(true), 140);
});
document.getElementById("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  ask(true);
  step(1);
});

const items = () => [...main.querySelectorAll("[data-item]")].filter((element) => element.offsetParent !== null || element instanceof SVGElement);

function step(by) {
  const all = items();
  if (!all.length) return;
  const at = all.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
  all[next].focus();
  all[next].scrollIntoView({ block: "nearest" });
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("backfill-theme", root.dataset.theme);
  } catch (error) {
    // Storage may be switched off; the choice then holds for this page.
  }
}

function back() {
  if (keys.open) return keys.close();
  if (document.activeElement === field || field.value !== "" && shown.name === "") {
    if (document.activeElement === field) field.blur();
    else {
      field.value = "";
      ask(true);
    }
    return undefined;
  }
  if (shown.name === "exchange" || shown.name === "room" || Object.keys(shown.parameters).length) return history.back();
  return go("#/");
}

let prefix = "";
const TO = { s: "#/", p: "#/palace", t: "#/timeline", c: "#/claims" };
const KEYS = {
  "/": () => (field.focus(), field.select()),
  j: () => step(1),
  k: () => step(-1),
  "?": () => keys.showModal(),
  d: theme,
  r: () => document.querySelector("[data-key='r']")?.click(),
  "[": () => document.querySelector("[data-key='[']")?.click(),
  "]": () => document.querySelector("[data-key=']']")?.click(),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "Escape" && !keys.open) {
    if (typing && event.target !== field) event.target.blur();
    else back();
    return;
  }
  if (event.target === field && event.key === "ArrowDown") {
    event.preventDefault();
    step(1);
    return;
  }
  if (typing || keys.open) return;
  if (prefix === "g" && TO[event.key]) go(TO[event.key]);
  else if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
  prefix = event.key;
});

document.getElementById("theme").addEventListener("click", theme);
document.getElementById("help").addEventListener("click", () => keys.showModal());
addEventListener("hashchange", show);

async function footer() {
  const stats = await getStats();
  const { counts } = stats;
  const shownCount = counts.visible_exchanges ?? counts.exchanges ?? 0;
  const span = stats.first_at ? `${day(stats.first_at)} to ${day(stats.last_at)}` : "";
  document.getElementById("foot").replaceChildren(
    h("span", {}, [plural(shownCount, "exchange"), counts.rooms ? plural(counts.rooms, "room") : "", span].filter(Boolean).join(", ")),
    h("span", {}, h("a", { href: "/docs" }, "API"), ` · backfill ${stats.version} · state ${stats.state.slice(0, 8)}`));
  if (stats.encoder) document.getElementById("foot").prepend(h("p", { class: "note" }, `${stats.encoder}. Search is by words alone.`));
  return compact(shownCount);
}

footer().catch(() => {}).finally(show);
