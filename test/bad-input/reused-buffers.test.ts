import assert from "node:assert/strict";
import { test } from "node:test";
import { Simulated, TINY } from "../support/simulated.js";

/** More than all log files hold, so that most of these calls have to wait for the checkpoint. */
const CALLS = 3000;
const BYTES = 1000;

test("a message is what it was when the call was made, however long the call has to wait", async () => {
  const machine = Simulated.boot(1);
  const mq = await machine.open({ ...TINY, durability: "async" });
  const log = await machine.settle(mq.openLog("events"));
  const jobs = await machine.settle(mq.openTask("jobs"));
  const payload = Buffer.alloc(BYTES);
  const key = Buffer.alloc(1);
  const headers: Record<string, string> = {};
  const calls: Promise<unknown>[] = [];
  for (let index = 0; index < CALLS; index++) {
    payload.fill(index % 251);
    key.fill(index % 251);
    headers.index = String(index);
    calls.push(
      index % 2 === 0 ? log.append(payload, { key, headers }) : jobs.enqueueBatch([{ payload, key, headers }]),
    );
  }
  await machine.settle(Promise.all(calls));
  const check = (index: number, message: { payload: Buffer; key: Buffer | undefined; headers: object }) => {
    assert.deepEqual(message.payload, Buffer.alloc(BYTES, index % 251));
    assert.deepEqual(message.key, Buffer.alloc(1, index % 251));
    assert.deepEqual({ ...message.headers }, { index: String(index) });
  };
  for (let offset = 0; offset < CALLS / 2; offset++) {
    const record = await machine.settle(log.read(offset));
    assert.ok(record !== undefined);
    check(2 * offset, record);
  }
  const tasks = await machine.settle(jobs.dequeueBatch({ max: CALLS }));
  for (const [offset, task] of tasks.entries()) check(2 * offset + 1, task);
  assert.ok(tasks.length > 0);
  await machine.settle(mq.close());
});
