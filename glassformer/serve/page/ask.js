// Asking the server: JSON in, JSON or a stream of events out. The key, where one is needed, stays in this tab.

export function heldKey() {
  try {
    return sessionStorage.getItem("glassformer.key") ?? "";
  } catch {
    return "";
  }
}

export function holdKey(key) {
  try {
    sessionStorage.setItem("glassformer.key", key);
  } catch {
    // it is asked for again
  }
}

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function send(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (heldKey()) headers.Authorization = `Bearer ${heldKey()}`;
  const response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body ? JSON.stringify(body) : undefined, signal });
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new Refusal(response.status, told.error?.message ?? told.error ?? response.statusText);
}

export async function ask(path, body = null, signal = undefined) {
  return await (await send(path, body, signal)).json();
}

/** A file in place of JSON. */
export async function askBlob(path, body) {
  return await (await send(path, body)).blob();
}

/** Bytes in place of JSON. */
export async function askBytes(path, body = null, signal = undefined) {
  return await (await send(path, body, signal)).arrayBuffer();
}

/** Each event of a stream as an object, until it is over. */
export async function* events(path, body, signal) {
  const reader = (await send(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
    }
  }
}
