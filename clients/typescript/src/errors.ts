/** Errors: one class for each of the five kinds, and a `code` that says which fact it is. */
import { CODES, ROUTES, type ErrorBody } from "./generated.js";

export type Kind = keyof typeof CODES;
/** A code of this version; a newer server may know more. */
export type Code<K extends Kind = Kind> = (typeof CODES)[K][number] | (string & {});

/** What an error says besides its message. */
export interface ErrorDetails {
  hint?: string;
  context?: Record<string, unknown>;
  severity?: ErrorBody["severity"];
  recoverable?: boolean;
  related?: readonly string[];
  status?: number;
  cause?: unknown;
}

/** Base of every error of a call; `hint` says what to do next. */
export class WeftlineError extends Error {
  readonly code: Code;
  readonly hint: string;
  readonly context: Readonly<Record<string, unknown>>;
  readonly severity: ErrorBody["severity"];
  readonly recoverable: boolean;
  readonly related: readonly string[];
  /** HTTP status of the answer; undefined without one. */
  readonly status: number | undefined;

  constructor(code: Code, message: string, details: ErrorDetails = {}) {
    super(message, "cause" in details ? { cause: details.cause } : undefined);
    this.name = new.target.name;
    this.code = code;
    this.hint = details.hint ?? "";
    this.context = details.context ?? {};
    this.severity = details.severity ?? "error";
    this.recoverable = details.recoverable ?? true;
    this.related = details.related ?? [];
    this.status = details.status;
  }

  /** When a retry may succeed, in seconds, if the server said so. */
  get retry_after_seconds(): number | undefined {
    const seconds = this.context["retry_after_seconds"];
    return typeof seconds === "number" ? seconds : undefined;
  }
}

/** The resource does not exist, or is not visible to this caller. */
export class NotFound extends WeftlineError {
  declare readonly code: Code<"NotFound">;
}
/** The resource exists, but is not in the state the call needs. */
export class Conflict extends WeftlineError {
  declare readonly code: Code<"Conflict">;
}
/** The request is invalid. */
export class Rejected extends WeftlineError {
  declare readonly code: Code<"Rejected">;
}
/** The caller may not do this. */
export class Forbidden extends WeftlineError {
  declare readonly code: Code<"Forbidden">;
}
/** Weftline cannot answer now; a retry may succeed. */
export class Unavailable extends WeftlineError {
  declare readonly code: Code<"Unavailable">;
}

const CLASSES = { NotFound, Conflict, Rejected, Forbidden, Unavailable, WeftlineError } as const;
const CODE_OF_STATUS: Record<number, [Kind, Code]> = {
  401: ["Forbidden", "AUTHENTICATION_ERROR"],
  403: ["Forbidden", "PERMISSION_DENIED"],
  404: ["NotFound", "NOT_FOUND"],
  409: ["Conflict", "INTERNAL_ERROR"],
  413: ["Rejected", "CONTENT_TOO_LARGE"],
  429: ["Unavailable", "RATE_LIMITED"],
  500: ["WeftlineError", "INTERNAL_ERROR"],
};

/** Return the error that the body of an answer describes; one that is not Weftline's is known by its status only. */
export function refusal(reply: Response, text: string): WeftlineError {
  const after = reply.headers.get("retry-after") ?? "";
  const waiting = /^\d+$/.test(after) ? { retry_after_seconds: Number(after) } : {};
  const body = parsed(text);
  if (body) return reported(body, reply.status, waiting);
  const fallback: [Kind, Code] = reply.status < 500 ? ["Rejected", "INVALID_INPUT_FORMAT"] : ["Unavailable", "SYSTEM_UNAVAILABLE"];
  const [kind, code] = CODE_OF_STATUS[reply.status] ?? fallback;
  return new CLASSES[kind](code, `The server answered with status ${reply.status}.`, { status: reply.status, context: waiting });
}

/** Return the error of a body; a code of a newer server is of the kind of its status. */
export function reported(body: ErrorBody, status = 500, context: Record<string, unknown> = {}): WeftlineError {
  const known = (Object.keys(CODES) as Kind[]).find((kind) => (CODES[kind] as readonly string[]).includes(body.code));
  const kind = known ?? CODE_OF_STATUS[status]?.[0] ?? (status < 500 ? "Rejected" : "Unavailable");
  return new CLASSES[kind](body.code, body.error, {
    hint: body.suggestions.join(" ").replace(/`([A-Z]+ \/[^`]*)`/g, (shown, route: string) => operationOf(route) ?? shown),
    context: { ...context, ...body.context },
    severity: body.severity,
    recoverable: body.recoverable,
    related: body.related_resources,
    status,
  });
}

/** Hints of the REST interface name routes; callers of this client know operations. */
function operationOf(route: string): string | undefined {
  const found = Object.entries(ROUTES).find(([, known]) => known.replace(/:path\}/g, "}") === route);
  return found && `\`${found[0]}\``;
}

function parsed(text: string): ErrorBody | undefined {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === "object" && body && "code" in body && "error" in body) {
      return { suggestions: [], context: {}, related_resources: [], severity: "error", recoverable: true, ...body } as unknown as ErrorBody;
    }
  } catch {
    // Not Weftline's: of a proxy in front of it.
  }
  return undefined;
}
