/** Calls that put something into one queue in one turn, whoever makes them: made together, and each answered as if it had been alone. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Input } from "../../src/wire/input.js";
import { writeMessage } from "../../src/wire/layouts.js";
import { Methods } from "../../src/wire/methods.js";
import { eventually } from "../support/expect.js";
import { textsOf } from "../support/state.js";
import { type Answer, codeOf, type RawNative, type TestNative, withNative } from "./raw-native.js";

const LOG = 1;
const TASKS = 2;

/** A client with a log and a task queue open. */
async function entered({ connect }: TestNative, limits?: object): Promise<RawNative> {
  const client = await connect();
  await client.enter();
  const options = limits === undefined ? undefined : { limits };
  await client.call(Methods.openLog, LOG, ["log", options]);
  await client.call(Methods.openTask, TASKS, ["tasks", options]);
  return client;
}

function append(client: RawNative, payload: string, sequence = 0, key?: string): () => Promise<Answer> {
  return () =>
    client.ask(
      Methods.append,
      LOG,
      (output) => {
        output.u8(0);
        writeMessage(output, { payload, key, headers: undefined });
      },
      [undefined, sequence],
    );
}

function enqueue(client: RawNative, payload: string, sequence = 0): () => Promise<Answer> {
  return () =>
    client.ask(
      Methods.enqueue,
      TASKS,
      (output) => {
        output.u16(0);
        writeMessage(output, { payload, key: undefined, headers: undefined });
      },
      [undefined, sequence],
    );
}

/** Sends calls in one write. */
async function together(client: RawNative, calls: readonly (() => Promise<Answer>)[]): Promise<Answer[]> {
  client.socket.cork();
  const answers = calls.map((call) => call());
  client.socket.uncork();
  return await Promise.all(answers);
}

/** Offsets, ids, or codes of errors. */
function told(answers: readonly Answer[]): unknown[] {
  return answers.map((answer) => {
    if ("code" in answer) return answer.code;
    const input = new Input(answer.value);
    if (answer.value.length === 8) return input.u64();
    input.u8();
    return input.ascii();
  });
}

const commits = async ({ mq }: TestNative): Promise<number> => (await mq.stats()).wal.commits;

test("calls that arrive together are one commit, and are answered one by one, also when they are made again", () =>
  withNative({}, async (native) => {
    const client = await entered(native);
    const before = await commits(native);
    const calls = Array.from({ length: 16 }, (_, index) => append(client, `m${index}`, index + 1));
    const offsets = Array.from({ length: 16 }, (_, index) => index);
    assert.deepEqual(told(await together(client, calls)), offsets);
    assert.equal((await commits(native)) - before, 1);
    assert.deepEqual(told(await together(client, calls.slice(3, 9))), offsets.slice(3, 9));
    assert.deepEqual(told([await calls[7]!()]), [offsets[7]]);
    const log = await native.mq.openLog("log");
    assert.deepEqual(
      await textsOf(log),
      offsets.map((_, index) => `m${index}`),
    );
    const tasks = Array.from({ length: 16 }, (_, index) => enqueue(client, `t${index}`, index + 101));
    const ids = told(await together(client, tasks));
    assert.equal(new Set(ids).size, 16);
    assert.deepEqual(told(await together(client, tasks)), ids);
    const queue = await native.mq.openTask("tasks");
    assert.deepEqual(
      (await queue.dequeueBatch({ max: 20 })).map(({ payload }) => `${payload}`),
      tasks.map((_, index) => `t${index}`),
    );
  }));

test("what arrives together is more than is put in at once: each message goes in as it was", () =>
  withNative({}, async (native) => {
    const clients = [await entered(native), await entered(native)];
    // Of the short ones, two thousand arrive in one read; of the others, many that are not copied.
    const size = (index: number) => (index < 4000 ? index % 23 : [1, 4096, 4097, 300, 9000][index % 5]!);
    const messages = clients.map((_, client) =>
      Array.from({ length: 4500 }, (_, index) => `${client}:${index} `.padEnd(size(index), `${index % 10}`)),
    );
    await Promise.all(
      clients.map((client, index) =>
        together(
          client,
          messages[index]!.map((text, at) => append(client, text, at + 1)),
        ),
      ),
    );
    const texts = await textsOf(await native.mq.openLog("log"));
    const sent = messages.map((each, client) => [each, texts.filter((text) => text.startsWith(`${client}:`))]);
    for (const [expected, found] of sent) assert.deepEqual(found, expected);
  }));

test("those of several clients are one commit for each queue, and go to each of them", () =>
  withNative({}, async (native) => {
    const clients: RawNative[] = [];
    for (let index = 0; index < 8; index++) clients.push(await entered(native));
    let so = 0;
    // That all of it arrives in one turn is likely, no more.
    await eventually("a turn in which all of them are made", async () => {
      const before = await commits(native);
      const answers = await Promise.all(
        clients.flatMap((client, index) => [append(client, `m${so + index}`)(), enqueue(client, `t${so + index}`)()]),
      );
      const offsets = told(answers.filter((_, index) => index % 2 === 0));
      assert.deepEqual(
        offsets,
        offsets.map((_, index) => so + index),
      );
      const ids = new Set(told(answers.filter((_, index) => index % 2 === 1)));
      assert.equal(ids.size, clients.length);
      so += clients.length;
      return (await commits(native)) - before === 2;
    });
    const log = await native.mq.openLog("log");
    const texts = await textsOf(log);
    assert.deepEqual(
      texts,
      texts.map((_, index) => `m${index}`),
    );
    assert.equal(texts.length, so);
  }));

