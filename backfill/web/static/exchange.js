// One exchange: what was said, in full, beside what was kept of it and where it leads.
import { count, day, dots, exchangeLink, fromHtml, get, h, link, moment, plural, projectName, roomChip, when } from "./parts.js";

const WHO = { user_text: "You", agent_text: "Agent", thinking: "Thinking" };
const CHARS = 16000;

export async function show({ argument, parameters, signal }) {
  const detail = await get(`/api/exchanges/${encodeURIComponent(argument)}`, { q: parameters.q, chars: CHARS, render: "html" }, signal);
  const place = detail.occurrences[0];
  const core = detail.object?.exchange_core || "Exchange";
  const talk = h("div", { class: "talk" });
  const reader = new Reader(detail, parameters.q, talk);
  return {
    title: core.slice(0, 80),
    content: h("article", { class: "exchange" },
      header(detail, place, core, parameters.q),
      h("div", { class: "columns" },
        h("section", { class: "said", "aria-label": "Verbatim" }, reader.bar(), talk, reader.more),
        aside(detail, parameters.q))),
  };
}

function header(detail, place, core, q) {
  const step = (one, key, text) => (one ? h("a", { class: "step", href: exchangeLink(one.exchange_id, q), title: `${one.exchange_core} (${key})`, "data-key": key }, text) : h("span", { class: "step off" }, text));
  return h("header", { class: "exchange-head" },
    h("div", { class: "steps" },
      h("p", { class: "crumbs small" }, place?.title ? place.title : h("code", {}, detail.exchange_id.slice(0, 12))),
      h("nav", { "aria-label": "Session" }, step(detail.prev[0], "[", "← Before"), step(detail.next[0], "]", "After →"))),
    h("h1", { class: "core" }, core),
    h("div", { class: "meta" }, dots(place && h("time", { datetime: place.started_at }, moment(place.started_at)), place && projectName(place.project), place?.agent, place?.model, place?.branch && `branch ${place.branch}`,
      detail.part ? `part ${detail.part + 1}` : "", plural(detail.n_turns, "turn"), `about ${count(detail.tokens_est)} tokens`)));
}

// Pages of verbatim text in reading order, each appended where the one before ended.
class Reader {
  constructor(detail, q, talk) {
    this.id = detail.exchange_id;
    this.q = q;
    this.talk = talk;
    this.tools = detail.n_tools;
    this.raw = false;
    this.pages = [];
    this.more = h("button", { type: "button", class: "more", onclick: () => this.next() });
    this.add(detail.text);
  }

  bar() {
    this.toggle = h("button", { type: "button", class: "quiet", "data-key": "r", onclick: () => this.switch() }, "As written");
    return h("div", { class: "said-bar" }, h("h2", {}, "Verbatim"), this.toggle);
  }

  switch() {
    this.raw = !this.raw;
    this.toggle.textContent = this.raw ? "Rendered" : "As written";
    this.talk.replaceChildren();
    for (const page of this.pages) this.draw(page);
  }

  add(page) {
    this.pages.push(page);
    this.cursor = page.cursor;
    this.draw(page);
    this.more.hidden = !page.cursor;
    const [kind] = (page.cursor ?? "").split(/[.:]/);
    const field = page.passages.at(-1);
    this.more.textContent = kind === "tools" && !this.talk.querySelector(".tools-head") ? `Show ${plural(this.tools, "tool call")}`
      : kind === "thinking" && field?.field !== "thinking" ? "Show thinking" : field?.after ? `Read on, ${count(field.total - field.end)} more characters` : "Read on";
  }

  async next() {
    this.more.disabled = true;
    try {
      this.add(await get(`/api/exchanges/${this.id}/text`, { cursor: this.cursor, chars: CHARS, render: "html" }));
    } catch (error) {
      this.more.textContent = error.message;
    }
    this.more.disabled = false;
  }

  draw(page) {
    const tools = new Map(page.tools.map((tool) => [tool.number, tool]));
    for (const passage of page.passages) this.block(passage, tools).append(...this.body(passage));
  }

