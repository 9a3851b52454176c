/** Requests and bodies: what crosses the wire, and how long it may take. */
import { Rejected } from "./errors.js";
import { ROUTES } from "./generated.js";

export const DEFAULT_URL = "http://127.0.0.1:8787";

/** Content of an upload. Browsers stream a Blob or File; most of them no other stream. */
export type Content = Blob | Uint8Array | string | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** An HTTP request, ready to send. */
export interface Outgoing {
  method: string;
  target: string;
  body?: string | Blob | Uint8Array | ReadableStream<Uint8Array>;
  headers?: Record<string, string>;
  /** How long the server may wait before it answers. */
  wait_seconds?: number;
}

/** Build the request of a call: path parameters, and the rest as the query or a JSON body. */
export function outgoing(operation: string, params: object): Outgoing {
  const [method = "", template = ""] = ROUTES[operation]?.split(" ") ?? [];
  const rest: Record<string, unknown> = { ...params };
  const target = template.replace(/\{(\w+)(:path)?\}/g, (_, name: string, slashes?: string) => {
    const value = rest[name];
    delete rest[name];
    return slashes && typeof value === "string" ? value.split("/").map((part) => segment(name, part)).join("/") : segment(name, value);
  });
  const wait = rest["wait_seconds"];
  const wait_seconds = typeof wait === "number" ? wait : 0;
  if (method === "GET" || method === "DELETE") return { method, target: target + query(rest), wait_seconds };
  return { method, target, body: json(rest), headers: { "content-type": "application/json" }, wait_seconds };
}

/** URL normalisation would drop or split some segments and change the meaning of the call. */
function segment(name: string, value: unknown): string {
  const text = typeof value === "number" ? String(value) : value;
  if (typeof text !== "string") throw invalid(name, "expected a string");
  if (["", ".", ".."].includes(text) || text.includes("/")) throw invalid(name, `${JSON.stringify(text.slice(0, 100))} is not a name`);
  return encoded(name, text);
}

/** Return fields as a query: lists are repeated, values other than text are JSON. */
export function query(fields: object): string {
  const pairs = Object.entries(fields).flatMap(([name, value]: [string, unknown]) =>
    (Array.isArray(value) ? value : [value])
      .filter((item) => item !== undefined && item !== null)
      .map((item) => `${name}=${encoded(name, typeof item === "string" ? item : json(item))}`),
  );
  return pairs.length ? `?${pairs.join("&")}` : "";
}

function encoded(name: string, text: string): string {
  try {
    return encodeURIComponent(text);
  } catch {
    throw invalid(name, "not valid Unicode: it contains an unpaired surrogate");
  }
}

/** JSON.stringify would silently write null for a number that JSON does not have. */
function json(value: unknown): string {
  return JSON.stringify(value, (name, part: unknown) => {
    if (typeof part === "number" && !Number.isFinite(part)) throw invalid(name, "JSON has no such number");
    return part;
  });
}

export function invalid(field: string, problem: string, hint = ""): Rejected {
  return new Rejected("INVALID_INPUT_FORMAT", `${field}: ${problem}.`, { hint, context: { field } });
}

/** Return the request of an upload. A Blob's type is sent: it decides how the content is read. */
export function upload(method: string, target: string, content: Content): Outgoing {
  const type = content instanceof Blob ? content.type.split(";")[0] : "";
  const headers = { "content-type": type || "application/octet-stream" };
  const whole = typeof content === "string" || content instanceof Uint8Array || content instanceof Blob;
  return { method, target, body: whole ? content : readable(content), headers };
}

function readable(content: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  if (content instanceof ReadableStream) return content;
  const chunks = content[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await chunks.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await chunks.return?.();
    },
  });
}

/** Return the JSON of a header: its bytes are UTF-8, which fetch reads as Latin-1. */
export function headerJson(reply: Response, name: string): unknown {
  const text = reply.headers.get(name);
  if (!text) return undefined;
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
}

/** Return the URL of a server, without a slash at the end. */
export function checkedUrl(url: string): string {
  const hint = `Give a URL such as ${DEFAULT_URL}, in WEFTLINE_URL or as the url of the client.`;
  // Not repeated: it may hold a password.
  if (url.includes("@")) throw invalid("url", "pass the credential as the key, not in the URL", hint);
  const plain = url.replace(/\/+$/, "");
  if (!/^https?:\/\/[^/\s]/.test(plain) || !URL.canParse(plain)) throw invalid("url", `'${url.slice(0, 200)}' is not an http:// or https:// URL`, hint);
  if (plain.endsWith("/mcp")) throw invalid("url", `'${url}' is the URL for MCP clients`, `Give ${plain.slice(0, -4)}.`);
  return plain;
}

/** Refuse characters that a header cannot hold: the error of fetch would quote the key. */
export function checkedKey(key: string | undefined): string | undefined {
  const plain = key?.trim() || undefined;
  if (plain && !/^[\x21-\x7e]+$/.test(plain)) throw invalid("key", "contains a character that no key or token has");
  return plain;
}

/** A limit in time on a request, which `extend` moves. The caller's signal ends it too, and so does `end`. */
export class Deadline {
  readonly #own = new AbortController();
  readonly #seconds: number;
  readonly #others: Set<Deadline>;
  readonly signal: AbortSignal;
  #timer: ReturnType<typeof setTimeout> | undefined;
  expired = false;

  /** `others`: those that are not over; a listener for each on one signal would be too many. */
  constructor(seconds: number, others: Set<Deadline>, signal?: AbortSignal) {
    this.#seconds = seconds;
    this.#others = others.add(this);
    this.signal = signal ? AbortSignal.any([this.#own.signal, signal]) : this.#own.signal;
    this.extend();
  }

  /** Throw the reason if somebody ended this, rather than time. */
  throwIfEnded(): void {
    if (!this.expired) this.signal.throwIfAborted();
  }

  extend(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.expired = true;
      this.#own.abort();
    }, this.#seconds * 1000);
  }

  end(reason: unknown): void {
    this.#own.abort(reason);
  }

  clear(): void {
    clearTimeout(this.#timer);
    this.#others.delete(this);
  }
}

/** One message of a stream of server-sent events. */
export interface ServerSentEvent {
  event: string;
  data: string;
  id: string;
}

/** Yield the messages of a stream. Comments, which keep it alive, are none; `onChunk` sees that it is. */
export async function* serverSentEvents(body: ReadableStream<Uint8Array>, onChunk: () => void): AsyncGenerator<ServerSentEvent, void> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  let fields: Record<string, string[]> = {};
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onChunk();
      const lines = (rest + decoder.decode(value, { stream: true })).split(/\r\n|\n/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const [, name = "", text = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
        if (line) (fields[name] ??= []).push(text);
        else {
          const { event, data, id } = fields;
          fields = {};
          if (data) yield { event: event?.at(-1) ?? "message", data: data.join("\n"), id: id?.at(-1) ?? "" };
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
