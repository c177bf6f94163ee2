import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isVarveError, type LogQueue, open, repairDirectory, verifyDirectory } from "../../src/index.js";
import { copyDirectory, filesBelow, withDirectory } from "../support/directories.js";
import { labelled } from "../support/expect.js";
import { scaled } from "../support/scale.js";
import { type Seeded, seedOr, withSeed } from "../support/seeded.js";

const BATCHES = 240;
const SESSIONS = 3;
const PER_BATCH = 8;
/** Of a segment. Some of the flips are aimed at it, which they would seldom hit. */
const HEADER_BYTES = 64;
const OPTIONS = { walFileBytes: "256KiB", segmentBytes: "64KiB", cacheBytes: "4MiB" } as const;

function textAt(offset: number): string {
  return `record ${offset} ${"abcdefgh".repeat(offset % 23)}`;
}

/** Batches of a known size, each a commit and so a checksum of its own. Each session makes a segment. */
async function fill(directory: string): Promise<void> {
  for (let batch = 0; batch < BATCHES; ) {
    const mq = await open(directory, OPTIONS);
    const log = await mq.openLog("events");
    for (const end = batch + BATCHES / SESSIONS; batch < end; batch++) {
      await log.appendBatch(Array.from({ length: PER_BATCH }, (_, index) => textAt(batch * PER_BATCH + index)));
    }
    await mq.close();
  }
}

/** Flips one bit, runs the body, and flips it back. */
async function withFlip(
  path: string,
  random: Seeded,
  below: number,
  body: (position: number) => Promise<void>,
): Promise<void> {
  const good = readFileSync(path);
  const position = random.below(Math.min(below, good.length));
  const bad = Buffer.from(good);
  bad[position]! ^= 1 << random.below(8);
  writeFileSync(path, bad);
  try {
    await body(position);
  } finally {
    writeFileSync(path, good);
  }
}

void test("case 2: a flipped bit costs the records that share its checksum, and no more", async () => {
  await withSeed(seedOr(202), async (random) => {
    await withDirectory(async (directory) => {
      await fill(directory);
      const files = filesBelow(directory).filter((path) => /^log\/events\/.*\.(seg|idx)$/.test(path));
      const segments = files.filter((path) => path.endsWith(".seg"));
      assert.ok(segments.length >= 3, `several segments: ${files.join(" ")}`);
      let costly = 0;
      for (let flip = 0; flip < scaled(40); flip++) {
        const file = flip % 6 === 0 ? random.pick(files) : random.pick(segments);
        const below = flip % 6 === 1 ? HEADER_BYTES : Number.POSITIVE_INFINITY;
        await withFlip(join(directory, file), random, below, async (position) => {
          const where = `${file}, byte ${position} of ${statSync(join(directory, file)).size}`;
          const lost = await readAll(directory, file, where);
          if (lost.length === 0) return;
          costly++;
          const batch = Math.floor((lost[0] as number) / PER_BATCH);
          assert.ok(
            lost.every((offset) => Math.floor(offset / PER_BATCH) === batch),
            `${where}: more than one batch is lost: ${lost.length} records from ${lost[0]} on`,
          );
          const report = await verifyDirectory(directory);
          assert.equal(
            report.problems.length,
            1,
            `${where}: verify reports it once: ${JSON.stringify(report.problems)}`,
          );
          const [problem] = report.problems;
          assert.ok(problem?.file.endsWith(file), `${where}: verify names ${problem?.file}`);
          assert.deepEqual(problem?.offsets, [lost[0], lost.at(-1)], `${where}: the offsets that verify names`);
          assert.equal(problem?.queue, "log/events");
        });
      }
      assert.ok(costly > 10, `only ${costly} flips hit a record`);
      assert.equal((await verifyDirectory(directory)).ok, true, "undamaged again");
    });
  });
});

