/**
 * The golden bytes of the protocol: a client in another language can be checked against vectors.json. Each frame is written
 * from what it says and must give these bytes; the bytes are read and must give what it says.
 */

import { deepStrictEqual, equal, ok } from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { CallName, Producer } from "../../src/api/call-name.js";
import { VarveError } from "../../src/index.js";
import { FRAME_HEAD_BYTES, FrameParser, Kind, PREAMBLE } from "../../src/wire/frame.js";
import { readHello, readWelcome, writeHello, writeWelcome } from "../../src/wire/hello.js";
import { Input } from "../../src/wire/input.js";
import {
  durabilityFlags,
  durabilityOf,
  readMessage,
  readMessages,
  readOffsets,
  readRecords,
  readTasks,
  readTerms,
  readTokens,
  writeMessage,
  writeMessages,
  writeOffsets,
  writeRecords,
  writeTasks,
  writeTerms,
  writeTokens,
} from "../../src/wire/layouts.js";
import { METHODS, Methods } from "../../src/wire/methods.js";
import { readName, writeName } from "../../src/wire/name.js";
import { Output } from "../../src/wire/output.js";
import { readValue, writeValue } from "../../src/wire/value.js";

const FILE = join(dirname(fileURLToPath(import.meta.url)), "../../../test/wire/vectors.json");

interface Vector {
  readonly name: string;
  readonly hex: string;
}

interface Example {
  readonly name: string;
  readonly kind: number;
  readonly id: number;
  write(output: Output): void;
  /** Reads the body, and checks what it says. */
  read(body: Buffer): void;
}

const bytes = (text: string): Buffer => Buffer.from(text);
const ID = Buffer.from("000102030405060708090a0b0c0d0e0f", "hex");

const producers = { producerOf: (id: Uint8Array | undefined) => new Producer(id ?? ID) };
const named = (sequence: number, settled = 0, producer = ID) => CallName.of(new Producer(producer), sequence, settled);

const NO_TERMS = {
  durability: undefined,
  delayMs: 0,
  atMs: undefined,
  maxAttempts: undefined,
  priority: 0,
  ttlMs: undefined,
  expiresAtMs: undefined,
  orderKey: undefined,
};

/** Checks the same value on the way out and back. */
function same<T>(
  write: (output: Output, value: T) => void,
  read: (input: Input) => unknown,
  value: T,
  expected: unknown = value,
) {
  return {
    write: (output: Output) => write(output, value),
    read: (body: Buffer) => {
      const input = new Input(body);
      deepStrictEqual(plain(read(input)), plain(expected));
      input.end();
    },
  };
}

