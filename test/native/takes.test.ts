/** Calls that take tasks in one turn, whoever makes them: given what there is together, and each answered as if it had been alone. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Kind } from "../../src/wire/frame.js";
import { Input } from "../../src/wire/input.js";
import { readTasks, writeTokens } from "../../src/wire/layouts.js";
import { Methods } from "../../src/wire/methods.js";
import { writeName } from "../../src/wire/name.js";
import { eventually } from "../support/expect.js";
import { type Answer, codeOf, type RawNative, type TestNative, withNative } from "./raw-native.js";

const LOG = 1;
const TASKS = 2;
const GROUP = 3;
const AUTO_ACK = 4;
const LEASE = 8;
const HOUR_MS = 3_600_000;

/** A client with a task queue and a shared group of a log open. */
async function entered({ connect }: TestNative): Promise<RawNative> {
  const client = await connect();
  await client.enter();
  await client.call(Methods.openLog, LOG, ["log"]);
  await client.call(Methods.sharedGroup, LOG, [GROUP, "readers", undefined]);
  await client.call(Methods.openTask, TASKS, ["tasks"]);
  return client;
}

interface Terms {
  readonly handle?: number;
  readonly max?: number;
  readonly waitMs?: number;
  readonly leased?: boolean;
  readonly leaseMs?: number;
  readonly sequence?: number;
}

let lastId = 1_000_000;

/** A frame, and its request id. */
function dequeue(client: RawNative, terms: Terms = {}): { readonly id: number; readonly frame: Buffer } {
  const { handle = TASKS, max = 1, waitMs = 0, leased = false, leaseMs, sequence = 0 } = terms;
  const id = ++lastId;
  const frame = client.frame(Methods.dequeue.opcode, id, (output) => {
    output.u32(handle);
    output.f64(waitMs);
    writeName(output, undefined, sequence, 0);
    output.u64(0);
    output.u8((leased ? 0 : AUTO_ACK) | (leaseMs === undefined ? 0 : LEASE));
    output.u32(max);
    if (leaseMs !== undefined) output.f64(leaseMs);
  });
  return { id, frame };
}

/** Sends calls in one write. */
function ask(client: RawNative, calls: readonly { readonly id: number; readonly frame: Buffer }[]): Promise<Answer>[] {
  client.send(Buffer.concat(calls.map(({ frame }) => frame)));
  return calls.map(({ id }) => client.answer(id));
}

/** What the tasks of an answer hold, or the code of an error. */
function held(answer: Answer): unknown {
  const code = codeOf(answer);
  if (code !== undefined) return code;
  return tasksOf(answer).map(({ payload }) => `${payload}`);
}

function tasksOf(answer: Answer) {
  assert.ok("value" in answer);
  return readTasks(new Input(answer.value));
}

const texts = (count: number, from = 0) => Array.from({ length: count }, (_, index) => `${from + index}`);
const commits = async ({ mq }: TestNative): Promise<number> => (await mq.stats()).wal.commits;

test("calls that arrive together are one commit, and each has what its place in the line gives it", () =>
  withNative({}, async (native) => {
    const client = await entered(native);
    const tasks = await native.mq.openTask("tasks");
    const log = await native.mq.openLog("log");
    await tasks.enqueueBatch(texts(10));
    await log.appendBatch(texts(10));
    for (const handle of [TASKS, GROUP]) {
      const before = await commits(native);
      const wanted = [1, 1, 3, 1, 2, 5, 1];
      const calls = wanted.map((max) => dequeue(client, { handle, max }));
      const answers = await Promise.all(ask(client, calls));
      assert.deepEqual(answers.map(held), [["0"], ["1"], ["2", "3", "4"], ["5"], ["6", "7"], ["8", "9"], []]);
      assert.equal((await commits(native)) - before, 1);
      assert.ok(
        answers.every((answer) => tasksOf(answer).every(({ token, attempt }) => token === "" && attempt === 1)),
      );
    }
    assert.equal((await tasks.stats()).acked, 10);
    assert.equal(await tasks.dequeue(), undefined);
  }));

