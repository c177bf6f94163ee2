/** varve repair: looks, asks, does it, and says what is lost. */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { filesBelow, fingerprint, withDirectory } from "../support/directories.js";
import { jsonLines, varve } from "./program.js";

const isNotLock = (path: string) => !path.startsWith("LOCK");

/** A directory in which the first of two batches of a log is damaged. */
async function damagedDirectory(directory: string): Promise<void> {
  await varve(["append", "events", "a", "-d", directory]);
  await varve(["append", "events", "b", "-d", directory]);
  const segment = join(directory, filesBelow(directory).find((path) => path.endsWith(".seg"))!);
  const bytes = readFileSync(segment);
  bytes[64 + 41]! ^= 1;
  writeFileSync(segment, bytes);
}

test("repair leaves a sound directory alone", () =>
  withDirectory(async (directory) => {
    await varve(["append", "events", "a", "-d", directory]);
    const before = fingerprint(directory, isNotLock);
    const { code, stdout } = await varve(["repair", "--yes", "-d", directory]);
    assert.deepEqual([code, stdout], [0, "no damage; nothing was changed\n"]);
    assert.deepEqual(fingerprint(directory, isNotLock), before);
  }));

test("repair --dry-run says what is lost and changes nothing; --yes does it", () =>
  withDirectory(async (directory) => {
    await damagedDirectory(directory);
    const before = fingerprint(directory, isNotLock);
    const dry = await varve(["repair", "--dry-run", "-d", directory]);
    assert.equal(dry.code, 5);
    assert.match(dry.stdout, /would be done: .*\.seg: .* log\/events/);
    assert.match(dry.stdout, /lost: log\/events, offsets 0 to 0/);
    assert.match(dry.stdout, /nothing was changed\n$/);
    assert.deepEqual(fingerprint(directory, isNotLock), before);

    const done = await varve(["repair", "--yes", "-d", directory, "--json"]);
    assert.equal(done.code, 0);
    const [report] = jsonLines(done.stdout);
    assert.deepEqual(
      [report.sound, report.dryRun, report.losses],
      [false, false, [{ queue: "log/events", offsets: [0, 0], reason: "damaged" }]],
    );
    assert.match(report.kept, /damaged/);
    assert.equal((await varve(["verify", "-d", directory])).code, 0);
    assert.match((await varve(["read", "events", "-d", directory])).stdout, /b/);
    assert.match((await varve(["append", "events", "c", "-d", directory])).stdout, /2/);
  }));

test("repair changes nothing when nobody can be asked", () =>
  withDirectory(async (directory) => {
    await damagedDirectory(directory);
    const before = fingerprint(directory, isNotLock);
    const { code, stderr } = await varve(["repair", "-d", directory]);
    assert.equal(code, 2);
    assert.match(stderr, /--dry-run/);
    assert.deepEqual(fingerprint(directory, isNotLock), before);
  }));
