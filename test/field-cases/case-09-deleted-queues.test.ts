import assert from "node:assert/strict";
import { test } from "node:test";
import { inspectDirectory } from "../../src/engine/inspect.js";
import type { MessageQueue, Task } from "../../src/index.js";
import { inspector } from "../../src/queues/inspect.js";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { beforehand } from "../support/beforehand.js";
import { codeOf } from "../support/expect.js";
import { cutAtEveryCall, Simulated, TINY } from "../support/simulated.js";
import { recordsOf, textsOf } from "../support/state.js";

const DIRECTORY = "/srv/data";
const OLD = 50;
const NEW = 30;
/** More small queues than each get a segment of their own. */
const SMALL = 20;

/** Queues with segments of their own, with shared ones, and with what so far stands only in the log. */
async function prepared(): Promise<{ base: Simulated; token: string }> {
  const machine = Simulated.boot(929);
  const run = <T>(promise: Promise<T>): Promise<T> => machine.settle(promise);
  const mq = await machine.open();
  const log = await run(mq.openLog("events"));
  const jobs = await run(mq.openTask("jobs", { maxAttempts: 1, lease: "24h" }));
  for (let index = 0; index < OLD; index++) {
    await run(log.append(`old ${index} ${"x".repeat(4000)}`));
    await run(jobs.enqueue(`old ${index} ${"x".repeat(2000)}`));
  }
  await run(log.group("readers"));
  const task = (await run(jobs.dequeue())) as Task;
  await run(jobs.nack((await run(jobs.dequeue())) as Task));
  for (let index = 0; index < SMALL; index++) await run((await run(mq.openLog(`small-${index}`))).append("old"));
  await run(mq.close());
  return { base: machine, token: task.token };
}

async function deleteAll(mq: MessageQueue): Promise<void> {
  for (const [kind, name] of [
    ["log", "events"],
    ["task", "jobs"],
    ["log", "small-3"],
  ] as const) {
    assert.equal(await mq.deleteQueue(kind, name), true);
  }
}

/** Segments of a queue, and the streams that their names say. */
function streamsOf(machine: Simulated, folder: string): Set<string> {
  const found = new Set<string>();
  const visit = (path: string): void => {
    let names: string[];
    try {
      names = machine.disk.list(path);
    } catch {
      return;
    }
    for (const name of names) {
      const stream = /^\d{20}-s(\d+)/.exec(name)?.[1];
      if (stream !== undefined) found.add(stream);
      else visit(`${path}/${name}`);
    }
  };
  visit(`${DIRECTORY}/${folder}`);
  return found;
}

async function isSound(machine: Simulated): Promise<void> {
  const { problems } = await machine.settle(inspectDirectory(machine.disk, DIRECTORY, inspector));
  assert.deepEqual(problems, []);
}

async function checkLog(mq: MessageQueue, machine: Simulated): Promise<boolean> {
  const log = await machine.settle(mq.openLog("events"));
  const texts = (await machine.settle(textsOf(log))).map((text) => text.split(" ").slice(0, 2).join(" "));
  const isOld = texts[0]?.startsWith("old") === true;
  const word = isOld ? "old" : "new";
  assert.deepEqual(
    texts,
    Array.from({ length: isOld ? OLD : texts.length }, (_, index) => `${word} ${index}`),
    "one queue or the other, never both",
  );
  assert.equal((await machine.settle(log.groups())).length, isOld ? 1 : 0);
  assert.equal(await machine.settle(log.append("behind")), texts.length);
  return isOld;
}

const goneOrUntouched = await beforehand(async () => {
  const { base, token } = await prepared();
  const trials = await cutAtEveryCall(
    base,
    CRASH_POLICIES,
    async (mq) => {
      await deleteAll(mq);
      await mq.close();
    },
    async ({ mq, machine, acknowledged }) => {
      const infos = await machine.settle(mq.queues());
      const gone = (name: string) => !infos.some((info) => info.name === name);
      if (acknowledged) assert.equal(infos.length, SMALL - 1, "done");
      assert.ok(gone("events") || !gone("small-3") || gone("jobs"), "in the order of the calls");
      if (gone("small-3")) assert.ok(gone("jobs") && gone("events"));
      assert.equal(await checkLog(mq, machine), !gone("events"));
      const jobs = await machine.settle(mq.openTask("jobs"));
      const { ready, leased, dead } = await machine.settle(jobs.stats());
      assert.deepEqual([ready, leased, dead], gone("jobs") ? [0, 0, 0] : [OLD - 2, 1, 1]);
      assert.equal(await machine.settle(codeOf(jobs.ack(token))), gone("jobs") ? "ERR_TOKEN" : undefined);
      const small = await machine.settle(mq.openLog("small-3"));
      assert.equal((await machine.settle(recordsOf(small))).length, gone("small-3") ? 0 : 1);
      await machine.settle(mq.close());
      await isSound(machine);
    },
    TINY,
    isSound,
  );
  assert.ok(trials > CRASH_POLICIES.length, `${trials} trials`);
});

const sharesNothing = await beforehand(async () => {
  const { base } = await prepared();
  const trials = await cutAtEveryCall(
    base,
    CRASH_POLICIES,
    async (mq) => {
      await deleteAll(mq);
      const log = await mq.openLog("events");
      // Enough for checkpoints while the files of the one before are on their way out.
      for (let index = 0; index < NEW; index++) await log.append(`new ${index} ${"y".repeat(12_000)}`);
      await mq.close();
    },
    async ({ mq, machine, acknowledged }) => {
      const isOld = await checkLog(mq, machine);
      const log = await machine.settle(mq.openLog("events"));
      const { next } = await machine.settle(log.stats());
      if (acknowledged) assert.ok(!isOld && next === NEW + 1, "done");
      await machine.settle(mq.close());
      await isSound(machine);
      const again = await machine.open();
      await machine.settle(again.deleteQueue("log", "events"));
      await machine.settle(again.close());
      await isSound(machine);
      assert.deepEqual([...streamsOf(machine, "log/events")], [], "nothing is left of either");
      assert.ok(!machine.disk.list(`${DIRECTORY}/log`).includes("events"), "nor is the folder");
    },
    TINY,
    isSound,
  );
  assert.ok(trials > CRASH_POLICIES.length, `${trials} trials`);
});

void test("case 9: a deleted queue is gone, or untouched, wherever the power fails", goneOrUntouched);
void test("case 9: a queue made again shares nothing with its former self, wherever the power fails", sharesNothing);
