// The API's page: what openapi.json says, and a form to try each address.
import { h, problem } from "./parts.js";

const main = document.getElementById("main");
const document_ = await fetch("/openapi.json").then((response) => response.json());
const schemas = document_.components.schemas;

function typeOf(tree) {
  if (tree.$ref) return tree.$ref.split("/").at(-1);
  if (tree.anyOf) return tree.anyOf.map(typeOf).join(" | ");
  if (tree.enum) return tree.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (tree.type === "array") return tree.prefixItems ? `[${tree.prefixItems.map(typeOf).join(", ")}]` : `${typeOf(tree.items ?? {})}[]`;
  if (tree.type === "object" && tree.additionalProperties) return `{string: ${typeOf(tree.additionalProperties)}}`;
  return tree.type ?? "any";
}

function shape(name, seen = new Set()) {
  if (!schemas[name]?.properties || seen.has(name)) return "";
  const inside = Object.entries(schemas[name].properties).map(([key, tree]) => `  ${key}: ${typeOf(tree)}`);
  seen.add(name);
  const named = JSON.stringify(schemas[name]).matchAll(/#\/components\/schemas\/(\w+)/g);
  return [`${name} {\n${inside.join("\n")}\n}`, ...[...named].map(([, one]) => shape(one, seen))].filter(Boolean).join("\n");
}

const bounds = (tree) => [tree.minimum !== undefined && `from ${tree.minimum}`, tree.maximum !== undefined && `to ${tree.maximum}`, tree.maxLength && `at most ${tree.maxLength} characters`].filter(Boolean).join(", ");

function operation([path, { get }]) {
  const result = h("div");
  const inputs = get.parameters.map((one) => [one, h("input", { name: one.name, placeholder: one.name, "aria-label": one.name, required: one.required })]);
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    let address = path;
    const query = new URLSearchParams();
    for (const [one, input] of inputs) {
      if (one.in === "path") address = address.replace(`{${one.name}}`, encodeURIComponent(input.value));
      else if (input.value) query.set(one.name, input.value);
    }
    const full = query.size ? `${address}?${query}` : address;
    const response = await fetch(full);
    const text = await response.text();
    result.replaceChildren(h("p", { class: "small soft" }, h("code", {}, full), ` ${response.status}, ${text.length} characters`), h("pre", { class: "plain" }, JSON.stringify(JSON.parse(text), null, 2).slice(0, 20000)));
  } }, inputs.map(([, input]) => input), h("button", {}, "Send"));
  const answer = get.responses["200"].content["application/json"].schema.$ref.split("/").at(-1);
  return h("details", { class: "operation" }, h("summary", {}, h("span", { class: "verb" }, "GET"), h("code", {}, path), h("span", { class: "soft" }, get.summary)),
    h("div", {}, h("p", {}, get.description),
      get.parameters.length ? h("table", {}, h("tbody", {}, get.parameters.map((one) => h("tr", {}, h("th", {}, h("code", {}, one.name)), h("td", {}, typeOf(one.schema)), h("td", {}, one.required ? "required" : one.schema.default !== undefined ? `default ${JSON.stringify(one.schema.default)}` : ""),
        h("td", { class: "soft" }, [one.description, bounds(one.schema)].filter(Boolean).join("; ")))))) : null,
      form, result,
      h("details", {}, h("summary", { class: "small soft" }, `Answers ${answer}`), h("pre", { class: "tree" }, shape(answer)))));
}

try {
  main.append(
    h("div", { class: "top" }, h("h1", {}, "API"), h("span", {}, h("a", { href: "/" }, "the page"), " · ", h("a", { href: "/openapi.json" }, "openapi.json"))),
    h("p", {}, document_.info.description),
    h("p", { class: "soft" }, "Only GET, only from this machine, only under the address that was printed. Errors are {error: {kind, message, hint}} with a status of 4xx; an answer stays the same, with the same ETag, until the bundle changes."),
    ...Object.entries(document_.paths).map(operation));
} catch (error) {
  main.append(problem(error));
}
