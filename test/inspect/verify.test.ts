/** What verify finds, and where: in directories closed in order and killed, sound and damaged in every kind of file. */

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { readPreface } from "../../src/engine/catalog.js";
import { isVarveError, open, type VerifyProblem, type VerifyProgress, verifyDirectory } from "../../src/index.js";
import { kinds } from "../../src/queues/kinds.js";
import type { TaskState } from "../../src/queues/task-state.js";
import { Decoder, Encoder } from "../../src/storage/bytes.js";
import { decodeSnapshot, encodeSnapshot } from "../../src/storage/snapshot.js";
import { Stream } from "../../src/storage/stream.js";
import { startChild } from "../support/child.js";
import { bytesBelow, fingerprint, makeDirectory, removeDirectory, withDirectory } from "../support/directories.js";
import { scaled } from "../support/scale.js";
import { seedOr, withSeed } from "../support/seeded.js";
import {
  BATCHES,
  currentLog,
  filesIn,
  fillClosed,
  flip,
  OPTIONS,
  PER_BATCH,
  TASKS,
  TRIMMED,
  verifyChanged,
  withCopy,
} from "./scene.js";

const RECORDS = BATCHES * PER_BATCH;
let root = "";
let closed = "";
let killed = "";

before(async () => {
  root = makeDirectory();
  closed = join(root, "closed");
  killed = join(root, "killed");
  await fillClosed(closed);
  const child = startChild(import.meta.url, "./worker.js", { args: [killed] });
  const { signal, stderr } = await child.exited;
  assert.equal(signal, "SIGKILL", stderr);
});

after(() => removeDirectory(root));

function only(problems: readonly VerifyProblem[], what: string): VerifyProblem {
  assert.equal(problems.length, 1, `${what}: ${JSON.stringify(problems, undefined, 1)}`);
  return problems[0]!;
}

test("a directory closed in order is sound, and stays as it was", async () => {
  const prints = fingerprint(closed);
  const progress: VerifyProgress[] = [];
  const report = await verifyDirectory(closed, { onProgress: (each) => progress.push(each) });
  assert.deepEqual([report.ok, report.problems, report.notes], [true, [], []]);
  assert.ok(report.records >= RECORDS - PER_BATCH + TASKS, `${report.records} records`);
  assert.ok(report.files >= 8 && report.bytes < bytesBelow(closed), `${report.files} files, ${report.bytes} bytes`);
  assert.deepEqual(fingerprint(closed), prints);
  const last = progress.at(-1)!;
  assert.ok(last.bytesDone <= last.bytesTotal && last.bytesDone > last.bytesTotal / 2, JSON.stringify(last));
  for (const [index, each] of progress.entries()) {
    assert.ok(each.bytesDone >= (progress[index - 1]?.bytesDone ?? 0) && each.bytesTotal === report.bytes);
  }
});

test("a killed directory is sound, and stays as it was but for the name of its last owner", async () => {
  const isNotLock = (path: string) => path !== "LOCK";
  const prints = fingerprint(killed, isNotLock);
  const report = await verifyDirectory(killed);
  assert.deepEqual([report.ok, report.problems], [true, []]);
  assert.match(report.notes.join("\n"), /not closed in order: \d+ commits in the log/);
  assert.deepEqual(fingerprint(killed, isNotLock), prints);
});

test("an open directory is refused, a missing and a foreign one too", async () => {
  await withCopy(closed, async (directory) => {
    const mq = await open(directory, OPTIONS);
    await assert.rejects(verifyDirectory(directory), (error) => isVarveError(error, "ERR_DIR_LOCKED"));
    await mq.close();
    assert.ok((await verifyDirectory(directory)).ok);
  });
  await withDirectory(async (directory) => {
    const missing = join(directory, "missing");
    await assert.rejects(verifyDirectory(missing), (error) => isVarveError(error, "ERR_NOT_FOUND"));
    assert.ok(!existsSync(missing));
    writeFileSync(join(directory, "foreign"), "");
    await assert.rejects(verifyDirectory(directory), (error) => isVarveError(error, "ERR_NOT_VARVE"));
  });
});

