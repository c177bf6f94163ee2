import assert from "node:assert/strict";
import type { EnqueuedFlow, Flow, TaskQueue } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

export function flowConformance(check: Check): void {
  const take = async (queue: TaskQueue) => {
    const task = await queue.dequeue();
    assert.ok(task !== undefined, `${queue.name} has a task`);
    return task;
  };
  const stateOf = async (queue: TaskQueue, { task }: EnqueuedFlow) => (await queue.status(task.id)).state;

  check("flows: a parent becomes ready when all its children are done, also across queues and restarts", async (on) => {
    let [pages, books] = [await on.mq.openTask("pages"), await on.mq.openTask("books")];
    const flow = await on.mq.flow({
      queue: books,
      input: "bind",
      children: [
        { queue: pages, input: "page 1" },
        { queue: pages, input: "page 2", options: { priority: 2 } },
        { queue: books, input: "cover" },
      ],
    });
    assert.equal(flow.children.length, 3);
    assert.equal(await stateOf(books, flow), "blocked");
    assert.equal((await books.stats()).blocked, 1);
    await pages.ack(await take(pages));
    const cover = await take(books);
    assert.equal(cover.payload.toString(), "cover");
    assert.equal(await books.dequeue(), undefined);
    const waiting = books.dequeue({ wait: "10s" });
    waiting.catch(() => {});
    await on.reopen();
    [pages, books] = [await on.mq.openTask("pages"), await on.mq.openTask("books")];
    assert.equal(await stateOf(books, flow), "blocked");
    await books.ack(cover.token, { result: "leather" });
    const last = await take(pages);
    assert.equal(last.payload.toString(), "page 1");
    const bound = books.dequeue({ wait: "10s" });
    await pages.ackBatch([last]);
    const task = await passUntil(on, bound);
    assert.equal(task?.payload.toString(), "bind");
    assert.equal(task?.id, flow.task.id);
    assert.equal(await books.result(flow.children[2]!.task.id), "leather");
    await on.reopen();
    [pages, books] = [await on.mq.openTask("pages"), await on.mq.openTask("books")];
    await books.ack(task!.token);
    assert.deepEqual(countsOf(await books.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
  });

  check("flows: the queue of a parent need not be in use when its children are done", async (on) => {
    let pages = await on.mq.openTask("pages");
    const flow = await on.mq.flow({
      queue: await on.mq.openTask("books"),
      input: "bind",
      children: [{ queue: pages, input: "page" }],
    });
    await on.reopen();
    pages = await on.mq.openTask("pages");
    assert.ok(await pages.dequeue({ autoAck: true }));
    await on.reopen();
    const books = await on.mq.openTask("books");
    assert.equal(await stateOf(books, flow), "ready");
    assert.equal((await take(books)).payload.toString(), "bind");
  });

  check("flows: of several levels, from the leaves to the root", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const level = (depth: number): Flow => ({
      queue: jobs,
      input: String(depth),
      children: depth === 32 ? [] : [level(depth + 1)],
    });
    await mq.flow(level(1));
    for (let depth = 32; depth >= 1; depth--) {
      const task = await take(jobs);
      assert.equal(task.payload.toString(), String(depth));
      assert.equal(await jobs.dequeue(), undefined);
      await mq.transaction((tx) => tx.ack(jobs, task, { result: depth }));
    }
    assert.equal((await jobs.stats()).blocked, 0);
  });

  check("flows: children may be delayed, given back, and fail", async (on) => {
    const jobs = await on.mq.openTask("jobs", { backoff: { initial: 0 } });
    await on.mq.flow({
      queue: jobs,
      input: "root",
      children: [
        { queue: jobs, input: "late", options: { delay: 500 } },
        { queue: jobs, input: "shaky" },
      ],
    });
    await jobs.release(await take(jobs));
    await jobs.nack(await take(jobs));
    const shaky = await take(jobs);
    assert.deepEqual([shaky.payload.toString(), shaky.attempt], ["shaky", 2]);
    await jobs.ack(shaky);
    assert.equal(await jobs.dequeue(), undefined);
    const late = await passUntil(on, jobs.dequeue({ wait: "10s" }));
    assert.equal(late?.payload.toString(), "late");
    await jobs.ack(late!);
    assert.equal((await passUntil(on, jobs.dequeue({ wait: "10s" })))?.payload.toString(), "root");
  });

  check("flows: a dead child keeps its parent waiting; redriven and done, it counts", async (on) => {
    let jobs = await on.mq.openTask("jobs", { maxAttempts: 1 });
    const flow = await on.mq.flow({ queue: jobs, input: "root", children: [{ queue: jobs, input: "leaf" }] });
    await jobs.nack(await take(jobs));
    assert.equal(await stateOf(jobs, flow), "blocked");
    jobs = await (await on.reopen()).openTask("jobs");
    await jobs.dead.redrive();
    jobs = await (await on.reopen()).openTask("jobs");
    await jobs.nack(await take(jobs));
    await jobs.dead.redrive({ ids: [flow.children[0]!.task.id] });
    assert.equal(await stateOf(jobs, flow), "blocked");
    await jobs.ack(await take(jobs));
    assert.equal(await stateOf(jobs, flow), "ready");
    assert.equal((await take(jobs)).payload.toString(), "root");
  });

  check("flows: a child that can never be done sends its parent to the dead letters", async (on) => {
    const [leaves, roots] = [await on.mq.openTask("leaves", { maxAttempts: 1 }), await on.mq.openTask("roots")];
    const ends = async (reason: RegExp, end: (id: string) => Promise<unknown>, options = {}) => {
      const flow = await on.mq.flow({
        queue: roots,
        input: "root",
        children: [
          { queue: leaves, input: "leaf", options },
          { queue: leaves, input: "sibling" },
        ],
      });
      const waiting = flow.task.result({ wait: "10s" });
      await end(flow.children[0]!.task.id);
      const error = await passUntil(on, rejectsWith("ERR_TASK_DEAD", waiting));
      assert.match(String(error.details.reason), reason);
      const [letter] = await roots.dead.read();
      assert.deepEqual([letter?.id, letter?.attempts, letter?.payload?.toString()], [flow.task.id, 0, "root"]);
      assert.equal(await roots.dead.purge(), 1);
      await leaves.purge();
      assert.deepEqual(countsOf(await roots.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
      assert.equal((await roots.stats()).bytesReady, 0);
    };
    await ends(/was cancelled/, (id) => leaves.cancel(id));
    await ends(/was cancelled/, (id) => leaves.cancel(id), { delay: "1h" });
    await ends(/was purged/, () => leaves.purge());
    await ends(/left its queue/, () => leaves.expire(), { expiresAt: new Date(1) });
    await ends(/dead letter was purged/, async () => {
      await leaves.nack(await take(leaves));
      await leaves.dead.purge();
    });
    await ends(/dead letter was purged/, async (id) => {
      await leaves.nack(await take(leaves));
      await leaves.dead.purge({ ids: [id] });
    });
  });

  check("flows: a parent with a lost child can be redriven, and is a task like any other then", async (on) => {
    let jobs = await on.mq.openTask("jobs");
    const flow = await on.mq.flow({
      queue: jobs,
      input: "top",
      children: [{ queue: jobs, input: "root", children: [{ queue: jobs, input: "leaf" }] }],
    });
    await jobs.cancel(flow.children[0]!.children[0]!.task.id);
    await passUntil(
      on,
      flow.children[0]!.task.result({ wait: "10s" }).catch(() => {}),
    );
    jobs = await (await on.reopen()).openTask("jobs");
    assert.equal(await stateOf(jobs, flow), "blocked", "its child is dead and may come back");
    await jobs.dead.redrive();
    const root = await take(jobs);
    assert.equal(root.payload.toString(), "root");
    await jobs.ack(root);
    assert.equal((await take(jobs)).payload.toString(), "top");
  });

  check("flows: a parent that is cancelled or purged leaves its children alone", async ({ mq }) => {
    const [leaves, roots] = [await mq.openTask("leaves"), await mq.openTask("roots")];
    const flow = async () =>
      await mq.flow({ queue: roots, input: "root", children: [{ queue: leaves, input: "leaf" }] });
    const first = await flow();
    assert.equal(await roots.reschedule(first.task.id, { delay: 0 }), false);
    assert.equal(await roots.cancel(first.task.id), true);
    assert.equal(await roots.cancel(first.task.id), false);
    await flow();
    assert.equal(await roots.purge(), 1);
    await leaves.ack(await take(leaves));
    await leaves.ack(await take(leaves));
    assert.equal(await roots.dequeue(), undefined);
    assert.equal((await roots.stats()).bytesReady, 0);
  });

  check("flows: what is none is refused, and nothing is enqueued", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const own: { queue: TaskQueue; input: string; children: Flow[] } = { queue: jobs, input: "a", children: [] };
    own.children.push({ queue: jobs, input: "b", children: [own] });
    await rejectsWith("ERR_ARGUMENT", () => mq.flow(own), /contain itself/);
    let deep: Flow = { queue: jobs, input: "leaf" };
    for (let level = 0; level < 32; level++) deep = { queue: jobs, input: "more", children: [deep] };
    await rejectsWith("ERR_ARGUMENT", () => mq.flow(deep), /32 levels/);
    const leaves = Array.from({ length: 1000 }, () => ({ queue: jobs, input: "leaf" }));
    await rejectsWith("ERR_ARGUMENT", () => mq.flow({ queue: jobs, input: "root", children: leaves }), /1000 tasks/);
    const leaf = { queue: jobs, input: "leaf" };
    await rejectsWith("ERR_OPTION", () =>
      mq.flow({ queue: jobs, input: "root", options: { delay: 1 }, children: [leaf] }),
    );
    await rejectsWith("ERR_OPTION", () => mq.flow({ ...leaf, options: { dedupeKey: "x" } as never }));
    await rejectsWith("ERR_ARGUMENT", () => mq.flow({ queue: {} as never, input: "x" }));
    await rejectsWith("ERR_ARGUMENT", () => mq.flow(undefined as never));
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
    await mq.flow({ queue: jobs, input: "root", children: leaves.slice(1) });
    await jobs.ackBatch(await jobs.dequeueBatch({ max: 1000 }));
    assert.equal((await take(jobs)).payload.toString(), "root");
  });
}
