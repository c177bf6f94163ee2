/**
 * Compares a directory with the journal of everyone who ever worked on it.
 *
 * - acknowledged: is there, where the acknowledgement said, byte for byte; an acked task is never delivered again
 * - refused: is nowhere
 * - unknown (no answer, as the process was killed): is there as a whole or not at all
 */

import assert from "node:assert/strict";
import type { MessageQueue, Task } from "../../src/index.js";
import { countsOf, recordsOf } from "../support/state.js";
import { type Entry, type Intent, idOf } from "./journal.js";
import { TASK_OPTIONS } from "./shape.js";

interface Call {
  readonly intent: Intent;
  outcome: "unknown" | "done" | "refused";
  offsets: readonly number[];
}

export class Judge {
  readonly #calls = new Map<string, Call>();
  /** The call that was to create a record or task. */
  readonly #creator = new Map<string, Call>();
  /** The calls that tried to ack a task. */
  readonly #ackers = new Map<string, Call[]>();
  readonly #attempts = new Map<string, number>();
  /** Ids of all records ever seen in the log, as some may have been trimmed since. */
  readonly #seenInLog = new Map<string, number>();

  constructor(journal: readonly Entry[]) {
    this.extend(journal);
  }

  /** Takes in further entries; `journal` continues what was given before. */
  extend(journal: readonly Entry[]): void {
    for (const entry of journal) {
      if (entry.kind === "intent") this.#intend(entry);
      else if (entry.kind === "took") this.#take(entry.task, entry.attempt);
      else {
        const call = this.#calls.get(entry.op) as Call;
        call.outcome = entry.kind;
        if (entry.kind === "done") call.offsets = entry.offsets;
        else assert.equal(entry.code, "ERR_STALE_LEASE", `${entry.op} was refused`);
      }
    }
  }

