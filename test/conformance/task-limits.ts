import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
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
