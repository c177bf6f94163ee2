/** What a stranger, or a client that misbehaves, can do to a native listener: end its own connection, and nothing else. */

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { dial, open, type VarveError } from "../../src/index.js";
import type { NativeOptions, NativeServer } from "../../src/native/server.js";
import { FRAME_HEAD_BYTES, Kind, PREAMBLE } from "../../src/wire/frame.js";
import { NEW_SESSION, writeHello } from "../../src/wire/hello.js";
import { Methods } from "../../src/wire/methods.js";
import { writeName } from "../../src/wire/name.js";
import { Output } from "../../src/wire/output.js";
import { writeValue } from "../../src/wire/value.js";
import { withDirectory } from "../support/directories.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { freeTarget, listen } from "../support/listening.js";

interface Scene {
  readonly target: string;
  readonly server: NativeServer;
  connect(): Promise<Socket>;
}

async function withServer(options: Partial<NativeOptions>, body: (scene: Scene) => Promise<void>): Promise<void> {
  await withDirectory(async (directory) => {
    const listening = await listen(await open(directory, { durability: "async" }), freeTarget("tcp"), options);
    const { port } = new URL(listening.target.replace("tcp:", "http:"));
    const sockets: Socket[] = [];
    try {
      await body({
        target: listening.target,
        server: listening.server,
        connect: async () => {
          const socket = connect(Number(port), "127.0.0.1");
          sockets.push(socket);
          socket.on("error", () => {});
          await once(socket, "connect");
          return socket;
        },
      });
    } finally {
      for (const socket of sockets) socket.destroy();
      await listening.close();
    }
  });
}

function frame(kind: number, id: number, write: (output: Output) => void = () => {}): Buffer {
  const output = new Output(1024 * 1024);
  output.begin(kind, id);
  write(output);
  return Buffer.from(output.endFrame());
}

function hello(token = ""): Buffer {
  return frame(Kind.Hello, 0, (output) =>
    writeHello(output, {
      versionMin: 1,
      versionMax: 1,
      features: 0,
      clientId: randomBytes(16),
      sessionId: NEW_SESSION,
      received: 0,
      name: "test",
      token,
    }),
  );
}

/** All that comes until the other side ends the connection. */
async function rest(socket: Socket): Promise<Buffer> {
  const pieces: Buffer[] = [];
  socket.on("data", (piece: Buffer) => pieces.push(piece));
  if (!socket.destroyed) await once(socket, "close");
  return Buffer.concat(pieces);
}

async function loggedIn(scene: Scene): Promise<Socket> {
  const socket = await scene.connect();
  socket.write(Buffer.concat([PREAMBLE, hello()]));
  await once(socket, "data");
  return socket;
}

test("whoever does not speak the protocol is cut off without a word, and nobody else notices", () =>
  withServer({}, async (scene) => {
    const mq = await dial(scene.target);
    const log = await mq.openLog("events");
    const strangers = ["POST / HTTP/1.1\r\nHost: a\r\n\r\n", "flush_all\r\nset a 0 0 1\r\nx\r\n", "\0\0\0\0\0\0\0\0\0"];
    for (const text of strangers) {
      const socket = await scene.connect();
      socket.write(text);
      assert.equal((await rest(socket)).length, 0);
    }
    assert.equal(await log.append("x"), 0);
    assert.deepEqual((await mq.queues()).length, 1);
    await mq.close();
  }));

test("before the handshake nothing else is taken, and no more than 16 KiB", () =>
  withServer({}, async (scene) => {
    for (const first of [
      frame(Methods.queues.opcode, 1, (output) => {
        output.u32(0);
        writeValue(output, []);
      }),
      frame(Kind.Ping, 1),
      Buffer.from([0xff, 0xff, 0xff, 0x7f]),
      Buffer.from([0, 0x50, 0, 0, Kind.Hello]),
    ]) {
      const socket = await scene.connect();
      socket.write(Buffer.concat([PREAMBLE, first]));
      const answer = await rest(socket);
      assert.equal(answer[4], Kind.Failed, "it is told why");
      assert.equal(answer.readUInt32LE(5), 0);
    }
  }));

test("who says nothing, or not enough, is cut off in time", () =>
  withServer({ helloTimeoutMs: 200 }, async (scene) => {
    const silent = await scene.connect();
    const slow = await scene.connect();
    const dripping = setInterval(() => slow.write(Buffer.of(PREAMBLE[0]!)), 50);
    slow.write(Buffer.concat([PREAMBLE, hello().subarray(0, 10)]));
    try {
      // What drips on may meet an end that has been closed: then it is told so by a reset.
      await Promise.all([rest(silent), rest(slow).catch((error) => assert.match(error.code, /^(ECONNRESET|EPIPE)$/))]);
    } finally {
      clearInterval(dripping);
    }
  }));

test("a version that the server does not speak is refused with both named", () =>
  withServer({}, async (scene) => {
    const socket = await scene.connect();
    const body = hello();
    body.writeUInt16LE(7, FRAME_HEAD_BYTES);
    body.writeUInt16LE(9, FRAME_HEAD_BYTES + 2);
    socket.write(Buffer.concat([PREAMBLE, body]));
    assert.match((await rest(socket)).toString("latin1"), /ERR_PROTOCOL.*7 to 9.*1 to 1/s);
  }));

