// Exchanges by month and project: bars that lead to the exchanges they count, and the same numbers as a table.
import { compact, count, empty, get, h, link, monthName, plural, projectName, svg } from "./parts.js";

const TALL = 280, FOOT = 28, SIDE = 40;

export async function show({ signal }) {
  const answer = await get("/api/timeline", { projects: 9 }, signal);
  const title = h("h1", {}, "Timeline");
  if (!answer.months.length) return { title: "Timeline", content: [h("div", { class: "lead" }, title), empty("No time to show", "There are no exchanges yet.")] };
  const months = filled(answer.months);
  const names = [...answer.projects, ...(answer.cells.some((cell) => cell.project === null) ? [null] : [])];
  const cells = new Map(answer.cells.map((cell) => [`${cell.month}\n${cell.project}`, cell]));
  const cellOf = (month, name) => cells.get(`${month}\n${name}`);
  const totals = months.map((month) => names.reduce((sum, name) => sum + (cellOf(month, name)?.exchanges ?? 0), 0));
  const all = totals.reduce((sum, n) => sum + n, 0);
  return { title: "Timeline", content: [
    h("div", { class: "lead" }, title, h("span", { class: "soft" }, `${plural(all, "exchange")} in ${plural(answer.months.length, "month")}, ${plural(answer.projects.length, "project")}${names.includes(null) ? " and others" : ""}`)),
    h("div", { class: "chart-scroll latest", "data-mounted": "", onmounted: (event) => { event.target.scrollLeft = event.target.scrollWidth; } }, chart(months, names, cellOf, totals)),
    legend(names, months, cellOf),
    table(months, names, cellOf, totals),
  ] };
}

// Months without work are part of the picture.
function filled(months) {
  const dated = months.filter(Boolean);
  const out = [];
  for (let month = dated[0]; dated.length && month <= dated.at(-1) && out.length < 600; month = next(month)) out.push(month);
  return months.includes(null) ? [...out, null] : out;
}

function next(month) {
  const [year, number] = month.split("-").map(Number);
  return number === 12 ? `${String(year + 1).padStart(4, "0")}-01` : `${String(year).padStart(4, "0")}-${String(number + 1).padStart(2, "0")}`;
}

function target(month, name) {
  const range = month ? { since: `${month}-01`, until: lastDay(month) } : {};
  return link("", { ...(name === null ? {} : { project: name }), ...range });
}

function lastDay(month) {
  const [year, number] = month.split("-").map(Number);
  return `${month}-${String(new Date(Date.UTC(year, number, 0)).getUTCDate()).padStart(2, "0")}`;
}

const seriesOf = (names, name) => (name === null ? "series-rest" : `series-${names.indexOf(name)}`);

function chart(months, names, cellOf, totals) {
  const room = document.getElementById("main").clientWidth - 44;
  const step = Math.max(26, Math.min(96, (room - SIDE) / months.length));
  const width = Math.max(240, SIDE + months.length * step);
  const most = niceTop(Math.max(...totals));
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${TALL + FOOT}`, width, height: TALL + FOOT, role: "group", "aria-label": "Exchanges by month and project" });
  for (const share of [0, 0.5, 1]) {
    const y = TALL - share * (TALL - 26) + 0.5;
    root.append(svg("line", { x1: SIDE, x2: width, y1: y, y2: y, class: "axis" }), svg("text", { x: SIDE - 8, y: y + 4, class: "tick", "text-anchor": "end" }, compact(most * share)));
  }
  months.forEach((month, at) => {
    const x = SIDE + at * step + 4, bar = Math.min(step - 8, 64);
    let y = TALL;
    for (const name of names) {
      const cell = cellOf(month, name);
      if (!cell) continue;
      const tall = Math.max(1.5, (cell.exchanges / most) * (TALL - 26));
      y -= tall;
      const label = `${monthName(month)}, ${name === null ? "other projects" : projectName(name)}: ${plural(cell.exchanges, "exchange")} in ${plural(cell.sessions, "session")}`;
      root.append(svg("a", { href: target(month, name), "data-item": "", "aria-label": label },
        svg("rect", { x, y: y + 0.5, width: bar, height: Math.max(1, tall - 1), class: seriesOf(names, name), rx: 1.5 }, svg("title", {}, label))));
    }
    if (totals[at] && step >= 44) root.append(svg("text", { x: x + bar / 2, y: y - 7, class: "total", "text-anchor": "middle" }, compact(totals[at])));
    const every = Math.ceil(58 / step);
    if (at % every === 0 || month === null) root.append(svg("text", { x: x + bar / 2, y: TALL + 19, class: "tick", "text-anchor": "middle" }, step > 70 || month === null ? monthName(month) : `${month.slice(5)}/${month.slice(2, 4)}`));
  });
  return root;
}

// The top of the scale: 1, 2 or 5 times a power of ten, at least two.
function niceTop(n) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, n)));
  return Math.max(2, [1, 2, 4, 5, 10].map((step) => step * power).find((top) => top >= n));
}

function legend(names, months, cellOf) {
  return h("ul", { class: "legend small" }, names.map((name) => {
    const sum = months.reduce((total, month) => total + (cellOf(month, name)?.exchanges ?? 0), 0);
    return h("li", {}, h("i", { class: `swatch ${seriesOf(names, name)}` }), name === null ? "other projects" : h("a", { href: link("", { project: name }) }, projectName(name)), h("span", { class: "soft" }, ` ${count(sum)}`));
  }));
}

function table(months, names, cellOf, totals) {
  const rows = months.map((month, at) => [month, at]).filter(([, at]) => totals[at]).reverse();
  const most = Math.max(1, ...months.flatMap((month) => names.map((name) => cellOf(month, name)?.exchanges ?? 0)));
  return h("section", { class: "as-table" }, h("h2", {}, "By month and project"),
    h("div", { class: "chart-scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "Month"), names.map((name) => h("th", {}, name === null ? "others" : projectName(name))), h("th", {}, "All"))),
      h("tbody", {}, rows.map(([month, at]) => h("tr", {}, h("th", {}, monthName(month)), names.map((name) => {
        const cell = cellOf(month, name);
        const field = h("td", {}, cell ? h("a", { href: target(month, name), title: plural(cell.sessions, "session") }, count(cell.exchanges)) : "");
        if (cell) field.style.setProperty("--heat", `${Math.round(8 + 52 * Math.sqrt(cell.exchanges / most))}%`);
        return field;
      }), h("td", {}, count(totals[at]))))))));
}
