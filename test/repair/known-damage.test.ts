/** Damage that an open must not lose sight of, and what must be there that is not. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { readPreface } from "../../src/engine/catalog.js";
import { isVarveError, type MessageQueue, open, type Task, verifyDirectory } from "../../src/index.js";
import { sealBatch } from "../../src/storage/batch.js";
import { Decoder } from "../../src/storage/bytes.js";
import { crc32 } from "../../src/storage/crc32.js";
import { NodeDisk } from "../../src/storage/node-disk.js";
import { decodeSnapshot } from "../../src/storage/snapshot.js";
import { ENTRY_HEADER_BYTES, encodeFileHeader, FILE_HEADER_BYTES, sealEntry } from "../../src/storage/wal-format.js";
import { WalReader } from "../../src/storage/wal-reader.js";
import { filesIn, flip, OPTIONS } from "../inspect/scene.js";
import { startChild } from "../support/child.js";
import { filesBelow, fingerprint, withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { textsOf } from "../support/state.js";
import { change, codeOfOpen, remove } from "./damage.js";

const isNotLock = (path: string) => !path.startsWith("LOCK");

async function fill(directory: string): Promise<void> {
  const mq = await open(directory, OPTIONS);
  await (await mq.openLog("one")).appendBatch(["1", "2"]);
  await (await mq.openLog("two")).appendBatch(["a", "b"]);
  await mq.close();
}

/** Where a queue's section begins in the snapshot, and where in it the id of the queue's first stream stands. */
function sectionAt(directory: string, queue: string): { position: number; firstStreamId: number } {
  const bytes = readFileSync(join(directory, filesIn(directory, "snap", /snap$/)[0]!));
  const snapshot = decodeSnapshot(bytes);
  assert.ok(typeof snapshot !== "string");
  const section = snapshot.sections.find(({ name }) => name === queue)!.body;
  const body = new Decoder(section);
  readPreface(body);
  body.bytes(body.varint()); // the state
  body.varint(); // streams
  return { position: section.byteOffset - bytes.byteOffset, firstStreamId: body.position };
}

test("a damaged section stays damaged, however often it is written again", async () => {
  await withDirectory(async (directory) => {
    await fill(directory);
    change(directory, filesIn(directory, "snap", /snap$/)[0]!, flip(sectionAt(directory, "one").position));
    for (let life = 0; life < 3; life++) {
      const mq = await open(directory, OPTIONS);
      await (await mq.openLog("two")).append(`life ${life}`);
      assert.deepEqual(
        (await mq.queues()).filter(({ damaged }) => damaged !== undefined).map(({ name }) => name),
        ["one"],
      );
      await mq.close();
    }
  });
});

test("a damaged queue can be deleted, with what small queues have in common", async () => {
  for (const crashed of [false, true]) {
    await withDirectory(async (directory) => {
      const first = await open(directory, OPTIONS);
      // So many small ones have a segment together.
      const names = ["one", "two", ...Array.from({ length: 20 }, (_, index) => `small-${index}`)];
      for (const name of names) await (await first.openLog(name)).appendBatch(["1", "2"]);
      await first.close();
      assert.ok(filesBelow(directory).some((path) => path.startsWith("shared/")));
      for (const name of ["one", "two"]) {
        change(directory, filesIn(directory, "snap", /snap$/)[0]!, flip(sectionAt(directory, name).position));
      }
      const mq = await open(directory, OPTIONS);
      assert.equal(await mq.deleteQueue("log", "one"), true);
      const isDamaged = async (queue: MessageQueue) => (await queue.queues()).filter(({ damaged }) => damaged).length;
      assert.equal(await isDamaged(mq), 1);
      await mq.close();
      const again = await open(directory, OPTIONS);
      assert.equal(await isDamaged(again), 1);
      if (crashed) {
        await again.close();
        const child = startChild(import.meta.url, "./delete-worker.js", { args: [directory, "two"] });
        await child.exited;
      } else {
        assert.equal(await again.deleteQueue("log", "two"), true);
        await again.close();
      }
      const last = await open(directory, OPTIONS);
      assert.equal(await isDamaged(last), 0);
      assert.equal((await last.queues()).length, names.length - 2);
      assert.deepEqual(await textsOf(await last.openLog("small-7")), ["1", "2"]);
      assert.deepEqual(await textsOf(await last.openLog("two")), []);
      for (const name of names.slice(2)) await last.deleteQueue("log", name);
      await last.close();
      const { problems } = await verifyDirectory(directory);
      assert.deepEqual(problems, []);
      assert.deepEqual(
        filesBelow(directory).filter((path) => path.endsWith(".seg")),
        [],
        "nothing is left",
      );
    });
  }
});

