/** Damage of every kind of file, repaired: what is intact stays, offset by offset, and what is lost is told. */

import assert from "node:assert/strict";
import { existsSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { open, type RepairReport, repairDirectory, type Task, verifyDirectory } from "../../src/index.js";
import { decodeSnapshot } from "../../src/storage/snapshot.js";
import { ENTRY_HEADER_BYTES, entryBytes, FILE_HEADER_BYTES, readEntryHeader } from "../../src/storage/wal-format.js";
import { currentLog, filesIn, fillClosed, flip, OPTIONS, TRIMMED, withCopy } from "../inspect/scene.js";
import { startChild } from "../support/child.js";
import { filesBelow, fingerprint, makeDirectory, removeDirectory, withDirectory } from "../support/directories.js";
import { labelled } from "../support/expect.js";
import { scaled } from "../support/scale.js";
import { seedOr, withSeed } from "../support/seeded.js";
import { change, codeOfOpen, contentsOf, drain, overwrite, remove } from "./damage.js";

type Contents = Awaited<ReturnType<typeof contentsOf>>;
type State = "closed" | "killed";

let root = "";
const scenes = { closed: "", killed: "" };
const pristine: Partial<Record<State, Contents>> = {};

before(async () => {
  root = makeDirectory();
  scenes.closed = join(root, "closed");
  scenes.killed = join(root, "killed");
  await fillClosed(scenes.closed);
  const child = startChild(import.meta.url, "../inspect/worker.js", { args: [scenes.killed] });
  const { signal, stderr } = await child.exited;
  assert.equal(signal, "SIGKILL", stderr);
  for (const state of ["closed", "killed"] as const) {
    await withCopy(scenes[state], async (directory) => {
      pristine[state] = await contentsOf(directory);
    });
  }
});

after(() => removeDirectory(root));

const isNotLock = (path: string) => !path.startsWith("LOCK");

function segment(index: number, folder = "log/events"): string {
  return filesIn(scenes.closed, folder, /\.seg$/).at(index)!;
}

function snapshotOf(directory: string): string {
  return filesIn(directory, "snap", /\.snap$/).at(-1)!;
}

/** Where the section of a queue stands in the snapshot. */
function sectionAt(directory: string, queue: string): { position: number; bytes: number } {
  const bytes = readFileSync(join(directory, snapshotOf(directory)));
  const snapshot = decodeSnapshot(bytes);
  assert.ok(typeof snapshot !== "string");
  const section = snapshot.sections.find(({ name }) => name === queue)!;
  return { position: section.body.byteOffset - bytes.byteOffset, bytes: section.body.length };
}

/** Positions of the entries in a log file. */
function entriesIn(path: string): { position: number; bytes: number; lsn: number }[] {
  const bytes = readFileSync(path);
  const entries: { position: number; bytes: number; lsn: number }[] = [];
  let lsn: number | undefined;
  for (let position = FILE_HEADER_BYTES; position + ENTRY_HEADER_BYTES <= bytes.length; ) {
    const header = readEntryHeader(bytes, position);
    if (header.lsn !== (lsn ?? header.lsn) || header.lsn === 0) break;
    entries.push({ position, bytes: entryBytes(header), lsn: header.lsn });
    lsn = header.lsn + 1;
    position += Math.ceil(entryBytes(header) / 8) * 8;
  }
  return entries;
}

interface Expectations {
  /** The queues that may have lost something, or be in another state; all others must be as they were. */
  readonly touched?: readonly string[];
  /** Records that had been trimmed may be there again. */
  readonly more?: boolean;
}

/** Damages a copy, looks at it with a dry run, repairs it, and holds what is there against what was. */
async function damageAndRepair(
  state: State,
  damage: (directory: string) => void,
  { touched = [], more = false }: Expectations,
  look: (report: RepairReport, directory: string, contents: Contents) => Promise<void> | void = () => {},
): Promise<void> {
  await withCopy(scenes[state], async (directory) => {
    damage(directory);
    const damaged = fingerprint(directory, isNotLock);
    assert.equal((await verifyDirectory(directory)).ok, false, "verify finds the damage");
    const plan = await repairDirectory(directory, { dryRun: true });
    assert.deepEqual(fingerprint(directory, isNotLock), damaged, "a dry run changes nothing");
    assert.ok(plan.dryRun && !plan.sound && plan.kept === undefined && plan.problems.length > 0);

    const report = await repairDirectory(directory);
    assert.deepEqual(
      { actions: report.actions, losses: report.losses, notes: report.notes },
      { actions: plan.actions, losses: plan.losses, notes: plan.notes },
      "a dry run says what will be done",
    );
    const verified = await verifyDirectory(directory);
    assert.deepEqual([verified.ok, verified.problems], [true, []]);
    for (const note of verified.notes) assert.match(note, /not closed in order/);
    const now = fingerprint(directory, isNotLock);
    for (const [path, print] of Object.entries(damaged)) {
      const kept = report.kept === undefined ? undefined : join(report.kept.slice(directory.length + 1), path);
      if (path.endsWith(".wal") && now[path] !== print) continue; // reused, when nothing in it was damaged
      const there = now[path] === print || (kept !== undefined && now[kept] === print);
      assert.ok(there || path.endsWith(".snap") || path === "snap/previous", `${path} is as it was, or kept`);
    }
    assert.equal((await repairDirectory(directory)).sound, true, "there is nothing left to repair");

    const contents = await contentsOf(directory);
    compare(pristine[state]!, contents, report, touched, more);
    await look(report, directory, contents);
  });
}

function compare(was: Contents, is: Contents, report: RepairReport, touched: readonly string[], more: boolean): void {
  const lost = (queue: string, offset: number) =>
    report.losses.some((loss) => {
      return (
        loss.queue === queue && loss.offsets !== undefined && loss.offsets[0] <= offset && offset <= loss.offsets[1]
      );
    });
  for (const [queue, records] of was) {
    const found = is.get(queue);
    if (!touched.includes(queue)) {
      assert.deepEqual(found, records, `${queue} is as it was`);
      continue;
    }
    assert.ok(found !== undefined, `${queue} is there`);
    for (const [offset, text] of records) {
      if (offset < 0) continue; // the counts of a task queue
      if (found.has(offset)) assert.equal(found.get(offset), text, `${queue}, offset ${offset}`);
      else assert.ok(lost(queue, offset), `${queue}, offset ${offset}: lost, and not told`);
    }
    for (const offset of found.keys())
      assert.ok(records.has(offset) || more, `${queue}, offset ${offset}: never there`);
  }
}

function lossesOf(report: RepairReport, queue: string): (readonly [number, number] | undefined)[] {
  return report.losses.filter((loss) => loss.queue === queue).map(({ offsets }) => offsets);
}

test("a sound directory is left as it is, closed or killed", async () => {
  for (const state of ["closed", "killed"] as const) {
    await withCopy(scenes[state], async (directory) => {
      const before = fingerprint(directory, isNotLock);
      const report = await repairDirectory(directory);
      assert.deepEqual([report.sound, report.actions, report.losses, report.kept], [true, [], [], undefined]);
      assert.deepEqual(fingerprint(directory, isNotLock), before);
    });
  }
});

test("a batch in a segment: its records are lost, those around it stay where they are", async () => {
  for (const position of [70, 20_000]) {
    const damage = (directory: string) => change(directory, segment(1), overwrite(position, position + 20));
    await damageAndRepair("closed", damage, { touched: ["log/events"] }, async (report, directory, contents) => {
      const lost = lossesOf(report, "log/events");
      assert.equal(lost.length, 1, JSON.stringify(lost));
      const [first, last] = lost[0]!;
      assert.equal(last - first, 7, "one batch");
      assert.ok(existsSync(join(report.kept!, segment(1))), "the damaged segment is kept");
      // Readers pass the gap, from before it and from within.
      const mq = await open(directory, OPTIONS);
      const log = await mq.openLog("events");
      assert.equal(await log.read(first), undefined);
      assert.notEqual(await log.read(last + 1), undefined);
      for await (const records of log.batches({ from: first })) {
        assert.equal(records[0]!.offset, last + 1);
        break;
      }
      const { next } = await log.stats();
      assert.equal(await log.append("goes on"), next);
      assert.equal(contents.get("log/events")!.size, pristine.closed!.get("log/events")!.size - 8);
      await mq.close();
      assert.ok((await verifyDirectory(directory)).ok);
    });
  }
});

test("the header of a segment: nothing is lost", async () => {
  for (const file of [segment(1), segment(0, "shared")]) {
    await damageAndRepair(
      "closed",
      (directory) => change(directory, file, overwrite(0, 64)),
      {},
      (report) => {
        assert.deepEqual(report.losses, []);
      },
    );
  }
});

test("a segment that is gone, overwritten or cut short costs its own records", async () => {
  const damages: ((directory: string) => void)[] = [
    (directory) => remove(directory, segment(1)),
    (directory) => change(directory, segment(1), overwrite(0, Number.POSITIVE_INFINITY)),
    (directory) => change(directory, segment(1), () => readFileSync(join(directory, segment(2)))),
  ];
  for (const damage of damages) {
    await damageAndRepair("closed", damage, { touched: ["log/events"] }, (report) => {
      assert.deepEqual(lossesOf(report, "log/events"), [[120, 239]]);
    });
  }
  const cut = (directory: string) => truncateSync(join(directory, segment(-1)), 10_000);
  await damageAndRepair("closed", cut, { touched: ["log/events"] }, (report) => {
    assert.equal(lossesOf(report, "log/events").length, 1);
  });
});

test("a shared segment that is gone costs every queue what it had there, and no more", async () => {
  const touched = [...pristine.closed!.keys()];
  const damage = (directory: string) => remove(directory, segment(0, "shared"));
  await damageAndRepair("closed", damage, { touched }, async (report, directory) => {
    assert.ok(lossesOf(report, "task/Jobs").length > 0 && lossesOf(report, "task/Jobs/dead").length > 0);
    const mq = await open(directory, OPTIONS);
    const jobs = await mq.openTask("Jobs");
    assert.equal(await jobs.dequeue(), undefined, "a lost task is not waited for");
    await jobs.enqueue("new");
    assert.equal((await jobs.dequeue())?.payload.toString(), "new");
    await mq.close();
  });
});

test("a damaged index is taken away; nothing is lost", async () => {
  const index = segment(1).replace(/seg$/, "idx");
  const damage = (directory: string) => writeFileSync(join(directory, index), "VARVEIDX, and then something else");
  await damageAndRepair("closed", damage, {}, (report) => {
    assert.deepEqual(report.losses, []);
    assert.ok(existsSync(join(report.kept!, index)));
  });
});

test("varve.json, damaged or gone: written again", async () => {
  for (const state of ["closed", "killed"] as const) {
    const id = (directory: string) => JSON.parse(readFileSync(join(directory, "varve.json"), "utf8")).id as string;
    const original = id(scenes[state]);
    const damages: ((directory: string) => void)[] = [
      (directory) => remove(directory, "varve.json"),
      (directory) => change(directory, "varve.json", overwrite(0, 5)),
      (directory) =>
        change(directory, "varve.json", (bytes) => Buffer.from(bytes.toString().replace(original, "0".repeat(32)))),
    ];
    for (const damage of damages) {
      await damageAndRepair(state, damage, {}, (report, directory) => {
        assert.deepEqual(report.losses, []);
        assert.equal(id(directory), original);
      });
    }
  }
});

test("any byte of the snapshot's header and table: nothing is lost", async () => {
  await withSeed(seedOr(7), async (random) => {
    const path = snapshotOf(scenes.closed);
    const bytes = readFileSync(join(scenes.closed, path));
    const table = bytes.readUInt32LE(76) + 80;
    for (let round = 0; round < scaled(4); round++) {
      const position = random.below(table);
      const byte = 1 + random.below(255);
      const damage = (directory: string) => {
        change(directory, path, (good) => {
          good[position]! ^= byte;
          return good;
        });
      };
      await labelled(
        () => `byte ${position} of ${table}, ^ ${byte}`,
        async () => await damageAndRepair("closed", damage, {}, (report) => assert.deepEqual(report.losses, [])),
      );
    }
  });
});

test("a lost snapshot: logs are complete, tasks are delivered again unless they were done", async () => {
  const damages: ((directory: string) => void)[] = [
    (directory) => change(directory, snapshotOf(directory), overwrite(84, 140)),
    (directory) => {
      remove(directory, snapshotOf(directory));
      remove(directory, "varve.json");
    },
  ];
  for (const [index, state] of (["closed", "killed"] as const).entries()) {
    for (const damage of [damages[index]!]) {
      const expectations = { touched: ["log/events", "task/Jobs"], more: true };
      await damageAndRepair(state, damage, expectations, async (report, directory, contents) => {
        assert.deepEqual(report.losses, []);
        assert.match(report.notes.join("\n"), /delivered again/);
        const events = [...contents.get("log/events")!.keys()];
        assert.ok(events.length - pristine[state]!.get("log/events")!.size <= TRIMMED);
        const tasks = [...(await drain(directory, "Jobs")).values()];
        for (let task = 11; task < 30; task++) assert.ok(tasks.includes(`task ${task}`), `task ${task} is there`);
      });
    }
  }
});

test("the state of a log in the snapshot: the log is complete", async () => {
  const { position } = sectionAt(scenes.closed, "events");
  const damage = (directory: string) => change(directory, snapshotOf(directory), flip(position + 3));
  await damageAndRepair("closed", damage, { touched: ["log/events"], more: true }, (report, _, contents) => {
    assert.deepEqual(report.losses, []);
    assert.ok(contents.get("log/events")!.size >= pristine.closed!.get("log/events")!.size);
  });
});

test("the state of a task queue in the snapshot: what is not done is delivered again", async () => {
  const { position } = sectionAt(scenes.closed, "Jobs");
  for (const previous of [true, false]) {
    const damage = (directory: string) => {
      change(directory, snapshotOf(directory), flip(position + 3));
      if (!previous) remove(directory, "snap/previous");
    };
    const expectations = { touched: ["task/Jobs", "task/Jobs/dead"], more: true };
    await damageAndRepair("closed", damage, expectations, async (_, directory) => {
      const tasks = [...(await drain(directory, "Jobs")).values()];
      for (let task = 10; task < 30; task++) assert.ok(tasks.includes(`task ${task}`), `task ${task} is there`);
    });
  }
});

test("what opens have left out because a queue was damaged is found again", async () => {
  await withCopy(scenes.killed, async (directory) => {
    const { position } = sectionAt(directory, "events");
    change(directory, snapshotOf(directory), flip(position + 3));
    // Opened twice meanwhile: the log that holds the queue's changes has long been reused.
    for (let life = 0; life < 2; life++) {
      const mq = await open(directory, OPTIONS);
      const other = await mq.openLog("small-1");
      for (let commit = 0; commit < 40; commit++) await other.append("y".repeat(20_000));
      await mq.close();
    }
    assert.ok(filesBelow(directory).some((path) => /^damaged\/wal\/\d+\.wal$/.test(path)));
    const report = await repairDirectory(directory);
    assert.deepEqual(report.losses, []);
    assert.ok((await verifyDirectory(directory)).ok);
    const found = (await contentsOf(directory)).get("log/events")!;
    for (const [offset, text] of pristine.killed!.get("log/events")!)
      assert.equal(found.get(offset), text, `${offset}`);
  });
});

test("the header of a log file: nothing is lost", async () => {
  const damage = (directory: string) => change(directory, currentLog(directory), overwrite(0, 100));
  await damageAndRepair("killed", damage, {}, (report) => assert.deepEqual(report.losses, []));
});

test("a log file that is gone: refused by an open, repaired without it", async () => {
  const log = currentLog(scenes.killed);
  const touched = ["log/events", "log/born-late", "task/Jobs"];
  await withCopy(scenes.killed, async (directory) => {
    remove(directory, log);
    const before = fingerprint(directory, isNotLock);
    assert.equal(await codeOfOpen(directory), "ERR_CORRUPT");
    assert.deepEqual(fingerprint(directory, isNotLock), before);
    const report = await repairDirectory(directory);
    assert.match(report.losses[0]?.reason ?? "", /missing/);
    assert.ok((await verifyDirectory(directory)).ok);
    const contents = await contentsOf(directory);
    for (const [queue, records] of pristine.killed!) {
      if (!touched.includes(queue)) assert.deepEqual(contents.get(queue), records, queue);
    }
    const mq = await open(directory, OPTIONS);
    assert.ok((await (await mq.openLog("events")).append("x")) > 1_000_000, "no offset is given out twice");
    await mq.close();
  });
});

test("any entry of the log: the others count, and what was in it is told", async () => {
  const log = currentLog(scenes.killed);
  const entries = entriesIn(join(scenes.killed, log));
  assert.ok(entries.length > 8, `${entries.length} entries`);
  let repaired = 0;
  for (const { position, lsn } of entries) {
    const damage = (directory: string) => change(directory, log, flip(position));
    await withCopy(scenes.killed, async (directory) => {
      damage(directory);
      // The last entries, which none vouches for, look like torn writes.
      if ((await verifyDirectory(directory)).ok) return;
      repaired++;
      assert.equal(await codeOfOpen(directory), "ERR_CORRUPT");
    });
    const touched = ["log/events", "log/born-late", "task/Jobs"];
    await withCopy(scenes.killed, async (directory) => {
      damage(directory);
      if ((await verifyDirectory(directory)).ok) return;
      const report = await repairDirectory(directory);
      assert.ok((await verifyDirectory(directory)).ok, `entry ${lsn}`);
      const contents = await contentsOf(directory);
      for (const [queue, records] of pristine.killed!) {
        if (!touched.includes(queue)) assert.deepEqual(contents.get(queue), records, `${queue}, entry ${lsn} damaged`);
      }
      const found = contents.get("log/events")!;
      // A batch guards itself: an entry whose header is damaged still gives back its records.
      for (const [offset, text] of pristine.killed!.get("log/events")!) assert.equal(found.get(offset), text);
      assert.ok(report.losses.length > 0);
      assert.ok(existsSync(join(report.kept!, log)), "the log file is kept");
    });
  }
  assert.ok(repaired > 5, `${repaired} entries were vouched for`);
});

test("a lost delivery costs no task, and what is done stays done", async () => {
  await withDirectory(async (parent) => {
    const directory = join(parent, "data");
    const child = startChild(import.meta.url, "./tasks-worker.js", { args: [directory] });
    await child.exited;
    const log = currentLog(directory);
    const entries = entriesIn(join(directory, log));
    // Six tasks, four deliveries, a record of a log that was created before it, two acks.
    const acks = new Set([13, 14].map((index) => entries[index]!.lsn - 1));
    for (const { position, lsn } of entries) {
      await withCopy(directory, async (copy) => {
        change(copy, log, flip(position));
        if ((await verifyDirectory(copy)).ok) return;
        await repairDirectory(copy);
        assert.ok((await verifyDirectory(copy)).ok, `entry ${lsn}`);
        const mq = await open(copy, OPTIONS);
        const { ready, leased, scheduled } = await (await mq.openTask("jobs")).stats();
        await mq.close();
        // Two of six have been acked; an ack that is lost is the only thing that brings a task back.
        const left = ready + leased + scheduled;
        assert.ok(left === 4 || (left === 5 && acks.has(lsn)), `${left} tasks left after losing entry ${lsn}`);
      });
    }
  });
});

test("whatever is damaged, in however many places: repaired, and nothing is lost that was intact", async () => {
  await withSeed(seedOr(11), async (random) => {
    for (let round = 0; round < scaled(10); round++) {
      const state = random.pick(["closed", "killed"] as const);
      const files = filesBelow(scenes[state]).filter((path) => /\.(seg|idx|snap|json|wal)$|previous$/.test(path));
      const damages = Array.from({ length: 1 + random.below(4) }, () => {
        const file = random.pick(files);
        const size = readFileSync(join(scenes[state], file)).length;
        const from = random.below(size);
        return { file, from, to: from + 1 + random.below(random.pick([1, 64, 5000])) };
      });
      await labelled(
        () => JSON.stringify({ state, damages }),
        async () => {
          await withCopy(scenes[state], async (directory) => {
            for (const { file, from, to } of damages) change(directory, file, overwrite(from, to, random.below(256)));
            if ((await verifyDirectory(directory)).ok) return;
            const report = await repairDirectory(directory);
            const verified = await verifyDirectory(directory);
            assert.deepEqual(verified.problems, []);
            const contents = await contentsOf(directory);
            for (const [queue, records] of contents) {
              const was = pristine[state]!.get(queue);
              if (was === undefined) continue; // records of which nothing tells the queue
              for (const [offset, text] of records) {
                if (offset >= 0 && was.has(offset)) assert.equal(text, was.get(offset), `${queue}, offset ${offset}`);
              }
            }
            if (damages.some(({ file }) => /wal|snap|previous/.test(file))) return;
            compare(pristine[state]!, contents, report, [...pristine[state]!.keys()], false);
          });
        },
      );
    }
  });
});

test("a newer format is not damage", async () => {
  await withCopy(scenes.closed, async (directory) => {
    change(directory, "varve.json", (bytes) => Buffer.from(bytes.toString().replace('"format":1', '"format":2')));
    const before = fingerprint(directory, isNotLock);
    await assert.rejects(repairDirectory(directory), { code: "ERR_FORMAT_VERSION" });
    assert.deepEqual(fingerprint(directory, isNotLock), before);
  });
});

test("tasks go on being leased and settled after a repair", async () => {
  const damage = (directory: string) => change(directory, segment(0, "shared"), overwrite(0, 64));
  await damageAndRepair("closed", damage, {}, async (_, directory) => {
    const mq = await open(directory, OPTIONS);
    const jobs = await mq.openTask("Jobs");
    const task = (await jobs.dequeue()) as Task;
    assert.equal(task.payload.toString(), "task 10");
    await jobs.ack(task);
    await jobs.nack((await jobs.dequeue()) as Task, { error: "no" });
    await mq.close();
    assert.ok((await verifyDirectory(directory)).ok);
  });
});
