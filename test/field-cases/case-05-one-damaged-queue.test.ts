import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { isVarveError, type MessageQueue, open, repairDirectory, type Task, verifyDirectory } from "../../src/index.js";
import { copyDirectory, filesBelow, fingerprint, removeDirectory, withDirectory } from "../support/directories.js";
import { labelled, rejectsWith } from "../support/expect.js";
import { scaled } from "../support/scale.js";
import { seedOr, withSeed } from "../support/seeded.js";
import { deadOf, takeAll, textsOf } from "../support/state.js";

const OPTIONS = { walFileBytes: "512KiB", segmentBytes: "64KiB" } as const;
const QUEUES = ["log/one", "log/two", "task/one", "task/two"] as const;
type QueueId = (typeof QUEUES)[number];

async function fill(directory: string): Promise<void> {
  const mq = await open(directory, OPTIONS);
  for (const queue of QUEUES) {
    const name = basename(queue);
    if (queue.startsWith("log/")) {
      const log = await mq.openLog(name);
      for (let index = 0; index < 100; index++) await log.append(`${index} ${"x".repeat(1500)}`);
    } else {
      const jobs = await mq.openTask(name, { lease: "24h", maxAttempts: 1 });
      for (let index = 0; index < 100; index++) await jobs.enqueue(`${index} ${"x".repeat(1500)}`);
      const tasks = await jobs.dequeueBatch({ max: 30 });
      for (const task of tasks.slice(0, 20)) await jobs.nack(task, { error: "no" });
    }
  }
  await mq.close();
}

/** A full cycle of what a queue is for. */
async function drive(mq: MessageQueue, queue: QueueId): Promise<void> {
  const name = basename(queue);
  if (queue.startsWith("log/")) {
    const log = await mq.openLog(name);
    assert.equal((await textsOf(log)).length, 100);
    const offset = await log.append("more");
    assert.equal((await log.read(offset))?.payload.toString(), "more");
  } else {
    const jobs = await mq.openTask(name);
    const { id } = await jobs.enqueue("more");
    const tasks = await takeAll(jobs);
    assert.equal(tasks.length, 71);
    assert.equal(tasks.at(-1)?.id, id);
    await jobs.nack(tasks[0] as Task);
    await jobs.ackBatch(tasks.slice(1));
    assert.equal((await deadOf(jobs)).length, 21);
  }
}

void test("case 5: damage in one queue's files stays in that queue", async () => {
  await withDirectory(async (parent) => {
    const pristine = join(parent, "pristine");
    await fill(pristine);
    const own = filesBelow(pristine).filter(
      (path) => path.endsWith(".seg") && QUEUES.some((queue) => belongs(path, queue)),
    );
    const damages = own.filter((path) => belongs(path, "log/one") || belongs(path, "task/two"));
    assert.ok(damages.length >= 3 && damages.some((path) => path.includes("dead")), damages.join(" "));
    for (const path of damages) {
      for (const part of ["header", "all"] as const) {
        const where = `${path}, ${part} overwritten`;
        const directory = join(parent, "trial");
        copyDirectory(pristine, directory);
        overwrite(join(directory, path), part === "header" ? 64 : Number.POSITIVE_INFINITY);
        const victim = QUEUES.find((queue) => belongs(path, queue)) as QueueId;
        await labelled(
          () => where,
          async () => {
            const mq = await open(directory, OPTIONS);
            const error = await errorOf(use(mq, victim));
            if (error !== undefined) {
              assert.ok(isVarveError(error, "ERR_CORRUPT"), String(error));
              assert.ok(error.message.includes(basename(path)), `the message names the file: ${error.message}`);
            } else {
              assert.equal(part, "header", "the damage was noticed");
            }
            await theOthersWork(mq, victim);
            await mq.close();
            const again = await open(directory, OPTIONS);
            for (const queue of QUEUES) if (queue !== victim) assert.notEqual(await countOf(again, queue), 0, queue);
            await again.close();
          },
        );
        removeDirectory(directory);
      }
    }
  });
});

