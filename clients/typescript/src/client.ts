/** Client of a Weftline server: every operation, and what streams. */
import { reported, refusal, Unavailable, WeftlineError } from "./errors.js";
import {
  type BundleExportParams,
  type BundleImportParams,
  type ContextExported,
  type ContextImported,
  type DocumentPut,
  type ErrorBody,
  type Event,
  type EventsReadParams,
  type KnowledgeAddDocumentParams,
  type Operations,
  ROUTES,
} from "./generated.js";
import { type Content, checkedKey, checkedUrl, Deadline, DEFAULT_URL, headerJson, invalid, type Outgoing, outgoing, query, serverSentEvents, upload } from "./http.js";

// The server sends a heartbeat every 15 seconds; after four missed ones the connection is considered lost.
const STREAM_SILENCE_SECONDS = 60;
const TRANSFER_SECONDS = 600;
const MIN_BACKOFF_SECONDS = 0.1;
const MAX_BACKOFF_SECONDS = 5;
const CORRELATION = ["turn_id", "task_id", "tool_call_id", "thread_id", "run_id", "attempt_id", "step_id", "action_id", "evidence_id", "runtime_id"] as const;

/** Ids stored with everything that a call changes, to find it by later. `traceparent`: a span in W3C Trace Context format. */
export type CorrelationIds = { [Name in (typeof CORRELATION)[number] | "traceparent"]?: string | undefined };

export interface ClientOptions {
  /** Default: WEFTLINE_URL, or http://127.0.0.1:8787. */
  url?: string | undefined;
  /** API key, or a token issued for one. Default: WEFTLINE_API_KEY. */
  key?: string | undefined;
  /** Without an answer for so long, a call fails. Default: 30. */
  timeout_seconds?: number;
  /** How often a call that exceeds a rate limit, or a read without an answer, is repeated. Default: 2. */
  retries?: number;
  /** Longest wait that the server may ask for before a retry. Default: 30. */
  max_wait_seconds?: number;
  /** How often `follow` connects again without success in between. Default: 10. */
  reconnects?: number;
  correlation?: CorrelationIds;
  /** Used in place of the global fetch. */
  fetch?: typeof globalThis.fetch;
  /** Receives the server's warnings about a call that was performed. Default: console.warn. */
  on_warning?: (text: string) => void;
}

export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal | undefined;
}

/** What `follow` yields; the parameters of `events.read` except those for waiting. */
export type FollowParams = Pick<EventsReadParams, "session_id" | "keys" | "types" | "personal" | "addressed" | "after">;

type Group = Record<string, (params?: object, options?: CallOptions) => Promise<unknown>>;

export interface Weftline extends Operations {}

/**
 * Calls a Weftline server over HTTP: `await weftline.board.write({ session_id, key, value })`.
 *
 * Names are those of the API, in every language. Calls that exceed a rate limit and reads without an answer are
 * repeated; a write without an answer is not, because it may have succeeded.
 */
export class Weftline {
  readonly #options: ClientOptions;
  readonly #url: string;
  readonly #headers: Record<string, string>;
  #open = new Set<Deadline>();

  constructor(options: ClientOptions = {}) {
    this.#options = options;
    this.#url = checkedUrl(options.url ?? environment("WEFTLINE_URL") ?? DEFAULT_URL);
    const key = checkedKey(options.key ?? environment("WEFTLINE_API_KEY"));
    this.#headers = { ...(key && { authorization: `Bearer ${key}` }), ...correlationHeaders(options.correlation ?? {}) };
    const groups = this as unknown as Record<string, Group>;
    for (const name of Object.keys(ROUTES)) {
      const [group = "", verb = ""] = name.split(".");
      (groups[group] ??= {})[verb] = (params = {}, call = {}) => this.#call(name, params, call);
    }
  }

