// The palace as areas: a squarified treemap (Bruls, Huizing, van Wijk 2000) of rooms in groups; and one room.
import { count, day, empty, endless, get, h, link, listItem, plural, projectName, roomLink, roomName, when } from "./parts.js";

const NAMES = { file: "Files", concept: "Concepts", workflow: "Workflows" };
const HEAD = 26;

export async function show({ name, argument, parameters, signal, go }) {
  return name === "room" ? room(argument, signal) : palace(parameters, signal, go);
}

async function palace(parameters, signal, go) {
  const by = parameters.by === "project" ? "project" : "type";
  const group = parameters.group;
  const width = document.getElementById("main").clientWidth - 40;
  const height = Math.max(420, Math.min(innerHeight - 230, 900));
  const limit = Math.max(24, Math.min(400, Math.round((width * height) / 5200)));
  const answer = await get("/api/palace", { by, group, limit, skip: parameters.skip }, signal);
  const groups = answer.groups.filter((one) => one.exchanges);
  if (!groups.length) return { title: "Palace", content: [head(by, parameters, []), empty("No rooms yet", "Rooms appear once exchanges have been distilled.")] };
  const picture = h("div", { class: "palace", role: "group", "aria-label": "Rooms by number of exchanges", "data-mounted": "" });
  const draw = () => paint(picture, answer, by, group !== undefined);
  picture.addEventListener("mounted", () => {
    draw();
    const observer = new ResizeObserver(() => (picture.isConnected ? draw() : observer.disconnect()));
    observer.observe(picture);
  });
  const rooms = groups.reduce((sum, one) => sum + one.rooms, 0);
  return { title: "Palace", content: [head(by, parameters, groups), picture, legend(), finder(by, group, rooms, go)] };
}

function head(by, parameters, groups) {
  const choice = (value, text) => h("a", { href: link("palace", { by: value }), "aria-current": by === value ? "true" : null }, text);
  const one = parameters.group !== undefined ? groups[0] : null;
  const crumbs = one
    ? [h("a", { href: link("palace", { by }) }, "Palace"), " / ",
       parameters.skip ? h("a", { href: link("palace", { by, group: parameters.group }) }, groupName(by, one.name)) : groupName(by, one.name),
       one.skipped ? ` / after the ${count(one.skipped)} fullest` : ""]
    : ["Palace"];
  const rooms = groups.reduce((sum, each) => sum + each.rooms, 0);
  return h("div", { class: "lead" }, h("h1", {}, crumbs),
    groups.length ? h("span", { class: "soft" }, plural(rooms, "room")) : null,
    h("span", { class: "segmented", role: "group", "aria-label": "Group rooms" }, choice("type", "By type"), choice("project", "By project")));
}

const groupName = (by, name) => (by === "type" ? NAMES[name] ?? name : projectName(name));

function legend() {
  return h("div", { class: "legend small soft" }, Object.entries(NAMES).map(([type, text]) => h("span", {}, h("i", { class: `swatch ${type}` }), text)),
    h("span", {}, "An exchange stands in up to three rooms. Smaller rooms share one area: open it to see them."));
}

function finder(by, group, total) {
  const list = h("ol", { class: "rooms" });
  const more = h("div");
  const filters = group === undefined ? {} : by === "type" ? { type: group } : { project: group };
  const item = (one) => h("li", {}, h("a", { href: roomLink(one.type, one.key), "data-item": "" }, roomName(one.key)),
    h("span", { class: `soft small` }, `${one.type} · ${plural(one.exchanges, "exchange")} · ${day(one.last_at)}`));
  const fill = async (q) => {
    const page = await get("/api/rooms", { ...filters, q, limit: 24 });
    list.replaceChildren(...page.rooms.map(item));
    if (!page.rooms.length) list.append(h("li", { class: "soft" }, "No room of this name."));
    const button = endless(list, async (cursor) => {
      const next = await get("/api/rooms", { ...filters, q, limit: 48, cursor });
      return { items: next.rooms.map(item), cursor: next.cursor };
    }, page.cursor);
    more.replaceChildren(...(button ? [button] : []));
  };
  let timer = 0;
  const input = h("input", { type: "search", placeholder: "Find a room by name", "aria-label": "Find a room by name", spellcheck: "false",
    oninput: (event) => { clearTimeout(timer); timer = setTimeout(() => fill(event.target.value).catch(() => {}), 150); } });
  fill("").catch(() => {});
  return h("section", { class: "finder" }, h("h2", {}, `All ${plural(total, "room")}`), input, list, more);
}

