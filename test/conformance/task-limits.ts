import assert from "node:assert/strict";
import type { Task, TaskQueue } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf, takeAll } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

export function taskLimitsConformance(check: Check): void {
  check("limits: a full queue refuses tasks; leased ones do not count, and giving back may exceed", async (on) => {
    const jobs = await on.mq.openTask("jobs", { limits: { maxCount: 2 } });
    await jobs.enqueue("1");
    await jobs.enqueue("2", { delay: "1h" });
    await rejectsWith("ERR_QUEUE_FULL", jobs.enqueue("3"), /jobs/);
    await rejectsWith("ERR_QUEUE_FULL", jobs.enqueueBatch(["3"]));
    await rejectsWith(
      "ERR_QUEUE_FULL",
      on.mq.transaction((tx) => {
        tx.enqueue(jobs, "3");
      }),
    );
    const task = (await jobs.dequeue()) as Task;
    await jobs.enqueue("3");
    await jobs.release(task);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 2, scheduled: 1, leased: 0, dead: 0 });
    const again = await (await on.reopen()).openTask("jobs");
    await rejectsWith("ERR_QUEUE_FULL", again.enqueue("4"));
    assert.equal(await again.purge(), 3);
    await again.enqueue("4");
  });

  check("limits: bytes are those of the payloads that wait, exactly, also after a reopen", async (on) => {
    const jobs = await on.mq.openTask("jobs", { maxAttempts: 1, limits: { maxBytes: 100 } });
    const bytes = async () => (await jobs.stats()).bytesReady;
    await jobs.enqueueBatch(["x".repeat(30), "é".repeat(10)]);
    await jobs.enqueue({ payload: "y".repeat(25), key: "key" }, { delay: "1h", dedupeKey: "y" });
    assert.equal(await bytes(), 75);
    const [one, two] = (await jobs.dequeueBatch({ max: 2 })) as [Task, Task];
    assert.equal(await bytes(), 25);
    await jobs.release(one);
    assert.equal(await bytes(), 55);
    await jobs.nack(two);
    await jobs.enqueue("z".repeat(45));
    assert.equal(await bytes(), 100);
    await rejectsWith("ERR_QUEUE_FULL", jobs.enqueue("1"));
    assert.equal(await jobs.cancel({ dedupeKey: "y" }), true);
    assert.equal(await bytes(), 75);
    await jobs.enqueue("overshoots".repeat(10));
    const again = await (await on.reopen()).openTask("jobs");
    assert.equal((await again.stats()).bytesReady, 175);
    await again.dequeue({ autoAck: true });
    assert.equal((await again.stats()).bytesReady, 145);
    await rejectsWith("ERR_QUEUE_FULL", again.enqueue("1"));
    await again.purge();
    assert.equal((await again.stats()).bytesReady, 0);
  });

  check("limits: a task larger than the queue takes is refused", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { limits: { maxMessageBytes: 4 } });
    await jobs.enqueue("1234");
    await rejectsWith("ERR_TOO_LARGE", jobs.enqueue("12345"), /4/);
    await rejectsWith("ERR_TOO_LARGE", jobs.enqueueBatch(["1", "ééé"]));
    assert.equal((await jobs.stats()).ready, 1);
  });

  check("limits: the tasks of one transaction see each other, and what is refused takes no room", async ({ mq }) => {
    const few = await mq.openTask("few", { limits: { maxCount: 2, maxMessageBytes: 4 } });
    const small = await mq.openTask("small", { limits: { maxBytes: 10, whenFull: "wait" } });
    const enqueue = (queue: TaskQueue, ...inputs: string[]) =>
      mq.transaction((tx) => {
        for (const input of inputs) tx.enqueue(queue, input);
      });
    await rejectsWith("ERR_QUEUE_FULL", enqueue(few, "1", "2", "3"), /few/);
    await rejectsWith("ERR_QUEUE_FULL", enqueue(small, "x".repeat(10), "1"), /small/);
    await rejectsWith("ERR_TOO_LARGE", enqueue(few, "1", "12345"), /4/);
    assert.deepEqual([(await few.stats()).ready, (await small.stats()).ready], [0, 0]);
    await enqueue(few, "1", "2");
    await enqueue(small, "x".repeat(9), "1");
    await rejectsWith("ERR_QUEUE_FULL", enqueue(few, "3"));
    const dropping = await mq.openTask("dropping", { limits: { maxCount: 2, whenFull: "drop-oldest" } });
    await dropping.enqueueBatch(["1", "2"]);
    await enqueue(dropping, "3", "4");
    assert.deepEqual(
      (await takeAll(dropping)).map(({ payload }) => payload.toString()),
      ["3", "4"],
    );
  });

  check("limits: hold for flows", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { limits: { maxCount: 3, maxMessageBytes: 4 } });
    const flow = (input: string) => mq.flow({ queue: jobs, input: "root", children: [{ queue: jobs, input }] });
    await rejectsWith("ERR_TOO_LARGE", flow("12345"), /4/);
    await flow("1");
    // A queue that holds less than its limits takes a call as a whole.
    await flow("2");
    await rejectsWith("ERR_QUEUE_FULL", flow("3"), /jobs/);
    const { ready, blocked } = await jobs.stats();
    assert.deepEqual([ready, blocked], [2, 2]);
  });

  check(
    "limits: hold for schedules, whose tasks stay due until there is room for them",
    async ({ mq, pass }) => {
      const jobs = await mq.openTask("jobs", { limits: { maxCount: 3, maxMessageBytes: 4 } });
      await rejectsWith("ERR_TOO_LARGE", jobs.schedule("tick", { every: "1m" }, "12345"), /4/);
      assert.deepEqual(await jobs.schedules(), []);
      await jobs.schedule("tick", { every: "1m", missed: "all" }, "x");
      await pass(10 * 60_000 + 1);
      const { ready } = await jobs.stats();
      const [held] = await jobs.schedules();
      assert.deepEqual([ready, held?.fired], [3, 3]);
      const ids = new Set<string>();
      while (ids.size < 10) {
        const taken = await takeAll(jobs);
        assert.ok(taken.length <= 3);
        for (const { id } of taken) ids.add(id);
        await pass(1100);
      }
      const [after] = await jobs.schedules();
      assert.deepEqual([after?.fired, (await jobs.stats()).ready], [10, 0], "each due time has had its task");
    },
    { exactTime: true },
  );

  check("limits: calls wait for room, in their order, with what they were given", async (on) => {
    const jobs = await on.mq.openTask("jobs", { limits: { maxCount: 1, whenFull: "wait" } });
    const buffer = Buffer.from("2");
    await jobs.enqueue("1");
    const waiting = [jobs.enqueue(buffer), jobs.enqueue("3")];
    buffer.write("9");
    const taken: string[] = [];
    for (let count = 0; count < 3; count++) {
      const task = (await passUntil(on, jobs.dequeue({ wait: "1h" }))) as Task;
      taken.push(task.payload.toString());
      await jobs.ack(task);
    }
    assert.deepEqual(taken, ["1", "2", "3"]);
    await Promise.all(waiting);
    await jobs.enqueue("4");
    const closed = rejectsWith("ERR_CLOSED", jobs.enqueue("5"));
    await on.mq.close();
    await closed;
  });

  check("limits: a queue that drops its oldest tasks takes every new one", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { limits: { maxCount: 3, whenFull: "drop-oldest" } });
    for (let number = 1; number <= 5; number++) await jobs.enqueue(String(number));
    assert.deepEqual(
      (await takeAll(jobs)).map(({ payload }) => payload.toString()),
      ["3", "4", "5"],
    );
  });
}
