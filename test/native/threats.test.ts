/**
 * What strangers may try on a listener, beside a client that works and must not notice. Sizes suit continuous integration;
 * VARVE_TEST_SCALE makes them larger.
 */

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import test from "node:test";
import { Access } from "../../src/auth/access.js";
import { parseRule } from "../../src/auth/rules.js";
import { makeToken } from "../../src/auth/token.js";
import { NO_USERS, type User } from "../../src/auth/users.js";
import { HELLO_BYTES_MAX, Kind, PREAMBLE } from "../../src/wire/frame.js";
import { Methods } from "../../src/wire/methods.js";
import { writeValue } from "../../src/wire/value.js";
import { eventually } from "../support/expect.js";
import { scaled } from "../support/scale.js";
import { codeOf, RawNative, type TestNative, withNative } from "./raw-native.js";

const MIB = 1024 * 1024;

const { token: TOKEN, hash } = makeToken("ada");
const ADA: User = { name: "ada", token: hash, certificate: undefined, allow: [parseRule("read,write,admin:*", "")] };
const access = new Access({ ...NO_USERS, users: [ADA] });

async function works({ connect }: TestNative): Promise<RawNative> {
  const client = await connect();
  assert.equal(codeOf(await client.enter(TOKEN)), undefined);
  assert.equal(codeOf(await client.call(Methods.openLog, 1, ["alive"])), undefined);
  return client;
}

/** A frame's head: it says how long the frame is going to be. */
function announcing(length: number, kind: number): Buffer {
  const head = Buffer.alloc(9);
  head.writeUInt32LE(length, 0);
  head[4] = kind;
  return head;
}

test("before the login: the preamble and a hello of at most 16 KiB, or the connection is over", async () => {
  await withNative({ native: { authenticator: access } }, async (native) => {
    const scratch = await native.connect();
    const call = scratch.frame(Methods.openLog.opcode, 1, (output) => {
      output.u32(1);
      writeValue(output, ["made"]);
    });
    const filler = Buffer.alloc(HELLO_BYTES_MAX, 1);
    const hello = scratch.hello(TOKEN);
    for (const [what, ...pieces] of [
      ["a call", PREAMBLE, call],
      ["a ping", PREAMBLE, scratch.frame(Kind.Ping, 1)],
      ["a hello that says it is too long", PREAMBLE, announcing(HELLO_BYTES_MAX + 1, Kind.Hello)],
      ["a call that says it is long", PREAMBLE, announcing(64 * MIB, Methods.append.opcode)],
      ["a token that is too long", PREAMBLE, scratch.frame(Kind.Hello, 0, (output) => output.raw(filler))],
      ["a hello without a preamble", hello],
      ["more than a hello, before the answer", PREAMBLE, Buffer.concat([hello.subarray(0, 10), filler, filler])],
      ["half a preamble, then something else", PREAMBLE.subarray(0, 4), filler],
      ["a wrong token", PREAMBLE, scratch.hello(makeToken("ada").token)],
      ["no token", PREAMBLE, scratch.hello("")],
      ["an unknown user", PREAMBLE, scratch.hello(makeToken("eve").token)],
    ] as const) {
      const client = await native.connect();
      client.send(Buffer.concat(pieces as readonly Buffer[]));
      await client.toEnd();
      assert.ok(
        client.frames.every(({ kind }) => kind === Kind.Failed),
        what,
      );
    }
    assert.deepEqual(await native.mq.queues(), []);
    await works(native);
  });
});

test("who does not log in is cut off in time, whatever it sends meanwhile; who has logged in may be silent", async () => {
  await withNative({ native: { authenticator: access, helloTimeoutMs: 100 } }, async (native) => {
    const worker = await works(native);
    const silent = await native.connect();
    const slow = await native.connect();
    const hello = Buffer.concat([PREAMBLE, slow.hello(TOKEN).subarray(0, -1)]);
    let sent = 0;
    const dripping = setInterval(() => {
      if (sent < hello.length) slow.send(hello.subarray(sent, ++sent));
    }, 20);
    await Promise.all([silent.toEnd(), slow.toEnd()]);
    clearInterval(dripping);
    assert.ok(sent < hello.length, "it had something left to send");
    assert.deepEqual([silent.frames, slow.frames], [[], []]);
    assert.equal(codeOf(await worker.call(Methods.logStats, 1)), undefined);
  });
});

