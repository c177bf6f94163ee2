/**
 * The parser of frames: what comes of a stream does not depend on where it was cut, memory follows what has arrived, and
 * whatever bytes come, the outcome is a frame or ERR_PROTOCOL.
 */

import { deepStrictEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { isVarveError } from "../../src/index.js";
import { FRAME_HEAD_BYTES, FrameParser, HELLO_BYTES_MAX, PREAMBLE } from "../../src/wire/frame.js";
import { readHello } from "../../src/wire/hello.js";
import { Input } from "../../src/wire/input.js";
import { readMessages, readRecords, readTasks, readTerms, readTokens } from "../../src/wire/layouts.js";
import { Output } from "../../src/wire/output.js";
import { readValue, writeValue } from "../../src/wire/value.js";
import { Seeded, seedOr } from "../support/seeded.js";

type Frame = [kind: number, id: number, hex: string];

class Collected {
  readonly frames: Frame[] = [];
  error: unknown;
  readonly parser: FrameParser;
  #stopEvery: number;

  constructor(frameBytesMax: number, preamble: boolean, stopEvery = 0) {
    this.#stopEvery = stopEvery;
    this.parser = new FrameParser(
      {
        frame: (kind, id, body) => {
          this.frames.push([kind, id, body.toString("hex")]);
          return this.#stopEvery === 0 || this.frames.length % this.#stopEvery !== 0;
        },
      },
      frameBytesMax,
      preamble,
    );
  }

  push(piece: Buffer): void {
    if (this.error !== undefined) return;
    try {
      this.parser.push(piece);
      if (this.#stopEvery > 0) for (let round = 0; round < piece.length; round++) this.parser.resume();
    } catch (error) {
      this.error = error;
    }
  }

  get code(): string | undefined {
    return isVarveError(this.error) ? this.error.code : undefined;
  }
}

function stream(random: Seeded, frames: number): Buffer {
  const output = new Output(1024 * 1024);
  const pieces: Buffer[] = [PREAMBLE];
  for (let index = 0; index < frames; index++) {
    output.begin(random.between(0, 255), random.between(0, 1_000_000));
    output.raw(Buffer.alloc(random.chance(0.1) ? random.between(0, 5000) : random.between(0, 60), index));
    pieces.push(output.end());
  }
  return Buffer.concat(pieces);
}

function cut(random: Seeded, bytes: Buffer, most: number): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = Math.min(bytes.length, at + random.between(1, most));
    pieces.push(bytes.subarray(at, end));
    at = end;
  }
  return pieces;
}

test("what comes of a stream does not depend on where it is cut, or on where its reader stops", () => {
  const random = new Seeded(seedOr(6001));
  for (let round = 0; round < 60; round++) {
    const bytes = stream(random, random.between(1, 60));
    // Now and then something is wrong with it.
    if (random.chance(0.5)) bytes[random.between(0, bytes.length - 1)]! ^= 1 << random.between(0, 7);
    const whole = new Collected(8192, true);
    whole.push(bytes);
    for (const most of [1, 7, 100, 4000]) {
      for (const stopEvery of [0, 1, 3]) {
        const pieces = new Collected(8192, true, stopEvery);
        for (const piece of cut(random, bytes, most)) pieces.push(piece);
        deepStrictEqual(pieces.frames, whole.frames);
        equal(pieces.code, whole.code);
      }
    }
  }
});

test("memory follows what has arrived, not what was announced", () => {
  const announced = new Collected(64 * 1024 * 1024, false);
  const head = Buffer.alloc(FRAME_HEAD_BYTES);
  head.writeUInt32LE(64 * 1024 * 1024, 0);
  announced.push(head);
  ok(announced.parser.heldBytes <= 64, `${announced.parser.heldBytes} bytes for 9`);
  for (let sent = 0; sent < 100_000; sent++) announced.push(Buffer.of(1));
  ok(announced.parser.heldBytes <= 2 * 100_009 + 64, `${announced.parser.heldBytes} bytes for 100,009`);
  equal(announced.error, undefined);
});

test("a length beyond the limit, and one that is too short, are refused as soon as they are there", () => {
  for (const length of [0, 4, HELLO_BYTES_MAX + 1, 2 ** 31, 2 ** 32 - 1]) {
    const head = Buffer.alloc(4);
    head.writeUInt32LE(length);
    const parser = new Collected(HELLO_BYTES_MAX, false);
    for (const byte of head) parser.push(Buffer.of(byte));
    equal(parser.code, "ERR_PROTOCOL", `${length}`);
  }
});

test("whatever does not begin with the preamble is refused at its first wrong byte", () => {
  for (const text of ["GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\n", "set q 0 0 1\r\n", "\x16\x03\x01", "\x89VARVE\n"]) {
    const parser = new Collected(HELLO_BYTES_MAX, true);
    const bytes = Buffer.from(text, "latin1");
    let taken = 0;
    while (parser.error === undefined) parser.push(bytes.subarray(taken, ++taken));
    equal(parser.code, "ERR_PROTOCOL");
    equal(taken, 1 + [...bytes].findIndex((byte, index) => byte !== PREAMBLE[index]));
  }
});

test("readers of bodies take any bytes: something comes of them, or ERR_PROTOCOL", () => {
  const random = new Seeded(seedOr(6002));
  const readers = [readValue, readMessages, readTasks, readRecords, readTokens, readTerms];
  const output = new Output(1024 * 1024);
  output.begin(1, 1);
  writeValue(output, [1, "text", { a: [new Date(0), 1n, Buffer.from("x"), new Error("no")] }, [[[[]]]]]);
  const good = output.end().subarray(FRAME_HEAD_BYTES);
  let refused = 0;
  for (let round = 0; round < 20_000; round++) {
    const bytes = random.chance(0.5) ? Buffer.from(good) : Buffer.alloc(random.between(0, 80));
    const changes = bytes.length === 0 ? 0 : random.between(1, 8);
    for (let change = 0; change < changes; change++) {
      bytes[random.between(0, bytes.length - 1)] = random.chance(0.3) ? 255 : random.between(0, 20);
    }
    for (const read of [...readers, () => readHello(bytes)]) {
      try {
        read(new Input(bytes));
      } catch (error) {
        ok(isVarveError(error, "ERR_PROTOCOL"), `${error} for ${bytes.toString("hex")}`);
        refused++;
      }
    }
  }
  ok(refused > 1000);
});

test("a value that is nested too deep, or announces more than there is, is refused", () => {
  const deep = Buffer.alloc(5 * 5000);
  for (let level = 0; level < 5000; level++) deep.set([10, 1, 0, 0, 0], level * 5);
  const many = Buffer.from([10, 255, 255, 255, 255, 0, 0]);
  for (const bytes of [deep, many]) {
    let error: unknown;
    try {
      readValue(new Input(bytes));
    } catch (thrown) {
      error = thrown;
    }
    ok(isVarveError(error, "ERR_PROTOCOL"));
  }
});

test("names that objects have of themselves are names like others", () => {
  const output = new Output(1024);
  output.begin(1, 1);
  const value = JSON.parse('{"__proto__": {"polluted": true}, "constructor": 1}');
  writeValue(output, value);
  const read = readValue(new Input(output.end().subarray(FRAME_HEAD_BYTES))) as Record<string, unknown>;
  deepStrictEqual(read, value);
  equal(({} as { polluted?: boolean }).polluted, undefined);
  equal(Object.getPrototypeOf(read), Object.prototype);
});