test("any flipped bit of a segment is found in its batch, with the records that it costs", async () => {
  await withSeed(seedOr(1), async (random) => {
    await withCopy(closed, async (directory) => {
      const own = filesIn(directory, "log/events", /\.seg$/);
      assert.ok(own.length >= 3, own.join(" "));
      const shared = filesIn(directory, "shared", /\.seg$/);
      assert.equal(shared.length, 1);
      for (let round = 0; round < scaled(60); round++) {
        const file = round % 4 === 0 ? shared[0]! : random.pick(own);
        const position = random.below(readFileSync(join(directory, file)).length);
        const { ok, problems, notes } = await verifyChanged(directory, file, flip(position, random.below(8)));
        const where = `${file} at ${position}`;
        // The first batch of the log ends within what has been trimmed away only in part.
        const problem = only(problems, `${where}, notes ${notes.join("; ")}`);
        assert.equal(ok, false);
        assert.ok(problem.file.endsWith(file), where);
        assert.ok(problem.position! <= position, `${where}: found at ${problem.position}`);
        if (file === shared[0]) continue;
        assert.equal(problem.queue, "log/events");
        if (position < 64) assert.equal(problem.position, 0);
        else if (problem.offsets !== undefined)
          assert.equal(problem.offsets[1] - problem.offsets[0] + 1, PER_BATCH, where);
        else assert.match(problem.reason, /padding/);
      }
      assert.ok((await verifyDirectory(directory)).ok, "undamaged again");
    });
  });
});

test("any flipped bit of an index is found, and costs nothing", async () => {
  await withSeed(seedOr(2), async (random) => {
    await withCopy(closed, async (directory) => {
      const [file] = filesIn(directory, "log/events", /\.idx$/);
      assert.ok(file !== undefined, "a segment that is complete has an index");
      const { length } = readFileSync(join(directory, file));
      for (let round = 0; round < scaled(10); round++) {
        const report = await verifyChanged(directory, file, flip(random.below(length), random.below(8)));
        const problem = only(report.problems, file);
        assert.ok(problem.file.endsWith(file));
        assert.equal(problem.offsets, undefined);
        assert.match(problem.reason, /no record is lost/);
      }
    });
  });
});

test("an index of another segment is not believed, one that leads astray is found", async () => {
  await withCopy(closed, async (directory) => {
    const [first, second] = filesIn(directory, "log/events", /\.idx$/);
    const foreign = await verifyChanged(directory, first!, () => readFileSync(join(directory, second!)));
    assert.deepEqual(foreign.problems, []);
    assert.match(foreign.notes.join("\n"), /out of date, and not used/);
    const { crc32 } = await import("../../src/storage/crc32.js");
    const astray = await verifyChanged(directory, first!, (bytes) => {
      bytes.writeUInt32LE(bytes.readUInt32LE(32 + 8) + 8, 32 + 8);
      bytes.writeUInt32LE(crc32(bytes, 12, bytes.length), 8);
      return bytes;
    });
    assert.equal(only(astray.problems, first!).position, 32);
  });
});

test("any flipped bit of the snapshot is found: in the table it hides the queues, in a section it costs one", async () => {
  await withSeed(seedOr(3), async (random) => {
    await withCopy(closed, async (directory) => {
      const [file] = filesIn(directory, "snap", /\.snap$/);
      const bytes = readFileSync(join(directory, file!));
      const snapshot = decodeSnapshot(bytes);
      assert.ok(typeof snapshot !== "string");
      const bodies = bytes.length - snapshot.sections.reduce((sum, { body }) => sum + body.length, 0);
      for (let round = 0; round < scaled(40); round++) {
        const position = round % 2 === 0 ? random.below(bodies) : random.between(bodies, bytes.length - 1);
        const { problems } = await verifyChanged(directory, file!, flip(position, random.below(8)));
        const problem = only(problems, `byte ${position} of ${bytes.length}, sections from ${bodies} on`);
        assert.ok(problem.file.endsWith(file!));
        assert.ok(problem.position! <= position);
        if (position < bodies) assert.equal(problem.position, 0);
        else assert.ok(problem.position! >= bodies);
      }
      const task = snapshot.sections.find(({ name }) => name === "Jobs")!;
      const place = task.body.byteOffset - bytes.byteOffset;
      const { problems } = await verifyChanged(directory, file!, flip(place + 9));
      assert.deepEqual(
        problems.map(({ queue, position }) => [queue, position]),
        [["task/Jobs", place]],
      );
    });
  });
});

