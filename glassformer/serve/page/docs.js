// Every route of the server, from its own schema.

import { h } from "./elements.js";

/** A schema's type in a few letters. */
function typeOf(schema) {
  if (!schema) return "";
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" | ");
  if (schema.type === "array") return `[${typeOf(schema.items)}]`;
  return schema.type ?? "any";
}

/** The fields of a body as a table. */
function fieldsOf(schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, own]) =>
    h("tr", {},
      h("th", { scope: "row" }, name, (schema.required ?? []).includes(name) ? " *" : ""),
      h("td", {}, h("code", {}, typeOf(own))),
      h("td", {}, own.default === undefined || own.default === null ? "" : JSON.stringify(own.default)),
      h("td", {}, own.description ?? ""),
    ),
  );
  return h("div", { class: "scroll" }, h("table", { class: "fields" }, h("tbody", {}, rows)));
}

function route(path, method, own) {
  const bodies = Object.entries(own.requestBody?.content ?? {});
  const parameters = (own.parameters ?? []).map((one) => h("li", {}, h("code", {}, one.name), ` (${one.in})`));
  return h("details", { class: "route" },
    h("summary", {}, h("b", { class: "method" }, method.toUpperCase()), h("code", {}, path), h("span", { class: "dim" }, own.summary ?? "")),
    own.description ? h("p", {}, own.description) : null,
    parameters.length ? h("ul", {}, parameters) : null,
    bodies.length ? h("p", { class: "dim" }, bodies.map(([kind]) => kind).join(", ")) : null,
    bodies.length ? fieldsOf(bodies[0][1].schema) : null,
    h("p", { class: "dim" }, Object.keys(own.responses).join(" · ")),
  );
}

const main = document.getElementById("docs");
const schema = await (await fetch("/openapi.json")).json();
for (const [path, methods] of Object.entries(schema.paths)) {
  for (const [method, own] of Object.entries(methods)) main.append(route(path, method, own));
}
main.setAttribute("aria-busy", "false");
document.documentElement.dataset.ready = "yes";
