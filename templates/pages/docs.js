// Every route of /openapi.json with a form to send it. Text goes in as text, never as markup.
"use strict";

// The API may be a part of another one: then its routes lie below its root.
const root = new URL("..", document.currentScript.src).pathname.replace(/\/$/, "");

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function bodyOf(operation) {
  const content = operation.requestBody && operation.requestBody.content;
  if (!content) return null;
  const [type, told] = Object.entries(content)[0];
  const text = told.example === undefined ? "" : JSON.stringify(told.example, null, 2);
  return { type: type === "*/*" ? "application/octet-stream" : type, text };
}

function addressOf(path, fields) {
  const query = new URLSearchParams();
  let address = root + path;
  for (const { parameter, input } of fields) {
    if (parameter.in === "path") {
      address = address.replace(`{${parameter.name}}`, input.value.split("/").map(encodeURIComponent).join("/"));
    } else if (parameter.in === "query" && input.value !== "") {
      query.set(parameter.name, input.value);
    }
  }
  return query.size ? `${address}?${query}` : address;
}

async function send(method, path, fields, body, output) {
  const headers = {};
  for (const { parameter, input } of fields) {
    if (parameter.in === "header" && input.value !== "") headers[parameter.name] = input.value;
  }
  const key = document.getElementById("key").value.trim();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = body.type;
  output.textContent = "…";
  try {
    const answer = await fetch(addressOf(path, fields), {
      method: method.toUpperCase(), headers, body: body ? body.input.value : undefined,
    });
    let text = await answer.text();
    try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* a file, shown as it is */ }
    const tag = answer.headers.get("ETag");
    output.textContent = `${answer.status} ${answer.statusText}${tag ? `\nETag: ${tag}` : ""}\n\n${text}`;
  } catch (error) {
    output.textContent = String(error);
  }
}

function route(path, method, operation) {
  const parts = [element("p", { textContent: operation.description || "" })];
  const fields = (operation.parameters || []).map((parameter) => {
    const input = element("input", { placeholder: parameter.required ? "" : "optional" });
    const about = parameter.description || (parameter.schema && parameter.schema.description) || "";
    parts.push(element("label", {}, `${parameter.name} `, input, element("small", { textContent: ` ${about}` })));
    return { parameter, input };
  });
  const body = bodyOf(operation);
  if (body) {
    body.input = element("textarea", { value: body.text, rows: Math.max(3, body.text.split("\n").length) });
    parts.push(element("label", {}, "body", body.input));
  }
  const output = element("pre", { textContent: "" });
  output.setAttribute("aria-live", "polite");
  const button = element("button", { textContent: "Send", type: "button" });
  button.addEventListener("click", () => send(method, path, fields, body, output));
  const heading = element("summary", {},
    element("code", { textContent: `${method.toUpperCase()} ${path}` }), ` ${operation.summary}`);
  return element("details", {}, heading, ...parts, button, output);
}

async function main() {
  const place = document.getElementById("routes");
  place.replaceChildren(element("p", { className: "soft", textContent: "Reading the routes …" }));
  const told = await (await fetch(`${root}/openapi.json`)).json();
  place.replaceChildren();
  let tag = null;
  for (const [path, methods] of Object.entries(told.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      if (operation.tags[0] !== tag) {
        tag = operation.tags[0];
        place.append(element("h2", { textContent: tag }));
      }
      place.append(route(path, method, operation));
    }
  }
}

main();
