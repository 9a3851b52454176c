/** Memory for Mastra: one processor for the input and the output of an agent. */
import type { Processor } from "@mastra/core/processors";
import type { NewWindowEvent } from "./generated.js";
import { Memory, type MemoryOptions } from "./memory.js";

export type { MemoryOptions } from "./memory.js";

type Message = Parameters<NonNullable<Processor["processInput"]>>[0]["messages"][number];

/**
 * Return a processor that records the conversation in Weftline and adds what matters for the user's message:
 * `new Agent({ ..., inputProcessors: [memory], outputProcessors: [memory] })`.
 */
export function weftlineMemory(options: MemoryOptions): Processor & Required<Pick<Processor, "processInput" | "processOutputResult">> {
  const memory = new Memory(options);
  return {
    id: "weftline-memory",
    async processInput({ messages, systemMessages }) {
      const question = messages.findLast((message) => message.role === "user");
      // Recalled before the question is recorded, which would be the best match of itself.
      const known = question && (await memory.recall(textOf(question)));
      await memory.record(messages.flatMap(eventOf));
      const recalled = known ? [{ role: "system" as const, content: known }] : [];
      return { messages, systemMessages: [...systemMessages, ...recalled] };
    },
    async processOutputResult({ messages }) {
      await memory.record(messages.flatMap(eventOf));
      return messages;
    },
  };
}

function textOf(message: Message): string {
  return message.content.parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
}

function eventOf(message: Message): (NewWindowEvent & { event_id: string })[] {
  const { id, role } = message;
  const content = textOf(message);
  return (role === "user" || role === "assistant") && content ? [{ event_id: id, role, content }] : [];
}
