import assert from "node:assert/strict";
import { bytes, type Codec, json, message, text } from "../../src/index.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { recordsOf } from "../support/state.js";
import type { Check } from "./suite.js";

interface Email {
  readonly to: string;
  readonly tries: number;
  readonly tags: readonly string[];
}

export function codecConformance(check: Check): void {
  const email: Email = { to: "ada@example.org", tries: 2, tags: ["a", "漢字"] };

  check("codec: bytes is the default", async ({ mq }) => {
    const log = await mq.openLog("events", { codec: bytes() });
    await log.append("text");
    assert.deepEqual((await log.read(0))?.payload, Buffer.from("text"));
    assert.deepEqual((await (await mq.openLog("events")).read(0))?.payload, Buffer.from("text"));
  });

  check("codec: text gives strings", async ({ mq }) => {
    const log = await mq.openLog("events", { codec: text() });
    await log.append("größe 漢字");
    const payload: string | undefined = (await log.read(0))?.payload;
    assert.equal(payload, "größe 漢字");
    const jobs = await mq.openTask("jobs", { codec: text() });
    await jobs.enqueue("work");
    assert.equal((await jobs.dequeue())?.payload, "work");
  });

  check("codec: json gives values, in logs, tasks, tails, transactions and dead letters", async ({ mq }) => {
    const log = await mq.openLog("events", { codec: json<Email>() });
    const jobs = await mq.openTask("jobs", { codec: json<Email>(), maxAttempts: 1 });
    await log.append(email);
    await log.appendBatch([email, message(email, { key: "k" })]);
    await mq.transaction((tx) => {
      tx.append(log, email);
      tx.enqueue(jobs, email);
    });
    const records = await recordsOf(log);
    assert.equal(records.length, 4);
    for (const record of records) assert.deepEqual(record.payload, email);
    assert.deepEqual(records[2]?.key, Buffer.from("k"));
    for await (const record of log.tail({ from: 0 })) {
      assert.deepEqual(record.payload, email);
      break;
    }
    const task = await jobs.dequeue();
    assert.equal(task?.payload.to, "ada@example.org");
    await jobs.nack(task as { token: string });
    const [letter] = await jobs.dead.read();
    assert.deepEqual(letter?.payload, email);
    assert.deepEqual(JSON.parse(letter?.raw.toString() ?? ""), email);
  });

  check("codec: with a codec, a payload that looks like a message is still a payload", async ({ mq }) => {
    const lookalike = { payload: "inner", key: "k", headers: { h: "1" } };
    const log = await mq.openLog("events", { codec: json<typeof lookalike>() });
    await log.append(lookalike);
    await log.append(message(lookalike, { key: "outer" }));
    const [plain, wrapped] = await recordsOf(log);
    assert.deepEqual(plain?.payload, lookalike);
    assert.equal(plain?.key, undefined);
    assert.deepEqual(wrapped?.payload, lookalike);
    assert.deepEqual(wrapped?.key, Buffer.from("outer"));
  });

  check("codec: a value it cannot bring back is refused before anything happens", async ({ mq }) => {
    const log = await mq.openLog("events", { codec: json<unknown>() });
    const jobs = await mq.openTask("jobs", { codec: json<unknown>() });
    await rejectsWith("ERR_ENCODE", log.append({ items: [{}, { at: new Date() }] }), /\$\.items\[1\]\.at/);
    await rejectsWith("ERR_ENCODE", log.appendBatch([1, 2, { big: 1n }]), /\$\.big/);
    await rejectsWith("ERR_ENCODE", jobs.enqueue(undefined));
    await rejectsWith("ERR_ENCODE", jobs.enqueueBatch(["fine", new Map()]));
    await rejectsWith(
      "ERR_ENCODE",
      mq.transaction((tx) => {
        tx.enqueue(jobs, "fine");
        tx.append(log, new Set());
      }),
    );
    assert.equal((await log.stats()).next, 0);
    assert.equal((await jobs.stats()).ready, 0);
  });

  check(
    "codec: a record that it cannot decode is an error for that record; its bytes stay reachable",
    async ({ mq }) => {
      const raw = await mq.openLog("events");
      await raw.appendBatch(['{"to":"a"}', "not json", '{"to":"b"}']);
      const log = await mq.openLog("events", { codec: json<{ to: string }>() });
      assert.equal((await log.read(0))?.payload.to, "a");
      await rejectsWith("ERR_DECODE", log.read(1), /1/);
      assert.equal((await log.read(2))?.payload.to, "b");
      assert.equal((await raw.read(1))?.payload.toString(), "not json");
    },
  );

  check("codec: a task that it cannot decode is a dead letter with its reason; the others go on", async ({ mq }) => {
    const raw = await mq.openTask("jobs", { maxAttempts: 5 });
    await raw.enqueueBatch(['{"to":"a"}', "not json", '{"to":"b"}']);
    const jobs = await mq.openTask("jobs", { codec: json<{ to: string }>() });
    const tasks = [await jobs.dequeue(), await jobs.dequeue()];
    assert.deepEqual(
      tasks.map((task) => task?.payload.to),
      ["a", "b"],
    );
    assert.equal(await jobs.dequeue(), undefined);
    await eventually("it dies", async () => (await jobs.dead.read()).length > 0);
    const letters = await jobs.dead.read();
    assert.equal(letters.length, 1);
    assert.equal(letters[0]?.payload, undefined);
    assert.equal(letters[0]?.raw.toString(), "not json");
    assert.match(letters[0]?.reason ?? "", /decode/i);
  });

  check("codec: one's own", async ({ mq }) => {
    const reversed: Codec<string> = {
      name: "reversed",
      encode: (value: string): Uint8Array => Buffer.from([...value].reverse().join("")),
      decode: (stored: Buffer): string => [...stored.toString()].reverse().join(""),
    };
    const log = await mq.openLog("events", { codec: reversed });
    await log.append("abc");
    assert.equal((await log.read(0))?.payload, "abc");
    assert.equal((await (await mq.openLog("events")).read(0))?.payload.toString(), "cba");
  });
}