test("a call that is made twice at once is made once, by one client or by two", () =>
  withNative({}, async (native) => {
    const client = await entered(native);
    const twice = [
      append(client, "a", 1),
      append(client, "b", 5),
      append(client, "b again", 5),
      append(client, "c", 3),
    ];
    assert.deepEqual(told(await together(client, twice)), [0, 1, 1, 2]);
    const producer = Buffer.alloc(16, 7);
    const others = [await entered(native), await entered(native)];
    const answers = others.map((other, index) =>
      other.ask(
        Methods.append,
        LOG,
        (output) => {
          output.u8(0);
          writeMessage(output, { payload: `d${index}`, key: undefined, headers: undefined });
        },
        [producer, 1],
      ),
    );
    assert.deepEqual(told(await Promise.all(answers)), [3, 3]);
    assert.deepEqual(await textsOf(await native.mq.openLog("log")), ["a", "b", "c", "d0"]);
  }));

test("what comes behind them finds them made, and calls without a name are made together as well", () =>
  withNative({}, async (native) => {
    const client = await entered(native);
    const answers = await together(client, [
      append(client, "a"),
      append(client, "b"),
      () => client.call(Methods.purgeLog, LOG, [undefined]),
      append(client, "c"),
      enqueue(client, "d"),
      append(client, "e"),
    ]);
    assert.deepEqual(
      answers.map(codeOf),
      answers.map(() => undefined),
    );
    assert.deepEqual(await textsOf(await native.mq.openLog("log")), ["c", "e"]);
  }));

test("one that is refused does not keep the others out, nor does what ends the connection behind them", () =>
  withNative({ open: { maxMessageBytes: 1024 } }, async (native) => {
    const client = await entered(native);
    const answers = await together(client, [
      append(client, "a", 1),
      append(client, "b".repeat(2000), 2),
      append(client, "c", 3),
    ]);
    assert.deepEqual(told(answers), [0, "ERR_TOO_LARGE", 1]);
    client.socket.cork();
    void append(client, "d", 4)();
    void append(client, "e", 5)();
    client.send(Buffer.from([1, 0, 0, 0, 0]));
    client.socket.uncork();
    await client.toEnd();
    const log = await native.mq.openLog("log");
    await eventually("both are there", async () => (await log.stats()).next === 4);
    assert.deepEqual(await textsOf(log), ["a", "c", "d", "e"]);
  }));

test("a limit of the log's own does not raise that of the directory", () =>
  withNative({ open: { maxMessageBytes: 1024 } }, async (native) => {
    const client = await entered(native);
    await (await native.mq.openLog("log")).configure({ limits: { maxMessageBytes: 4096 } });
    const answers = await together(client, [append(client, "a", 1), append(client, "b".repeat(2000), 2)]);
    assert.deepEqual(told(answers), [0, "ERR_TOO_LARGE"]);
  }));

test("a queue with limits takes as many of them as it has room for", () =>
  withNative({}, async (native) => {
    const client = await entered(native, { maxCount: 2 });
    const answers = await together(
      client,
      ["a", "b", "c", "d"].map((payload, index) => append(client, payload, index + 1)),
    );
    assert.deepEqual(told(answers), [0, 1, "ERR_QUEUE_FULL", "ERR_QUEUE_FULL"]);
  }));

test("those that cannot be one commit go in before what comes behind them", () =>
  withNative({ open: { walFileBytes: 256 * 1024, maxMessageBytes: 8192 } }, async (native) => {
    const client = await entered(native);
    const log = await native.mq.openLog("log");
    const tooLarge = "b".repeat(3000);
    await log.configure({ limits: { maxMessageBytes: 2000 } });
    const mixed = [append(client, "a", 1), append(client, tooLarge, 2), append(client, "c", 3, "with a key")];
    assert.deepEqual(told(await together(client, mixed)), [0, "ERR_TOO_LARGE", 1]);
    assert.deepEqual(await textsOf(log), ["a", "c"]);
    // More than half a log file.
    await log.configure({ limits: { maxMessageBytes: Number.POSITIVE_INFINITY } });
    const many = Array.from({ length: 40 }, (_, index) => append(client, `${index}`.padEnd(4000), index + 4));
    const offsets = told(await together(client, [...many, append(client, "last", 44, "with a key")]));
    assert.deepEqual(
      offsets,
      offsets.map((_, index) => index + 2),
    );
    assert.deepEqual(
      (await textsOf(log)).map((text) => text.trim()),
      ["a", "c", ...many.map((_, index) => `${index}`), "last"],
    );
  }));