test("a damaged section claims no stream of a queue that is sound", async () => {
  await withDirectory(async (directory) => {
    await fill(directory);
    const child = startChild(import.meta.url, "./append-worker.js", { args: [directory, "two", "c"] });
    await child.exited;
    // The id of the first queue's stream becomes that of the second.
    const { position, firstStreamId } = sectionAt(directory, "one");
    const at = position + firstStreamId;
    const snapshot = filesIn(directory, "snap", /snap$/)[0]!;
    assert.equal(readFileSync(join(directory, snapshot))[at], 1);
    change(directory, snapshot, (bytes) => {
      bytes[at] = 2;
      return bytes;
    });
    const mq = await open(directory, OPTIONS);
    assert.deepEqual(await textsOf(await mq.openLog("two")), ["a", "b", "c"]);
    await mq.close();
  });
});

test("a used directory without varve.json is refused, not made anew", async () => {
  await withDirectory(async (directory) => {
    await fill(directory);
    remove(directory, "varve.json");
    const before = fingerprint(directory, isNotLock);
    for (const create of [true, false]) {
      const error = await rejectsWith("ERR_CORRUPT", open(directory, { ...OPTIONS, create }), /varve repair/);
      assert.match(String(error.details.file), /varve\.json$/);
    }
    assert.deepEqual(fingerprint(directory, isNotLock), before);
  });
});

test("what an interrupted creation leaves is no used directory", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory, OPTIONS);
    await mq.close();
    const first = filesIn(directory, "snap", /snap$/)[0]!;
    const bytes = readFileSync(join(directory, first));
    await withDirectory(async (other) => {
      for (const part of ["wal", "snap", "shared"]) mkdirSync(join(other, part));
      writeFileSync(join(other, "snap", "0000000000000000.snap"), bytes);
      const made = await open(other, OPTIONS);
      assert.equal(await (await made.openLog("x")).append("1"), 0);
      await made.close();
    });
  });
});

test("a delay runs down while the directory is closed, also for a queue that is loaded later", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const first = await openAt(clock, directory, OPTIONS);
    const jobs = await first.openTask("jobs");
    await jobs.enqueue("later", { delay: "1h" });
    await jobs.enqueue("leased");
    assert.ok(await jobs.dequeue({ lease: "1m" }));
    await first.close();
    await clock.pass(2 * 3_600_000);
    const second = await openAt(clock, directory, OPTIONS);
    const again = await second.openTask("jobs");
    assert.equal(((await again.dequeue()) as Task | undefined)?.payload.toString(), "later");
    assert.equal((await again.stats()).leased, 2, "a lease stands still");
    await second.close();
  });
});

test("a log file that follows a clean snapshot must be there once it has been begun", async () => {
  await withDirectory(async (directory) => {
    await fill(directory);
    const child = startChild(import.meta.url, "./append-worker.js", { args: [directory, "one", "3"] });
    await child.exited;
    const log = filesIn(directory, "wal", /^\d+\.wal$/).at(-1)!;
    const bytes = readFileSync(join(directory, log));
    remove(directory, log);
    await rejectsWith("ERR_CORRUPT", open(directory, OPTIONS), /missing/);
    writeFileSync(join(directory, log), bytes);
    const mq = await open(directory, OPTIONS);
    assert.deepEqual(await textsOf(await mq.openLog("one")), ["1", "2", "3"]);
    await mq.close();
    // After an orderly close nothing in wal/ is needed any more.
    for (const name of filesIn(directory, "wal", /wal$/)) remove(directory, name);
    assert.equal(await codeOfOpen(directory), undefined);
  });
});

test("changes of a damaged queue are copied before the log that holds them is reused", async () => {
  await withDirectory(async (directory) => {
    await fill(directory);
    const child = startChild(import.meta.url, "./append-worker.js", { args: [directory, "one", "3"] });
    await child.exited;
    change(directory, filesIn(directory, "snap", /snap$/)[0]!, flip(sectionAt(directory, "one").position));
    const log = filesIn(directory, "wal", /^\d+\.wal$/).at(-1)!;
    const bytes = readFileSync(join(directory, log));
    const mq = await open(directory, OPTIONS);
    const { notes } = (await mq.stats()).recovery;
    assert.match(notes.join("\n"), /damaged\/wal\/\d+\.wal/);
    await mq.close();
    assert.deepEqual(readFileSync(join(directory, "damaged", log)), bytes);
  });
});

test("what a torn sector left behind a batch in the log stays out of the segments", async () => {
  await withDirectory(async (directory) => {
    await fill(directory);
    // Were the record that stood there before the same but longer, the batch would be whole though its end was never written.
    const payload = "the end of a torn sector";
    const worker = startChild(import.meta.url, "./append-worker.js", { args: [directory, "one", payload] });
    await worker.exited;
    const wal = filesIn(directory, "wal", /^\d+\.wal$/).at(-1)!;
    change(directory, wal, (bytes) => {
      const end = bytes.lastIndexOf(payload) + payload.length;
      assert.ok(end > payload.length && end % 8 !== 0, "there is padding");
      return bytes.fill("x", end, Math.ceil(end / 8) * 8);
    });
    const mq = await open(directory, OPTIONS);
    assert.deepEqual(await textsOf(await mq.openLog("one")), ["1", "2", payload]);
    await mq.close();
    assert.deepEqual((await verifyDirectory(directory)).problems, []);
  });
});

