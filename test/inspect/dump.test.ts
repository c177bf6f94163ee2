/** Dumps of every kind of file: all of it is there, JSON can hold it, and damage is shown rather than thrown. */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { dumpFile, isVarveError } from "../../src/index.js";
import { startChild } from "../support/child.js";
import { filesBelow, makeDirectory, removeDirectory } from "../support/directories.js";
import { currentLog, filesIn, flip, PER_BATCH, TASKS, withCopy } from "./scene.js";

let directory = "";

before(async () => {
  directory = join(makeDirectory(), "data");
  const child = startChild(import.meta.url, "./worker.js", { args: [directory] });
  assert.equal((await child.exited).signal, "SIGKILL");
});

after(() => removeDirectory(join(directory, "..")));

type Item = Record<string, unknown> & { type: string };

async function dumpOf(file: string, from = directory): Promise<Item[]> {
  const items: Item[] = [];
  for await (const item of dumpFile(join(from, file))) items.push(JSON.parse(JSON.stringify(item)) as Item);
  return items;
}

function ofType(items: readonly Item[], type: string): Item[] {
  return items.filter((item) => item.type === type);
}

test("every file but the ballast and the empty marks can be dumped", async () => {
  for (const file of filesBelow(directory)) {
    if (file === "ballast" || file.endsWith(".begun")) continue;
    const items = await dumpOf(file);
    assert.ok(items.length > 0, file);
    const unused = readFileSync(join(directory, file)).every((byte) => byte === 0);
    assert.equal(ofType(items, "damage").length, unused ? 1 : 0, file);
  }
});

test("a log shows its commits: batches, records and operations by name", async () => {
  const items = await dumpOf(currentLog(directory));
  assert.equal(items[0]!.of, "write-ahead log");
  const payloads = ofType(items, "record").map((item) => (item.payload as { text: string }).text);
  assert.deepEqual(payloads.slice(0, 2), ["commit 0 after the checkpoint", "commit 1 after the checkpoint"]);
  assert.equal(payloads.at(-1), "the last");
  const operations = ofType(items, "operation").map((item) => item.name);
  // The time that the directory was closed is noted if it was a millisecond or more.
  assert.deepEqual(
    operations.filter((name) => name !== "Credit"),
    ["Deliver", "Ack", "CreateQueue"],
  );
  assert.equal(items.at(-1)!.type, "end");
  const lsns = ofType(items, "entry").map((item) => item.lsn as number);
  assert.deepEqual(
    lsns,
    lsns.map((_, index) => lsns[0]! + index),
  );
});

test("older log files show the other operations, with their fields", async () => {
  const names = new Map<unknown, Item>();
  for (const file of filesIn(directory, "wal", /\.wal$/)) {
    for (const item of ofType(await dumpOf(file), "operation")) names.set(item.name, item);
  }
  for (const name of ["CreateQueue", "Schedule", "Deliver", "Ack", "Extend", "Bury", "Exhume", "Trim"]) {
    assert.ok(names.has(name), `${name} is among ${[...names.keys()].join(" ")}`);
  }
  assert.equal(names.get("Trim")!.offset, 5);
  assert.equal((names.get("Ack")!.offsets as number[]).length > 0, true);
});

test("a segment shows batches and records, with keys and headers", async () => {
  const [file] = filesIn(directory, "log/events", /\.seg$/);
  const items = await dumpOf(file!);
  const [batch] = ofType(items, "batch");
  assert.deepEqual([batch!.count, batch!.baseOffset, batch!.position], [PER_BATCH, 0, 64]);
  const [record] = ofType(items, "record");
  assert.deepEqual([record!.offset, record!.headers, record!.key], [0, { batch: "0" }, { bytes: 2, text: "k0" }]);
  assert.equal((record!.payload as { cut?: boolean }).cut, true);
  assert.equal(ofType(items, "record").length, ofType(items, "batch").length * PER_BATCH);
});

test("a dead letter shows how its task died", async () => {
  const files = filesBelow(directory).filter((file) => file.endsWith(".seg"));
  const deaths: unknown[] = [];
  for (const file of files) {
    for (const { attributes } of ofType(await dumpOf(file), "record")) {
      if ((attributes as { death?: object } | undefined)?.death !== undefined) deaths.push(attributes);
    }
  }
  assert.equal(deaths.length, 2, "one of three was purged");
  assert.match(JSON.stringify(deaths[0]), /attempts exhausted: no good/);
});

