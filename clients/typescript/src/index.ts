/** Client of a Weftline server, the context layer for multi-agent systems. */
export { Weftline } from "./client.js";
export type { CallOptions, ClientOptions, CorrelationIds, FollowParams } from "./client.js";
export { Conflict, Forbidden, NotFound, Rejected, Unavailable, WeftlineError } from "./errors.js";
export type { Code, ErrorDetails, Kind } from "./errors.js";
export type { Content } from "./http.js";
export * from "./generated.js";