test("connections that are half open keep nobody out, and go", async () => {
  const count = scaled(300);
  await withNative({ native: { authenticator: access, helloTimeoutMs: 1500 } }, async (native) => {
    const worker = await works(native);
    const halfOpen = await Promise.all(Array.from({ length: count }, () => native.connect()));
    for (const [index, client] of halfOpen.entries()) if (index % 2 === 0) client.send(PREAMBLE);
    for (let round = 0; round < 50; round++) {
      assert.equal(codeOf(await worker.call(Methods.logStats, 1)), undefined);
    }
    await works(native);
    await Promise.all(halfOpen.map((client) => client.toEnd()));
    await eventually("only those that have logged in are left", () => native.server.connections === 2);
    assert.equal(codeOf(await worker.call(Methods.logStats, 1)), undefined);
  });
});

test("a listener that is full takes no more, and others go on", async () => {
  await withNative({ native: { authenticator: access, maxConnections: 5 } }, async (native) => {
    const other = await native.server.listen({ target: { scheme: "tcp", host: "127.0.0.1", port: 0 } });
    const clients = await Promise.all(Array.from({ length: 5 }, () => native.connect()));
    for (const client of clients) assert.equal(codeOf(await client.enter(TOKEN)), undefined);
    const sixth = await native.connect();
    await sixth.toEnd();
    const beside = await RawNative.connect(other);
    assert.equal(codeOf(await beside.enter(TOKEN)), undefined);
    beside.destroy();
    clients[0]!.destroy();
    await eventually("there is room again", () => native.server.connections < 5);
    await works(native);
  });
});

test("whoever begins with another protocol is cut off without an answer, and nothing of it is carried out", async () => {
  await withNative({ native: { authenticator: access } }, async (native) => {
    for (const first of [
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "POST / HTTP/1.1\r\nContent-Length: 20\r\n\r\nset a 0 0 1\r\nx\r\n",
      "get a\r\n",
      "flush_all\r\n",
      "\r\n",
      "\0\0\0\0\0\0\0\0",
      Buffer.from("160301020001000001fc0303", "hex"),
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]) {
      const client = await native.connect();
      client.send(first);
      await client.toEnd();
      assert.equal(client.received, 0, JSON.stringify(first));
    }
    assert.deepEqual(await native.mq.queues(), []);
  });
});

// ------------------------------------------------------------------------------------------------ handshake states

const STEPS = ["preamble", "login", "wrong login", "call", "ping", "goodbye"] as const;
type Step = (typeof STEPS)[number];

/** Which of the steps are carried out, and whether the connection is still there afterwards. */
function expected(steps: readonly Step[]): { readonly calls: number; readonly open: boolean } {
  let state: "greeting" | "hello" | "serving" | "goodbye" = "greeting";
  let calls = 0;
  for (const step of steps) {
    if (state === "greeting" && step === "preamble") state = "hello";
    else if (state === "hello" && step === "login") state = "serving";
    else if (state === "serving" && step === "call") calls++;
    else if (state === "serving" && step === "goodbye") state = "goodbye";
    else if (state !== "serving" || step !== "ping") return { calls, open: false };
  }
  return { calls, open: state === "serving" };
}

function sequences(length: number): Step[][] {
  if (length === 0) return [[]];
  return sequences(length - 1).flatMap((before) => STEPS.map((step) => [...before, step]));
}