/** Without classes. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return { bytes: Buffer.from(value).toString("hex") };
  if (value instanceof Date) return { date: value.getTime() };
  if (value instanceof Error)
    return {
      code: (value as VarveError).code,
      message: value.message,
      details: plain({ ...(value as VarveError).details }),
    };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, member]) => member !== undefined)
      .map(([name, member]) => [name, plain(member)]),
  );
}

const value = (of: unknown) => same(writeValue, readValue, of);

const task = {
  id: "7",
  attempt: 2,
  token: "2.0.0.7.2.0123456789abcdef",
  timestamp: 1_767_225_600_000,
  priority: 3,
  orderKey: "customer-1",
  expiresAt: 1_767_229_200_000,
  key: bytes("k"),
  headers: { a: "b" },
  payload: bytes("work"),
};

const record = {
  offset: 2 ** 32 + 5,
  timestamp: 1_767_225_600_000.5,
  key: bytes("k"),
  headers: { a: "b" },
  payload: bytes("record"),
  tombstone: false,
};

const EXAMPLES: readonly Example[] = [
  {
    name: "hello",
    kind: Kind.Hello,
    id: 0,
    write: (output) =>
      writeHello(output, {
        versionMin: 1,
        versionMax: 1,
        features: 1,
        clientId: ID,
        sessionId: Buffer.alloc(16),
        received: 0,
        name: "worker-7",
        token: "secret",
      }),
    read: (body) => {
      const hello = readHello(new Input(body));
      deepStrictEqual(
        [hello.versionMin, hello.versionMax, hello.features, hello.received, hello.name, hello.token],
        [1, 1, 1, 0, "worker-7", "secret"],
      );
      deepStrictEqual(hello.clientId, ID);
    },
  },
  {
    name: "welcome",
    kind: Kind.Ok,
    id: 0,
    write: (output) =>
      writeWelcome(output, {
        version: 1,
        features: 0,
        sessionId: ID,
        resumed: false,
        frameBytesMax: 64 * 1024 * 1024,
        server: "varve 0.1.0",
      }),
    read: (body) => {
      const { sessionId, ...rest } = readWelcome(new Input(body));
      deepStrictEqual(sessionId, ID);
      deepStrictEqual(rest, {
        version: 1,
        features: 0,
        resumed: false,
        frameBytesMax: 64 * 1024 * 1024,
        server: "varve 0.1.0",
      });
    },
  },
  { name: "ping", kind: Kind.Ping, id: 9, write: () => {}, read: (body) => equal(body.length, 0) },
  { name: "cancel", kind: Kind.Cancel, id: 9, write: () => {}, read: (body) => equal(body.length, 0) },
  {
    name: "credit",
    kind: Kind.Credit,
    id: 9,
    ...same(
      (output, of: number) => output.u32(of),
      (input) => input.u32(),
      65_536,
    ),
  },
  {
    name: "openLog",
    kind: Methods.openLog.opcode,
    id: 1,
    write: (output) => {
      output.u32(1);
      writeValue(output, ["events", { create: false }]);
    },
    read: (body) => {
      const input = new Input(body);
      equal(input.u32(), 1);
      deepStrictEqual(readValue(input), ["events", { create: false }]);
      input.end();
    },
  },
  {
    name: "append, a plain payload",
    kind: Methods.append.opcode,
    id: 2,
    write: (output) => {
      output.u32(1);
      writeName(output, undefined, 1, 0);
      output.u8(0);
      writeMessage(output, { payload: "hello", key: undefined, headers: undefined });
    },
    read: (body) => {
      const input = new Input(body);
      deepStrictEqual([input.u32(), readName(input, producers), input.u8()], [1, named(1), 0]);
      deepStrictEqual(readMessage(input), bytes("hello"));
      input.end();
    },
  },
  {
    name: "appendBatch, in sync mode, one with a key and headers",
    kind: Methods.appendBatch.opcode,
    id: 3,
    write: (output) => {
      output.u32(1);
      writeName(output, undefined, 2, 0);
      output.u8(durabilityFlags("sync"));
      writeMessages(output, [
        { payload: "größe", key: undefined, headers: undefined },
        { payload: Buffer.from([0, 255]), key: "k", headers: { trace: "1" } },
      ]);
    },
    read: (body) => {
      const input = new Input(body);
      deepStrictEqual([input.u32(), readName(input, producers), durabilityOf(input.u8())], [1, named(2), "sync"]);
      deepStrictEqual(plain(readMessages(input)), [
        { bytes: bytes("größe").toString("hex") },
        { payload: { bytes: "00ff" }, key: { bytes: "6b" }, headers: { trace: "1" } },
      ]);
      input.end();
    },
  },
  { name: "answer: offsets", kind: Kind.Ok, id: 3, ...same(writeOffsets, readOffsets, [41, 42, 43]) },
  {
    name: "enqueue, every term",
    kind: Methods.enqueue.opcode,
    id: 4,
    write: (output) => {
      output.u32(2);
      writeName(output, undefined, 3, 0);
      writeTerms(
        output,
        {
          durability: "async",
          delayMs: 1500,
          atMs: undefined,
          maxAttempts: 0,
          priority: 9,
          ttlMs: 60_000,
          expiresAtMs: undefined,
          orderKey: "o",
        },
        "d",
      );
      writeMessage(output, { payload: "", key: undefined, headers: undefined });
    },
    read: (body) => {
      const input = new Input(body);
      deepStrictEqual([input.u32(), readName(input, producers)], [2, named(3)]);
      deepStrictEqual(plain(readTerms(input)), {
        durability: "async",
        delay: 1500,
        maxAttempts: Number.POSITIVE_INFINITY,
        priority: 9,
        ttl: 60_000,
        dedupeKey: "d",
        orderKey: "o",
      });
      deepStrictEqual(readMessage(input), bytes(""));
      input.end();
    },
  },
  {
    name: "enqueueBatch, no terms, dedupe keys",
    kind: Methods.enqueueBatch.opcode,
    id: 5,
    write: (output) => {
      output.u32(2);
      writeName(output, undefined, 4, 0);
      writeTerms(output, NO_TERMS, undefined);
      writeValue(output, ["d1", undefined]);
      writeMessages(output, [
        { payload: "a", key: undefined, headers: undefined },
        { payload: "b", key: undefined, headers: undefined },
      ]);
    },
    read: (body) => {
      const input = new Input(body);
      deepStrictEqual([input.u32(), readName(input, producers), readTerms(input)], [2, named(4), undefined]);
      deepStrictEqual(readValue(input), ["d1", undefined]);
      deepStrictEqual(readMessages(input), [bytes("a"), bytes("b")]);
      input.end();
    },
  },
  {
    name: "dequeue, up to 10, waiting 30 s, for the session",
    kind: Methods.dequeue.opcode,
    id: 6,
    write: (output) => {
      output.u32(2);
      output.f64(30_000);
      writeName(output, Buffer.alloc(16, 0xab), 9, 8);
      output.u64(17);
      output.u8(8);
      output.u32(10);
      output.f64(0);
    },
    read: (body) => {
      const input = new Input(body);
      deepStrictEqual(
        [input.u32(), input.f64(), readName(input, producers), input.u64(), input.u8(), input.u32(), input.f64()],
        [2, 30_000, named(9, 8, Buffer.alloc(16, 0xab)), 17, 8, 10, 0],
      );
      input.end();
    },
  },
  { name: "answer: tasks", kind: Kind.Ok, id: 6, ...same(writeTasks, readTasks, [task]) },
  { name: "answer: no tasks", kind: Kind.Ok, id: 6, ...same(writeTasks, readTasks, []) },
  {
    name: "ack",
    kind: Methods.ack.opcode,
    id: 7,
    write: (output) => {
      output.u32(2);
      writeName(output, undefined, 0, 0);
      output.u8(0);
      writeTokens(output, [task.token]);
    },
    read: (body) => {
      const input = new Input(body);
      deepStrictEqual(
        [input.u32(), readName(input, producers), input.u8(), readTokens(input)],
        [2, undefined, 0, [task.token]],
      );
      input.end();
    },
  },
  { name: "answer: nothing", kind: Kind.Ok, id: 7, write: () => {}, read: (body) => equal(body.length, 0) },
  {
    name: "nack, with a delay and an error",
    kind: Methods.nack.opcode,
    id: 8,
    write: (output) => {
      output.u32(2);
      writeName(output, undefined, 5, 4);
      output.u8(4 | 8);
      output.data(task.token);
      output.f64(250);
      output.data("it broke");
    },
    read: (body) => {
      const input = new Input(body);
      deepStrictEqual(
        [input.u32(), readName(input, producers), input.u8(), input.ascii(), input.f64(), input.string()],
        [2, named(5, 4), 12, task.token, 250, "it broke"],
      );
      input.end();
    },
  },
  {
    name: "records of a stream",
    kind: Kind.Records,
    id: 10,
    write: (output) => {
      output.u64(record.offset + 2);
      writeRecords(output, [
        record,
        { ...record, offset: record.offset + 1, headers: {}, payload: bytes(""), tombstone: true },
      ]);
    },
    read: (body) => {
      const input = new Input(body);
      equal(input.u64(), record.offset + 2);
      deepStrictEqual(
        plain(readRecords(input)),
        plain([record, { ...record, offset: record.offset + 1, headers: {}, payload: bytes(""), tombstone: true }]),
      );
      input.end();
    },
  },
  { name: "end of a stream", kind: Kind.End, id: 10, ...value(undefined) },
  {
    name: "every value",
    kind: Kind.Ok,
    id: 11,
    ...value([
      undefined,
      null,
      false,
      true,
      0,
      2 ** 53 - 1,
      -1,
      0.5,
      Number.POSITIVE_INFINITY,
      "text €",
      Buffer.from([1, 2, 3]),
      new Date(1_767_225_600_000),
      -123_456_789_012_345_678_901_234_567_890n,
      [],
      { a: { b: [1] }, "": 2 },
    ]),
  },
  {
    name: "failed",
    kind: Kind.Failed,
    id: 12,
    ...value(new VarveError("ERR_OFFSET_OUT_OF_RANGE", "it was removed", { details: { next: 7 } })),
  },
  { name: "leaving", kind: Kind.Leaving, id: 0, write: () => {}, read: (body) => equal(body.length, 0) },
];

function encode({ kind, id, write }: Example): Buffer {
  const output = new Output(1024 * 1024);
  output.begin(kind, id);
  write(output);
  return output.endFrame();
}

if (process.env.VARVE_PRINT_VECTORS === "1") {
  const frames = EXAMPLES.map((example) => ({ name: example.name, hex: encode(example).toString("hex") }));
  console.log(JSON.stringify({ protocol: 1, preamble: PREAMBLE.toString("hex"), frames }, null, 2));
}

const golden = JSON.parse(readFileSync(FILE, "utf8")) as { protocol: number; preamble: string; frames: Vector[] };

test("the vectors are of all the examples, and the preamble is as written", () => {
  equal(golden.protocol, 1);
  equal(golden.preamble, PREAMBLE.toString("hex"));
  deepStrictEqual(
    golden.frames.map(({ name }) => name),
    EXAMPLES.map(({ name }) => name),
  );
});

for (const [index, example] of EXAMPLES.entries()) {
  test(`vector: ${example.name}`, () => {
    const { hex } = golden.frames[index]!;
    equal(encode(example).toString("hex"), hex, "what is written");
    const frames: [number, number, Buffer][] = [];
    const parser = new FrameParser(
      {
        frame(kind, id, body) {
          frames.push([kind, id, body.raw(body.left)]);
          return true;
        },
      },
      1024 * 1024,
      false,
    );
    parser.push(Buffer.from(hex, "hex"));
    equal(frames.length, 1);
    const [kind, id, body] = frames[0]!;
    deepStrictEqual([kind, id, body.length], [example.kind, example.id, hex.length / 2 - FRAME_HEAD_BYTES]);
    example.read(body);
  });
}

test("no opcode stands for two methods, or for a kind of frame", () => {
  const opcodes = Object.values(Methods).map(({ opcode }) => opcode);
  equal(new Set(opcodes).size, opcodes.length);
  for (const kind of Object.values(Kind)) ok(METHODS[kind] === undefined);
});