test("flipped bits of the log behind the snapshot are found at their place; in its last entry they are a torn tail", async () => {
  await withCopy(killed, async (directory) => {
    const file = currentLog(directory);
    const bytes = readFileSync(join(directory, file));
    const entryOf = (text: string) => {
      const payload = bytes.indexOf(text);
      assert.ok(payload > 0, text);
      // One record in one batch: entry header, batch header, length, flags and timestamp stand before it.
      return { payload, batch: payload - 6 - 40, entry: payload - 6 - 40 - 56 };
    };
    const { payload, batch, entry } = entryOf("commit 3 after");
    const offset = RECORDS + 3;
    for (const [position, found] of [
      [payload, batch],
      [batch + 2, batch],
      [batch + 21, batch],
      [entry + 2, entry],
      [entry + 18, entry],
      [entry + 50, entry],
    ] as const) {
      const { problems } = await verifyChanged(directory, file, flip(position));
      const problem = only(problems, `byte ${position}, entry at ${entry}`);
      assert.ok(problem.file.endsWith(file));
      assert.equal(problem.position, found, problem.reason);
      // A batch header that is damaged where it names stream or offset is not asked for them.
      if (position !== batch + 21) assert.deepEqual([problem.queue, problem.offsets], ["log/events", [offset, offset]]);
    }
    const header = only((await verifyChanged(directory, file, flip(30))).problems, "file header");
    assert.deepEqual([header.position, header.file.endsWith(file)], [0, true]);

    const two = await verifyChanged(directory, file, (good) => flip(entryOf("commit 5").payload)(flip(payload)(good)));
    assert.deepEqual(
      two.problems.map(({ position }) => position),
      [batch, entryOf("commit 5").batch],
    );

    const torn = await verifyChanged(
      directory,
      file,
      flip(bytes.indexOf("the last", entryOf("the last but one").payload + 8)),
    );
    assert.deepEqual([torn.ok, torn.problems], [true, []]);
  });
});

test("a log file that is missing, of another directory, or out of place is found", async () => {
  await withCopy(killed, async (directory) => {
    const file = currentLog(directory);
    const foreign = await verifyChanged(directory, file, () => readFileSync(join(closed, currentLog(closed))));
    assert.equal(foreign.ok, true, "what it would hold was never vouched for");
    assert.match(foreign.notes.join("\n"), /not part of the log \(belongs to another directory\)/);
  });
});

test("varve.json: not JSON, another format, another id, missing", async () => {
  await withCopy(closed, async (directory) => {
    const marker = readFileSync(join(directory, "varve.json"), "utf8");
    const { id } = JSON.parse(marker) as { id: string };
    for (const text of ["", "{", marker.replace(id, id.slice(1)), marker.replace(id, "0".repeat(32)), '{"format":2}']) {
      const report = await verifyChanged(directory, "varve.json", () => Buffer.from(text));
      assert.ok(only(report.problems, text).file.endsWith("/varve.json"));
      assert.ok(report.records >= RECORDS - PER_BATCH, "the rest was checked");
    }
    rmSync(join(directory, "varve.json"));
    const gone = await verifyDirectory(directory);
    assert.match(only(gone.problems, "missing").reason, /missing/);
    assert.ok(gone.records >= RECORDS - PER_BATCH);
  });
});

/** The offset in the name of a segment. */
function firstOf(segment: string): number {
  return Number(/(\d{20})-s\d+\.seg$/.exec(segment)![1]);
}

test("truncated files: what is missing is named", async () => {
  await withCopy(closed, async (directory) => {
    const segments = filesIn(directory, "log/events", /\.seg$/);
    const first = firstOf(segments[1]!);
    const next = firstOf(segments[2]!);
    const cut = async (file: string, length: number) =>
      only(
        (await verifyChanged(directory, file, (bytes) => bytes.subarray(0, length))).problems,
        `${file} cut to ${length}`,
      );
    for (const length of [0, 10, 63, 64]) {
      const problem = await cut(segments[1]!, length);
      assert.ok(problem.file.endsWith(segments[1]!));
      assert.deepEqual(problem.offsets, [first, next - 1]);
    }
    const middle = await cut(segments[1]!, 30_000);
    assert.ok(middle.offsets![0] > first && middle.offsets![1] === next - 1 && middle.position! <= 30_000);
    assert.match(middle.reason, /the file ends at byte 30000/);
    const [snapshot] = filesIn(directory, "snap", /\.snap$/);
    for (const length of [0, 11, 80, 200]) assert.equal((await cut(snapshot!, length)).position, 0);
    const { length } = readFileSync(join(directory, snapshot!));
    assert.ok((await cut(snapshot!, length - 1)).queue !== undefined, "the last section is damaged");
    const [index] = filesIn(directory, "log/events", /\.idx$/);
    for (const bytes of [0, 20, 40]) assert.match((await cut(index!, bytes)).reason, /no record is lost/);
  });
  await withCopy(killed, async (directory) => {
    const log = join(directory, currentLog(directory));
    truncateSync(log, readFileSync(log).indexOf("commit 3 after") + 3);
    const report = await verifyDirectory(directory);
    assert.equal(report.ok, true, "nothing that is left vouches for what is gone");
  });
});

