/**
 * Types have tests: this file is compiled with the rest and never run. Each `@ts-expect-error` is a line that must not
 * compile; the compiler reports one that does.
 */

import { type Codec, json, text } from "../../src/api/codec.js";
import type { LogQueue, LogRecord, MessageQueue, Task, TaskQueue, TaskRef } from "../../src/api/contract.js";
import { isVarveError, VarveError } from "../../src/api/errors.js";
import { message } from "../../src/api/message.js";

interface Email {
  readonly to: string;
  readonly subject?: string;
}

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function type<_Holds extends true>(): void {}

export async function payloads(mq: MessageQueue): Promise<void> {
  const jobs = await mq.openTask("jobs", { codec: json<Email>() });
  type<Equal<typeof jobs, TaskQueue<Email, Email>>>();
  await jobs.enqueue({ to: "a@example.com" });
  await jobs.enqueue(message({ to: "a@example.com" }, { key: "a", headers: { trace: "1" } }));
  await jobs.enqueueBatch([{ to: "a@example.com" }, message({ to: "b@example.com" })]);
  // @ts-expect-error the payload lacks a member
  await jobs.enqueue({ subject: "hello" });
  // @ts-expect-error a member has the wrong type
  await jobs.enqueue({ to: 5 });
  // @ts-expect-error a string is no Email
  await jobs.enqueue("a@example.com");
  // @ts-expect-error with a codec, only message() carries a key
  await jobs.enqueue({ payload: { to: "a@example.com" }, key: "a" });
  // @ts-expect-error the message's payload is checked as well
  await jobs.enqueue(message({ to: 5 }));
  // @ts-expect-error one wrong payload among several
  await jobs.enqueueBatch([{ to: "a@example.com" }, { to: 5 }]);

  const task = await jobs.dequeue();
  type<Equal<typeof task, Task<Email> | undefined>>();
  // @ts-expect-error there may be no task
  task.payload;
  if (task === undefined) return;
  type<Equal<typeof task.payload, Email>>();
  // @ts-expect-error delivered tasks are read-only
  task.attempt = 0;

  const words = await mq.openLog("words", { codec: text() });
  type<Equal<typeof words, LogQueue<string, string>>>();
  await words.append("word");
  // @ts-expect-error the text codec takes strings
  await words.append(Buffer.from("word"));

  const raw = await mq.openLog("raw");
  await raw.append("text");
  await raw.append(Uint8Array.of(1));
  await raw.append({ payload: "text", key: Uint8Array.of(1), headers: { a: "b" } });
  // @ts-expect-error without a codec, payloads are strings or bytes
  await raw.append({ to: "a@example.com" });
  // @ts-expect-error without a codec, payloads are strings or bytes
  await raw.append(5);
  // @ts-expect-error header values are strings
  await raw.append({ payload: "text", headers: { a: 5 } });
  const record = await raw.read(0);
  type<Equal<typeof record, LogRecord<Buffer> | undefined>>();
  for await (const { payload } of words.tail({ from: "start" })) type<Equal<typeof payload, string>>();
  for await (const records of words.batches()) type<Equal<typeof records, LogRecord<string>[]>>();
  const [dead] = await jobs.dead.read();
  type<Equal<typeof dead, import("../../src/api/contract.js").DeadLetter<Email> | undefined>>();
}

export async function queues(mq: MessageQueue): Promise<void> {
  const jobs = await mq.openTask("jobs", { codec: json<Email>() });
  const events = await mq.openLog("events", { codec: json<{ readonly at: number }>() });
  const task = await jobs.dequeue();
  const record = await events.read(0);
  if (task === undefined || record === undefined) return;
  await jobs.ack(task);
  await jobs.ack(task.token);
  // @ts-expect-error a log record is no task
  await jobs.ack(record);
  // @ts-expect-error an id is a string, an attempt is not
  await jobs.ack(task.attempt);
  // @ts-expect-error logs have no ack
  await events.ack(task);
  // @ts-expect-error task queues have no append
  await jobs.append({ to: "a@example.com" });
  // @ts-expect-error a task queue of emails is no task queue of numbers
  const wrong: TaskQueue<number, number> = jobs;
  void wrong;

  await mq.transaction((tx) => {
    tx.ack(jobs, task);
    tx.append(events, { at: 1 });
    tx.enqueue(jobs, { to: "a@example.com" }, { delay: "5m" });
    // @ts-expect-error the payload of the other queue
    tx.append(events, { to: "a@example.com" });
    // @ts-expect-error a task queue is no log
    tx.append(jobs, { to: "a@example.com" });
    // @ts-expect-error a log is no task queue
    tx.enqueue(events, { at: 1 });
    // @ts-expect-error durability belongs to the transaction
    tx.enqueue(jobs, { to: "a@example.com" }, { durability: "sync" });
  });
}

export async function options(mq: MessageQueue): Promise<void> {
  const jobs = await mq.openTask("jobs", { lease: "30s", maxAttempts: 5, backoff: { initial: 100, jitter: 0 } });
  // @ts-expect-error no such option
  await mq.openTask("jobs", { leese: "30s" });
  // @ts-expect-error no such option inside an option
  await mq.openTask("jobs", { backoff: { intial: 100 } });
  // @ts-expect-error a duration is a number or a string
  await mq.openTask("jobs", { lease: new Date() });
  // @ts-expect-error no such durability
  await jobs.enqueue("x", { durability: "fsync" });
  // @ts-expect-error dequeueBatch needs max
  await jobs.dequeueBatch({ wait: "30s" });
  // @ts-expect-error a batch has no one key
  await jobs.enqueueBatch(["x"], { key: "k" });
  const events = await mq.openLog("events");
  // @ts-expect-error no such position
  events.tail({ from: "beginning" });
  // @ts-expect-error a codec turns values both ways
  await mq.openLog("events", { codec: { name: "half", encode: (value: string) => value } });
  await jobs.nack("token", { error: new Error("boom"), delay: 5 });
  // @ts-expect-error a reason is a string or an Error
  await jobs.nack("token", { error: 5 });
}

export function errors(error: unknown): void {
  if (isVarveError(error, "ERR_STALE_LEASE")) type<Equal<typeof error.code, "ERR_STALE_LEASE">>();
  // @ts-expect-error no such code
  isVarveError(error, "ERR_STALE_LEAS");
  // @ts-expect-error no such code
  throw new VarveError("ERR_NO_SUCH", "no");
}

export const reversed: Codec<string, number> = {
  name: "length",
  encode: (value) => value,
  decode: (raw) => raw.length,
};
// @ts-expect-error the codec's input is a string
export const mistaken: Codec<number, number> = reversed;
export const reference: TaskRef = { token: "t" };
