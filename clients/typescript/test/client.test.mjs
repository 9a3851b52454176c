// The client against a real server: WEFTLINE_URL, and the key of an admin in WEFTLINE_API_KEY. Its limit for calls of the
// class authentication is two a second.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request } from "node:http";
import { test } from "node:test";
import { Conflict, Forbidden, NotFound, Rejected, ROUTES, Unavailable, Weftline, WeftlineError } from "weftline";

const url = process.env.WEFTLINE_URL;
const key = process.env.WEFTLINE_API_KEY;
const weftline = new Weftline({ url, key });
const MEGABYTE = 2 ** 20;

const session = async () => (await weftline.session.create({ purpose: "A test" })).session_id;

/** Run a proxy in front of the server that answers as `interfere` says, or else passes on. */
async function withProxy(interfere, use) {
  const seen = [];
  const proxy = createServer((incoming, answer) => {
    seen.push({ method: incoming.method, url: incoming.url, headers: incoming.headers });
    if (interfere(incoming, answer, seen.length)) return;
    const passed = request(url + incoming.url, { method: incoming.method, headers: incoming.headers }, (reply) => {
      answer.writeHead(reply.statusCode, reply.headers);
      reply.pipe(answer);
    });
    passed.on("error", () => answer.destroy());
    answer.on("close", () => passed.destroy());
    incoming.pipe(passed);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  try {
    return await use(`http://127.0.0.1:${proxy.address().port}`, seen);
  } finally {
    proxy.closeAllConnections?.();
    proxy.close();
  }
}

function refuse(answer, status, code, headers = {}) {
  const body = { success: false, error: "No.", code, severity: "error", recoverable: true, suggestions: ["Wait."], context: {}, related_resources: [], timestamp: "" };
  answer.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

async function refusalOf(call) {
  try {
    await call;
  } catch (error) {
    assert.ok(error instanceof WeftlineError, String(error));
    return error;
  }
  assert.fail("it was not refused");
}

test("a value is written and read as it is", async () => {
  const session_id = await session();
  const value = { text: "é 🚢", list: [1, null, { deep: true }] };
  const written = await weftline.board.write({ session_id, key: "goal", value, ttl_seconds: 3600 });
  assert.equal(written.version, 1);
  const entry = await weftline.board.read({ session_id, key: "goal" });
  assert.deepEqual(entry.value, value);
  assert.deepEqual((await weftline.board.read_batch({ session_id, keys: ["goal", "none"] })).missing, ["none"]);
});

test("lists and numbers in a query, and names with slashes and spaces, arrive as they are", async () => {
  const session_id = await session();
  for (const text of ["one", "two"]) await weftline.board.write({ session_id, key: "goal", value: text });
  const history = await weftline.board.read_history({ session_id, key: "goal", versions: [1, 2] });
  assert.deepEqual(history.versions.map(({ version }) => version), [1, 2]);
  await weftline.memory.set({ key: "a/b.c", value: { note: 1 } });
  assert.deepEqual((await weftline.memory.get({ key: "a/b.c" })).value, { note: 1 });
});

test("an error has the class of its kind, a code, a hint and a context", async () => {
  const session_id = await session();
  const missing = await refusalOf(weftline.board.read({ session_id, key: "absent" }));
  assert.ok(missing instanceof NotFound);
  assert.deepEqual([missing.name, missing.code, missing.status], ["NotFound", "KEY_NOT_FOUND", 404]);
  assert.match(missing.hint, /`board\.\w+`/);
  await weftline.board.write({ session_id, key: "goal", value: "x" });
  const conflict = await refusalOf(weftline.board.write({ session_id, key: "goal", value: "y", if_version: 7 }));
  assert.ok(conflict instanceof Conflict && conflict.code === "VERSION_CONFLICT");
  const stranger = new Weftline({ url, key: "weftline.no.key" });
  const denied = await refusalOf(stranger.session.list());
  assert.ok(denied instanceof Forbidden && denied.status === 401, denied.code);
  const invalid = await refusalOf(weftline.board.write({ session_id, key: "Not A Key", value: "x" }));
  assert.ok(invalid instanceof Rejected && invalid.code === "INVALID_KEY");
});

test("what cannot be sent is refused here", async () => {
  for (const session_id of ["", ".", "..", "a/b", "\ud800", undefined, null]) {
    const error = await refusalOf(weftline.session.get({ session_id }));
    assert.deepEqual([error.code, error.context.field], ["INVALID_INPUT_FORMAT", "session_id"]);
  }
  const number = await refusalOf(weftline.board.write({ session_id: "s", key: "k", value: { n: Number.NaN } }));
  assert.equal(number.context.field, "n");
});

test("an address that is none is refused, and a credential in it is not repeated", () => {
  for (const wrong of ["weftline.test", "ftp://weftline.test", "http://", "http://127.0.0.1:8787/mcp"]) {
    assert.throws(() => new Weftline({ url: wrong }), Rejected, wrong);
  }
  assert.throws(() => new Weftline({ url: "http://me:hunter2@weftline.test" }), (error) => !String(error).includes("hunter2"));
  assert.throws(() => new Weftline({ url, key: "sécret\nkey" }), (error) => error instanceof Rejected && !String(error).includes("sécret"));
});

test("calls that exceed the server's own rate limit wait as long as it says", async () => {
  const started = Date.now();
  const agent = { agent_id: `agent-${Date.now()}`, agent_type: "custom" };
  const credentials = { ...agent, api_key: (await weftline.agent.create(agent)).api_key };
  const patient = new Weftline({ url, key, retries: 8 });
  const issued = await Promise.all(Array.from({ length: 5 }, () => patient.token.issue(credentials)));
  assert.equal(new Set(issued.map(({ token }) => token)).size, 5);
  assert.ok(Date.now() - started >= 900, `${Date.now() - started} ms`);
  const impatient = new Weftline({ url, key, retries: 0 });
  const error = await refusalOf(Promise.all(Array.from({ length: 5 }, () => impatient.token.issue(credentials))));
  assert.equal(error.code, "RATE_LIMITED");
  assert.ok(error.retry_after_seconds > 0, String(error.retry_after_seconds));
});

test("a call that exceeds a rate limit is repeated when the server says", async () => {
  const started = Date.now();
  await withProxy(
    (_, answer, count) => count === 1 && (refuse(answer, 429, "RATE_LIMITED", { "retry-after": "1" }), true),
    async (address, seen) => {
      await new Weftline({ url: address, key }).session.create({ purpose: "Wait" });
      assert.equal(seen.length, 2);
    },
  );
  assert.ok(Date.now() - started >= 990, `${Date.now() - started} ms`);
});

test("a wait that is longer than allowed is an error with its time", async () => {
  await withProxy(
    (_, answer) => (refuse(answer, 429, "RATE_LIMITED", { "retry-after": "90" }), true),
    async (address, seen) => {
      const error = await refusalOf(new Weftline({ url: address, key }).session.list());
      assert.ok(error instanceof Unavailable);
      assert.deepEqual([error.code, error.retry_after_seconds, seen.length], ["RATE_LIMITED", 90, 1]);
    },
  );
});

test("a read without an answer is repeated, a write is not", async () => {
  await withProxy(
    (incoming, answer) => (incoming.socket.destroy(), answer.destroy(), true),
    async (address, seen) => {
      const cut = new Weftline({ url: address, key, retries: 2 });
      const read = await refusalOf(cut.session.list());
      assert.deepEqual([read.code, seen.length], ["SYSTEM_UNAVAILABLE", 3]);
      await refusalOf(cut.session.create({ purpose: "Once" }));
      assert.equal(seen.length, 4);
    },
  );
});

test("an answer that is not Weftline's is known by its status", async () => {
  await withProxy(
    (_, answer) => (answer.writeHead(502).end("<html>Bad gateway</html>"), true),
    async (address) => {
      const error = await refusalOf(new Weftline({ url: address, key }).session.list());
      assert.ok(error instanceof Unavailable && error.status === 502);
    },
  );
});

test("a call ends when its signal or its time says so, or the client is closed", async () => {
  await withProxy(
    () => true,
    async (address) => {
      const slow = new Weftline({ url: address, key, timeout_seconds: 0.2, retries: 0 });
      assert.match((await refusalOf(slow.session.list())).message, /did not answer in time/);
      const patient = new Weftline({ url: address, key });
      const ended = AbortSignal.timeout(50);
      await assert.rejects(patient.session.list({}, { signal: ended }), { name: "TimeoutError" });
      const waiting = assert.rejects(patient.session.list(), { name: "AbortError" });
      setTimeout(() => patient.with_correlation({ task_id: "t" }).close(), 50);
      await waiting;
    },
  );
});

test("warnings of the server reach the caller", async () => {
  const texts = [];
  await withProxy(
    (incoming, answer) => {
      const text = Buffer.from(JSON.stringify(["Über dem Budget"])).toString("latin1");
      answer.writeHead(200, { "weftline-warning": text }).end("{}");
      return true;
    },
    (address) => new Weftline({ url: address, key, on_warning: (text) => texts.push(text) }).plan.show(),
  );
  assert.deepEqual(texts, ["Über dem Budget"]);
});

test("correlation ids are found again", async () => {
  const session_id = await session();
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const traced = weftline.with_correlation({ task_id: "task-1" }).with_correlation({ turn_id: "turn/2", traceparent });
  await traced.board.write({ session_id, key: "goal", value: "x" });
  const found = await Promise.all([{ task_id: "task-1" }, { turn_id: "turn/2" }, { task_id: "task-2" }].map((ids) => weftline.records.list({ session_id, ...ids })));
  assert.deepEqual(found.map(({ records }) => records.length > 0), [true, true, false]);
  assert.throws(() => weftline.with_correlation({ task_id: "two words" }), Rejected);
});

test("events are followed without gaps over cut connections", async () => {
  const session_id = await session();
  const wanted = 12;
  let cuts = 0;
  await withProxy(
    (incoming, answer) => {
      // Every stream is cut 150 ms after it began.
      if (incoming.url.startsWith("/v1/events/stream")) setTimeout(() => (cuts++, answer.destroy()), 150);
      return false;
    },
    async (address, seen) => {
      const follower = new Weftline({ url: address, key });
      const writing = (async () => {
        for (let count = 0; count < wanted; count++) {
          await new Promise((resolve) => setTimeout(resolve, 70));
          await weftline.board.write({ session_id, key: "count", value: count });
        }
      })();
      const versions = [];
      for await (const event of follower.follow({ session_id, types: ["board.written"], after: 0 })) {
        versions.push(event.data.version);
        if (versions.length === wanted) break;
      }
      await writing;
      assert.deepEqual(versions, Array.from({ length: wanted }, (_, place) => place + 1));
      assert.ok(cuts >= 2, `${cuts} cuts`);
      assert.ok(seen.some(({ headers }) => Number(headers["last-event-id"]) > 0), "resumed by Last-Event-ID");
    },
  );
});

test("an error that a retry cannot fix ends a stream", async () => {
  const stream = weftline.follow({ session_id: "nowhere", after: 0 });
  assert.equal((await refusalOf(stream.next())).code, "SESSION_NOT_FOUND");
});

test("closing the client ends what it follows", async () => {
  const session_id = await session();
  const follower = new Weftline({ url, key });
  const next = assert.rejects(follower.follow({ session_id }).next(), { name: "AbortError" });
  setTimeout(() => follower.close(), 200);
  await next;
});

async function* chunks(count, size = MEGABYTE) {
  for (let place = 0; place < count; place++) yield new TextEncoder().encode(`${place}`.padEnd(size, " "));
}

test("a document of some megabytes is uploaded from a stream and from a blob", async () => {
  const { domain } = await weftline.knowledge.create_domain({ domain: `d${Date.now()}` });
  const added = await weftline.add_file(chunks(5), { domain, document_id: "notes/é.txt", metadata: { team: "people" } });
  assert.equal(added.bytes, 5 * MEGABYTE);
  const blob = await weftline.add_file(new Blob(["# Title"], { type: "text/markdown;charset=utf-8" }), { domain, document_id: "blob" });
  const shown = await weftline.knowledge.get_document({ domain, document_id: "blob" });
  assert.deepEqual([blob.bytes, shown.media_type], [7, "text/markdown"]);
  const refused = await refusalOf(weftline.add_file("x", { domain: "none", document_id: "a" }));
  assert.equal(refused.code, "DOMAIN_NOT_FOUND");
});

test("a bundle is downloaded and imported", async () => {
  const session_id = await session();
  await weftline.context.ingest({ session_id, events: [{ content: "x".repeat(300_000) }] });
  const parts = [];
  const exported = await weftline.export_to(new WritableStream({ write: (chunk) => void parts.push(chunk) }), { session_id });
  const bundle = new Blob(parts);
  assert.equal(bundle.size, exported.bytes);
  assert.ok(bundle.size > 300_000, `${bundle.size} bytes`);
  const options = { session_id: `${session_id}_copy`, expected_digest: exported.digest };
  const planned = await weftline.import_from(bundle, { ...options, dry_run: true });
  assert.equal(planned.dry_run, true);
  const imported = await weftline.import_from(bundle.stream(), options);
  assert.equal((await weftline.session.get({ session_id: imported.session_id })).session.purpose, "A test");
  const damaged = await refusalOf(weftline.import_from(bundle.slice(0, bundle.size - 10)));
  assert.ok(damaged instanceof WeftlineError);
});

test("a download of many megabytes is written as it arrives, as fast as it is read", async () => {
  const size = 16 * MEGABYTE;
  let sent = 0;
  await withProxy(
    (_, answer) => {
      answer.writeHead(200, { "weftline-export": JSON.stringify({ bytes: size }) });
      const send = () => {
        while (sent < size) {
          sent += MEGABYTE;
          if (!answer.write(new Uint8Array(MEGABYTE))) return void answer.once("drain", send);
        }
        answer.end();
      };
      send();
      return true;
    },
    async (address) => {
      let [received, first] = [0, 0];
      const sink = new WritableStream({
        async write(chunk) {
          received += chunk.length;
          if (!first) {
            await new Promise((resolve) => setTimeout(resolve, 200));
            first = sent;
          }
        },
      });
      const exported = await new Weftline({ url: address, key }).export_to(sink, { session_id: "s" });
      assert.deepEqual([exported.bytes, received], [size, size]);
      assert.ok(first < size, `${first} bytes were sent before the first was written`);
    },
  );
});

test("a download that breaks is an error, and the sink is told", async () => {
  let aborted;
  await withProxy(
    (_, answer) => {
      answer.writeHead(200, { "weftline-export": "{}" }).write(new Uint8Array(10));
      setTimeout(() => answer.destroy(), 50);
      return true;
    },
    async (address) => {
      const sink = new WritableStream({ abort: (reason) => void (aborted = reason) });
      const error = await refusalOf(new Weftline({ url: address, key }).export_to(sink));
      assert.equal(error.code, "SYSTEM_UNAVAILABLE");
    },
  );
  assert.ok(aborted);
});

test("every operation of the OpenAPI document is a method with its route", async () => {
  const { paths } = await (await fetch(`${url}/openapi.json`)).json();
  const routes = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, call]) =>
      method === "parameters" ? [] : [[`${call.tags[0]}.${call.operationId.slice(call.tags[0].length + 1)}`, `${method.toUpperCase()} ${path}`]],
    ),
  );
  assert.ok(routes.length > 200);
  const known = Object.entries(ROUTES).map(([name, route]) => [name, route.replaceAll(":path}", "}")]);
  assert.deepEqual(known.sort(), routes.sort());
  for (const [name] of routes) {
    const [group, verb] = name.split(".");
    assert.equal(typeof weftline[group][verb], "function", name);
  }
});