test("all sequences of four steps: nothing is carried out before the login, nor behind what ends the connection", async () => {
  await withNative({ native: { authenticator: access } }, async (native) => {
    const all = sequences(4);
    const run = async (steps: readonly Step[], index: number): Promise<void> => {
      const client = await native.connect();
      const bytes = steps.map((step) => {
        if (step === "preamble") return PREAMBLE;
        if (step === "login") return client.hello(TOKEN);
        if (step === "wrong login") return client.hello("wrong");
        if (step === "ping") return client.frame(Kind.Ping, 7);
        if (step === "goodbye") return client.frame(Kind.Goodbye, 8);
        return client.frame(Methods.openLog.opcode, 9, (output) => {
          output.u32(1);
          writeValue(output, [`made-${index}`]);
        });
      });
      if (index % 2 === 0) client.send(Buffer.concat(bytes));
      else for (const piece of bytes) client.send(piece);
      const { calls, open } = expected(steps);
      if (open) {
        client.send(client.frame(Kind.Ping, 100));
        assert.equal(codeOf(await client.answer(100)), undefined, steps.join(", "));
      } else {
        // Where only the beginning is there, or a goodbye was said, the client's end comes next.
        client.socket.end();
        await client.toEnd();
      }
      const answers = client.frames.filter(({ kind, id }) => kind === Kind.Ok && id === 9).length;
      assert.ok(answers <= calls, steps.join(", "));
      client.destroy();
    };
    for (let from = 0; from < all.length; from += 16) {
      await Promise.all(all.slice(from, from + 16).map((steps, offset) => run(steps, from + offset)));
    }
    const made = (await native.mq.queues()).map(({ name }) => name);
    const due = all.flatMap((steps, index) => (expected(steps).calls > 0 ? [`made-${index}`] : []));
    assert.deepEqual(made.sort(), due.sort());
  });
});

test("a thousand announcements of the longest frame cost no memory", async () => {
  const count = scaled(250);
  await withNative({ native: { authenticator: access } }, async (native) => {
    const clients = await Promise.all(Array.from({ length: count }, () => native.connect()));
    await Promise.all(clients.map((client) => client.enter(TOKEN)));
    const before = process.memoryUsage().rss;
    const head = announcing(native.server.options.frameBytesMax, Methods.append.opcode);
    for (const client of clients) client.send(Buffer.concat([head, Buffer.from([1])]));
    await works(native);
    assert.ok(process.memoryUsage().rss - before < 64 * MIB, "the memory that was announced has not been set aside");
    for (const client of clients) client.destroy();
  });
});

test("what a client is not allowed is told without what it sent, and logs hold no token", async () => {
  const lines: string[] = [];
  const write = (fields: object, message: string): void => {
    lines.push(JSON.stringify([message, fields], (_key, value) => (value instanceof Error ? String(value) : value)));
  };
  const logger = { debug: write, info: write, warn: write, error: write };
  await withNative({ native: { authenticator: access, logger } }, async (native) => {
    const wrong = makeToken("ada").token;
    const client = await native.connect();
    const answer = await client.enter(wrong);
    assert.equal(codeOf(answer), "ERR_UNAUTHENTICATED");
    await client.toEnd();
    const right = await works(native);
    await right.call(Methods.openLog, 2, ["<img>\r\nset a"]);
    assert.ok(lines.length > 0, "something was logged");
    for (const text of [...lines, JSON.stringify(answer)]) {
      for (const secret of [wrong, TOKEN]) assert.ok(!text.includes(secret.slice(10)), text);
      assert.ok(!/[\r\n]/.test(text));
    }
  });
});

test("nothing is left open of connections that came to nothing", { skip: process.platform !== "linux" }, async () => {
  await withNative({ native: { authenticator: access } }, async (native) => {
    await works(native);
    const descriptors = () => readdirSync("/proc/self/fd").length;
    const before = descriptors();
    for (let round = 0; round < scaled(5); round++) {
      const clients = await Promise.all(Array.from({ length: 40 }, () => native.connect()));
      for (const client of clients) client.send("junk\r\n");
      await Promise.all(clients.map((client) => client.toEnd()));
      for (const client of clients) client.destroy();
    }
    await eventually("all descriptors are given back", () => descriptors() <= before);
    assert.equal(native.server.connections, 1);
  });
});
