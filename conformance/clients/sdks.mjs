// The official TypeScript SDKs of OpenAI and Anthropic: prints one JSON line for each scenario, as sdks.py does.
import { readFileSync } from 'node:fs';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

const IMAGE = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const SCHEMA = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const SCENARIOS = ['plain', 'tools', 'parallel', 'image', 'thinking', 'retry', 'timeout'];
const CALLS = { tools: 1, parallel: 2 };
const url = `data:image/png;base64,${IMAGE}`;

async function messages(scenario, client, streams) {
  const source = { type: 'base64', media_type: 'image/png', data: IMAGE };
  const image = [{ type: 'image', source }, { type: 'text', text: 'What is it?' }];
  const given = [{ role: 'user', content: scenario === 'image' ? image : 'Say it.' }];
  const options = { model: `scripted-${scenario}`, max_tokens: 2048 };
  if (CALLS[scenario]) options.tools = [{ name: 'get_weather', description: 'The weather.', input_schema: SCHEMA }];
  if (scenario === 'thinking') options.thinking = { type: 'enabled', budget_tokens: 1024 };
  const seen = [];
  for (;;) {
    const request = { ...options, messages: given };
    const answer = streams ? await client.messages.stream(request).finalMessage() : await client.messages.create(request);
    seen.push(...answer.content.map((block) => block.type));
    if (answer.stop_reason !== 'tool_use') return [...seen, answer.content.at(-1).text, String(answer.usage.cache_read_input_tokens)];
    const calls = answer.content.filter((block) => block.type === 'tool_use');
    const results = calls.map((call) => ({ type: 'tool_result', tool_use_id: call.id, content: `sunny in ${call.input.city}` }));
    given.push({ role: 'assistant', content: answer.content }, { role: 'user', content: results });
  }
}

async function chat(scenario, client, streams) {
  const image = [{ type: 'image_url', image_url: { url } }, { type: 'text', text: 'What is it?' }];
  const given = [{ role: 'user', content: scenario === 'image' ? image : 'Say it.' }];
  const options = { model: `scripted-${scenario}` };
  if (CALLS[scenario]) options.tools = [{ type: 'function', function: { name: 'get_weather', parameters: SCHEMA } }];
  const seen = [];
  for (;;) {
    const request = { ...options, messages: given };
    const answer = streams
      ? await client.chat.completions.stream({ ...request, stream_options: { include_usage: true } }).finalChatCompletion()
      : await client.chat.completions.create(request);
    const message = answer.choices[0].message;
    if (!message.tool_calls?.length) return [...seen, message.content, String(answer.usage.prompt_tokens_details.cached_tokens)];
    given.push({ role: 'assistant', content: message.content, tool_calls: message.tool_calls });
    for (const call of message.tool_calls) {
      seen.push(call.function.name);
      given.push({ role: 'tool', tool_call_id: call.id, content: `sunny in ${JSON.parse(call.function.arguments).city}` });
    }
  }
}

async function responses(scenario, client, streams) {
  const image = [{ type: 'input_image', image_url: url, detail: 'auto' }, { type: 'input_text', text: 'What is it?' }];
  const given = [{ role: 'user', content: scenario === 'image' ? image : 'Say it.' }];
  const options = { model: `scripted-${scenario}` };
  if (CALLS[scenario]) options.tools = [{ type: 'function', name: 'get_weather', parameters: SCHEMA, strict: false }];
  if (scenario === 'thinking') options.reasoning = { effort: 'low' };
  const seen = [];
  for (;;) {
    const request = { ...options, input: given };
    const answer = streams ? await client.responses.stream(request).finalResponse() : await client.responses.create(request);
    seen.push(...answer.output.map((item) => item.type));
    const calls = answer.output.filter((item) => item.type === 'function_call');
    if (!calls.length) return [...seen, answer.output_text, String(answer.usage.input_tokens_details.cached_tokens)];
    for (const { type, call_id, name, arguments: text } of calls) given.push({ type, call_id, name, arguments: text });
    for (const call of calls) {
      const output = `sunny in ${JSON.parse(call.arguments).city}`;
      given.push({ type: 'function_call_output', call_id: call.call_id, output });
    }
  }
}

function expected(api, scenario) {
  const names = { messages: 'tool_use', chat: 'get_weather', responses: 'function_call' };
  const text = { messages: ['text'], chat: [], responses: ['message'] }[api];
  const thought = scenario === 'thinking' ? { messages: ['thinking'], chat: [], responses: ['reasoning'] }[api] : [];
  return [...Array(CALLS[scenario] ?? 0).fill(names[api]), ...thought, ...text, 'Done.', '1000'];
}

const apis = [['messages', messages, Anthropic], ['chat', chat, OpenAI], ['responses', responses, OpenAI]];
for (const [api, run, Client] of apis) {
  for (const scenario of SCENARIOS) {
    for (const streams of [false, true]) {
      // The first try of this scenario is answered after five seconds.
      const timeout = scenario === 'timeout' ? 1000 : 60000;
      let problem = '';
      try {
        const seen = await run(scenario, new Client({ apiKey: 'sk-test-key-of-the-provider', timeout, maxRetries: 2 }), streams);
        if (JSON.stringify(seen) !== JSON.stringify(expected(api, scenario))) problem = `saw ${JSON.stringify(seen)}`;
      } catch (error) {
        problem = `${error.name}: ${error.message}`.slice(0, 200);
      }
      console.log(JSON.stringify({ scenario: `${api} ${scenario}${streams ? ' streamed' : ''}`, problem }));
    }
  }
}
const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
console.log(JSON.stringify({ versions: { '@anthropic-ai/sdk': version('@anthropic-ai/sdk'), openai: version('openai') } }));
