import assert from "node:assert/strict";
import { Seeded, seedOr } from "../support/seeded.js";
import type { Check } from "./suite.js";

export function concurrencyConformance(check: Check): void {
  check("concurrency: 64 producers and 64 consumers, every task exactly once", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { lease: "1h" });
    const perProducer = 40;
    const total = 64 * perProducer;
    const done = new Map<string, number>();
    const enqueued = new Set<string>();
    let finished = 0;
    const producers = Array.from({ length: 64 }, async (_, producer) => {
      for (let index = 0; index < perProducer; index++) {
        const text = `${producer}/${index}`;
        enqueued.add(text);
        if (index % 4 === 0) {
          index++;
          enqueued.add(`${producer}/${index}`);
          await jobs.enqueueBatch([text, `${producer}/${index}`]);
        } else {
          await jobs.enqueue(text);
        }
      }
    });
    const over = new AbortController();
    const consumers = Array.from({ length: 64 }, async (_, consumer) => {
      while (finished < total) {
        const tasks =
          consumer % 2 === 0
            ? await jobs.dequeueBatch({ max: 5, wait: "1h", signal: over.signal })
            : [await jobs.dequeue({ wait: "1h", signal: over.signal })];
        for (const task of tasks) {
          if (task === undefined) continue;
          assert.equal(task.attempt, 1);
          const text = task.payload.toString();
          done.set(text, (done.get(text) ?? 0) + 1);
        }
        const taken = tasks.filter((task) => task !== undefined);
        await jobs.ackBatch(taken);
        finished += taken.length;
        if (finished === total) over.abort();
      }
    });
    await Promise.all([...producers, ...consumers]);
    assert.equal(enqueued.size, total);
    assert.deepEqual([...done.keys()].sort(), [...enqueued].sort());
    assert.ok([...done.values()].every((times) => times === 1));
    const { ready, leased, scheduled, dead, waiters } = await jobs.stats();
    assert.deepEqual(
      { ready, leased, scheduled, dead, waiters },
      { ready: 0, leased: 0, scheduled: 0, dead: 0, waiters: 0 },
    );
  });

  check("concurrency: random acks, nacks and stale tokens leave each task in one place", async ({ mq }) => {
    const random = new Seeded(seedOr(64));
    const jobs = await mq.openTask("jobs", { lease: "1h", maxAttempts: 3, backoff: { initial: 0, jitter: 0 } });
    const total = 500;
    const deliveries = new Map<string, number[]>();
    const settled = new Map<string, "acked" | "dead">();
    await jobs.enqueueBatch(Array.from({ length: total }, (_, index) => `${index}`));
    const over = new AbortController();
    await Promise.all(
      Array.from({ length: 32 }, async () => {
        while (settled.size < total) {
          const task = await jobs.dequeue({ wait: "1h", signal: over.signal });
          if (task === undefined) continue;
          assert.ok(!settled.has(task.id), "a settled task is never delivered again");
          const attempts = deliveries.get(task.id) ?? [];
          attempts.push(task.attempt);
          deliveries.set(task.id, attempts);
          if (random.chance(0.5)) {
            await jobs.ack(task);
            settled.set(task.id, "acked");
          } else {
            if (task.attempt === 3) settled.set(task.id, "dead");
            await jobs.nack(task, { delay: 0 });
          }
          if (random.chance(0.2)) await assert.rejects(jobs.ack(task), { code: "ERR_STALE_LEASE" });
          if (settled.size === total) over.abort();
        }
      }),
    );
    for (const attempts of deliveries.values()) {
      assert.deepEqual(
        attempts,
        attempts.map((_, index) => index + 1),
      );
    }
    const deadIds = [...settled].filter(([, how]) => how === "dead").map(([id]) => id);
    assert.deepEqual((await jobs.dead.read()).map(({ id }) => id).sort(), deadIds.sort());
    assert.equal((await jobs.stats()).dead, deadIds.length);
  });

  check(
    "concurrency: a tail neither misses nor reorders while many append",
    async ({ mq }) => {
      const log = await mq.openLog("events");
      const appenders = 32;
      const perAppender = 50;
      const total = appenders * perAppender;
      const random = new Seeded(seedOr(65));
      const acknowledged = new Map<number, string>();
      const read = async (slow: boolean): Promise<string[]> => {
        const seen: string[] = [];
        for await (const record of log.tail({ from: "start" })) {
          assert.equal(record.offset, seen.length, "the very next offset");
          seen.push(record.payload.toString());
          if (seen.length === total) break;
          if (slow && seen.length % 16 === 0) await new Promise(setImmediate);
        }
        return seen;
      };
      const readers = [read(false), read(true), read(true)];
      await Promise.all(
        Array.from({ length: appenders }, async (_, appender) => {
          for (let index = 0; index < perAppender; ) {
            const size = Math.min(perAppender - index, random.between(1, 4));
            const texts = Array.from({ length: size }, (_, step) => `${appender}/${index + step}`.padEnd(300, "."));
            const offsets = size === 1 ? [await log.append(texts[0] as string)] : await log.appendBatch(texts);
            for (const [step, offset] of offsets.entries()) acknowledged.set(offset, texts[step] as string);
            index += size;
          }
        }),
      );
      assert.equal(acknowledged.size, total, "no offset was given twice");
      for (const seen of await Promise.all(readers)) {
        for (const [offset, text] of seen.entries()) assert.equal(text, acknowledged.get(offset));
        for (let appender = 0; appender < appenders; appender++) {
          const own = seen
            .filter((text) => text.startsWith(`${appender}/`))
            .map((text) => Number.parseInt(text.split("/")[1] as string, 10));
          assert.deepEqual(
            own,
            Array.from({ length: perAppender }, (_, index) => index),
            "each appender's order is kept",
          );
        }
      }
    },
    { segmentBytes: "64KiB", walFileBytes: "1MiB", cacheBytes: "4MiB" },
  );
}