test("flags of a record that are not known are refused, with the place", async () => {
  await withDirectory(async (directory) => {
    const first = await open(directory, OPTIONS);
    const log = await first.openLog("events");
    await log.append("plain");
    await log.append("behind");
    await first.close();
    const segment = filesBelow(directory).find((path) => path.startsWith("log/events/") && path.endsWith(".seg"))!;
    change(directory, segment, (bytes) => {
      // No flag that is known is set; the checksum matches.
      assert.equal(bytes[64 + 40 + 4], 0);
      bytes[64 + 40 + 4] = 64;
      bytes.writeUInt32LE(crc32(bytes, 68, 64 + bytes.readUInt32LE(68)), 64);
      return bytes;
    });
    const mq = await open(directory, OPTIONS);
    const events = await mq.openLog("events");
    const error = await rejectsWith("ERR_CORRUPT", events.read(0), /flags/);
    assert.deepEqual(
      { position: error.details.position, from: error.details.from, to: error.details.to },
      { position: 64, from: 0, to: 1 },
    );
    assert.match(String(error.details.file), /events\/0+-s1\.seg$/);
    assert.equal((await events.read(1))?.payload.toString(), "behind");
    await mq.close();
  });
});

test("a torn entry larger than what is read at once is measured and cut", async () => {
  await withDirectory(async (directory) => {
    const id = "00".repeat(16);
    const payload = 5 * 1024 * 1024;
    const batch = Buffer.alloc(48 + payload);
    sealBatch(batch, 0, batch.length, 1, 1, 0, 0, 1);
    const entry = Buffer.concat([Buffer.alloc(ENTRY_HEADER_BYTES), batch]);
    const head = { generation: 1, bulkBytes: batch.length, metaBytes: 0, watermark: 0, elapsedMs: 0, wallMs: 0 };
    sealEntry(entry, 0, entry.length, { ...head, lsn: 1, prevCrc: 0, bulkCrc: crc32(batch, 0, 4) });
    entry[entry.length - 1]! ^= 1;
    const header = { seq: 1, firstLsn: 1, generation: 1, prevCrc: 0, directoryId: id, bootId: "", async: false };
    const path = join(directory, "0000000000000001.wal");
    const small = Buffer.alloc(3 * 1024 * 1024);
    writeFileSync(path, Buffer.concat([encodeFileHeader({ ...header, fileBytes: 1 << 26 }), entry, small]));
    const reader = new WalReader(new NodeDisk(), id);
    const end = await reader.replay([{ path, seq: 1 }], { lsn: 0, crc: 0, generation: 1 }, () => assert.fail());
    assert.equal(end.lsn, 0);
    assert.equal(end.fileBytesMax, 1 << 26);
    assert.ok(end.cutBytes >= entry.length, `${end.cutBytes} bytes cut`);
    assert.equal(FILE_HEADER_BYTES, 4096);
  });
});

test("offsets go on past all that log files of an earlier life can have held", async () => {
  await withDirectory(async (directory) => {
    const large = 4 * 1024 * 1024;
    const child = startChild(import.meta.url, "./append-worker.js", {
      args: [directory, "events", "1", "async", String(large)],
    });
    await child.exited;
    // A mark that stands for a power cut: what was not synced may be gone.
    writeFileSync(join(directory, "wal", "failed"), "");
    const mq = await open(directory, { ...OPTIONS, walFileBytes: "1MiB" });
    const offset = await (await mq.openLog("events")).append("2");
    assert.ok(offset >= (4 * large) / 6, `offset ${offset}`);
    await mq.close();
  });
});

test("a read-only file system: opening is refused, nothing is changed", async (t) => {
  await withDirectory(async (directory) => {
    const data = join(directory, "data");
    mkdirSync(data);
    try {
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=64m", "tmpfs", data], { stdio: "pipe" });
    } catch (error) {
      t.skip(`nothing can be mounted here: ${error instanceof Error ? error.message.trim() : error}`);
      return;
    }
    try {
      await fill(join(data, "queues"));
      execFileSync("mount", ["-o", "remount,ro", data], { stdio: "pipe" });
      const before = fingerprint(data);
      for (const path of ["queues", "new"]) {
        const error = await rejectsWith("ERR_ACCESS", open(join(data, path), OPTIONS), /EROFS/);
        assert.equal((error.cause as NodeJS.ErrnoException).code, "EROFS");
      }
      assert.deepEqual(fingerprint(data), before);
      assert.ok(!existsSync(join(data, "new")));
      execFileSync("mount", ["-o", "remount,rw", data], { stdio: "pipe" });
      const mq = await open(join(data, "queues"), OPTIONS);
      assert.deepEqual(await textsOf(await mq.openLog("one")), ["1", "2"]);
      await mq.close();
    } finally {
      execFileSync("umount", [data], { stdio: "pipe" });
    }
  });
});

test("who owns a locked directory is told, and what to do", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory, OPTIONS);
    try {
      const error = await rejectsWith("ERR_DIR_LOCKED", open(directory, OPTIONS), /Close it there/);
      assert.ok(isVarveError(error) && !/daemon/.test(error.message));
    } finally {
      await mq.close();
    }
  });
});