  /** Return this client with correlation ids (turn, task, trace) for its calls; what they do is found by the ids. */
  with_correlation(ids: CorrelationIds): Weftline {
    const client = new Weftline({ ...this.#options, correlation: { ...this.#options.correlation, ...ids } });
    client.#open = this.#open;
    return client;
  }

  /** End what is under way: calls, transfers, and `follow`. fetch holds the connections. */
  close(): void {
    for (const deadline of this.#open) deadline.end(new DOMException("The client was closed.", "AbortError"));
  }

  /** Export a session, or a part of it, into a stream, which is closed; the parameters are those of `bundle.export`. */
  async export_to(sink: WritableStream<Uint8Array<ArrayBuffer>>, params: BundleExportParams = {}, options: CallOptions = {}): Promise<ContextExported> {
    const request = { ...outgoing("bundle.export", params), target: "/v1/export/stream" };
    return this.#transfer(request, options, async (reply, deadline) => {
      const facts = headerJson(reply, "weftline-export") as ContextExported;
      const alive = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
        transform(chunk, controller) {
          deadline.extend();
          controller.enqueue(chunk);
        },
      });
      await reply.body?.pipeThrough(alive).pipeTo(sink);
      return facts;
    });
  }

  /** Import a bundle: all of it, or nothing. Its session keeps its id unless `session_id` is given. */
  async import_from(content: Content, params: Omit<BundleImportParams, "bundle"> = {}, options: CallOptions = {}): Promise<ContextImported> {
    const request = upload("POST", `/v1/import/stream${query(params)}`, content);
    return this.#transfer(request, options, (reply) => reply.json() as Promise<ContextImported>);
  }

  /** Add a file to a domain as a document; the parameters are those of `knowledge.add_document`. */
  async add_file(content: Content, params: Omit<KnowledgeAddDocumentParams, "text" | "content">, options: CallOptions = {}): Promise<DocumentPut> {
    const { domain, ...about } = params;
    const request = upload("PUT", `/v1/domains/${encodeURIComponent(domain)}/uploads${query(about)}`, content);
    return this.#transfer(request, options, (reply) => reply.json() as Promise<DocumentPut>);
  }

  /**
   * Yield events as they happen, in order and without gaps; starts after the seq `after`, or with the next event.
   *
   * A lost connection is resumed at the last event; errors that a retry cannot fix are thrown.
   */
  async *follow(params: FollowParams = {}, options: CallOptions = {}): AsyncGenerator<Event, void, undefined> {
    // Read before streaming, so that a connection lost before the first event loses none.
    let after = params.after ?? (await this.events.read(params, options)).next_after;
    let resumed = false;
    for (let failures = 0; ; ) {
      let pause = backoff(failures);
      try {
        for await (const event of this.#stream(params, after, resumed, options)) {
          failures = 0;
          if (event === undefined) continue;
          after = event.seq;
          resumed = true;
          yield event;
        }
      } catch (error) {
        if (!(error instanceof Unavailable) || ++failures > (this.#options.reconnects ?? 10)) throw error;
        if (isBusy(error)) pause = error.retry_after_seconds ?? pause;
      }
      await this.#sleep(pause, options);
    }
  }

  /** Yield undefined when the stream is open, then events until it ends. */
  async *#stream(params: FollowParams, after: number, resumed: boolean, options: CallOptions): AsyncGenerator<Event | undefined, void> {
    const headers: Record<string, string> = resumed ? { "last-event-id": String(after) } : {};
    const request = { method: "GET", target: `/v1/events/stream${query({ ...params, after })}`, headers };
    const deadline = new Deadline(STREAM_SILENCE_SECONDS, this.#open, options.signal);
    try {
      const reply = await this.#send(request, deadline);
      yield undefined;
      if (!reply.body) return;
      const messages = serverSentEvents(reply.body, () => deadline.extend());
      try {
        for (;;) {
          // Only reading may fail like this: an error of whoever consumes the events is theirs.
          const { done, value } = await messages.next().catch((cause: unknown) => this.#unanswered(deadline, cause));
          if (done) return;
          if (value.event === "error") throw reported(JSON.parse(value.data) as ErrorBody);
          yield JSON.parse(value.data) as Event;
        }
      } finally {
        await messages.return();
      }
    } finally {
      deadline.clear();
    }
  }

  async #call(operation: string, params: object, options: CallOptions): Promise<unknown> {
    const request = outgoing(operation, params);
    for (let attempts = 1; ; attempts++) {
      try {
        return await this.#answer(request, options);
      } catch (error) {
        const pause = this.#pause(request.method, error, attempts);
        if (pause === undefined) throw error;
        await this.#sleep(pause, options);
      }
    }
  }

  async #answer(request: Outgoing, options: CallOptions): Promise<unknown> {
    const seconds = (this.#options.timeout_seconds ?? 30) + (request.wait_seconds ?? 0);
    const deadline = new Deadline(seconds, this.#open, options.signal);
    try {
      const reply = await this.#send(request, deadline);
      const text = await reply.text().catch((cause: unknown) => this.#unanswered(deadline, cause));
      const warned = (headerJson(reply, "weftline-warning") as string[] | undefined) ?? [];
      for (const warning of warned) (this.#options.on_warning ?? console.warn)(warning);
      return JSON.parse(text);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw new Unavailable("SYSTEM_UNAVAILABLE", `The server at ${this.#url} does not answer like this version of Weftline.`);
    } finally {
      deadline.clear();
    }
  }

  /** Send what is not repeated, because its content can be read only once. */
  async #transfer<T>(request: Outgoing, options: CallOptions, read: (reply: Response, deadline: Deadline) => Promise<T>): Promise<T> {
    const deadline = new Deadline(TRANSFER_SECONDS, this.#open, options.signal);
    try {
      const reply = await this.#send(request, deadline);
      return await read(reply, deadline).catch((cause: unknown) => this.#unanswered(deadline, cause));
    } finally {
      deadline.clear();
    }
  }

  /** Return a successful response; throw the error of any other. */
  async #send(request: Outgoing, deadline: Deadline): Promise<Response> {
    const { method, target, body, headers } = request;
    const streamed = body instanceof ReadableStream && { duplex: "half" };
    const init: RequestInit = {
      method,
      headers: { ...this.#headers, ...headers },
      signal: deadline.signal,
      ...(body !== undefined && { body: body as BodyInit }),
      ...streamed,
    };
    const send = this.#options.fetch ?? globalThis.fetch;
    const reply = await send(this.#url + target, init).catch((cause: unknown) => this.#unanswered(deadline, cause));
    if (reply.ok) return reply;
    throw refusal(reply, await reply.text().catch(() => ""));
  }

  /** Throw the error for a call without an answer; that of the caller if the caller ended it. */
  #unanswered(deadline: Deadline, cause: unknown): never {
    deadline.throwIfEnded();
    if (cause instanceof WeftlineError) throw cause;
    const problem = deadline.expired ? "did not answer in time" : "cannot be reached";
    throw new Unavailable("SYSTEM_UNAVAILABLE", `Weftline ${problem} at ${this.#url}. Start it with 'weftline serve', or set WEFTLINE_URL to its URL.`, {
      hint: "A change may have been made: read the current state before you repeat the call.",
      context: { url: this.#url },
      cause,
    });
  }

  /** Return how long to wait before the next attempt; undefined for none. */
  #pause(method: string, error: unknown, attempts: number): number | undefined {
    if (attempts > (this.#options.retries ?? 2) || !(error instanceof Unavailable)) return undefined;
    if (isBusy(error)) {
      const wait = error.retry_after_seconds ?? 1;
      return wait <= (this.#options.max_wait_seconds ?? 30) ? wait : undefined;
    }
    return method === "GET" && error.cause !== undefined ? backoff(attempts) : undefined;
  }

  async #sleep(seconds: number, options: CallOptions): Promise<void> {
    const deadline = new Deadline(seconds, this.#open, options.signal);
    await new Promise((resolve) => {
      if (deadline.signal.aborted) resolve(undefined);
      else deadline.signal.addEventListener("abort", resolve, { once: true });
    });
    deadline.clear();
    deadline.throwIfEnded();
  }
}

function isBusy(error: Unavailable): boolean {
  return error.code === "RATE_LIMITED" || error.code === "SERVER_BUSY";
}

/** Return the exponential backoff after a number of consecutive failures, in seconds. */
function backoff(failures: number): number {
  return Math.min(MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS * 2 ** Math.min(failures, 10));
}

/** Browsers have no environment; it is read only for what was not given, because Deno asks for permission. */
function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name] || undefined;
}

/** Return W3C Trace Context and Baggage. */
function correlationHeaders(ids: CorrelationIds): Record<string, string> {
  const { traceparent } = ids;
  if (traceparent !== undefined && !/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(traceparent)) {
    throw invalid("traceparent", "use the W3C Trace Context format, 00-TRACE-SPAN-01");
  }
  const members = CORRELATION.flatMap((name) => {
    const id = ids[name];
    if (id === undefined) return [];
    if (!/^[^\x00-\x20\x7f-\x9f]{1,200}$/u.test(id)) throw invalid(name, "give 1 to 200 characters without spaces");
    return [`weftline.${name}=${encodeURIComponent(id)}`];
  });
  return { ...(traceparent && { traceparent }), ...(members.length && { baggage: members.join(",") }) };
}
