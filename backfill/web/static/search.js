// Search as you type, with mode and filters; without a query the newest exchanges.
import { count, dots, empty, endless, exchangeLink, get, getStats, h, knownStats, link, listItem, marked, plural, projectName, roomChip, when } from "./parts.js";

const FILTERS = ["project", "agent", "room", "file", "since", "until", "tier", "kind"];
const MODES = {
  default: "Meaning and words",
  "distilled-vector": "Meaning, distilled",
  "verbatim-vector": "Meaning, verbatim",
  "verbatim-bm25": "Words, verbatim",
  "distilled-bm25": "Words, distilled",
  claims: "Claims",
};
const FIELDS = { user_text: "You", agent_text: "Agent" };

export async function show({ parameters, signal, go }) {
  const stats = knownStats() ?? (await getStats());
  const filters = Object.fromEntries(FILTERS.map((name) => [name, parameters[name] ?? ""]));
  const bar = filterBar(stats, parameters, filters, go);
  if (!stats.projects.length) return { title: "", content: empty("This bundle is empty", "Once a run has written exchanges into it, reload this page.") };
  if (!parameters.q?.trim()) return { title: "", content: [bar, await newest(filters, signal)] };
  const answer = await get("/api/search", { q: parameters.q, mode: parameters.mode, per_session: parameters.per_session, k: parameters.k ?? 12, chars: 560, ...filters }, signal);
  return { title: parameters.q, content: [bar, results(answer, more(answer, parameters))] };
}

async function newest(filters, signal) {
  const page = await get("/api/exchanges", { ...filters, limit: 25 }, signal);
  if (!page.total) return empty("Nothing passes these filters", "Take one away to see more.");
  const list = h("ol", { class: "entries" }, page.exchanges.map((entry) => listItem(entry)));
  const load = async (cursor) => {
    const next = await get("/api/exchanges", { ...filters, limit: 50, cursor });
    return { items: next.exchanges.map((entry) => listItem(entry)), cursor: next.cursor };
  };
  return h("section", { "aria-label": "Newest exchanges" },
    h("div", { class: "lead" }, h("h1", {}, "Newest"), h("span", { class: "soft" }, plural(page.total, "exchange"))),
    list, endless(list, load, page.cursor));
}

function results(answer, wider) {
  const head = h("p", { class: "result-head small soft", "aria-live": "polite" },
    `${plural(answer.hits.length, "exchange")} · ${MODES[answer.mode] ?? answer.mode} · ${Math.round(answer.took_ms)} ms`);
  const notes = answer.warnings.map((text) => h("p", { class: "note" }, text));
  if (answer.hits.length) return h("section", { "aria-label": "Results" }, notes, head, h("ol", { class: "hits" }, answer.hits.map((hit) => hitItem(hit, answer.query))), wider);
  return h("section", { "aria-label": "Results" }, notes,
    empty("Nothing found", answer.closest_miss ? `The closest is below: ${answer.closest_miss.note}.` : "No exchange has these words, and none is near in meaning."),
    answer.closest_miss ? h("ol", { class: "hits miss" }, hitItem(answer.closest_miss, answer.query)) : null);
}

function more(answer, parameters) {
  const next = { 12: 30, 30: 50 }[answer.hits.length];
  return next ? h("a", { class: "more", href: link("", { ...parameters, k: next }), "data-item": "" }, "More results") : null;
}

function hitItem(hit, q) {
  const places = hit.n_places > 1 ? `${plural(hit.n_places, "place")}` : "";
  const copies = hit.folded.length ? `${plural(hit.folded.length, "near copy", "near copies")} folded in` : "";
  return h("li", { class: "hit" },
    h("a", { class: "hit-link", href: exchangeLink(hit.exchange_id, q), "data-item": "" },
      h("span", { class: "hit-core" }, hit.claim || hit.exchange_core || "without a summary")),
    h("div", { class: "meta" }, dots(when(hit.started_at), projectName(hit.project), hit.agent, hit.tier && h("span", { class: "tier" }, hit.tier), places, copies)),
    h("div", { class: "passages" }, hit.passages.map(quoted)),
    hit.rooms.length || hit.n_files ? h("div", { class: "chips" }, hit.rooms.map((key) => roomChip(key)),
      hit.n_files ? h("span", { class: "soft small", title: hit.files.slice(0, 20).join("\n") }, plural(hit.n_files, "file")) : null) : null);
}

function quoted(passage) {
  const cut = passage.total - (passage.end - passage.start);
  return h("div", { class: `passage ${passage.field}` },
    h("span", { class: "who" }, FIELDS[passage.field] ?? passage.field),
    h("div", { class: "words", dir: "auto" },
      passage.before ? h("span", { class: "cut" }, `${count(passage.start)} characters before `) : null,
      h("span", { class: "text" }, marked(passage)),
      passage.after ? h("span", { class: "cut" }, ` ${count(passage.total - passage.end)} more characters`) : null,
      cut && passage.inside ? h("span", { class: "cut" }, " (cut inside a sentence)") : null));
}

function filterBar(stats, parameters, filters, go) {
  const set = (name, value) => go(link("", { ...parameters, [name]: value }));
  const select = (name, label, options, value) =>
    h("label", { class: `pick ${value ? "on" : ""}` }, h("span", {}, label),
      h("select", { onchange: (event) => set(name, event.target.value) }, options.map(([v, text]) => h("option", { value: v, selected: v === value }, text))));
  const text = (name, label, placeholder, type = "text") =>
    h("label", { class: `pick ${filters[name] ? "on" : ""}` }, h("span", {}, label),
      h("input", { type, value: filters[name], placeholder, onchange: (event) => set(name, event.target.value.trim()), spellcheck: "false" }));
  const named = (any, values) => [["", any], ...values.map(({ name, exchanges }) => [name, `${name || "no project"} (${count(exchanges)})`])];
  const withValue = (options, value) => (value && !options.some(([v]) => v === value) ? [...options, [value, value]] : options);
  const n = Object.values(filters).filter(Boolean).length;
  const modes = stats.modes.map((mode) => [mode === "default" ? "" : mode, MODES[mode] ?? mode]);
  const details = h("details", { class: "filters", open: n > 0 && !matchMedia("(max-width: 45rem)").matches },
    h("summary", {}, n ? `Filters (${n})` : "Filters"),
    h("div", { class: "picks" },
      select("project", "Project", withValue(named("all", stats.projects.filter(({ name }) => name)), filters.project), filters.project),
      select("agent", "Agent", withValue(named("all", stats.agents), filters.agent), filters.agent),
      text("room", "Room", "retry_timeout"),
      text("file", "File", "src/*.py"),
      text("since", "From", "", "date"),
      text("until", "To", "", "date"),
      select("tier", "Distilled by", withValue(named("any", stats.tiers), filters.tier), filters.tier),
      stats.kinds.length ? select("kind", "Has claim", withValue([["", "any"], ...stats.kinds.map(({ name }) => [name, name])], filters.kind), filters.kind) : null,
      n ? h("a", { class: "clear", href: link("", { q: parameters.q, mode: parameters.mode }) }, "Clear filters") : null));
  return h("div", { class: "controls" },
    modes.length > 1 ? select("mode", "Find by", modes, parameters.mode ?? "") : null,
    h("label", { class: `pick check ${parameters.per_session ? "on" : ""}` },
      h("input", { type: "checkbox", checked: Boolean(parameters.per_session), onchange: (event) => set("per_session", event.target.checked ? "true" : "") }),
      h("span", {}, "Best of each session")),
    details);
}
