// Asking the server: JSON in, JSON or a stream of events out. A key that was typed stays in this tab; the token of an address that
// `glassformer open` printed is kept for every tab of that host and port, until the next start makes another.

const [KEY, TOKEN] = ["glassformer.key", "glassformer.token"];

/** The token that an address held, where no key was typed in place of it. */
export function heldToken() {
  try {
    return sessionStorage.getItem(KEY) === null ? (localStorage.getItem(TOKEN) ?? "") : "";
  } catch {
    return "";
  }
}

export function heldKey() {
  try {
    return sessionStorage.getItem(KEY) ?? heldToken();
  } catch {
    return "";
  }
}

export function holdKey(key) {
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // it is asked for again
  }
}

const address = new URLSearchParams(location.search);
if (address.has("token")) {
  try {
    localStorage.setItem(TOKEN, address.get("token"));
    sessionStorage.removeItem(KEY);
  } catch {
    // it is asked for
  }
  address.delete("token"); // what is copied from here, or looked at by others, does not hold it
  history.replaceState(null, "", `${location.pathname}${String(address) && `?${address}`}${location.hash}`);
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
