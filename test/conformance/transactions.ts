import assert from "node:assert/strict";
import type { Task, Transaction } from "../../src/index.js";
import { message } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf, observe, textsOf } from "../support/state.js";
import type { Check } from "./suite.js";

export function transactionConformance(check: Check): void {
  check("transaction: several operations on several queues take effect together", async ({ mq, reopen }) => {
    const [jobs, other, events] = await Promise.all([mq.openTask("jobs"), mq.openTask("other"), mq.openLog("events")]);
    await jobs.enqueueBatch(["a", "b"]);
    const [a, b] = (await jobs.dequeueBatch({ max: 2 })) as [Task, Task];
    await mq.transaction((tx) => {
      tx.ack(jobs, a);
      tx.nack(jobs, b.token, { delay: "1h", error: "later" });
      tx.append(events, "done a", { key: "a", headers: { by: "tx" } });
      tx.append(events, message("done a again", { key: "a" }));
      tx.enqueue(other, "next", { key: "n" });
      tx.enqueue(other, "much later", { delay: "1h" });
    });
    const verify = async (queue: typeof mq): Promise<void> => {
      assert.deepEqual(countsOf(await (await queue.openTask("jobs")).stats()), {
        ready: 0,
        scheduled: 1,
        leased: 0,
        dead: 0,
      });
      const log = await queue.openLog("events");
      assert.deepEqual(await textsOf(log), ["done a", "done a again"]);
      const record = await log.read(0);
      assert.deepEqual(record?.key, Buffer.from("a"));
      assert.deepEqual({ ...record?.headers }, { by: "tx" });
    };
    await verify(mq);
    assert.deepEqual(countsOf(await other.stats()), { ready: 1, scheduled: 1, leased: 0, dead: 0 });
    const again = await reopen();
    await verify(again);
    const next = await (await again.openTask("other")).dequeue();
    assert.equal(next?.payload.toString(), "next");
    assert.deepEqual(next?.key, Buffer.from("n"));
  });

  check("transaction: buffers may be used again as soon as the call has returned", async ({ mq }) => {
    const [jobs, events] = await Promise.all([mq.openTask("jobs"), mq.openLog("events")]);
    await jobs.enqueue("held");
    const held = (await jobs.dequeue())!;
    const payload = Buffer.from("payload");
    // The rest of a transaction waits while a part looks something up, as a nack does.
    for (const settle of [() => {}, (tx: Transaction) => tx.nack(jobs, held, { delay: "1h" })]) {
      const done = mq.transaction((tx) => {
        tx.append(events, payload);
        tx.enqueue(jobs, payload);
        settle(tx);
      });
      payload.fill("x");
      await done;
      payload.write("payload");
    }
    assert.deepEqual(await textsOf(events), ["payload", "payload"]);
    const tasks = await jobs.dequeueBatch({ max: 10 });
    assert.deepEqual(
      tasks.map((task) => task.payload.toString()),
      ["payload", "payload"],
    );
  });

  check("transaction: one refused operation refuses all, and the error names it", async ({ mq }) => {
    const [jobs, other, events] = await Promise.all([mq.openTask("jobs"), mq.openTask("other"), mq.openLog("events")]);
    await jobs.enqueueBatch(["a", "b"]);
    const [stale, held] = (await jobs.dequeueBatch({ max: 2 })) as [Task, Task];
    await jobs.ack(stale);
    const before = await observe(mq);
    const good = (tx: Transaction): void => {
      tx.append(events, "never");
      tx.enqueue(other, "never");
      tx.ack(jobs, held);
    };
    await rejectsWith(
      "ERR_STALE_LEASE",
      mq.transaction((tx) => {
        good(tx);
        tx.ack(jobs, stale);
        tx.enqueue(jobs, "never");
      }),
      /ack.*jobs|jobs.*ack/s,
    );
    await rejectsWith(
      "ERR_TOKEN",
      mq.transaction((tx) => {
        good(tx);
        tx.nack(other, held);
      }),
      /nack.*other|other.*nack/s,
    );
    await rejectsWith(
      "ERR_STALE_LEASE",
      mq.transaction((tx) => {
        tx.ack(jobs, held);
        tx.append(events, "never");
        tx.ack(jobs, held);
      }),
    );
    assert.deepEqual(await observe(mq), before);
    await jobs.ack(held);
  });

  check(
    "transaction: a message that is too large refuses all",
    async ({ mq }) => {
      const [jobs, events] = await Promise.all([mq.openTask("jobs"), mq.openLog("events")]);
      const before = await observe(mq);
      await rejectsWith(
        "ERR_TOO_LARGE",
        mq.transaction((tx) => {
          tx.enqueue(jobs, "never");
          tx.append(events, Buffer.alloc(5000));
        }),
        /append.*events|events.*append/s,
      );
      assert.deepEqual(await observe(mq), before);
    },
    { maxMessageBytes: 4096 },
  );

  check("transaction: a callback that throws changes nothing and its error comes through", async ({ mq }) => {
    const events = await mq.openLog("events");
    const thrown = new Error("mine");
    await assert.rejects(
      mq.transaction((tx) => {
        tx.append(events, "never");
        throw thrown;
      }),
      (error) => error === thrown,
    );
    assert.equal((await events.stats()).next, 0);
  });

  check("transaction: the callback must be synchronous, and tx is dead after it", async ({ mq }) => {
    const events = await mq.openLog("events");
    let kept: Transaction | undefined;
    await mq.transaction((tx) => {
      kept = tx;
      tx.append(events, "inside");
    });
    await rejectsWith("ERR_ARGUMENT", async () => kept?.append(events, "outside"));
    const asynchronous = async (tx: Transaction): Promise<void> => {
      tx.append(events, "never");
    };
    await rejectsWith("ERR_ARGUMENT", mq.transaction(asynchronous), /synchronous/);
    assert.deepEqual(await textsOf(events), ["inside"]);
  });

  check("transaction: without operations it is no commit", async ({ mq }) => {
    await mq.transaction(() => {});
    await mq.transaction(() => {}, { durability: "async" });
    assert.deepEqual(await mq.queues(), []);
  });

  check("transaction: operations of one queue keep their order", async ({ mq }) => {
    const [jobs, events] = await Promise.all([mq.openTask("jobs"), mq.openLog("events")]);
    await Promise.all([
      events.append("other"),
      mq.transaction((tx) => {
        for (let index = 0; index < 50; index++) {
          tx.append(events, `${index}`);
          tx.enqueue(jobs, `${index}`);
        }
      }),
      events.append("other"),
    ]);
    const numbers = Array.from({ length: 50 }, (_, index) => `${index}`);
    const texts = await textsOf(events);
    const first = texts.indexOf("0");
    assert.deepEqual(texts.slice(first, first + 50), numbers, "nothing comes between them");
    assert.equal(texts.length, 52);
    assert.deepEqual(
      (await jobs.dequeueBatch({ max: 100 })).map(({ payload }) => payload.toString()),
      numbers,
    );
  });

  check("transaction: it wakes tails and long polls", async ({ mq }) => {
    const [jobs, events] = await Promise.all([mq.openTask("jobs"), mq.openLog("events")]);
    const tail = events.tail({ from: "start" })[Symbol.asyncIterator]();
    const record = tail.next();
    const task = jobs.dequeue({ wait: "1h" });
    await mq.transaction((tx) => {
      tx.append(events, "record");
      tx.enqueue(jobs, "task");
    });
    assert.equal((await record).value.payload.toString(), "record");
    assert.equal((await task)?.payload.toString(), "task");
    await tail.return?.();
  });

  check("transaction: a reader never sees one part without the other", async ({ mq }) => {
    const [one, two] = await Promise.all([mq.openLog("one"), mq.openLog("two")]);
    const rounds = 200;
    let writing = true;
    let looks = 0;
    const reader = (async () => {
      while (writing) {
        // What `two` has was committed together with what `one` has, so `one`, asked later, cannot have less.
        const second = (await two.stats()).next;
        const first = (await one.stats()).next;
        assert.ok(first >= second, `${first} of one, ${second} of two`);
        if (second > 0) assert.notEqual(await one.read(second - 1), undefined);
        looks++;
        await new Promise(setImmediate);
      }
    })();
    for (let index = 0; index < rounds; index++) {
      await mq.transaction((tx) => {
        tx.append(two, `${index}`);
        tx.append(one, `${index}`);
      });
    }
    writing = false;
    await reader;
    assert.ok(looks > 0);
    assert.equal((await one.stats()).next, rounds);
    assert.equal((await two.stats()).next, rounds);
  });

  check("transaction: the same message to many queues is one commit", async ({ mq, reopen }) => {
    const names = Array.from({ length: 40 }, (_, index) => `fan-${index}`);
    const queues = await Promise.all(names.map((name) => mq.openTask(name)));
    const before = (await mq.stats()).wal.commits;
    await mq.transaction((tx) => {
      for (const queue of queues) tx.enqueue(queue, "to all");
    });
    assert.equal((await mq.stats()).wal.commits - before, 1);
    const again = await reopen();
    for (const name of names) {
      assert.equal((await (await again.openTask(name)).dequeue())?.payload.toString(), "to all");
    }
  });
}
