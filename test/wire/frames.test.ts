/**
 * The parser of frames: what comes of a stream does not depend on where it was cut, memory follows what has arrived, and
 * whatever bytes come, the outcome is a frame or ERR_PROTOCOL.
 */

import { deepStrictEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { isVarveError } from "../../src/index.js";
import { giveLarge, LARGE_BYTES, takeLarge } from "../../src/wire/buffers.js";
import { FRAME_HEAD_BYTES, FrameParser, HELLO_BYTES_MAX, Kind, type Loan, PREAMBLE } from "../../src/wire/frame.js";
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

  readonly #loan: Loan;
  /** Bodies, and what they were. */
  readonly #kept: [Buffer, string][] = [];

  constructor(frameBytesMax: number, preamble: boolean, stopEvery = 0, loan: Loan = "nothing") {
    this.#stopEvery = stopEvery;
    this.#loan = loan;
    this.parser = new FrameParser(
      {
        frame: (kind, id, input) => {
          const body = input.raw(input.left);
          const hex = body.toString("hex");
          this.frames.push([kind, id, hex]);
          if (loan !== "everything") this.#kept.push([body, hex]);
          return this.#stopEvery === 0 || this.frames.length % this.#stopEvery !== 0;
        },
      },
      frameBytesMax,
      preamble,
      loan,
    );
  }

  /** Bodies are as they were, unless they were lent. */
  check(): void {
    for (const [body, hex] of this.#kept) equal(body.toString("hex"), hex);
  }

  push(piece: Buffer): void {
    if (this.error !== undefined) return;
    try {
      if (this.#loan !== "nothing") {
        const loan = Buffer.from(piece);
        this.parser.push(loan);
        loan.fill(0xdd);
      } else {
        this.parser.push(piece);
      }
      if (this.#stopEvery > 0) for (let round = 0; round < piece.length; round++) this.parser.resume();
    } catch (error) {
      this.error = error;
    }
  }

  get code(): string | undefined {
    return isVarveError(this.error) ? this.error.code : undefined;
  }
}

function stream(random: Seeded, frames: number, largest = 5000): Buffer {
  const output = new Output(1024 * 1024);
  const pieces: Buffer[] = [PREAMBLE];
  for (let index = 0; index < frames; index++) {
    output.begin(random.between(0, 255), random.between(0, 1_000_000));
    const most = random.chance(0.1) ? (random.chance(0.2) ? largest : 5000) : 60;
    output.raw(Buffer.alloc(random.between(0, most), index));
    pieces.push(output.endFrame());
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

test("the same holds where the pieces are lent, of frames that are put together in shared buffers too", () => {
  const random = new Seeded(seedOr(6003));
  for (let round = 0; round < 20; round++) {
    const bytes = stream(random, random.between(1, 60), 2 * LARGE_BYTES);
    const whole = new Collected(4 * LARGE_BYTES, true);
    whole.push(bytes);
    const parsers = [0, 1, 3].flatMap((stopEvery) =>
      (["pieces", "everything"] as const).map((loan) => new Collected(4 * LARGE_BYTES, true, stopEvery, loan)),
    );
    // All at the same time: each has its own frame half put together.
    for (const piece of cut(random, bytes, 100_000)) for (const parser of parsers) parser.push(piece);
    for (const parser of parsers) {
      deepStrictEqual(parser.frames, whole.frames);
      equal(parser.code, undefined);
      parser.check();
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

test("few parsers at a time have more memory than what has arrived, and those that end make room for others", () => {
  const head = Buffer.alloc(FRAME_HEAD_BYTES);
  head.writeUInt32LE(LARGE_BYTES - FRAME_HEAD_BYTES);
  const begun = (count: number) => {
    const parsers = Array.from({ length: count }, () => new Collected(LARGE_BYTES, false, 0, "everything").parser);
    for (const parser of parsers) parser.push(head);
    const large = parsers.filter(({ heldBytes }) => heldBytes > 64);
    return { parsers, large: large.length };
  };
  const first = begun(1000);
  ok(first.large > 0 && first.large <= 64, `${first.large} of 1000`);
  equal(begun(10).large, 0);
  for (const parser of first.parsers) parser.end();
  for (const parser of first.parsers) equal(parser.heldBytes, 0);
  const second = begun(1000);
  equal(second.large, first.large);
  for (const parser of second.parsers) parser.end();
});

test("a handler that fails, or ends its own parser, takes no shared buffer with it", () => {
  const frame = Buffer.alloc(100_000);
  frame.writeUInt32LE(frame.length - 4);
  for (let round = 0; round < 100; round++) {
    const parser: FrameParser = new FrameParser(
      {
        frame: () => {
          if (round % 2 === 0) throw new Error("no");
          parser.end();
          return true;
        },
      },
      LARGE_BYTES,
      false,
      "everything",
    );
    parser.push(frame.subarray(0, 50_000));
    ok(parser.heldBytes > 100_000, `round ${round}: a shared one`);
    try {
      parser.push(Buffer.concat([frame.subarray(50_000), frame.subarray(0, 5)]));
    } catch (error) {
      equal((error as Error).message, "no");
    }
    if (round % 2 === 1) equal(parser.heldBytes, 0);
  }
});

test("frames are the same whether their size was expected or not, and those that are not ended leave nothing", () => {
  const random = new Seeded(seedOr(6004));
  for (let round = 0; round < 100; round++) {
    const [expecting, plain] = [new Output(3 * LARGE_BYTES), new Output(3 * LARGE_BYTES)];
    const kept: Buffer[] = [];
    for (let index = 0; index < 30; index++) {
      const body = Buffer.alloc(random.between(0, random.chance(0.3) ? 2 * LARGE_BYTES : 200), index + 1);
      const isEnded = !random.chance(0.2);
      for (const output of [expecting, plain]) {
        output.begin(index, index);
        output.u32(index);
        // Too little is no more than a waste.
        if (output === expecting) output.expect(random.chance(0.9) ? body.length : body.length >>> 1);
        output.raw(body);
        if (isEnded) output.end();
      }
      if (random.chance(0.7)) continue;
      equal(expecting.bytes, plain.bytes);
      kept.push(Buffer.concat(expecting.take()));
      ok(kept.at(-1)!.equals(Buffer.concat(plain.take())));
    }
  }
});

test("a buffer is used again once it is given back, and not before", () => {
  const [first, second] = [takeLarge(), takeLarge()];
  ok(first.buffer !== second.buffer);
  giveLarge(first.subarray(10, 20));
  giveLarge(first);
  const [again, other] = [takeLarge(), takeLarge()];
  equal(again.buffer, first.buffer);
  ok(other.buffer !== first.buffer && other.buffer !== second.buffer);
  giveLarge(Buffer.alloc(10));
  for (const buffer of [second, again, other]) giveLarge(buffer);
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

test("memory whose frames are sent is used again, and that of a large one is given up", () => {
  const output = new Output(LARGE_BYTES);
  const memoryOf = (bytes: number) => {
    output.begin(Kind.Ok, 1);
    output.raw(Buffer.alloc(bytes));
    output.end();
    const [piece] = output.take();
    return { memory: piece!.buffer, at: piece!.byteOffset };
  };
  const first = memoryOf(10);
  ok(memoryOf(10).memory === first.memory, "behind the one before");
  output.startOver();
  const again = memoryOf(10);
  ok(again.memory === first.memory && again.at === first.at);
  output.startOver();
  ok(memoryOf(200_000).memory.byteLength > 200_000);
  output.startOver();
  ok(memoryOf(10).memory.byteLength <= 64 * 1024);
  output.begin(Kind.Ok, 2);
  output.raw(Buffer.from("kept"));
  output.end();
  output.startOver();
  equal(output.take()[0]!.subarray(-4).toString(), "kept", "what has not been taken stays");
});

test("readers of bodies take any bytes: something comes of them, or ERR_PROTOCOL", () => {
  const random = new Seeded(seedOr(6002));
  const readers = [readValue, readMessages, readTasks, readRecords, readTokens, readTerms];
  const output = new Output(1024 * 1024);
  output.begin(1, 1);
  writeValue(output, [1, "text", { a: [new Date(0), 1n, Buffer.from("x"), new Error("no")] }, [[[[]]]]]);
  const good = output.endFrame().subarray(FRAME_HEAD_BYTES);
  let refused = 0;
  for (let round = 0; round < 20_000; round++) {
    const bytes = random.chance(0.5) ? Buffer.from(good) : Buffer.alloc(random.between(0, 80));
    const changes = bytes.length === 0 ? 0 : random.between(1, 8);
    for (let change = 0; change < changes; change++) {
      bytes[random.between(0, bytes.length - 1)] = random.chance(0.3) ? 255 : random.between(0, 20);
    }
    for (const read of [...readers, readHello]) {
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
  const read = readValue(new Input(output.endFrame().subarray(FRAME_HEAD_BYTES))) as Record<string, unknown>;
  deepStrictEqual(read, value);
  equal(({} as { polluted?: boolean }).polluted, undefined);
  equal(Object.getPrototypeOf(read), Object.prototype);
});