  get acknowledged(): number {
    return [...this.#calls.values()].filter(({ outcome }) => outcome === "done").length;
  }

  /** Checks the log and the number of tasks, changing nothing. */
  async look(mq: MessageQueue): Promise<void> {
    const log = await mq.openLog("events");
    const records = await recordsOf(log);
    const { head, next, count } = await log.stats();
    assert.equal(count, records.length, "the log's count is that of a scan");
    let previous = head - 1;
    const order = new Map<string, number>();
    const here = new Map<string, number>();
    for (const { offset, payload } of records) {
      assert.ok(offset > previous && offset < next, `offset ${offset} after ${previous}`);
      previous = offset;
      const id = idOf(payload);
      assert.ok(!here.has(id), `${id} is in the log twice`);
      here.set(id, offset);
      const creator = this.#creator.get(id);
      assert.ok(creator !== undefined, `${id} was never appended`);
      assert.notEqual(creator.outcome, "refused", `${id} was refused`);
      const [worker, number] = splitOp(creator.intent.op);
      assert.ok(number >= (order.get(worker) ?? 0), `${id} stands after a later call of its worker`);
      order.set(worker, number);
      const before = this.#seenInLog.get(id);
      assert.ok(before === undefined || before === offset, `${id} has moved from ${before} to ${offset}`);
    }
    for (const [id, offset] of this.#seenInLog) assert.ok(offset < head || here.has(id), `${id} was there before`);
    for (const [id, offset] of here) this.#seenInLog.set(id, offset);
    for (const call of this.#calls.values()) this.#checkRecords(call);
    await this.#checkCounts(mq);
  }

  /** Takes every task there is and checks that they are the ones there should be. Ends the run. */
  async drain(mq: MessageQueue): Promise<void> {
    const jobs = await mq.openTask("jobs", TASK_OPTIONS);
    const drained = new Map<string, Task>();
    for (;;) {
      const { ready, scheduled, leased } = countsOf(await jobs.stats());
      if (ready + scheduled === 0 && leased === drained.size) break;
      for (const task of await jobs.dequeueBatch({ max: 1000, wait: "10s", lease: "1h" })) {
        const id = idOf(task.payload);
        assert.ok(!drained.has(id), `${id} was delivered twice under one lease`);
        drained.set(id, task);
        assert.ok(task.attempt > (this.#attempts.get(id) ?? 0), `${id}: attempt ${task.attempt} was counted before`);
      }
    }
    for (const id of drained.keys()) {
      const creator = this.#creator.get(id);
      assert.ok(creator !== undefined && creator.outcome !== "refused", `${id} was never enqueued`);
      assert.ok(!this.#acked(id), `${id} was acked and is delivered again`);
    }
    for (const call of this.#calls.values()) this.#checkWhole(call, drained);
  }

  #intend(intent: Intent): void {
    const call: Call = { intent, outcome: "unknown", offsets: [] };
    this.#calls.set(intent.op, call);
    for (const id of [...intent.log, ...intent.tasks]) this.#creator.set(id, call);
    for (const id of intent.acks) this.#ackers.set(id, [...(this.#ackers.get(id) ?? []), call]);
  }

  #take(task: string, attempt: number): void {
    assert.ok(this.#creator.has(task), `${task} was never enqueued`);
    assert.ok(!this.#acked(task), `${task} was acked and then delivered again`);
    const last = this.#attempts.get(task) ?? 0;
    assert.ok(attempt > last, `${task}: attempt ${attempt} after attempt ${last}`);
    this.#attempts.set(task, attempt);
  }

  #acked(task: string): boolean {
    return (this.#ackers.get(task) ?? []).some(({ outcome }) => outcome === "done");
  }

  #checkRecords({ intent, outcome, offsets }: Call): void {
    const there = intent.log.filter((id) => this.#seenInLog.has(id));
    if (outcome === "refused") assert.equal(there.length, 0, `${intent.op} was refused`);
    if (outcome === "done") assert.equal(there.length, intent.log.length, `records of ${intent.op} are lost`);
    assert.ok(there.length === 0 || there.length === intent.log.length, `${intent.op} is there in part`);
    for (const [index, offset] of offsets.entries()) {
      assert.equal(this.#seenInLog.get(intent.log[index] as string), offset, `record ${index} of ${intent.op}`);
    }
  }

  async #checkCounts(mq: MessageQueue): Promise<void> {
    const { ready, scheduled, leased, dead } = countsOf(await (await mq.openTask("jobs")).stats());
    assert.equal(dead, 0);
    let least = 0;
    let most = 0;
    for (const { intent, outcome } of this.#calls.values()) {
      for (const id of intent.tasks) {
        const maybeAcked = (this.#ackers.get(id) ?? []).some((acker) => acker.outcome !== "refused");
        if (outcome === "done" && !maybeAcked) least++;
        if (outcome !== "refused" && !this.#acked(id)) most++;
      }
    }
    const total = ready + scheduled + leased;
    assert.ok(total >= least && total <= most, `${total} tasks; there should be from ${least} to ${most}`);
  }

  #checkWhole({ intent, outcome }: Call, drained: ReadonlyMap<string, Task>): void {
    const maybeAcked = (id: string): boolean =>
      (this.#ackers.get(id) ?? []).some((acker) => acker.outcome !== "refused" && acker.intent !== intent);
    const existed = intent.tasks.filter((id) => drained.has(id) || this.#attempts.has(id) || maybeAcked(id));
    if (outcome === "done") assert.equal(existed.length, intent.tasks.length, `tasks of ${intent.op} are lost`);
    if (outcome === "refused") assert.equal(existed.length, 0, `${intent.op} was refused`);
    const parts = [...existed, ...intent.log.filter((id) => this.#seenInLog.has(id))].length;
    const whole = intent.tasks.length + intent.log.length;
    assert.ok(parts === 0 || parts === whole, `${parts} of ${whole} parts of ${intent.op} are there`);
    if (outcome !== "unknown" || intent.log.length === 0) return;
    // An unanswered "ack these and append that": the record tells whether the acks must have taken effect.
    const happened = this.#seenInLog.has(intent.log[0] as string);
    for (const id of intent.acks) {
      if (happened) assert.ok(!drained.has(id), `${intent.op} appended, but did not ack ${id}`);
      else assert.ok(drained.has(id) || maybeAcked(id), `${intent.op} acked ${id}, but did not append`);
    }
  }
}

function splitOp(op: string): [worker: string, number: number] {
  const dot = op.lastIndexOf(".");
  return [op.slice(0, dot), Number(op.slice(dot + 1))];
}