test("those of several clients are one commit for each queue, and no task is given twice", () =>
  withNative({}, async (native) => {
    const clients: RawNative[] = [];
    for (let index = 0; index < 6; index++) clients.push(await entered(native));
    const tasks = await native.mq.openTask("tasks");
    const log = await native.mq.openLog("log");
    let so = 0;
    // That all of it arrives in one turn is likely, no more.
    await eventually("a turn in which all of them are made", async () => {
      const before = texts(18, so);
      await tasks.enqueueBatch(before);
      await log.appendBatch(before);
      const commitsBefore = await commits(native);
      const answers = clients.map((client) => {
        return ask(
          client,
          [GROUP, TASKS, GROUP, TASKS, GROUP, TASKS].map((handle) => dequeue(client, { handle })),
        );
      });
      const given = (await Promise.all(answers.flat())).map(held) as string[][];
      for (const of of [0, 1]) {
        const own = given.filter((_, index) => index % 2 === of).flat();
        assert.deepEqual(own.toSorted(), before.toSorted());
        // What a client asks for first is in front of what it asks for next.
        for (let at = 0; at < own.length; at += 3) {
          assert.deepEqual(
            own.slice(at, at + 3),
            own.slice(at, at + 3).toSorted((a, b) => Number(a) - Number(b)),
          );
        }
      }
      so += 18;
      return (await commits(native)) - commitsBefore === 2;
    });
  }));

test("leases: each call has its own, of the length that it asks for, and what did not arrive is given back", () =>
  withNative({}, async (native) => {
    const client = await entered(native);
    const tasks = await native.mq.openTask("tasks");
    await tasks.enqueueBatch(texts(6));
    const terms = { leased: true };
    const calls = [
      dequeue(client, terms),
      dequeue(client, { ...terms, max: 2 }),
      dequeue(client, { ...terms, leaseMs: 0 }),
      dequeue(client, { ...terms, leaseMs: 0, max: 5 }),
    ];
    const given = await Promise.all(ask(client, calls));
    assert.deepEqual(given.map(held), [["0"], ["1", "2"], ["3"], ["4", "5"]]);
    const tokens = given.flatMap((answer) => tasksOf(answer).map(({ token }) => token));
    assert.equal(new Set(tokens).size, 6);
    const acked = await client.ask(Methods.ack, TASKS, (output) => {
      output.u8(0);
      writeTokens(output, [tokens[1]!, tokens[4]!]);
    });
    assert.equal(codeOf(acked), undefined);
    assert.equal((await tasks.stats()).leased, 4);
    // What is held for the session ends with it.
    await client.leave();
    await eventually("what the session held is back", async () => (await tasks.stats()).leased === 2);
    assert.deepEqual(
      (await tasks.dequeueBatch({ max: 9 })).map(({ payload }) => `${payload}`),
      ["3", "5"],
    );
  }));

test("what comes behind them finds them made: a look at what is next, a cancel, a call with a name", () =>
  withNative({}, async (native) => {
    const client = await entered(native);
    const tasks = await native.mq.openTask("tasks");
    await tasks.enqueueBatch(texts(4));
    const take = dequeue(client);
    client.socket.cork();
    const [first] = ask(client, [take]);
    const next = client.ask(Methods.peek, TASKS, (output) => output.raw(Buffer.from([10, 0, 0, 0, 0])));
    client.socket.uncork();
    assert.deepEqual(held(await first!), ["0"]);
    const seen = await next;
    assert.ok("value" in seen && seen.value.includes("payload"), codeOf(seen));
    assert.ok(seen.value.includes(Buffer.from([7, 1, 0, 0, 0, 49])), "the second task is the next one");

    const name = { leased: true, sequence: 7 };
    const named = [dequeue(client), dequeue(client, name), dequeue(client), dequeue(client, name)];
    assert.deepEqual((await Promise.all(ask(client, named))).map(held), [["1"], ["2"], ["3"], ["2"]]);

    const waiting = dequeue(client, { waitMs: HOUR_MS });
    client.send(Buffer.concat([waiting.frame, client.frame(Kind.Cancel, waiting.id)]));
    assert.deepEqual(held(await client.answer(waiting.id)), []);
    await tasks.enqueue("4");
    assert.equal(`${(await tasks.dequeue())?.payload}`, "4");
  }));

