// The memory adapters in the agents of their frameworks, with scripted models.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Weftline } from "weftline";

const weftline = new Weftline();
const FACT = "The price cache belongs to Tomas since the move to Lyon.";
const QUESTION = "Who owns the price cache?";
const ANSWER = "Tomas owns the price cache.";

/** Return a session whose board has a fact that search finds. */
async function sessionWithFact() {
  const { session_id } = await weftline.session.create({ purpose: "Adapters" });
  await weftline.board.write({ session_id, key: "owner", value: FACT });
  for (let attempts = 0; attempts < 100; attempts++) {
    if ((await weftline.search.get_context({ query: QUESTION, session_id })).context.includes("Tomas")) return session_id;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail("the fact is not found");
}

async function recorded(session_id) {
  const { events } = await weftline.window.events({ session_id });
  return events.map(({ role, content }) => [role, content]);
}

const unreachable = () => new Weftline({ url: "http://127.0.0.1:1", retries: 0 });

async function withoutWarnings(use) {
  const { warn } = console;
  const warnings = [];
  console.warn = (...words) => warnings.push(words.join(" "));
  try {
    await use();
  } finally {
    console.warn = warn;
  }
  return warnings.filter((text) => text.includes("Weftline"));
}

async function aiSdk() {
  const { generateText, streamText, stepCountIs, tool, wrapLanguageModel, jsonSchema } = await import("ai");
  const { MockLanguageModelV4 } = await import("ai/test");
  const { weftlineMemory } = await import("weftline/ai-sdk");
  return { generateText, streamText, stepCountIs, tool, wrapLanguageModel, jsonSchema, MockLanguageModelV4, weftlineMemory };
}

const USAGE = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const said = (content, reason = "stop") => ({ content, finishReason: { unified: reason, raw: reason }, usage: USAGE, warnings: [] });

test("AI SDK: what matters is before the question, and the conversation is recorded once", async () => {
  const { generateText, wrapLanguageModel, MockLanguageModelV4, weftlineMemory } = await aiSdk();
  const session_id = await sessionWithFact();
  const scripted = new MockLanguageModelV4({ doGenerate: async () => said([{ type: "text", text: ANSWER }]) });
  const model = wrapLanguageModel({ model: scripted, middleware: weftlineMemory({ weftline, session_id }) });
  const messages = [{ role: "user", content: QUESTION }];
  const { text } = await generateText({ model, messages });
  assert.equal(text, ANSWER);
  const prompt = scripted.doGenerateCalls[0].prompt;
  assert.match(JSON.stringify(prompt.at(-2)), /Tomas/);
  assert.match(JSON.stringify(prompt.at(-1)), /Who owns/);
  messages.push({ role: "assistant", content: text }, { role: "user", content: "Since when?" });
  await generateText({ model, messages });
  const said2 = [["user", QUESTION], ["assistant", ANSWER], ["user", "Since when?"], ["assistant", ANSWER]];
  assert.deepEqual(await recorded(session_id), said2);
  // Another process with the same conversation adds nothing.
  const again = wrapLanguageModel({ model: scripted, middleware: weftlineMemory({ weftline, session_id }) });
  await generateText({ model: again, messages });
  assert.deepEqual(await recorded(session_id), said2);
});

test("AI SDK: calls of tools, their results and streamed answers are recorded", async () => {
  const { streamText, stepCountIs, tool, jsonSchema, wrapLanguageModel, MockLanguageModelV4, weftlineMemory } = await aiSdk();
  const session_id = await sessionWithFact();
  const streams = [
    [{ type: "tool-call", toolCallId: "call_1", toolName: "owner", input: '{"of": "cache"}' }, { type: "finish", finishReason: { unified: "tool-calls", raw: "" }, usage: USAGE }],
    [
      { type: "text-start", id: "1" },
      { type: "text-delta", id: "1", delta: "Tomas owns " },
      { type: "text-delta", id: "1", delta: "the price cache." },
      { type: "text-end", id: "1" },
      { type: "finish", finishReason: { unified: "stop", raw: "" }, usage: USAGE },
    ],
  ];
  const scripted = new MockLanguageModelV4({
    doStream: async () => {
      const parts = [{ type: "stream-start", warnings: [] }, ...streams.shift()];
      return { stream: new ReadableStream({ start: (controller) => (parts.forEach((part) => controller.enqueue(part)), controller.close()) }) };
    },
  });
  const model = wrapLanguageModel({ model: scripted, middleware: weftlineMemory({ weftline, session_id }) });
  const owner = tool({ inputSchema: jsonSchema({ type: "object", properties: { of: { type: "string" } } }), execute: async () => "Tomas" });
  const result = streamText({ model, prompt: QUESTION, tools: { owner }, stopWhen: stepCountIs(3) });
  assert.equal(await result.text, ANSWER);
  const events = await recorded(session_id);
  assert.deepEqual(events.map(([role]) => role), ["user", "assistant", "tool", "assistant"]);
  assert.match(events[2][1], /Tomas/);
  assert.equal(events[3][1], ANSWER);
});

test("AI SDK: without Weftline the agent goes on, and is warned once", async () => {
  const { generateText, wrapLanguageModel, MockLanguageModelV4, weftlineMemory } = await aiSdk();
  const scripted = new MockLanguageModelV4({ doGenerate: async () => said([{ type: "text", text: ANSWER }]) });
  const ask = (options) => {
    const middleware = weftlineMemory({ weftline: unreachable(), session_id: "none", ...options });
    return generateText({ model: wrapLanguageModel({ model: scripted, middleware }), prompt: QUESTION, maxRetries: 0 });
  };
  const warnings = await withoutWarnings(async () => assert.equal((await ask({})).text, ANSWER));
  assert.equal(warnings.length, 1);
  await assert.rejects(
    ask({
      on_error: (error) => {
        throw error;
      },
    }),
    /cannot be reached/,
  );
});

async function mastra() {
  const { Agent } = await import("@mastra/core/agent");
  const { createMockModel } = await import("@mastra/core/test-utils/llm-mock");
  const { weftlineMemory } = await import("weftline/mastra");
  return { Agent, createMockModel, weftlineMemory };
}

test("Mastra: what matters is in the prompt, and the conversation is recorded", async () => {
  const { Agent, createMockModel, weftlineMemory } = await mastra();
  const session_id = await sessionWithFact();
  const prompts = [];
  const model = createMockModel({ mockText: ANSWER, version: "v2", spyGenerate: (props) => prompts.push(props.prompt), spyStream: (props) => prompts.push(props.prompt) });
  const memory = weftlineMemory({ weftline, session_id });
  const agent = new Agent({ id: "a", name: "a", instructions: "Answer.", model, inputProcessors: [memory], outputProcessors: [memory] });
  const { text } = await agent.generate(QUESTION);
  assert.match(text, /Tomas/);
  assert.match(JSON.stringify(prompts[0]), /since the move to Lyon/);
  const events = await recorded(session_id);
  assert.deepEqual(events.map(([role]) => role), ["user", "assistant"]);
  assert.equal(events[0][1], QUESTION);
  const warnings = await withoutWarnings(async () => {
    const lost = weftlineMemory({ weftline: unreachable(), session_id });
    const alone = new Agent({ id: "b", name: "b", instructions: "Answer.", model, inputProcessors: [lost], outputProcessors: [lost] });
    assert.match((await alone.generate(QUESTION)).text, /Tomas/);
  });
  assert.equal(warnings.length, 1);
});