  // The element that holds a field's text; one field may come in several passages.
  block(passage, tools) {
    const [kind, number] = passage.field.split(".");
    const key = kind === "tools" ? `tools.${number}` : kind;
    const known = this.talk.querySelector(`[data-field="${key}"]`);
    if (known) return known;
    const tool = tools.get(Number(number));
    const block = tool
      ? h("details", { class: "tool", "data-field": key }, h("summary", {}, h("b", {}, tool.name || "tool"), h("span", { class: "soft small" }, tool.paths.slice(0, 3).join(", ")),
          tool.cut_bytes ? h("span", { class: "cut small" }, `${count(tool.cut_bytes)} bytes of its result were not kept`) : null))
      : kind === "thinking"
        ? h("details", { class: "tool", "data-field": key }, h("summary", {}, h("b", {}, WHO[kind])))
        : h("section", { class: `turn ${kind}`, "data-field": key }, h("h3", {}, WHO[kind] ?? kind));
    if (tool && !this.talk.querySelector(".tools-head")) this.talk.append(h("h3", { class: "tools-head" }, "Tool calls"));
    this.talk.append(block);
    return block;
  }

  body(passage) {
    const out = [];
    if (passage.before && this.pages[0].passages.includes(passage)) out.push(this.missing(passage, true));
    const [, , part] = passage.field.split(".");
    if (part) out.push(h("p", { class: "part small soft" }, { input: "Input", head: "Result", tail: "End of the result" }[part] ?? part));
    if (this.raw || passage.html === null) out.push(h("pre", { class: "plain", dir: "auto" }, passage.text));
    else out.push(highlight(fromHtml(passage.html), passage));
    if (passage.after && passage.after !== this.cursor && this.pages.length === 1) out.push(this.missing(passage, false));
    return out;
  }

  // Around a query the first page may leave text out on either side; the cursors lead to it.
  missing(passage, before) {
    const n = before ? passage.start : passage.total - passage.end;
    const button = h("button", { type: "button", class: "missing", onclick: async () => {
      button.disabled = true;
      let cursor = before ? passage.before : passage.after;
      const end = before ? passage.start : passage.total;
      const parts = [];
      while (cursor) {
        const page = await get(`/api/exchanges/${this.id}/text`, { cursor, chars: CHARS, render: "html" });
        const [first] = page.passages;
        if (!first || first.field !== passage.field || first.start >= end) break;
        parts.push(fromHtml(first.html));
        cursor = first.end < end ? first.after : null;
      }
      button.replaceWith(...parts);
    } }, `${count(n)} characters ${before ? "before this" : "after this"}: show`);
    return button;
  }
}