test("a malformed frame ends its connection, and only that", () =>
  withServer({}, async (scene) => {
    const mq = await dial(scene.target);
    const log = await mq.openLog("events");
    for (const bad of [
      frame(0x7f, 1),
      frame(Methods.append.opcode, 1, (output) => output.u8(1)),
      frame(Methods.queues.opcode, 1, (output) => {
        output.u32(0);
        output.u8(99);
      }),
      frame(Methods.transaction.opcode, 1, (output) => {
        output.u32(0);
        writeName(output, undefined, 1, 0);
        writeValue(output, [[["drop", 1]], undefined]);
      }),
      Buffer.from([1, 0, 0, 0, 1]),
    ]) {
      const socket = await loggedIn(scene);
      socket.write(bad);
      assert.match((await rest(socket)).toString("latin1"), /ERR_PROTOCOL/);
    }
    await log.append("still there");
    await mq.close();
  }));

test("calls on handles that are not open, or of another kind, are refused, and the connection lives on", () =>
  withServer({}, async (scene) => {
    const socket = await loggedIn(scene);
    socket.write(
      frame(Methods.append.opcode, 5, (output) => {
        output.u32(77);
        writeName(output, undefined, 1, 0);
        output.u8(0);
        output.u8(0);
        output.data("x");
      }),
    );
    const [answer] = (await once(socket, "data")) as [Buffer];
    assert.equal(answer[4], Kind.Failed);
    assert.equal(answer.readUInt32LE(5), 5);
    assert.match(answer.toString("latin1"), /ERR_NOT_FOUND/);
    socket.write(frame(Kind.Ping, 6));
    const [pong] = (await once(socket, "data")) as [Buffer];
    assert.deepEqual([pong[4], pong.readUInt32LE(5)], [Kind.Ok, 6]);
  }));

test("more connections than allowed are refused, until one ends", () =>
  withServer({ maxConnections: 2 }, async (scene) => {
    const first = await dial(scene.target);
    const second = await dial(scene.target);
    await rejectsWith("ERR_DISCONNECTED", dial(scene.target));
    await first.close();
    await eventually("there is room", () => scene.server.connections < 2);
    const third = await dial(scene.target);
    await Promise.all([second.close(), third.close()]);
  }));

test("bytes of unfinished frames of all connections together are bounded", () =>
  withServer({ maxRequestBytes: 256 * 1024 }, async (scene) => {
    const sockets = [await loggedIn(scene), await loggedIn(scene), await loggedIn(scene)];
    const head = Buffer.alloc(FRAME_HEAD_BYTES);
    head.writeUInt32LE(32 * 1024 * 1024);
    const ends = sockets.map((socket) => rest(socket));
    for (const socket of sockets) socket.write(Buffer.concat([head, Buffer.alloc(100 * 1024)]));
    await Promise.any(ends);
    const mq = await dial(scene.target);
    await mq.close();
  }));

test("a client that takes no answers is not read from, and is cut off in the end", () =>
  withServer({ stallTimeoutMs: 600 }, async (scene) => {
    const mq = await dial(scene.target);
    const log = await mq.openLog("big");
    await log.append(Buffer.alloc(256 * 1024));
    const socket = await loggedIn(scene);
    socket.write(
      frame(Methods.openLog.opcode, 1, (output) => {
        output.u32(1);
        writeValue(output, ["big", undefined]);
      }),
    );
    await once(socket, "data");
    socket.pause();
    const before = process.memoryUsage().arrayBuffers;
    const read = (id: number) =>
      frame(Methods.read.opcode, id, (output) => {
        output.u32(1);
        output.u64(0);
      });
    socket.write(Buffer.concat(Array.from({ length: 4000 }, (_, index) => read(index + 2))));
    await eventually("the server has answered what it will", () => scene.server.connections === 1);
    const grown = process.memoryUsage().arrayBuffers - before;
    assert.ok(grown < 128 * 1024 * 1024, `${grown} bytes for answers that nobody takes`);
    assert.equal((await log.read(0))?.payload.length, 256 * 1024, "others are served meanwhile");
    await mq.close();
  }));

test("a listener that needs a login lets nobody in without, and checks every call", async () => {
  const allowed = new Set(["read log events"]);
  const principal = {
    name: "reader",
    current: true,
    may: (permission: string, kind: string, queue: string) => allowed.has(`${permission} ${kind} ${queue}`),
  };
  const authenticator = {
    authenticate: ({ token }: { token?: string | undefined }) => (token === "t" ? principal : undefined),
  };
  await withServer({ authenticator }, async (scene) => {
    await rejectsWith("ERR_UNAUTHENTICATED", dial(scene.target));
    await rejectsWith("ERR_UNAUTHENTICATED", dial(scene.target, { token: "wrong" }));
    const mq = await dial(scene.target, { token: "t" });
    await rejectsWith("ERR_NOT_FOUND", mq.openLog("events"), /create/);
    allowed.add("write log events");
    const log = await mq.openLog("events");
    await log.append("x");
    allowed.delete("write log events");
    const refused: (() => Promise<unknown>)[] = [
      () => log.append("y"),
      () => log.trim(1),
      () => log.configure({ limits: { maxCount: 5 } }),
      () => mq.openLog("events", { metadata: { a: "b" } }),
      () => mq.openTask("jobs"),
      () => mq.deleteQueue("log", "events"),
      () => mq.stats(),
      () => mq.transaction((tx) => tx.append(log, "z")),
    ];
    for (const call of refused) {
      const error: VarveError = await rejectsWith("ERR_FORBIDDEN", call);
      assert.equal(typeof error.details.permission, "string");
    }
    assert.equal((await log.read(0))?.payload.toString(), "x");
    assert.deepEqual(
      (await mq.queues()).map(({ name }) => name),
      ["events"],
    );
    await mq.close();
  });
});
