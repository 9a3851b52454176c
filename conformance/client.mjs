// A TypeScript client: lists tools, writes and reads the board, and waits for a notification of another client's write.
// Then it connects to the endpoint of a step, lists its tools, reads, and is refused to write.
// Takes CLIENT (sdk: @modelcontextprotocol/sdk 1.x, client: @modelcontextprotocol/client 2.x), ERA, WEFTLINE_URL,
// WEFTLINE_API_KEY, SESSION and STEP. Prints {"watching": true} when it is subscribed, and its results at the end.
const { CLIENT, ERA, WEFTLINE_URL, WEFTLINE_API_KEY, SESSION, STEP } = process.env;
const identity = { name: `weftline-${CLIENT}`, version: '0.0.0' };
const options = { requestInit: { headers: { Authorization: `Bearer ${WEFTLINE_API_KEY}` } } };
const uri = `board://${SESSION}/watched`;
const print = (value) => console.log(JSON.stringify(value));

let onUpdated;
const updated = new Promise((resolve) => (onUpdated = (notification) => resolve(notification.params.uri)));

async function sdk(url) {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const { ResourceUpdatedNotificationSchema } = await import('@modelcontextprotocol/sdk/types.js');
  const client = new Client(identity);
  const transport = new StreamableHTTPClientTransport(new URL(url), options);
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, onUpdated);
  await client.connect(transport);
  const watch = () => client.subscribeResource({ uri });
  return { client, protocol: transport.protocolVersion, watch, leave: () => transport.terminateSession() };
}

async function client(url) {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const mode = ERA === 'auto' || ERA === 'legacy' ? ERA : { pin: ERA };
  const client = new Client(identity, { versionNegotiation: { mode } });
  const transport = new StreamableHTTPClientTransport(new URL(url), options);
  client.setNotificationHandler('notifications/resources/updated', onUpdated);
  await client.connect(transport);
  const protocol = client.getNegotiatedProtocolVersion();
  if (client.getProtocolEra() === 'legacy') {
    const watch = () => client.subscribeResource({ uri });
    return { client, protocol, watch, leave: () => transport.terminateSession() };
  }
  let subscription;
  const watch = async () => (subscription = await client.listen({ resourceSubscriptions: [uri] }));
  return { client, protocol, watch, leave: () => subscription.close() };
}

const connect = { sdk, client }[CLIENT];
const { client: weftline, protocol, watch, leave } = await connect(WEFTLINE_URL);
const { tools } = await weftline.listTools();
const boardOf = (client) => async (args) =>
  (await client.callTool({ name: 'shared_context', arguments: { session_id: SESSION, ...args } })).structuredContent;
const board = boardOf(weftline);
const written = await board({ action: 'write', key: `by_${CLIENT}`, value: 'from TypeScript' });
const read = await board({ action: 'read', key: `by_${CLIENT}` });
await watch();
print({ watching: true });
const uriUpdated = await updated;
await leave();
await weftline.close();
const { client: inStep } = await connect(`${WEFTLINE_URL}/step/${STEP}`);
const listed = (await inStep.listTools()).tools.map((tool) => tool.name);
const readInStep = await boardOf(inStep)({ action: 'read', key: `by_${CLIENT}` });
const refused = await boardOf(inStep)({ action: 'write', key: `by_${CLIENT}`, value: 'x' });
await inStep.close();
const step = { tools: listed, read: readInStep.value, refused: refused.code };
print({ protocol, tools: tools.length, written: written.version, read: read.value, updated: uriUpdated, step });
