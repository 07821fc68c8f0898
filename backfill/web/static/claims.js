// Claims with their dates, their sources, and what replaced them.
import { count, day, dots, empty, endless, exchangeLink, get, h, knownStats, getStats, link, plural, projectName } from "./parts.js";

export async function show({ parameters, signal, go }) {
  const stats = knownStats() ?? (await getStats());
  const asked = { q: parameters.q, kind: parameters.kind, project: parameters.project, superseded: parameters.all ? "true" : "" };
  const page = await get("/api/claims", { ...asked, limit: 50 }, signal);
  const set = (name, value) => go(link("claims", { ...parameters, [name]: value }));
  const total = stats.kinds.reduce((sum, kind) => sum + kind.exchanges, 0);
  const kinds = h("div", { class: "kinds", role: "group", "aria-label": "Kind" },
    [["", "all", total], ...stats.kinds.map(({ name, exchanges }) => [name, name, exchanges])].map(([value, text, n]) =>
      h("a", { class: "chip", href: link("claims", { ...parameters, kind: value }), "aria-current": (parameters.kind ?? "") === value ? "true" : null }, text, h("span", { class: "soft" }, ` ${count(n)}`))));
  const toggle = h("label", { class: `pick check ${parameters.all ? "on" : ""}` },
    h("input", { type: "checkbox", checked: Boolean(parameters.all), onchange: (event) => set("all", event.target.checked ? "1" : "") }), h("span", {}, "Show replaced ones"));
  const list = h("ol", { class: "claim-list" }, page.claims.map(item));
  const more = endless(list, async (cursor) => {
    const next = await get("/api/claims", { ...asked, limit: 50, cursor });
    return { items: next.claims.map(item), cursor: next.cursor };
  }, page.cursor);
  const hidden = page.hidden ? h("p", { class: "small soft" }, `${plural(page.hidden, "claim")} that a later one replaced ${page.hidden === 1 ? "is" : "are"} not shown.`) : null;
  const notes = page.warnings.map((text) => h("p", { class: "note" }, text));
  const body = page.claims.length ? [hidden, list, more]
    : [total ? empty("No claim found", "Other words, another kind, or the replaced ones may help.") : empty("This bundle has no claims", "A run whose distill.products names claims writes them.")];
  return { title: "Claims", content: [h("div", { class: "lead" }, h("h1", {}, "Claims"), h("span", { class: "soft" }, parameters.q ? `for “${parameters.q}”` : "the newest first")), total ? h("div", { class: "controls" }, kinds, toggle) : null, notes, body].flat() };
}

function item(claim) {
  const [first] = claim.sources;
  return h("li", { class: claim.superseded_by ? "claim gone" : "claim" },
    h("div", { class: "claim-when small" }, claim.date ? day(claim.date) : "undated"),
    h("div", {},
      first ? h("a", { class: "claim-text", href: exchangeLink(first.exchange_id), "data-item": "" }, claim.text) : h("span", { class: "claim-text" }, claim.text),
      claim.superseded_by ? h("p", { class: "newer" }, h("b", {}, "Now: "), claim.replacement || "a later claim, which is not shown") : null,
      h("div", { class: "meta" }, dots(h("span", { class: `kind ${claim.kind}` }, claim.kind), first && projectName(first.project), first?.agent,
        claim.sources.length > 1 ? h("span", {}, "from ", claim.sources.slice(0, 5).map((one, at) => [at ? ", " : "", h("a", { href: exchangeLink(one.exchange_id) }, one.exchange_id.slice(0, 8))])) : null))));
}
