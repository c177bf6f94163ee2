import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type LogQueue, open, type TaskQueue } from "../../src/index.js";
import { payloadOf } from "../crash/journal.js";
import { drain, listAll } from "../network/ending.js";
import { DECLARED, openQueues } from "../network/shape.js";
import { withDirectory } from "../support/directories.js";
import { HistoryFile, historiesOf, loadHistory } from "./files.js";
import { HistoryReader } from "./history.js";
import { judge } from "./judge.js";
import { nameOf, Recorder } from "./recorder.js";

void test("a payload that came back as it was sent has its name, any other has not", () => {
  const payload = Buffer.from(payloadOf("a1"));
  assert.equal(nameOf(payload), "a1");
  payload[payload.length - 1]! ^= 1;
  assert.match(nameOf(payload), /^a1#/);
  assert.match(nameOf(Buffer.from("something else")), /^\?#/);
});

/** A few calls of each kind, noted down for whoever is to judge them. */
async function record(sink: HistoryReader, log: LogQueue, jobs: TaskQueue): Promise<void> {
  const recorder = new Recorder("a", sink);
  const values = ["r1", "r2"];
  await recorder.call(
    { op: "append", log: log.name, values },
    () => log.appendBatch(values.map(payloadOf)),
    (offsets) => ({ offsets }),
  );
  await recorder.call(
    { op: "enqueue", queue: jobs.name, values: ["t1"] },
    () => jobs.enqueue(payloadOf("t1")),
    ({ id, created }) => ({ ids: [id], created: [created] }),
  );
}

void test("what recorders write can be judged in the same process", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    const queues = await openQueues(mq);
    const [jobs] = queues.tasks;
    const sink = new HistoryReader();
    for (const declared of DECLARED) sink.write(declared);
    await record(sink, queues.log, jobs);
    const end = new Recorder("end", sink);
    await drain(end, queues);
    // Nobody has written this down.
    await queues.log.append(payloadOf("z1"));
    await listAll(end, queues);
    const refused = await end.call({ op: "ack", queue: jobs.name, tokens: ["0"] }, () => jobs.ack("0"));
    assert.equal(refused.code, "ERR_TOKEN");
    await mq.close();
    const history = sink.end();
    assert.equal(history.calls.at(-1)?.outcome, "refused");
    assert.deepEqual(
      judge(history).map(({ kind }) => kind),
      ["phantom"],
    );
  });
});

void test("a history in files: calls without an answer, and a last line that is cut off", async () => {
  await withDirectory(async (directory) => {
    const file = new HistoryFile(join(directory, "a.jsonl"));
    file.write({ client: "a", call: 0, invoke: 1, op: "append", log: "events", values: ["a1"] });
    file.write({ client: "a", call: 0, return: 2, outcome: "ok", offsets: [0] });
    file.write({ client: "a", call: 1, invoke: 3, op: "append", log: "events", values: ["a2"] });
    file.close();
    writeFileSync(join(directory, "a.jsonl"), '{"client":"a","call":1,"return":4,"outc', { flag: "a" });
    writeFileSync(join(directory, "b.jsonl"), '{"fault":"kill","whom":"a","at":5}\n');
    const [found] = historiesOf([directory]);
    const { calls, faults } = await loadHistory(found!.files);
    assert.deepEqual(
      calls.map(({ outcome, return: returned }) => [outcome, returned]),
      [
        ["ok", 2],
        ["unknown", Number.POSITIVE_INFINITY],
      ],
    );
    assert.equal(faults.length, 1);
    writeFileSync(join(directory, "b.jsonl"), "{]\n{}\n", { flag: "a" });
    await assert.rejects(loadHistory(found!.files), /b\.jsonl: no line of a history/);
  });
});
