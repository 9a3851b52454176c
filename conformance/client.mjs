// A TypeScript client: lists tools, writes and reads the board, and waits for a notification of another client's write.
// Takes CLIENT (sdk: @modelcontextprotocol/sdk 1.x, client: @modelcontextprotocol/client 2.x), ERA, WEFT_URL,
// WEFT_API_KEY and SESSION. Prints {"watching": true} when it is subscribed, and its results at the end.
const { CLIENT, ERA, WEFT_URL, WEFT_API_KEY, SESSION } = process.env;
const identity = { name: `weft-${CLIENT}`, version: '0.0.0' };
const options = { requestInit: { headers: { Authorization: `Bearer ${WEFT_API_KEY}` } } };
const uri = `board://${SESSION}/watched`;
const print = (value) => console.log(JSON.stringify(value));

let onUpdated;
const updated = new Promise((resolve) => (onUpdated = (notification) => resolve(notification.params.uri)));

async function sdk() {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const { ResourceUpdatedNotificationSchema } = await import('@modelcontextprotocol/sdk/types.js');
  const client = new Client(identity);
  const transport = new StreamableHTTPClientTransport(new URL(WEFT_URL), options);
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, onUpdated);
  await client.connect(transport);
  const watch = () => client.subscribeResource({ uri });
  return { client, protocol: transport.protocolVersion, watch, leave: () => transport.terminateSession() };
}

async function client() {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const mode = ERA === 'auto' || ERA === 'legacy' ? ERA : { pin: ERA };
  const client = new Client(identity, { versionNegotiation: { mode } });
  const transport = new StreamableHTTPClientTransport(new URL(WEFT_URL), options);
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

const { client: weft, protocol, watch, leave } = await { sdk, client }[CLIENT]();
const { tools } = await weft.listTools();
const board = async (args) =>
  (await weft.callTool({ name: 'shared_context', arguments: { session_id: SESSION, ...args } })).structuredContent;
const written = await board({ action: 'write', key: `by_${CLIENT}`, value: 'from TypeScript' });
const read = await board({ action: 'read', key: `by_${CLIENT}` });
await watch();
print({ watching: true });
const uriUpdated = await updated;
await leave();
await weft.close();
print({ protocol, tools: tools.length, written: written.version, read: read.value, updated: uriUpdated });
