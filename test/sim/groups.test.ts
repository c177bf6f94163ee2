/** What random plans came upon in groups of logs: each is a story of its own on the simulated machine. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { isVarveError } from "../../src/index.js";
import { Simulated, TINY } from "../support/simulated.js";

void test("records that are removed while a member is told of others are told of next", async () => {
  const machine = Simulated.boot(1);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  await machine.settle(log.appendBatch(Array.from({ length: 20 }, (_, index) => `${index}`)));
  const member = await machine.settle(log.group("readers"));
  const lost: number[] = [];
  let next = 0;
  await machine.settle(log.trim(5));
  // A trim that is staged when the loss is told, and one right after it.
  const trims = [log.trim(8)];
  const first = member.read({ max: 1 }).catch((error: unknown) => error);
  trims.push(Promise.resolve().then(() => log.trim(12)));
  await machine.settle(Promise.all(trims));
  for (let read: unknown = await machine.settle(first); ; ) {
    if (Array.isArray(read)) {
      assert.equal((read[0] as { offset: number }).offset, next);
      break;
    }
    assert.ok(isVarveError(read, "ERR_OFFSET_OUT_OF_RANGE"), `${read}`);
    assert.equal(read.details.offset, next);
    lost.push(Number(read.details.lost));
    next = Number(read.details.next);
    read = await machine.settle(member.read({ max: 1 }).catch((error: unknown) => error));
  }
  assert.equal(
    lost.reduce((sum, count) => sum + count, 0),
    12,
  );
  const after = machine.kill();
  const again = await after.settle((await after.open()).openLog("events"));
  const [group] = await after.settle(again.groups());
  assert.equal(group!.lost, 12);
});

void test("a member that could not be told of what was removed, as the directory failed, is told after all", async () => {
  const machine = Simulated.boot(3);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  await machine.settle(log.appendBatch(Array.from({ length: 20 }, (_, index) => `${index}`)));
  const member = await machine.settle(log.group("readers"));
  await machine.settle(log.trim(5));
  machine.disk.onCall = (kind, _path, call) => {
    if (kind === "sync") machine.disk.failAt(call, { errno: "EIO" });
  };
  // The trim is applied after the loss was counted, and fails with it.
  const outcome = (run: Promise<unknown>) => run.catch((error: unknown) => error);
  const first = outcome(member.read({ max: 1 }));
  const trimmed = outcome(Promise.resolve().then(() => log.trim(8)));
  assert.ok(isVarveError(await machine.settle(first), "ERR_OUTCOME_UNKNOWN"));
  await machine.settle(trimmed);
  const told = await machine.settle(outcome(member.read({ max: 1 })));
  assert.ok(isVarveError(told, "ERR_OFFSET_OUT_OF_RANGE"), `${told}`);
  const { offset, next, lost } = told.details;
  const [{ head }, { lost: counted }] = [await machine.settle(log.stats()), (await machine.settle(log.groups()))[0]!];
  assert.deepEqual({ offset, next, lost }, { offset: 0, next: head, lost: head });
  assert.equal(counted, 0);
  const [record] = await machine.settle(member.read({ max: 1 }));
  assert.equal(record!.offset, head);
});

void test("a record that is superseded while a shared group has given it back is not missing", async () => {
  const machine = Simulated.boot(2);
  const mq = await machine.open({ ...TINY, segmentBytes: "64KiB" });
  const log = await machine.settle(mq.openLog("state"));
  await machine.settle(log.append("old", { key: "k" }));
  const group = await machine.settle(log.sharedGroup("workers"));
  const task = await machine.settle(group.dequeue());
  await machine.settle(group.release(task!));
  await machine.settle(log.append("new", { key: "k" }));
  const { recordsRemoved } = await machine.settle(log.compact());
  assert.equal(recordsRemoved, 1);
  const shown = await machine.settle(group.peek());
  assert.equal(shown?.payload.toString(), "new");
  const next = await machine.settle(group.dequeue());
  assert.equal(next?.payload.toString(), "new");
  await machine.settle(group.ack(next!));
  assert.equal((await machine.settle(group.info())).lag, 0);
});

void test("a record that is superseded is done when its last attempt fails, and is no dead letter", async () => {
  const machine = Simulated.boot(4);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("state"));
  await machine.settle(log.append("old", { key: "k" }));
  const group = await machine.settle(log.sharedGroup("workers", { maxAttempts: 1 }));
  const task = await machine.settle(group.dequeue());
  await machine.settle(log.append("new", { key: "k" }));
  await machine.settle(log.compact());
  await machine.settle(group.nack(task!));
  const next = machine.kill();
  const again = await next.settle((await next.open()).openLog("state"));
  const joined = await next.settle(again.sharedGroup("workers", { maxAttempts: 1 }));
  assert.deepEqual(await next.settle(joined.dead.read()), []);
  assert.equal((await next.settle(joined.dequeue()))?.payload.toString(), "new");
});

void test("a directory opens in which a record was removed just before a shared group gave it out again", async () => {
  const machine = Simulated.boot(3);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  await machine.settle(log.appendBatch(["a", "b"]));
  const group = await machine.settle(log.sharedGroup("workers"));
  await machine.settle(group.release((await machine.settle(group.dequeue()))!));
  // Both in one entry of the log.
  const trimmed = log.trim(1);
  const task = await machine.settle(group.dequeue());
  await machine.settle(trimmed);
  assert.equal(task?.id, "0");
  await machine.settle(group.extend(task!, 1000));
  const next = machine.kill();
  const again = await next.settle((await next.open()).openLog("events"));
  const joined = await next.settle(again.sharedGroup("workers"));
  await next.settle(joined.ack(task!));
  assert.equal((await next.settle(joined.dequeue()))?.id, "1");
});

void test("a group may be deleted while what its members hold is being settled", async () => {
  const machine = Simulated.boot(5);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  await machine.settle(log.appendBatch(["a", "b", "c", "d"]));
  const group = await machine.settle(log.sharedGroup("workers", { maxAttempts: 1 }));
  const tasks = await machine.settle(group.dequeueBatch({ max: 4 }));
  // All in one entry of the log, the deletion first.
  const deleted = log.deleteGroup("workers");
  const settled = [
    group.ack(tasks[0]!),
    group.extend(tasks[1]!, 5000),
    group.release(tasks[2]!),
    group.nack(tasks[3]!),
  ];
  const answers = Promise.allSettled(settled);
  assert.equal(await machine.settle(deleted), true);
  for (const answer of await machine.settle(answers)) {
    assert.ok(
      answer.status === "fulfilled" || isVarveError(answer.reason, "ERR_NOT_FOUND"),
      `${answer.status === "rejected" && answer.reason}`,
    );
  }
  assert.equal((await machine.settle(mq.stats())).health, "ok");
  const next = machine.kill();
  const again = await next.settle((await next.open()).openLog("events"));
  assert.deepEqual(await next.settle(again.groups()), []);
});

void test("groups go on behind a segment whose last record is superseded", async () => {
  const machine = Simulated.boot(6);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("state"));
  const large = Buffer.alloc(30_000);
  await machine.settle(log.append(large));
  await machine.settle(log.append("old", { key: "k" }));
  await machine.settle(log.compact());
  await machine.settle(log.append(large, { key: "k" }));
  assert.equal((await machine.settle(log.compact())).recordsRemoved, 1);
  const next = machine.kill();
  const again = await next.settle((await next.open()).openLog("state"));
  const group = await next.settle(again.sharedGroup("workers"));
  const ids: (string | undefined)[] = [];
  for (let count = 0; count < 2; count++) ids.push((await next.settle(group.dequeue({ wait: 1000 })))?.id);
  assert.deepEqual(ids, ["0", "2"]);
  const member = await next.settle(again.group("readers"));
  const offsets: number[] = [];
  for (let count = 0; count < 2; count++) {
    // A member that looks for the missing record again and again shows by the time that this takes.
    for (const { offset } of await next.clock.settle(member.read({ max: 1 }), 10_000)) offsets.push(offset);
  }
  assert.deepEqual(offsets, [0, 2]);
});

void test("what a member has committed as it leaves is not read again", async () => {
  const machine = Simulated.boot(9);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  await machine.settle(log.appendBatch(["first", "second"]));
  const leaving = await machine.settle(log.group("readers"));
  const staying = await machine.settle(log.group("readers"));
  const [first] = await machine.settle(leaving.read({ max: 1 }));
  assert.ok(first !== undefined);
  const committed = leaving.commit(first);
  await machine.settle(Promise.all([leaving.close(), committed]));
  const records = await machine.settle(staying.read({ max: 1 }));
  assert.deepEqual(
    records.map(({ offset }) => offset),
    [1],
  );
});

void test("a record that is on its way to the dead letters when its group is moved is not buried", async () => {
  const machine = Simulated.boot(6);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  await machine.settle(log.appendBatch(Array.from({ length: 4 }, () => "x".repeat(8000))));
  const group = await machine.settle(log.sharedGroup("workers", { maxAttempts: 1 }));
  const [task] = await machine.settle(group.dequeueBatch({ max: 2 }));
  await machine.settle(mq.close());
  // Now its record has to be read first, and the group is moved meanwhile.
  const again = await machine.settle((await machine.open()).openLog("events"));
  const member = await machine.settle(again.sharedGroup("workers"));
  const nacked = member.nack(task!).catch((error: unknown) => error);
  assert.equal(await machine.settle(member.seek(0)), 0);
  const refused = await machine.settle(nacked);
  assert.ok(isVarveError(refused, "ERR_STALE_LEASE"), `${refused}`);
  const next = await machine.settle(member.dequeue());
  assert.deepEqual([next?.id, next?.attempt], ["0", 1]);
  const after = machine.kill();
  const last = await after.settle((await after.open()).openLog("events"));
  const [info] = await after.settle(last.groups());
  assert.deepEqual({ lag: info!.lag, leased: info!.leased, dead: info!.dead }, { lag: 4, leased: 1, dead: 0 });
});
