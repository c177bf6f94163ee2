import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import {
  bytes,
  type Codec,
  isVarveError,
  json,
  type LogQueue,
  type MessageQueue,
  message,
  open,
  type TaskQueue,
  text,
} from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { eventually } from "../support/expect.js";

interface Email {
  readonly to: string;
  readonly cc?: readonly string[];
}

/** Never runs: that it compiles, with exactly these errors, is the test. */
export async function typesAreLinked(mq: MessageQueue): Promise<void> {
  const emails = await mq.openTask("emails", { codec: json<Email>() });
  await emails.enqueue({ to: "ada@example.org" });
  await emails.enqueueBatch([{ to: "ada@example.org", cc: [] }, message({ to: "bob@example.org" }, { key: "k" })]);
  // @ts-expect-error a payload of another type
  await emails.enqueue({ to: 5 });
  // @ts-expect-error a property too few
  await emails.enqueue({});
  // @ts-expect-error text is no email
  await emails.enqueue("ada@example.org");
  // @ts-expect-error a message around another type
  await emails.enqueue(message(5));
  // @ts-expect-error with a codec, only message() carries a key
  await emails.enqueue({ payload: { to: "ada@example.org" }, key: "k" });
  // @ts-expect-error one wrong item
  await emails.enqueueBatch([{ to: "ada@example.org" }, { from: "x" }]);
  const task = await emails.dequeue();
  // @ts-expect-error there may be none
  task.payload;
  if (task !== undefined) {
    const to: string = task.payload.to;
    // @ts-expect-error no such property
    task.payload.subject;
    // @ts-expect-error read-only
    task.payload.to = to;
    await emails.ack(task);
    await emails.ack(task.token);
  }
  const letters = await emails.dead.read();
  // @ts-expect-error may be undecodable
  letters[0]?.payload.to;
  const raw = await mq.openLog("raw");
  await raw.append("text");
  await raw.append(new Uint8Array(1));
  await raw.append({ payload: "text", key: "k", headers: { a: "b" } });
  // @ts-expect-error a number is neither text nor bytes
  await raw.append(5);
  // @ts-expect-error headers are strings
  await raw.append("text", { headers: { a: 1 } });
  const record = await raw.read(0);
  const payload: Buffer | undefined = record?.payload;
  void payload;
  const texts = await mq.openLog("texts", { codec: text() });
  for await (const { payload: line } of texts.tail()) line.toUpperCase();
  await mq.transaction((tx) => {
    tx.enqueue(emails, { to: "ada@example.org" });
    // @ts-expect-error the wrong payload for this queue
    tx.enqueue(emails, "text");
    // @ts-expect-error a log is no task queue
    tx.enqueue(raw, "text");
    // @ts-expect-error a task queue is no log
    tx.append(emails, { to: "ada@example.org" });
    // @ts-expect-error logs have nothing to ack
    tx.ack(raw, "token");
  });
  // @ts-expect-error a log of text is not one of emails
  const wrong: LogQueue<Email, Email> = texts;
  const right: TaskQueue<Email, Email> = emails;
  void [wrong, right];
  // @ts-expect-error no such option
  await mq.openTask("x", { leases: "1s" });
  // @ts-expect-error no such durability
  await raw.append("x", { durability: "maybe" });
}

function withHole(): number[] {
  const array = [1, 2, 3];
  delete array[1];
  return array;
}

const cyclic: { self?: unknown } = {};
cyclic.self = cyclic;

const VALUES: readonly [title: string, value: unknown][] = [
  ["a Date", { at: new Date(0) }],
  ["a Map", new Map([[1, 2]])],
  ["a Set", [new Set([1])]],
  ["a BigInt", { big: 10n }],
  ["undefined", undefined],
  ["undefined inside", { a: undefined }],
  ["a hole", withHole()],
  ["NaN", { n: Number.NaN }],
  ["Infinity", [Number.POSITIVE_INFINITY]],
  ["minus zero", { n: -0 }],
  ["a lone surrogate", "a\ud800b"],
  ["a cycle", cyclic],
  ["a function", { f: () => 1 }],
  ["a symbol", { s: Symbol("s") }],
  [
    "a class instance",
    new (class Point {
      x = 1;
    })(),
  ],
  ["a Buffer", Buffer.from("x")],
  ["a regular expression", /x/],
  ["an error", new Error("x")],
  ["a boxed string", new String("x")],
  ["its own toJSON", { toJSON: () => 5 }],
  ["null", null],
  ["an empty string", ""],
  ["zero", 0],
  ["a megabyte of text", "é漢".repeat(200_000)],
  ["control characters", "\0\u0001\n\u2028\u2029\ufeff"],
  ["a key that looks special", JSON.parse('{"__proto__": {"a": 1}, "constructor": 2}')],
  ["numbers at their limits", [Number.MAX_VALUE, Number.MIN_VALUE, Number.MAX_SAFE_INTEGER, 0.1]],
  ["a deep nest", JSON.parse(`${"[".repeat(500)}${"]".repeat(500)}`)],
];

