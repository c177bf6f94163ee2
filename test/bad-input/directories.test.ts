import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { open, type Task } from "../../src/index.js";
import { startChild } from "../support/child.js";
import { filesBelow, fingerprint, withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { observe, textsOf } from "../support/state.js";

/** Without rights of its own; used where the tests run as root, whom nothing is read-only for. */
const NOBODY = 65_534;

interface Report {
  readonly opened: boolean;
  readonly code?: string;
  readonly message?: string;
}

async function openInChild(directory: string, user?: number): Promise<Report> {
  const child = startChild(import.meta.url, "./open-in-child.js", {
    args: user === undefined ? [directory] : [directory, `${user}`],
  });
  try {
    return await child.message<Report>((report) => report.opened !== undefined);
  } finally {
    child.kill();
    await child.exited;
  }
}

async function fill(directory: string): Promise<void> {
  const mq = await open(directory);
  await (await mq.openLog("events")).appendBatch(["a", "b", "c"]);
  const jobs = await mq.openTask("jobs");
  await jobs.enqueueBatch(["1", "2"]);
  await jobs.ack((await jobs.dequeue()) as Task);
  await mq.close();
}

void test("bad input: a path that is none", async () => {
  for (const path of ["", "a\0b", 5, undefined, null, {}] as string[]) {
    await rejectsWith("ERR_ARGUMENT", async () => open(path), /directory|path/);
  }
});

void test("bad input: a directory that is not there, when creating it was not asked for", async () => {
  await withDirectory(async (directory) => {
    await rejectsWith("ERR_NOT_FOUND", open(join(directory, "none"), { create: false }), /create/);
    await rejectsWith("ERR_NOT_FOUND", open(directory, { create: false }), /create/);
    assert.deepEqual(filesBelow(directory), []);
  });
});

void test("bad input: a file where the directory should be", async () => {
  await withDirectory(async (directory) => {
    const path = join(directory, "file");
    writeFileSync(path, "mine");
    await rejectsWith("ERR_NOT_VARVE", open(path), /file/);
    await rejectsWith("ERR_NOT_VARVE", open(join(path, "below")), /file/);
    assert.equal(readFileSync(path, "utf8"), "mine");
  });
});

void test("bad input: a directory full of something else", async () => {
  await withDirectory(async (directory) => {
    writeFileSync(join(directory, "index.html"), "<p>");
    mkdirSync(join(directory, "assets"));
    const before = fingerprint(directory);
    await rejectsWith("ERR_NOT_VARVE", open(directory), /empty|another directory/);
    assert.deepEqual(fingerprint(directory), before);
  });
});

void test("bad input: foreign files among varve's own are left alone, and noted", async () => {
  await withDirectory(async (directory) => {
    await fill(directory);
    const foreign = ["notes.txt", "wal/readme", "log/events/.DS_Store", "log/stray", "task/jobs/copy of queue.json"];
    for (const path of foreign) writeFileSync(join(directory, path), "mine");
    mkdirSync(join(directory, "log", "Not A Queue"));
    const mq = await open(directory);
    assert.deepEqual(
      (await mq.queues()).map(({ kind, name }) => `${kind}/${name}`),
      ["log/events", "task/jobs"],
    );
    assert.deepEqual(await textsOf(await mq.openLog("events")), ["a", "b", "c"]);
    assert.equal((await (await mq.openTask("jobs")).dequeue())?.payload.toString(), "2");
    const notes = (await mq.stats()).recovery.notes.join("\n");
    await mq.close();
    for (const path of foreign) assert.equal(readFileSync(join(directory, path), "utf8"), "mine");
    assert.match(notes, /notes\.txt/);
  });
});

void test("bad input: a second owner, in this process, in another, and by another path", async () => {
  await withDirectory(async (directory) => {
    await fill(directory);
    const mq = await open(directory);
    const before = await observe(mq);
    const link = `${directory}-link`;
    symlinkSync(directory, link);
    try {
      const owner = new RegExp(`${process.pid}`);
      for (const path of [directory, `${directory}/`, join(directory, "log", ".."), link]) {
        await rejectsWith("ERR_DIR_LOCKED", open(path), /this process/);
        const report = await openInChild(path);
        assert.equal(report.code, "ERR_DIR_LOCKED", report.message);
        assert.match(report.message ?? "", owner, "the message names the owner");
      }
      assert.deepEqual(await observe(mq), before);
      assert.equal(await (await mq.openLog("events")).append("d"), 3, "the owner goes on");
    } finally {
      rmSync(link);
      await mq.close();
    }
    const again = await open(directory);
    assert.equal((await (await again.openLog("events")).stats()).count, 4);
    await again.close();
  });
});

void test("bad input: a directory without the right to write", async () => {
  await withDirectory(async (directory) => {
    const data = join(directory, "data");
    await fill(data);
    chmodSync(directory, 0o755);
    const before = fingerprint(data);
    if (process.getuid?.() === 0) {
      // Root's files are not readable for others: the owner of the directory is the one that must not write.
      const report = await openInChild(data, NOBODY);
      assert.equal(report.code, "ERR_ACCESS", report.message);
      const inside = await openInChild(join(directory, "new"), NOBODY);
      assert.equal(inside.code, "ERR_ACCESS", inside.message);
    } else {
      chmodSync(data, 0o555);
      await rejectsWith("ERR_ACCESS", open(data), /permission|rights|write/);
      chmodSync(data, 0o755);
      chmodSync(directory, 0o555);
      await rejectsWith("ERR_ACCESS", open(join(directory, "new")), /permission|rights|write/);
      chmodSync(directory, 0o755);
    }
    assert.deepEqual(fingerprint(data), before);
    const mq = await open(data);
    assert.equal((await (await mq.openLog("events")).stats()).count, 3);
    await mq.close();
  });
});

void test("bad input: a directory of a later format", async () => {
  await withDirectory(async (directory) => {
    await fill(directory);
    const path = join(directory, "varve.json");
    const manifest = readFileSync(path, "utf8");
    const later = manifest.replace(/("(?:format|formatVersion|version)"\s*:\s*)\d+/, "$1999");
    assert.notEqual(later, manifest, "the manifest states a format version");
    writeFileSync(path, later);
    const before = fingerprint(directory);
    await rejectsWith("ERR_FORMAT_VERSION", open(directory), /999/);
    assert.deepEqual(fingerprint(directory), before);
    writeFileSync(path, manifest);
    const mq = await open(directory);
    assert.equal((await (await mq.openLog("events")).stats()).count, 3);
    await mq.close();
  });
});

void test("bad input: a damaged directory file is refused, never taken for a new directory", async () => {
  await withDirectory(async (directory) => {
    await fill(directory);
    const path = join(directory, "varve.json");
    const manifest = readFileSync(path);
    for (const damaged of [Buffer.alloc(0), Buffer.from("{"), Buffer.from("null"), Buffer.alloc(manifest.length)]) {
      writeFileSync(path, damaged);
      const before = fingerprint(directory);
      await rejectsWith("ERR_CORRUPT", open(directory), /varve\.json/);
      assert.deepEqual(fingerprint(directory), before);
    }
    writeFileSync(path, manifest);
    const mq = await open(directory);
    assert.equal((await (await mq.openLog("events")).stats()).count, 3);
    await mq.close();
  });
});
