// Preloaded before the conformance suite, which cannot send custom headers: adds the API key to every request to the
// server under test, for each HTTP stack that the suite uses. The suite itself is unchanged.
import http from 'node:http';
import { createRequire, syncBuiltinESMExports } from 'node:module';

const { origin } = new URL(process.env.WEFTLINE_URL);
const authorization = `Bearer ${process.env.WEFTLINE_API_KEY}`;

const realFetch = globalThis.fetch;
globalThis.fetch = (input, init = {}) => {
  const url = new URL(typeof input === 'string' || input instanceof URL ? input : input.url);
  if (url.origin !== origin) return realFetch(input, init);
  const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : undefined));
  if (!headers.has('authorization')) headers.set('authorization', authorization);
  return realFetch(input, { ...init, headers });
};

const realRequest = http.request;
http.request = (options, ...rest) => {
  const plain = options && typeof options === 'object' && !(options instanceof URL);
  return realRequest(plain ? { ...options, headers: { authorization, ...options.headers } } : options, ...rest);
};
syncBuiltinESMExports();

const suite = createRequire(createRequire(import.meta.url).resolve('@modelcontextprotocol/conformance/package.json'));
const undici = suite('undici');
undici.setGlobalDispatcher(
  new undici.Agent().compose((dispatch) => (options, handler) => {
    const isServer = String(options.origin) === origin;
    return dispatch(isServer ? { ...options, headers: { authorization, ...options.headers } } : options, handler);
  })
);