test("a missing segment costs its records, one of another directory or another stream too", async () => {
  await withCopy(closed, async (directory) => {
    const segments = filesIn(directory, "log/events", /\.seg$/);
    const [, file, third] = segments;
    const offsets = [firstOf(file!), firstOf(third!) - 1];
    const aside = join(directory, "..", "aside");
    renameSync(join(directory, file!), aside);
    const missing = only((await verifyDirectory(directory)).problems, "missing");
    assert.deepEqual([missing.file.endsWith(file!), missing.queue, missing.offsets], [true, "log/events", offsets]);
    assert.match(missing.reason, /missing/);
    renameSync(aside, join(directory, file!));

    const foreign = await verifyChanged(directory, file!, () =>
      readFileSync(join(killed, filesIn(killed, "log/events", /\.seg$/)[1]!)),
    );
    const problem = only(foreign.problems, "foreign");
    assert.deepEqual([problem.position, problem.reason, problem.offsets], [0, "belongs to another directory", offsets]);

    const swapped = await verifyChanged(directory, file!, () => readFileSync(join(directory, third!)));
    assert.match(only(swapped.problems, "swapped").reason, /begins at offset/);
  });
});

test("without a snapshot the rest is still checked", async () => {
  await withCopy(closed, async (directory) => {
    rmSync(join(directory, filesIn(directory, "snap", /\.snap$/)[0]!));
    const report = await verifyDirectory(directory);
    assert.match(only(report.problems, "no snapshot").reason, /no snapshot/);
    assert.ok(report.records >= RECORDS - PER_BATCH + TASKS);
    const [segment] = filesIn(directory, "log/events", /\.seg$/);
    const two = await verifyChanged(directory, segment!, flip(2000));
    assert.equal(two.problems.length, 2);
    assert.ok(two.problems[1]!.file.endsWith(segment!) && two.problems[1]!.offsets !== undefined);
  });
  await withCopy(killed, async (directory) => {
    rmSync(join(directory, filesIn(directory, "snap", /\.snap$/)[0]!));
    const log = currentLog(directory);
    const payload = readFileSync(join(directory, log)).indexOf("commit 3 after");
    const report = await verifyChanged(directory, log, flip(payload));
    assert.deepEqual(
      report.problems.map(({ position }) => position),
      [undefined, payload - 46],
    );
  });
});

test("what nothing refers to and what is not varve's is noted", async () => {
  await withCopy(closed, async (directory) => {
    writeFileSync(join(directory, "stray.txt"), "");
    writeFileSync(join(directory, "log", "events", "99999999999999999999-s9.seg"), "");
    writeFileSync(join(directory, "snap", "0000000000000001.snap.tmp"), "");
    mkdirSync(join(directory, "log", "events", "odd"));
    writeFileSync(join(directory, "wal", "failed"), "");
    writeFileSync(join(directory, "log", "events", "odd", "thing"), "");
    const [segment] = filesIn(directory, "log/events", /\.seg$/);
    writeFileSync(join(directory, segment!), Buffer.alloc(100), { flag: "a" });
    const { ok, notes } = await verifyDirectory(directory);
    assert.equal(ok, true);
    const named = [
      /stray\.txt: not of varve/,
      /99999999999999999999-s9\.seg: nothing refers to it/,
      /0000000000000001\.snap\.tmp: nothing refers to it/,
      /odd\/thing: not of varve/,
      /wal\/failed: a write or sync of the log failed/,
      /100 bytes behind the end/,
    ];
    for (const pattern of named)
      assert.ok(
        notes.some((note) => pattern.test(note)),
        `${pattern}: ${notes.join("\n")}`,
      );
    assert.equal(notes.length, named.length);
  });
});

test("a copy without a LOCK file is checked as it is", async () => {
  await withCopy(closed, async (directory) => {
    rmSync(join(directory, "LOCK"));
    const report = await verifyDirectory(directory);
    assert.equal(report.ok, true);
    assert.match(report.notes.join("\n"), /no LOCK/);
    assert.ok(!existsSync(join(directory, "LOCK")));
  });
});

// ------------------------------------------------------------------------------------- what the ledgers need

