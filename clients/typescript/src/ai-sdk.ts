/** Memory for the Vercel AI SDK: middleware for any language model. */
import type { LanguageModelMiddleware } from "ai";
import type { NewToolCall, NewWindowEvent } from "./generated.js";
import { Memory, type MemoryOptions } from "./memory.js";

export type { MemoryOptions } from "./memory.js";

type Transform = NonNullable<LanguageModelMiddleware["transformParams"]>;
type Prompt = Awaited<ReturnType<Transform>>["prompt"];
type Message = Prompt[number];
type Content = Awaited<ReturnType<NonNullable<LanguageModelMiddleware["wrapGenerate"]>>>["content"];

/**
 * Return middleware that records the conversation in Weftline and puts what matters for the user's message before it:
 * `wrapLanguageModel({ model, middleware: weftlineMemory({ weftline, session_id }) })`.
 */
export function weftlineMemory(options: MemoryOptions): LanguageModelMiddleware {
  const memory = new Memory(options);
  // Where the conversation of a call ends, for its answer: the parameters are those that the model gets.
  const ends = new WeakMap<object, NewWindowEvent | undefined>();

  async function answered(params: object, content: Content): Promise<void> {
    const event = eventOf({ role: "assistant", content } as Message);
    if (event.content || event.tool_calls) await memory.record(await identified([event], ends.get(params)));
  }

  return {
    specificationVersion: "v4",
    async transformParams({ params }) {
      const { prompt } = params;
      const events = prompt.filter((message) => message.role !== "system").flatMap(eventsOf);
      const place = prompt.findLastIndex((message) => message.role === "user");
      // Recalled before the question is recorded, which would be the best match of itself.
      const known = place < 0 ? undefined : await memory.recall(textOf(prompt[place]));
      await memory.record(await identified(events));
      const recalled: Prompt = known ? [{ role: "user", content: [{ type: "text", text: known }] }] : [];
      const changed = { ...params, prompt: [...prompt.slice(0, Math.max(place, 0)), ...recalled, ...prompt.slice(Math.max(place, 0))] };
      ends.set(changed, events.at(-1));
      return changed;
    },
    async wrapGenerate({ doGenerate, params }) {
      const result = await doGenerate();
      await answered(params, result.content);
      return result;
    },
    async wrapStream({ doStream, params }) {
      const result = await doStream();
      const content: Content = [];
      let text = "";
      const watched = result.stream.pipeThrough(
        new TransformStream({
          transform(part, controller) {
            if (part.type === "text-delta") text += part.delta;
            if (part.type === "tool-call") content.push(part);
            controller.enqueue(part);
          },
          flush: () => answered(params, text ? [{ type: "text", text }, ...content] : content),
        }),
      );
      return { ...result, stream: watched };
    },
  };
}

function textOf(message: Message | undefined): string {
  if (!message) return "";
  if (typeof message.content === "string") return message.content;
  return message.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
}

/** Return the events of a message: one for each result of a tool, else one. */
function eventsOf(message: Message): NewWindowEvent[] {
  if (message.role !== "tool") return [eventOf(message)];
  return message.content.flatMap((part) =>
    part.type === "tool-result"
      ? [{ role: "tool" as const, tool_call_id: part.toolCallId, name: part.toolName, content: JSON.stringify(part.output) }]
      : [],
  );
}

function eventOf(message: Message): NewWindowEvent {
  const event: NewWindowEvent = { role: message.role, content: textOf(message) };
  if (message.role !== "assistant") return event;
  const tool_calls = message.content.flatMap((part): NewToolCall[] =>
    part.type === "tool-call" ? [{ call_id: part.toolCallId, name: part.toolName, arguments: argumentsOf(part.input) }] : [],
  );
  return tool_calls.length ? { ...event, tool_calls } : event;
}

/** The arguments of a call are text in an answer, and a value in the prompt after it. */
function argumentsOf(input: unknown): string {
  if (typeof input !== "string") return JSON.stringify(input);
  try {
    return JSON.stringify(JSON.parse(input));
  } catch {
    return input;
  }
}

/** Messages of the AI SDK have no id: an event is known by its content and that of the event before it. */
async function identified(events: NewWindowEvent[], before?: NewWindowEvent): Promise<(NewWindowEvent & { event_id: string })[]> {
  const named = events.map(async (event, place) => {
    const text = JSON.stringify([place ? events[place - 1] : before, event]);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
    return { ...event, event_id: Array.from(digest.slice(0, 16), (byte) => byte.toString(16).padStart(2, "0")).join("") };
  });
  return Promise.all(named);
}