for (const [title, value] of VALUES) {
  void test(`case 26: json either brings back ${title}, or refuses it and says where`, async () => {
    await withDirectory(async (directory) => {
      const mq = await open(directory);
      const jobs = await mq.openTask("jobs", { codec: json() });
      try {
        await jobs.enqueue(value);
      } catch (error) {
        assert.ok(isVarveError(error, "ERR_ENCODE"), String(error));
        assert.match(error.message, /\$/, "the message names the path");
        assert.equal((await jobs.stats()).ready, 0);
        return;
      } finally {
        if ((await jobs.stats()).ready === 0) await mq.close();
      }
      const back = (await jobs.dequeue())?.payload;
      assert.ok(isDeepStrictEqual(back, value), `${title} came back as something else`);
      await mq.close();
    });
  });
}

void test("case 26: json names the path of what it refuses", async () => {
  const codec = json();
  assert.throws(() => codec.encode({ items: [0, 1, 2, { at: new Date() }] }), {
    code: "ERR_ENCODE",
    message: /\$\.items\[3\]\.at/,
  });
  assert.throws(() => codec.encode({ "odd key": 1n }), { code: "ERR_ENCODE", message: /\$\["odd key"\]/ });
});

void test("case 26: bytes and text come back as they were, whatever they are", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    const raw = await mq.openTask("raw", { codec: bytes() });
    const all = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
    await raw.enqueueBatch([all, new Uint8Array(all.buffer, all.byteOffset + 10, 20), ""]);
    const [first, second, third] = await raw.dequeueBatch({ max: 3 });
    assert.deepEqual(first?.payload, all);
    assert.deepEqual(second?.payload, all.subarray(10, 30));
    assert.equal(third?.payload.length, 0);
    const texts = await mq.openTask("texts", { codec: text() });
    const lines = ["", "\0", "größe 漢字 🎈", "\ufeffbom", "a\r\nb"];
    await texts.enqueueBatch(lines);
    assert.deepEqual(
      (await texts.dequeueBatch({ max: 9 })).map(({ payload }) => payload),
      lines,
    );
    await mq.close();
  });
});

void test("case 26: a task that cannot be decoded dies with its reason; the bytes stay, the others go on", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    const raw = await mq.openTask("jobs");
    await raw.enqueue('"before"');
    const { id } = await raw.enqueue(Buffer.from([0xff, 0xfe]));
    await raw.enqueue('"after"');
    const jobs = await mq.openTask("jobs", { codec: json<string>() });
    const tasks = await jobs.dequeueBatch({ max: 3 });
    assert.deepEqual(
      tasks.map(({ payload }) => payload),
      ["before", "after"],
    );
    await eventually("the bad one dies", async () => (await jobs.dead.read()).length > 0);
    const letters = await jobs.dead.read();
    assert.equal(letters.length, 1);
    assert.equal(letters[0]?.id, id);
    assert.equal(letters[0]?.payload, undefined);
    assert.deepEqual(letters[0]?.raw, Buffer.from([0xff, 0xfe]));
    assert.match(letters[0]?.reason ?? "", /decode|UTF-8/i);
    await mq.close();
  });
});

void test("case 26: a codec of one's own that throws harms only its own message", async () => {
  await withDirectory(async (directory) => {
    const fussy: Codec<string> = {
      name: "fussy",
      encode: (value) => {
        if (value === "bad") throw new RangeError("I do not like it");
        return value;
      },
      decode: (stored) => {
        if (stored.toString() === "sour") throw new RangeError("nor that");
        return stored.toString();
      },
    };
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs", { codec: fussy });
    await assert.rejects(jobs.enqueueBatch(["good", "bad"]), (error) => {
      assert.ok(isVarveError(error, "ERR_ENCODE"), String(error));
      assert.ok(error.cause instanceof RangeError);
      return true;
    });
    await jobs.enqueueBatch(["sour", "good"]);
    assert.equal((await jobs.dequeue())?.payload, "good");
    await eventually("the sour one dies", async () => (await jobs.dead.read()).length > 0);
    const [letter] = await jobs.dead.read();
    assert.match(letter?.reason ?? "", /nor that/);
    await mq.close();
  });
});