function paint(picture, answer, by, single) {
  const width = picture.clientWidth, height = picture.clientHeight;
  if (!width) return;
  const groups = answer.groups.filter((one) => one.exchanges).map((one) => ({ ...one, size: single ? sizeOf(one) : one.exchanges }));
  if (answer.more_groups) groups.push({ name: null, last: true, size: Math.min(answer.more_exchanges, groups.reduce((sum, one) => sum + one.size, 0) / 5), tiles: [], more: answer.more_groups });
  const newest = Math.max(...groups.flatMap((one) => one.tiles.map((tile) => Date.parse(tile.last_at ?? 0) || 0)));
  const oldest = Math.min(...groups.flatMap((one) => one.tiles.map((tile) => Date.parse(tile.last_at ?? 0) || newest)), newest);
  const age = (tile) => (newest > oldest ? ((Date.parse(tile.last_at ?? 0) || oldest) - oldest) / (newest - oldest) : 1);
  const out = [];
  for (const { item, x, y, w, h: tall } of laidOut(groups, 0, 0, width, height)) {
    if (item.name === null) {
      out.push(box(h("div", { class: "tile rest" }, h("span", { class: "label" }, `${plural(item.more, "smaller project")}`)), x, y, w, tall));
      continue;
    }
    const frame = h("div", { class: "group" });
    const header = single ? 0 : HEAD;
    if (!single) frame.append(h("a", { class: "group-name", href: link("palace", { by, group: item.name }), "data-item": "" },
      h("b", {}, groupName(by, item.name)), h("span", {}, ` ${plural(item.rooms, "room")}`)));
    const tiles = item.tiles.map((tile) => ({ ...tile, size: tile.exchanges }));
    if (item.rest_rooms) tiles.push({ rest: item.rest_rooms, last: true, size: restSize(item) });
    for (const cell of laidOut(tiles, 0, header, w - 4, tall - header - 4)) frame.append(tileOf(cell, item, by, age));
    out.push(box(frame, x, y, w, tall));
  }
  picture.replaceChildren(...out);
}

// The tail of a big bundle would cover the picture: it gets at most a quarter of its group.
const restSize = (group) => Math.min(group.rest_exchanges, Math.max(1, group.tiles.reduce((sum, tile) => sum + tile.exchanges, 0) / 3));
const sizeOf = (group) => group.tiles.reduce((sum, tile) => sum + tile.exchanges, 0) + (group.rest_rooms ? restSize(group) : 0);

function tileOf({ item, x, y, w, h: tall }, group, by, age) {
  const roomy = w > 38 && tall > 19;
  if (item.rest) {
    const href = link("palace", { by, group: group.name, skip: group.skipped + group.tiles.length });
    return box(h("a", { class: "tile rest", href, "data-item": "", title: `${plural(item.rest, "smaller room")}` },
      roomy ? h("span", { class: "label" }, `${plural(item.rest, "smaller room")}`) : null), x, y, w, tall);
  }
  const step = Math.round(age(item) * 3);
  const text = `${roomName(item.key)}: ${plural(item.exchanges, "exchange")}, ${item.type}, last ${day(item.last_at)}`;
  return box(h("a", { class: `tile ${item.type} age-${step}`, href: roomLink(item.type, item.key), title: text, "aria-label": text, "data-item": "" },
    roomy ? clamped(h("span", { class: "label" }, roomName(item.key)), w, tall) : null,
    roomy && tall > 40 ? h("span", { class: "n" }, count(item.exchanges)) : null), x, y, w, tall);
}