test("a snapshot shows queues, their runs and their ledgers; an index its entries", async () => {
  const [file] = filesIn(directory, "snap", /\.snap$/);
  const sections = ofType(await dumpOf(file!), "section");
  const jobs = sections.find((section) => section.queue === "Jobs")!;
  const { lanes, scheduled, config } = jobs.state as {
    lanes: { cursor: number; outstanding: Item[] }[];
    scheduled: { lanes: { elapsed: { entries: Item[] } }[] };
    config: object;
  };
  const { cursor, outstanding } = lanes[0]!;
  assert.deepEqual([jobs.kind, cursor], ["task", 10]);
  assert.deepEqual(
    outstanding.map((task) => task.phase),
    ["leased", "leased", "leased"],
  );
  assert.deepEqual(
    scheduled.lanes[0]!.elapsed.entries.map((entry) => entry.offset),
    [TASKS],
  );
  assert.equal((config as { maxAttempts: number }).maxAttempts, 1);
  const events = sections.find((section) => section.queue === "events")!;
  const [stream] = events.streams as { runs: { sharedId: number }[] }[];
  const own = stream!.runs.filter((run) => run.sharedId === 0);
  assert.equal(own.length, filesIn(directory, "log/events", /\.seg$/).length);
  assert.ok((sections[0]!.sharedSegments as object[]).length > 0);
  const [index] = filesIn(directory, "log/events", /\.idx$/);
  assert.deepEqual(ofType(await dumpOf(index!), "entry")[0]!.position, 64);
});

test("damage is shown in its place, and what stands behind it follows", async () => {
  await withCopy(directory, async (copy) => {
    const change = (file: string, position: number) => {
      const bytes = readFileSync(join(copy, file));
      writeFileSync(join(copy, file), flip(position)(bytes));
    };
    const [segment] = filesIn(copy, "log/events", /\.seg$/);
    const whole = await dumpOf(segment!, copy);
    change(segment!, 5000);
    const items = await dumpOf(segment!, copy);
    assert.equal(ofType(items, "damage").length, 1);
    assert.equal(ofType(items, "batch").length, ofType(whole, "batch").length - 1);

    const log = currentLog(copy);
    const payload = readFileSync(join(copy, log)).indexOf("commit 3 after");
    change(log, payload);
    assert.deepEqual(
      ofType(await dumpOf(log, copy), "damage").map((item) => item.position),
      [payload - 46],
    );
    change(log, payload - 46 - 40);
    const holed = await dumpOf(log, copy);
    assert.equal(ofType(holed, "damage").length, 1);
    assert.equal((ofType(holed, "record").at(-1)!.payload as { text: string }).text, "the last");

    const [snapshot] = filesIn(copy, "snap", /\.snap$/);
    change(snapshot!, readFileSync(join(copy, snapshot!)).length - 1);
    assert.equal(ofType(await dumpOf(snapshot!, copy), "damage").length, 1);
    change(snapshot!, 20);
    assert.deepEqual(
      (await dumpOf(snapshot!, copy)).map((item) => item.type),
      ["damage"],
    );
    const [index] = filesIn(copy, "log/events", /\.idx$/);
    change(index!, 40);
    assert.deepEqual(
      (await dumpOf(index!, copy)).map((item) => item.type),
      ["damage"],
    );
  });
});

test("other files are refused", async () => {
  await withCopy(directory, async (copy) => {
    writeFileSync(join(copy, "foreign"), "not varve's");
    writeFileSync(join(copy, "empty"), "");
    for (const [file, code] of [
      ["foreign", "ERR_NOT_VARVE"],
      ["empty", "ERR_NOT_VARVE"],
      ["missing", "ERR_NOT_FOUND"],
      ["wal", "ERR_NOT_VARVE"],
    ] as const) {
      await assert.rejects(dumpOf(file, copy), (error) => isVarveError(error, code), file);
    }
  });
});

test("payloads are text where they are printable, else base64, and cut within no character", async () => {
  const { showBytes } = await import("../../src/engine/inspect-dump.js");
  assert.deepEqual(showBytes(Buffer.from("héllo\n")), { bytes: 7, text: "héllo\n" });
  assert.deepEqual(showBytes(Buffer.from([0, 255])), { bytes: 2, base64: "AP8=" });
  assert.deepEqual(showBytes(Buffer.alloc(0)), { bytes: 0, text: "" });
  const long = showBytes(Buffer.from("é".repeat(400))) as { text: string; bytes: number; cut: boolean };
  assert.deepEqual([long.bytes, long.text, long.cut], [800, "é".repeat(128), true]);
  const odd = showBytes(Buffer.from(`x${"é".repeat(400)}`)) as { text: string };
  assert.equal(odd.text, `x${"é".repeat(127)}`);
});