function highlight(element, passage) {
  const points = passage.matches.length ? Array.from(passage.text) : [];
  const words = new Set(passage.matches.map(([start, end]) => points.slice(start, end).join("")));
  if (!words.size) return element;
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}_])(${[...words].sort((a, b) => b.length - a.length).map((word) => word.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&")).join("|")})(?![\\p{L}\\p{N}_])`, "gu");
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) {
    const parts = node.data.split(pattern);
    if (parts.length > 1) node.replaceWith(...parts.map((part, at) => (at % 2 ? h("mark", {}, part) : part)));
  }
  return element;
}

function aside(detail, q) {
  const { object } = detail;
  return h("aside", { class: "kept" },
    object ? h("section", { class: "card object" }, h("h2", {}, "Palace object"),
      h("p", { class: "core" }, object.exchange_core || h("span", { class: "soft" }, "raw: too short to distill")),
      object.specific_context ? h("p", { class: "context", title: `literally in ${object.context_field}` }, object.specific_context) : null,
      h("p", { class: "meta" }, dots(h("span", { class: "tier" }, object.tier), plural(object.tokens, "token"), object.generation ? `generation ${object.generation}` : "")),
      object.findings.length ? h("ul", { class: "findings small" }, object.findings.map((one) => h("li", {}, `${one.kind}: `, h("code", {}, one.handle)))) : null) : null,
    object?.room_assignments.length ? h("section", { class: "card" }, h("h2", {}, "Rooms"), object.room_assignments.map((room) => related(
      [roomChip(room.room_key, room.room_type)], `/api/rooms/${encodeURIComponent(`${room.room_type}:${room.room_key}`)}`, (page) => page.hits, detail, q))) : null,
    object?.files_touched.length ? h("section", { class: "card" }, h("h2", {}, "Files"), files(detail, q)) : null,
    detail.claims.length ? h("section", { class: "card" }, h("h2", {}, "Claims"), h("ul", { class: "claims small" }, detail.claims.map((claim) =>
      h("li", { class: claim.superseded_by ? "gone" : "" }, h("span", { class: "kind" }, claim.kind), " ", h("span", { class: "claim-text" }, claim.text), claim.replacement ? h("p", { class: "newer" }, "Now: ", claim.replacement) : null)))) : null,
    h("section", { class: "card" }, h("h2", {}, detail.n_occurrences > 1 ? `Stands in ${detail.n_occurrences} places` : "Where it stands"), h("ul", { class: "places small" }, detail.occurrences.map(occurrence),
      detail.n_occurrences > detail.occurrences.length ? h("li", { class: "soft" }, `and ${count(detail.n_occurrences - detail.occurrences.length)} more`) : null)),
    detail.prev.length > 1 || detail.next.length > 1 ? h("section", { class: "card" }, h("h2", {}, "Where histories fork"), h("ul", { class: "near small" }, [...detail.prev.map((one) => near("before", one, q)), ...detail.next.map((one) => near("after", one, q))])) : null);
}

const near = (which, one, q) => h("li", {}, h("span", { class: "soft" }, `${which} `), h("a", { href: exchangeLink(one.exchange_id, q) }, one.exchange_core || one.exchange_id.slice(0, 12)));

function files(detail, q) {
  const all = detail.object.files_touched;
  const rows = all.map((file) => related([h("code", { class: "path", title: file.path }, file.path), h("span", { class: `action ${file.action}` }, file.action)], "/api/exchanges", (page) => page.exchanges, detail, q, { file: file.path.replace(/[[*?]/g, "[$&]") }));
  if (rows.length <= 8) return rows;
  const rest = rows.slice(8);
  const button = h("button", { type: "button", class: "quiet", onclick: () => button.replaceWith(...rest) }, `${plural(detail.n_files - 8, "more file")}`);
  return [...rows.slice(0, 8), button];
}

// Others of the same room or file, fetched when asked for.
function related(summary, address, listed, detail, q, parameters = {}) {
  const list = h("ul", { class: "near small" });
  let loaded = false;
  return h("details", { class: "related", ontoggle: async (event) => {
    if (!event.target.open || loaded) return;
    loaded = true;
    try {
      const page = await get(address, { ...parameters, limit: 9 });
      const others = listed(page).filter((one) => one.exchange_id !== detail.exchange_id).slice(0, 8);
      list.append(...others.map((one) => h("li", {}, h("span", { class: "soft" }, `${day(one.started_at)} `), h("a", { href: exchangeLink(one.exchange_id, q) }, one.exchange_core || one.exchange_id.slice(0, 12)))));
      if (!others.length) list.append(h("li", { class: "soft" }, "no other exchange"));
      else if (page.cursor && parameters.file) list.append(h("li", {}, h("a", { href: link("", parameters) }, "all of them")));
    } catch (error) {
      loaded = false;
      list.replaceChildren(h("li", {}, error.message));
    }
  } }, h("summary", {}, summary), list);
}

function occurrence(place) {
  return h("li", {}, h("div", { class: "meta" }, dots(when(place.started_at), projectName(place.project), place.agent)),
    h("div", { class: "soft path" }, place.source, ` bytes ${count(place.byte_start)} to ${count(place.byte_end)}`),
    place.parent_session ? h("div", { class: "soft" }, `sub-agent of session ${place.parent_session.slice(0, 40)}`) : null,
    place.tz_assumed ? h("div", { class: "soft" }, "time zone assumed") : null);
}