void test("case 2: after a repair readers pass the gap, which the report names, and everything else is there", async () => {
  await withSeed(seedOr(222), async (random) => {
    await withDirectory(async (parent) => {
      const pristine = join(parent, "pristine");
      await fill(pristine);
      const segments = filesBelow(pristine).filter((path) => /^log\/events\/.*\.seg$/.test(path));
      let trial = 0;
      for (let costly = 0; costly < scaled(8); trial++) {
        assert.ok(trial < scaled(40), "flips hit records");
        const directory = join(parent, `trial-${trial}`);
        copyDirectory(pristine, directory);
        const file = random.pick(segments);
        const bytes = readFileSync(join(directory, file));
        const position = random.below(bytes.length);
        bytes[position]! ^= 1 << random.below(8);
        writeFileSync(join(directory, file), bytes);
        const where = `${file}, byte ${position}`;
        const lost = await readAll(directory, file, where);
        if (lost.length > 0) {
          await labelled(
            () => where,
            () => repairAndPass(directory, lost),
          );
          costly++;
        }
      }
    });
  });
});

async function repairAndPass(directory: string, lost: readonly number[]): Promise<void> {
  const report = await repairDirectory(directory);
  assert.deepEqual(
    report.losses.map(({ queue, offsets }) => ({ queue, offsets })),
    [{ queue: "log/events", offsets: [lost[0], lost.at(-1)] }],
  );
  assert.ok((await verifyDirectory(directory)).ok);
  const mq = await open(directory, OPTIONS);
  const log = await mq.openLog("events");
  const left = Array.from({ length: BATCHES * PER_BATCH }, (_, offset) => offset).filter(
    (each) => !lost.includes(each),
  );
  for (const offset of lost) assert.equal(await log.read(offset), undefined);
  const scanned: number[] = [];
  for await (const batch of log.batches()) {
    for (const { offset, payload } of batch) {
      assert.equal(payload.toString(), textAt(offset));
      scanned.push(offset);
    }
  }
  assert.deepEqual(scanned, left, "a scan");
  const tailed: number[] = [];
  for await (const { offset } of log.tail({ from: "start" })) {
    tailed.push(offset);
    if (tailed.length === left.length) break;
  }
  assert.deepEqual(tailed, left, "a tail");
  const group = await log.group("g");
  const grouped: number[] = [];
  for (let records = await group.read(); records.length > 0; records = await group.read()) {
    grouped.push(...records.map(({ offset }) => offset));
  }
  assert.deepEqual(grouped, left, "a group");
  assert.ok((await log.append("more")) >= BATCHES * PER_BATCH, "no offset is given out again");
  await mq.close();
}

/** Reads every record by its offset; returns those that are refused. What is returned must be right. */
async function readAll(directory: string, file: string, where: string): Promise<number[]> {
  const mq = await open(directory, OPTIONS);
  try {
    const log = await mq.openLog("events");
    const lost: number[] = [];
    for (let offset = 0; offset < BATCHES * PER_BATCH; offset++) {
      try {
        const record = await log.read(offset);
        assert.equal(record?.payload.toString(), textAt(offset), `${where}: record ${offset}`);
      } catch (error) {
        if (!isVarveError(error, "ERR_CORRUPT")) throw error;
        assert.ok(error.message.includes(file), `${where}: the message names the file: ${error.message}`);
        lost.push(offset);
      }
    }
    await scan(log, lost, where);
    return lost;
  } finally {
    await mq.close();
  }
}

/** A scan stops with an error at the damage: it never steps over it in silence. */
async function scan(log: LogQueue, lost: readonly number[], where: string): Promise<void> {
  let next = 0;
  try {
    for await (const batch of log.batches({ maxBytes: "16KiB" })) {
      for (const record of batch) {
        assert.equal(record.offset, next, `${where}: the scan skipped something`);
        assert.equal(record.payload.toString(), textAt(next));
        next++;
      }
    }
    assert.deepEqual(lost, [], `${where}: the scan saw no damage`);
    assert.equal(next, BATCHES * PER_BATCH);
  } catch (error) {
    if (!isVarveError(error, "ERR_CORRUPT")) throw error;
    assert.equal(next, lost[0], `${where}: the scan ended elsewhere`);
  }
  const last = lost.at(-1);
  if (last === undefined) return;
  next = last + 1;
  for await (const batch of log.batches({ from: next }))
    for (const record of batch) assert.equal(record.offset, next++);
  assert.equal(next, BATCHES * PER_BATCH, `${where}: everything after the damage is readable`);
}
