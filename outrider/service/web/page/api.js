// The API, asked as whoever looks at the page: over what brought the page here.

const BASE = new URL("../", import.meta.url);
const LONGEST_MS = 65000;

/** The service said no, in words; `problems` name what of the form is meant. */
export class Refusal extends Error {
  constructor(status, answer) {
    super(answer.message || `the service answered with status ${status}`);
    this.status = status;
    this.problems = answer.problems || [];
  }
}

function aborting(signal) {
  const own = AbortSignal.timeout(LONGEST_MS);
  return signal ? AbortSignal.any([signal, own]) : own;
}

async function answered(response) {
  let answer = {};
  try { answer = await response.json(); } catch { /* what is no JSON is no answer of the service's */ }
  if (!response.ok) throw new Refusal(response.status, answer);
  return answer;
}

export async function get(path, query = {}, signal = null) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== "" && value !== null && value !== undefined) url.searchParams.set(name, value);
  }
  return answered(await fetch(url, { signal: aborting(signal), headers: { Accept: "application/json" } }));
}

/** A change; with a key it is made once, however often it is asked for. */
export async function send(method, path, body = null, { key = null, signal = null } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== null) headers["Content-Type"] = "application/json";
  if (key !== null) headers["Idempotency-Key"] = key;
  const content = body === null ? undefined : JSON.stringify(body);
  return answered(await fetch(new URL(path, BASE), { method, headers, body: content, signal: aborting(signal) }));
}

let tag = "";

/** The overview if it has changed since it came last, else null. */
export async function overview() {
  const headers = tag ? { "If-None-Match": tag } : {};
  const response = await fetch(new URL("v1/overview", BASE), { headers, cache: "no-store", signal: aborting(null) });
  if (response.status === 304) return null;
  const answer = await answered(response);
  tag = response.headers.get("ETag") || "";
  return answer;
}

export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