test("who finds nothing waits in its place, behind those who came before, and before those who come later", () =>
  withNative({}, async (native) => {
    const clients = [await entered(native), await entered(native)] as const;
    const tasks = await native.mq.openTask("tasks");
    const early = ask(clients[0], [dequeue(clients[0], { waitMs: HOUR_MS })]);
    await eventually("it waits", async () => (await tasks.stats()).waiters === 1);
    const wait = { waitMs: HOUR_MS };
    const late = [dequeue(clients[1], wait), dequeue(clients[1]), dequeue(clients[1], wait), dequeue(clients[1], wait)];
    const answers = [...early, ...ask(clients[1], late)];
    assert.deepEqual(held(await answers[2]!), []);
    await eventually("they wait", async () => (await tasks.stats()).waiters === 4);
    await tasks.enqueueBatch(texts(3));
    assert.deepEqual((await Promise.all([0, 1, 3].map((index) => answers[index]!))).map(held), [["0"], ["1"], ["2"]]);
    // Of those that ask for more than there is, the first ones have it at once.
    await tasks.enqueue("3");
    assert.deepEqual(held(await answers[4]!), ["3"]);
    await tasks.enqueue("4");
    const some = ask(clients[1], [dequeue(clients[1], wait), dequeue(clients[1], wait), dequeue(clients[1])]);
    assert.deepEqual(held(await some[0]!), ["4"]);
    assert.deepEqual(held(await some[2]!), []);
    await eventually("the one between them waits", async () => (await tasks.stats()).waiters === 1);
    await tasks.enqueue("5");
    assert.deepEqual(held(await some[1]!), ["5"]);
  }));

test("what the end of the connection comes behind is not taken", () =>
  withNative({}, async (native) => {
    const client = await entered(native);
    const tasks = await native.mq.openTask("tasks");
    await tasks.enqueueBatch(texts(3));
    client.send(Buffer.concat([dequeue(client).frame, dequeue(client).frame, Buffer.from([1, 0, 0, 0])]));
    await client.toEnd();
    assert.equal((await tasks.stats()).ready, 3);
    // Two that wait under one number.
    const other = await entered(native);
    await tasks.purge();
    const waiting = dequeue(other, { waitMs: HOUR_MS });
    other.send(Buffer.concat([waiting.frame, waiting.frame]));
    await other.toEnd();
    await eventually("nobody waits", async () => (await tasks.stats()).waiters === 0);
  }));

test("an error of one is told to it alone, and of a queue that is gone to each", () =>
  withNative({}, async (native) => {
    const client = await entered(native);
    const tasks = await native.mq.openTask("tasks");
    await tasks.enqueueBatch(texts(2));
    const mixed = [dequeue(client), dequeue(client, { handle: 77 }), dequeue(client), dequeue(client, { handle: LOG })];
    assert.deepEqual((await Promise.all(ask(client, mixed))).map(held), [
      ["0"],
      "ERR_NOT_FOUND",
      ["1"],
      "ERR_ARGUMENT",
    ]);
    const none = [
      { max: 0 },
      { max: 65_537 },
      { leaseMs: 1000 },
      { waitMs: 1e12 },
      { leased: true, leaseMs: 1e12 },
      {},
    ];
    const refused = ask(
      client,
      none.map((terms) => dequeue(client, terms)),
    );
    assert.deepEqual((await Promise.all(refused)).map(held), [...Array(5).fill("ERR_OPTION"), []]);
    await native.mq.deleteQueue("task", "tasks");
    const gone = Array.from({ length: 3 }, () => dequeue(client));
    assert.deepEqual((await Promise.all(ask(client, gone))).map(held), Array(3).fill("ERR_NOT_FOUND"));
  }));

test("tasks of every size, with keys, headers and order keys, come as they were put in", () =>
  withNative({}, async (native) => {
    const client = await entered(native);
    const tasks = await native.mq.openTask("tasks");
    const sizes = [0, 1, 127, 128, 129, 2047, 2048, 2049, 16_383, 16_384, 100_000];
    for (const [index, size] of sizes.entries()) {
      const message = { payload: Buffer.alloc(size, index + 1), key: `k${index}`, headers: { of: `${size}` } };
      await tasks.enqueue(message, { orderKey: `o${index}`, ttl: "1h" });
    }
    for (let round = 0; round < 40; round++) await tasks.enqueue(Buffer.alloc(1000, round));
    const count = sizes.length + 40;
    const answers = await Promise.all(
      ask(
        client,
        Array.from({ length: count }, () => dequeue(client)),
      ),
    );
    const given = answers.map((answer) => tasksOf(answer)[0]!);
    for (const [index, size] of sizes.entries()) {
      const { payload, key, headers, orderKey, expiresAt } = given[index]!;
      assert.deepEqual(payload, Buffer.alloc(size, index + 1));
      assert.deepEqual([`${key}`, headers.of, orderKey], [`k${index}`, `${size}`, `o${index}`]);
      assert.ok((expiresAt ?? 0) > 0);
    }
    for (let round = 0; round < 40; round++) {
      const { payload, key, orderKey, expiresAt } = given[sizes.length + round]!;
      assert.deepEqual(
        [payload, key, orderKey, expiresAt],
        [Buffer.alloc(1000, round), undefined, undefined, undefined],
      );
    }
  }));