// Larger letters in larger rooms, and as many whole lines as there is room for.
function clamped(label, w, tall) {
  const size = Math.max(12, Math.min(24, Math.sqrt(w * tall) / 9));
  label.style.fontSize = `${size}px`;
  label.style.webkitLineClamp = String(Math.max(1, Math.floor((tall - 8 - (tall > 40 ? 15 : 0)) / (1.25 * size))));
  return label;
}

function box(element, x, y, w, tall) {
  element.style.left = `${x}px`;
  element.style.top = `${y}px`;
  element.style.width = `${Math.max(0, w - 2)}px`;
  element.style.height = `${Math.max(0, tall - 2)}px`;
  return element;
}

// What is added up gets a strip at the end, the others are squarified beside it.
function laidOut(items, x, y, w, tall) {
  const rest = items.find((item) => item.last);
  const others = items.filter((item) => item !== rest);
  if (!rest || !others.length) return squarify(items, x, y, w, tall);
  const share = rest.size / items.reduce((sum, item) => sum + item.size, 0);
  if (w > 1.6 * tall) return [...squarify(others, x, y, w * (1 - share), tall), { item: rest, x: x + w * (1 - share), y, w: w * share, h: tall }];
  return [...squarify(others, x, y, w, tall * (1 - share)), { item: rest, x, y: y + tall * (1 - share), w, h: tall * share }];
}

// Rows along the shorter side, each filled while its worst proportion gets no worse.
function squarify(items, x, y, w, tall) {
  const sorted = items.filter((item) => item.size > 0).sort((a, b) => b.size - a.size);
  const total = sorted.reduce((sum, item) => sum + item.size, 0);
  if (!total || w <= 0 || tall <= 0) return [];
  const scale = (w * tall) / total;
  const out = [];
  let at = 0;
  while (at < sorted.length) {
    const side = Math.max(1, Math.min(w, tall));
    let end = at, sum = 0, worst = Infinity;
    while (end < sorted.length) {
      const next = sum + sorted[end].size * scale;
      const proportion = Math.max((side * side * sorted[at].size * scale) / (next * next), (next * next) / (side * side * sorted[end].size * scale));
      if (proportion > worst) break;
      [worst, sum, end] = [proportion, next, end + 1];
    }
    const thick = sum / side;
    let along = 0;
    for (const item of sorted.slice(at, end)) {
      const long = (item.size * scale) / thick;
      out.push(w >= tall ? { item, x, y: y + along, w: thick, h: long } : { item, x: x + along, y, w: long, h: thick });
      along += long;
    }
    if (w >= tall) [x, w] = [x + thick, w - thick];
    else [y, tall] = [y + thick, tall - thick];
    at = end;
  }
  return out;
}

async function room(argument, signal) {
  const address = `/api/rooms/${encodeURIComponent(argument)}`;
  const page = await get(address, { limit: 50 }, signal);
  const [first] = page.rooms;
  const list = h("ol", { class: "entries" }, page.hits.map((hit) => listItem(hit)));
  const more = endless(list, async (cursor) => {
    const next = await get(address, { limit: 50, cursor });
    return { items: next.hits.map((hit) => listItem(hit)), cursor: next.cursor };
  }, page.cursor);
  const total = page.rooms.reduce((sum, one) => sum + one.exchanges, 0);
  const types = page.rooms.map((one) => one.type);
  return {
    title: roomName(first.key),
    content: h("section", {},
      h("p", { class: "crumbs small" }, h("a", { href: "#/palace" }, "Palace"), " / ", types.map((type) => h("a", { href: link("palace", { by: "type", group: type }) }, NAMES[type] ?? type))),
      h("div", { class: "lead" }, h("h1", {}, h("i", { class: `swatch ${first.type}` }), roomName(first.key)), h("span", { class: "soft" }, plural(total, "exchange"), ", last ", when(first.last_at)),
        h("a", { class: "lead-link", href: link("", { room: `${first.type}:${first.key}` }) }, "Search in this room")),
      list, more),
  };
}
