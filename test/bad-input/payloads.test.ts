import assert from "node:assert/strict";
import { json, message, text } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { badInput } from "./scene.js";

const PAYLOADS: readonly [title: string, payload: unknown][] = [
  ["a number", 5],
  ["null", null],
  ["nothing", undefined],
  ["a boolean", true],
  ["a plain object", { hello: "world" }],
  ["an array", [1, 2, 3]],
  ["an ArrayBuffer", new ArrayBuffer(4)],
  ["a Float64Array", new Float64Array(2)],
  ["a function", () => "x"],
  ["a string with half a character", "a\ud800b"],
  ["a message around a number", message(5)],
  ["a message-like object around a number", { payload: 5 }],
];

for (const [title, payload] of PAYLOADS) {
  badInput(`a payload that is ${title}`, async ({ mq, log, jobs }) => {
    const wrong = payload as string;
    await rejectsWith("ERR_ENCODE", log.append(wrong));
    await rejectsWith("ERR_ENCODE", log.appendBatch(["fine", wrong]));
    await rejectsWith("ERR_ENCODE", jobs.enqueue(wrong));
    await rejectsWith("ERR_ENCODE", jobs.enqueueBatch([wrong, "fine"]));
    await rejectsWith(
      "ERR_ENCODE",
      mq.transaction((tx) => {
        tx.append(log, "fine");
        tx.append(log, wrong);
      }),
    );
  });
}

badInput("a batch that is no array", async ({ log, jobs }) => {
  for (const wrong of ["text", 5, null, undefined, { length: 1 }] as unknown as string[][]) {
    await rejectsWith("ERR_ARGUMENT", log.appendBatch(wrong), /array/);
    await rejectsWith("ERR_ARGUMENT", jobs.enqueueBatch(wrong), /array/);
  }
});

badInput("a wrong value for a codec", async ({ mq }) => {
  const texts = await mq.openLog("events", { codec: text() });
  await rejectsWith("ERR_ENCODE", texts.append(5 as unknown as string), /string/);
  const values = await mq.openTask("jobs", { codec: json() });
  await rejectsWith("ERR_ENCODE", values.enqueue({ a: [1n] }), /\$\.a\[0\]/);
});

badInput(
  "a message larger than the limit",
  async ({ mq, log, jobs }) => {
    const huge = Buffer.alloc(4097);
    const says = /4097.*4096|4\.0KiB|limit/s;
    const error = await rejectsWith("ERR_TOO_LARGE", log.append(huge), says);
    assert.match(error.message, /maxMessageBytes/, "the option to change");
    await rejectsWith("ERR_TOO_LARGE", log.appendBatch(["fine", huge]), says);
    await rejectsWith("ERR_TOO_LARGE", jobs.enqueue(huge), says);
    await rejectsWith("ERR_TOO_LARGE", jobs.enqueueBatch([huge, "fine"]), says);
    await rejectsWith("ERR_TOO_LARGE", log.append("é".repeat(2049)), says);
    await rejectsWith(
      "ERR_TOO_LARGE",
      mq.transaction((tx) => {
        tx.append(log, "fine");
        tx.enqueue(jobs, huge);
      }),
      says,
    );
  },
  { maxMessageBytes: 4096 },
);

badInput(
  "a commit larger than the limit",
  async ({ mq, log, jobs }) => {
    const many = Array.from({ length: 10 }, () => Buffer.alloc(60_000));
    await rejectsWith("ERR_TOO_LARGE", log.appendBatch(many), /walFileBytes/);
    await rejectsWith("ERR_TOO_LARGE", jobs.enqueueBatch(many), /walFileBytes/);
    await rejectsWith(
      "ERR_TOO_LARGE",
      mq.transaction((tx) => {
        for (const payload of many) tx.append(log, payload);
      }),
      /walFileBytes/,
    );
  },
  { walFileBytes: "256KiB" },
);

badInput("a key or headers that are too much", async ({ log, jobs }) => {
  const huge = "k".repeat(40 * 1024 * 1024);
  await rejectsWith("ERR_TOO_LARGE", log.append("x", { key: huge }));
  await rejectsWith("ERR_TOO_LARGE", log.append("x", { headers: { huge } }));
  await rejectsWith("ERR_TOO_LARGE", jobs.enqueue("x", { headers: { [huge]: "" } }));
});