/** Writes a snapshot anew in which one queue's section says something else; all its checksums match. */
function rewriteSection(bytes: Buffer, queue: string, edit: (body: Decoder, output: Encoder) => void): Buffer {
  const snapshot = decodeSnapshot(bytes);
  assert.ok(typeof snapshot !== "string");
  const sections = snapshot.sections.map((section) => {
    if (section.name !== queue) return section;
    const output = new Encoder(1024);
    edit(new Decoder(section.body), output);
    return { ...section, body: Buffer.from(output.view()) };
  });
  return Buffer.concat(encodeSnapshot(snapshot.header, sections));
}

/** Copies what a section begins with. */
function copyPreface(body: Decoder, output: Encoder): void {
  const { count, createdAt, metadata } = readPreface(body);
  output.varint(count);
  output.varint(createdAt);
  output.string(metadata);
}

/** Copies the queue's own state. */
function copyState(body: Decoder, output: Encoder): void {
  const bytes = body.varint();
  output.varint(bytes);
  output.bytes(body.bytes(bytes));
}

/** Copies a section body but for the queue's own state. */
function editState(body: Decoder, output: Encoder, edit: (state: TaskState) => void): void {
  copyPreface(body, output);
  const stateBytes = body.bytes(body.varint());
  const streams = [new Stream(1, "", "p0"), new Stream(2, "", "dead")];
  const state = kinds.restore(2, 1, "Jobs", streams, new Decoder(stateBytes)) as TaskState;
  edit(state);
  const encoded = new Encoder(1024);
  state.encode(encoded);
  output.varint(encoded.position);
  output.bytes(encoded.view());
  output.bytes(body.bytes(body.end - body.position));
}

test("records that a log still has are missed when no segment holds them", async () => {
  await withCopy(closed, async (directory) => {
    const [file] = filesIn(directory, "snap", /\.snap$/);
    const report = await verifyChanged(directory, file!, (bytes) =>
      rewriteSection(bytes, "events", (body, output) => {
        copyPreface(body, output);
        copyState(body, output);
        output.varint(body.varint());
        // The stream's id, its folder (none) and its head.
        for (let field = 0; field < 3; field++) output.varint(body.varint());
        output.varint(body.varint() + 5);
        output.bytes(body.bytes(body.end - body.position));
      }),
    );
    const problem = only(report.problems, "next raised");
    assert.deepEqual([problem.queue, problem.offsets], ["log/events", [RECORDS, RECORDS + 4]]);
    assert.match(problem.reason, /still needs/);
  });
});

test("outstanding tasks must have a record, a place in the queue and a deadline", async () => {
  await withCopy(closed, async (directory) => {
    const [file] = filesIn(directory, "snap", /\.snap$/);
    const verifyEdited = async (edit: (state: TaskState) => void) => {
      const report = await verifyChanged(directory, file!, (bytes) =>
        rewriteSection(bytes, "Jobs", (body, output) => editState(body, output, edit)),
      );
      const problem = only(report.problems, String(edit));
      assert.equal(problem.queue, "task/Jobs");
      return problem;
    };
    const past = await verifyEdited(({ ledger }) => ledger.ripened(1_000_000, 5));
    assert.deepEqual(past.offsets, [1_000_000, 1_000_000]);
    assert.match(past.reason, /the tasks end at/);
    const never = await verifyEdited(({ ledger }) => {
      const [task] = ledger.leased;
      task!.at = 0;
    });
    assert.match(never.reason, /its lease never ends/);
    const behind = await verifyEdited(({ ledger }) => {
      ledger.cursor = 1_000_000;
    });
    assert.match(behind.reason, /the cursor stands at 1000000/);
    const letter = await verifyEdited(({ exhumed }) => exhumed.add(77));
    assert.match(letter.reason, /dead letter 77/);
  });
});

test("damage to records that were trimmed away costs nothing and is only noted", async () => {
  await withDirectory(async (parent) => {
    const directory = join(parent, "data");
    const mq = await open(directory, OPTIONS);
    const log = await mq.openLog("events");
    for (let batch = 0; batch < 20; batch++) await log.appendBatch(Array.from({ length: 4 }, () => "y".repeat(100)));
    await mq.close();
    const again = await open(directory, OPTIONS);
    await (await again.openLog("events")).trim(30);
    await again.close();
    const [segment] = filesIn(directory, "log/events", /\.seg$/);
    const first = readFileSync(join(directory, segment!)).indexOf("yyyy");
    const report = await verifyChanged(directory, segment!, flip(first));
    assert.deepEqual([report.ok, report.problems], [true, []]);
    assert.match(report.notes.join("\n"), /no longer needed/);
  });
  assert.ok(TRIMMED < PER_BATCH, "the scene trims within its first batch");
});
