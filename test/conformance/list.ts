import assert from "node:assert/strict";
import { json, type ListedTask, type Task } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import type { Check } from "./suite.js";

function textsOf(tasks: readonly Pick<ListedTask, "raw">[]): string {
  return tasks.map(({ raw }) => raw.toString()).join(" ");
}

export function listConformance(check: Check): void {
  check("list: by state, the most urgent first, over a reopen too", async ({ mq, reopen, wallMs }) => {
    let jobs = await mq.openTask("jobs", { backoff: { initial: "1h", max: "1h", jitter: 0 } });
    for (const name of ["a1", "a2", "b1", "-1", "-2"]) {
      await jobs.enqueue(name, name.startsWith("-") ? {} : { orderKey: name.slice(0, 1) });
    }
    await jobs.enqueue("urgent", { priority: 4, key: "k", headers: { h: "1" } });
    const soon = await jobs.enqueue("soon", { delay: "2h" });
    const at = new Date(wallMs() + 3_600_000 * 5);
    await jobs.enqueue("at", { at, priority: 2 });
    await jobs.enqueue("-3");
    const urgent = (await jobs.dequeue()) as Task;
    const a1 = (await jobs.dequeue()) as Task;
    const b1 = (await jobs.dequeue()) as Task;
    await jobs.nack(b1);
    await jobs.release(urgent);
    for (let round = 0; round < 2; round++) {
      assert.equal(textsOf(await jobs.list({ state: "ready" })), "urgent -1 -2 -3");
      assert.equal(textsOf(await jobs.list({ state: "scheduled" })), "at b1 soon");
      assert.equal(textsOf(await jobs.list({ state: "leased" })), "a1");
      assert.equal(textsOf(await jobs.list({ state: "blocked" })), "a2");
      jobs = await (await reopen()).openTask("jobs");
    }
    const [first] = await jobs.list({ state: "ready" });
    assert.deepEqual(
      [first?.id, first?.state, first?.priority, first?.attempt, first?.key?.toString(), first?.headers],
      [urgent.id, "ready", 4, 0, "k", { h: "1" }],
    );
    const [leased] = await jobs.list({ state: "leased" });
    assert.deepEqual([leased?.id, leased?.attempt, leased?.orderKey, leased?.dueAt], [a1.id, 1, "a", undefined]);
    const [dated, , delayed] = await jobs.list({ state: "scheduled" });
    assert.equal(dated?.dueAt, at.getTime());
    assert.equal(delayed?.id, soon.id);
    assert.ok(Math.abs(delayed!.dueAt! - wallMs() - 7_200_000) < 60_000);
    assert.equal((await jobs.dequeue())?.payload.toString(), "urgent", "nothing was taken");
  });

  check("list: page by page", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    for (let number = 0; number < 25; number++) {
      await jobs.enqueue(`r${number}`, { priority: number % 3 });
      await jobs.enqueue(`s${number}`, { priority: number % 3, delay: "1h" });
    }
    for (const state of ["ready", "scheduled"] as const) {
      const all = await jobs.list({ state });
      assert.equal(all.length, 25);
      const paged: ListedTask[] = [];
      for (;;) {
        const after = paged[paged.length - 1]?.position;
        const page = await jobs.list({ state, limit: 4, ...(after === undefined ? {} : { after }) });
        if (page.length === 0) break;
        paged.push(...page);
      }
      assert.deepEqual(
        paged.map(({ position }) => position),
        all.map(({ position }) => position),
      );
      assert.equal(new Set(textsOf(paged).split(" ")).size, 25);
    }
  });

  check("list: tasks that cannot be decoded, and options that make no sense", async ({ mq }) => {
    await (await mq.openTask("jobs")).enqueue("{");
    const jobs = await mq.openTask("jobs", { codec: json() });
    const [broken] = await jobs.list({ state: "ready" });
    assert.deepEqual([broken?.payload, broken?.raw.toString()], [undefined, "{"]);
    await rejectsWith("ERR_OPTION", () => jobs.list({ state: "ready", after: "x" }));
    await rejectsWith("ERR_OPTION", () => jobs.list({ state: "ready", limit: 0 }));
    await rejectsWith("ERR_OPTION", () => jobs.list({ state: "dead" as "ready" }));
  });
}