void test("case 5: damage in the state of one queue stays in that queue, and is told", async () => {
  await withSeed(seedOr(505), async (random) => {
    await withDirectory(async (parent) => {
      const pristine = join(parent, "pristine");
      await fill(pristine);
      const snapshots = filesBelow(pristine).filter((path) => path.endsWith(".snap"));
      let contained = 0;
      for (let trial = 0; trial < scaled(50); trial++) {
        const path = random.pick(snapshots);
        const directory = join(parent, "trial");
        copyDirectory(pristine, directory);
        const bytes = readFileSync(join(directory, path));
        const position = random.below(bytes.length);
        bytes[position]! ^= 1 << random.below(8);
        writeFileSync(join(directory, path), bytes);
        await labelled(
          () => `${path}, byte ${position} of ${bytes.length}`,
          async () => {
            const before = fingerprint(directory);
            let mq: MessageQueue;
            try {
              mq = await open(directory, OPTIONS);
            } catch (error) {
              // What all queues share cannot be done without: refused as a whole, and nothing touched.
              assert.ok(isVarveError(error, "ERR_CORRUPT"), String(error));
              assert.match(error.message, /snap/);
              const after = fingerprint(directory, (file) => !file.startsWith("LOCK"));
              for (const [file, print] of Object.entries(after))
                assert.equal(print, before[file], `${file} was changed`);
              return;
            }
            const damaged = (await mq.queues()).filter((info) => info.damaged !== undefined);
            assert.equal((await mq.queues()).length, QUEUES.length);
            assert.equal((await mq.stats()).queues.damaged, damaged.length);
            assert.equal(damaged.length, 1, "one queue is damaged, and no other");
            const victim = `${damaged[0]?.kind}/${damaged[0]?.name}` as QueueId;
            await rejectsWith("ERR_CORRUPT", use(mq, victim), /damaged/);
            await theOthersWork(mq, victim);
            await mq.close();
            const again = await open(directory, OPTIONS);
            assert.equal((await again.stats()).queues.damaged, 1, "a reopen does not hide it");
            await rejectsWith("ERR_CORRUPT", use(again, victim));
            await again.close();
            contained++;
          },
        );
        removeDirectory(directory);
      }
      assert.ok(contained > 5, `${contained} trials hit the state of a queue`);
    });
  });
});

void test("case 5: once repaired, a damaged queue opens in the same process, with all that is undamaged", async () => {
  await withDirectory(async (parent) => {
    const pristine = join(parent, "pristine");
    await fill(pristine);
    const victims = filesBelow(pristine).filter(
      (path) => path.endsWith(".seg") && (belongs(path, "log/one") || belongs(path, "task/two")),
    );
    for (const [index, path] of victims.entries()) {
      const victim = QUEUES.find((queue) => belongs(path, queue)) as QueueId;
      const directory = join(parent, `trial-${index}`);
      copyDirectory(pristine, directory);
      const bytes = readFileSync(join(directory, path));
      bytes[Math.floor(bytes.length / 2)]! ^= 1;
      writeFileSync(join(directory, path), bytes);
      await labelled(
        () => path,
        async () => {
          const damaged = await open(directory, OPTIONS);
          await rejectsWith("ERR_CORRUPT", use(damaged, victim));
          await damaged.close();
          const report = await repairDirectory(directory);
          assert.ok(report.losses.length > 0);
          const lost = report.losses.reduce((sum, { offsets }) => sum + (offsets ? offsets[1] - offsets[0] + 1 : 0), 0);
          assert.ok(report.losses.every(({ queue }) => queue === victim || queue === `${victim}/dead`));
          const mq = await open(directory, OPTIONS);
          assert.equal((await mq.stats()).queues.damaged, 0);
          for (const queue of QUEUES) if (queue !== victim) await drive(mq, queue);
          assert.equal(await held(mq, victim), 100 - lost, "what is not damaged is there");
          const name = basename(victim);
          if (victim.startsWith("log/")) await (await mq.openLog(name)).append("more");
          else await (await mq.openTask(name)).enqueue("more");
          assert.equal(await held(mq, victim), 101 - lost);
          await use(mq, victim);
          await mq.close();
          assert.ok((await verifyDirectory(directory)).ok);
        },
      );
    }
  });
});

async function held(mq: MessageQueue, queue: QueueId): Promise<number> {
  const name = basename(queue);
  if (queue.startsWith("log/")) return (await (await mq.openLog(name)).stats()).count;
  const { ready, scheduled, leased, dead } = await (await mq.openTask(name)).stats();
  return ready + scheduled + leased + dead;
}

async function theOthersWork(mq: MessageQueue, victim: QueueId): Promise<void> {
  for (const queue of QUEUES) if (queue !== victim) await drive(mq, queue);
  const listed = (await mq.queues()).map(({ kind, name }) => `${kind}/${name}`);
  assert.deepEqual(listed, [...QUEUES].sort(), "all four are listed");
  assert.equal((await mq.stats()).health, "ok");
}

function belongs(path: string, queue: QueueId): boolean {
  return path.startsWith(`${queue}/`);
}

function overwrite(path: string, bytesMax: number): void {
  const bytes = readFileSync(path);
  writeFileSync(path, bytes.fill(0xa5, 0, Math.min(bytesMax, bytes.length)));
}

async function errorOf(call: Promise<unknown>): Promise<unknown> {
  try {
    await call;
    return undefined;
  } catch (error) {
    return error;
  }
}

/** Reads everything that a queue's files hold. */
async function use(mq: MessageQueue, queue: QueueId): Promise<void> {
  const name = basename(queue);
  if (queue.startsWith("log/")) {
    await textsOf(await mq.openLog(name));
  } else {
    const jobs = await mq.openTask(name);
    await deadOf(jobs);
    await takeAll(jobs);
  }
}

async function countOf(mq: MessageQueue, queue: QueueId): Promise<number> {
  const name = basename(queue);
  if (queue.startsWith("log/")) return (await (await mq.openLog(name)).stats()).count;
  return (await (await mq.openTask(name)).stats()).dead;
}
