import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { takeAll } from "../support/state.js";
import type { Check } from "./suite.js";

export function dedupeConformance(check: Check): void {
  check("dedupe: a second task with the same key is the first one", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    const first = await jobs.enqueue("first", { dedupeKey: "order-1" });
    const second = await jobs.enqueue("second", { dedupeKey: "order-1" });
    const other = await jobs.enqueue("other", { dedupeKey: "order-2" });
    assert.deepEqual([first.created, second.created, other.created], [true, false, true]);
    assert.equal(second.id, first.id);
    assert.notEqual(other.id, first.id);
    const again = await (await reopen()).openTask("jobs");
    const third = await again.enqueue("third", { dedupeKey: "order-1" });
    assert.deepEqual([third.id, third.created], [first.id, false]);
    const texts = (await takeAll(again)).map(({ payload }) => payload.toString());
    assert.deepEqual(texts, ["first", "other"]);
  });

  check("dedupe: the window begins with the commit and outlives the task", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs", { dedupe: { window: 400 } });
    const first = await jobs.enqueue("first", { dedupeKey: "k" });
    await jobs.ack((await jobs.dequeue()) as Task);
    assert.equal(
      (await jobs.enqueue("second", { dedupeKey: "k" })).created,
      false,
      "done, but its window has not ended",
    );
    await pass(800);
    const third = await jobs.enqueue("third", { dedupeKey: "k" });
    assert.ok(third.created && third.id !== first.id);
    assert.equal((await jobs.dequeue())?.payload.toString(), "third");
  });

  check("dedupe: of many at once one is created, and all have its id", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, index) => jobs.enqueue(`client ${index}`, { dedupeKey: "same" })),
    );
    assert.equal(answers.filter(({ created }) => created).length, 1);
    assert.equal(new Set(answers.map(({ id }) => id)).size, 1);
    assert.equal((await takeAll(jobs)).length, 1);
  });

  check("dedupe: a batch answers for each of its inputs, a key repeated inside it included", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueue("known", { dedupeKey: "b" });
    const answers = await jobs.enqueueBatch(["1", "2", "3", "4", "5"], { dedupeKeys: ["a", "b", undefined, "a", "c"] });
    assert.deepEqual(
      answers.map(({ created }) => created),
      [true, false, true, false, true],
    );
    assert.equal(answers[3]?.id, answers[0]?.id);
    const texts = (await takeAll(jobs)).map(({ id, payload }) => [id, payload.toString()]);
    assert.deepEqual(
      texts.map(([, text]) => text),
      ["known", "1", "3", "5"],
    );
    assert.deepEqual(
      texts.slice(1).map(([id]) => id),
      [answers[0]?.id, answers[2]?.id, answers[4]?.id],
    );
    await rejectsWith("ERR_OPTION", jobs.enqueueBatch(["1", "2"], { dedupeKeys: ["a"] }), /dedupeKeys/);
  });

  check("dedupe: in a transaction a known key adds nothing, the rest takes effect", async ({ mq }) => {
    const [jobs, other] = await Promise.all([mq.openTask("jobs"), mq.openTask("other")]);
    await jobs.enqueue("known", { dedupeKey: "k" });
    await mq.transaction((tx) => {
      tx.enqueue(jobs, "never", { dedupeKey: "k" });
      tx.enqueue(jobs, "new", { dedupeKey: "n" });
      tx.enqueue(jobs, "never", { dedupeKey: "n" });
      tx.enqueue(other, "another queue", { dedupeKey: "k" });
    });
    const texts = (await takeAll(jobs)).map(({ payload }) => payload.toString());
    assert.deepEqual(texts, ["known", "new"]);
    assert.equal((await takeAll(other)).length, 1);
  });

  check("dedupe: what a refused transaction claimed is free again", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await rejectsWith(
      "ERR_TOKEN",
      mq.transaction((tx) => {
        tx.enqueue(jobs, "never", { dedupeKey: "k" });
        tx.ack(jobs, "not a token");
      }),
    );
    assert.equal((await jobs.enqueue("first", { dedupeKey: "k" })).created, true);
  });

  check("dedupe: delayed tasks have keys as well", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs");
    const first = await jobs.enqueue("later", { dedupeKey: "k", delay: 1000 });
    assert.equal((await jobs.enqueue("now", { dedupeKey: "k" })).id, first.id);
    assert.equal(await jobs.dequeue(), undefined);
    const waiting = jobs.dequeue({ wait: "1h" });
    await pass(1500);
    assert.equal((await waiting)?.payload.toString(), "later");
  });

  check("dedupe: keys are bounded, and the error says how", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs", { dedupe: { window: 500, maxKeys: 2 } });
    await jobs.enqueueBatch(["a", "b"], { dedupeKeys: ["a", "b"] });
    const error = await rejectsWith("ERR_QUEUE_FULL", jobs.enqueue("c", { dedupeKey: "c" }), /maxKeys/);
    assert.deepEqual({ ...error.details }, { queue: "jobs", limit: "dedupe.maxKeys", max: 2 });
    assert.equal((await jobs.enqueue("a", { dedupeKey: "a" })).created, false, "known keys are answered");
    assert.equal((await jobs.enqueue("c")).created, true, "tasks without a key are taken");
    assert.equal((await jobs.stats()).ready, 3);
    await pass(1000);
    assert.equal((await jobs.enqueue("c", { dedupeKey: "c" })).created, true);
  });

  check("dedupe: a window of zero and keys that are none are refused", async ({ mq }) => {
    await rejectsWith("ERR_OPTION", mq.openTask("jobs", { dedupe: { window: 0 } }), /window/);
    await rejectsWith("ERR_OPTION", mq.openTask("jobs", { dedupe: { maxKeys: 0 } }), /maxKeys/);
    const jobs = await mq.openTask("jobs");
    for (const key of ["", "x".repeat(257), 7, null, "\ud800"]) {
      await rejectsWith("ERR_OPTION", jobs.enqueue("x", { dedupeKey: key as string }), /dedupeKey/);
    }
    assert.equal((await jobs.stats()).ready, 0);
  });
}
