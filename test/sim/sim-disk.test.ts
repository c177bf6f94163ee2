import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import type { Disk, DiskFile } from "../../src/storage/disk.js";
import { NodeDisk } from "../../src/storage/node-disk.js";
import { SimClock } from "./sim-clock.js";
import { CRASH_POLICIES, type CrashPolicy, type HoleFilling, SimDisk, type SimFault } from "./sim-disk.js";
import { SimRandom } from "./sim-random.js";

const SECTOR = 512;

function newDisk(capacityBytes?: number, seed = 1): SimDisk {
  const clock = new SimClock(new SimRandom(seed));
  const random = new SimRandom(seed + 1000);
  return new SimDisk(capacityBytes === undefined ? { clock, random } : { clock, random, capacityBytes });
}

/** Sectors that each hold one letter: "aab" is two sectors of a and one of b. */
function sectors(letters: string): Buffer {
  return Buffer.concat([...letters].map((letter) => Buffer.alloc(SECTOR, letter)));
}

/** The reverse; "." is a sector of zeros, "?" one of anything else. */
function letters(content: Buffer): string {
  let text = "";
  for (let i = 0; i < content.length; i += SECTOR) {
    const sector = content.subarray(i, i + SECTOR);
    const uniform = sector.every((byte) => byte === sector[0]);
    text += !uniform ? "?" : sector[0] === 0 ? "." : String.fromCharCode(sector[0]!);
  }
  return text;
}

function put(file: DiskFile, text: string, sector = 0): void {
  const bytes = sectors(text);
  assert.equal(file.writeSync(bytes, 0, bytes.length, sector * SECTOR), bytes.length);
}

/** A file whose name and contents are durable. */
function durableFile(disk: SimDisk, name: string, text: string): DiskFile {
  const file = disk.openFile(name, "create");
  put(file, text);
  disk.settle();
  return file;
}

/** Every outcome that crashes with this policy have, over many seeds, as sorted text. */
function outcomes(disk: SimDisk, policy: CrashPolicy, look: (disk: SimDisk) => string, holes?: HoleFilling): string[] {
  const seen = new Set<string>();
  for (let seed = 0; seed < 300; seed++) {
    seen.add(look(disk.crash(policy, new SimRandom(seed), holes === undefined ? {} : { holes })));
  }
  return [...seen].sort();
}

const content = (name: string) => (disk: SimDisk) => (disk.files().includes(name) ? letters(disk.peek(name)) : "none");
const names = (disk: SimDisk) => disk.files().sort().join(" ");

// The cache and the platter.

test("what is synced survives every power cut, and what is not survives a kill", async () => {
  const disk = newDisk();
  const file = disk.openFile("/f", "create");
  put(file, "ab");
  await disk.clock.settle(file.sync());
  await disk.clock.settle(disk.syncDirectory("/"));
  assert.equal(disk.settled, true);
  put(file, "x", 1);
  assert.equal(disk.settled, false);
  assert.equal(content("/f")(disk.kill(new SimRandom(1))), "ax");
  for (const policy of CRASH_POLICIES) {
    for (const outcome of outcomes(disk, policy, content("/f"))) assert.match(outcome, /^a[bx]$/, policy);
  }
  assert.deepEqual(outcomes(disk, "none", content("/f")), ["ab"]);
  assert.deepEqual(outcomes(disk, "all", content("/f")), ["ax"]);
});

test("after a kill, what was pending still is", async () => {
  const disk = newDisk();
  put(durableFile(disk, "/f", "ab"), "x", 0);
  disk.openFile("/g", "create");
  const next = disk.kill(new SimRandom(1));
  assert.deepEqual(outcomes(next, "none", content("/f")), ["ab"]);
  assert.deepEqual(outcomes(next, "none", names), ["/f"]);
  const killed = disk.kill(new SimRandom(2));
  await killed.clock.settle(killed.openFile("/f", "write").sync());
  await killed.clock.settle(killed.syncDirectory("/"));
  assert.deepEqual(outcomes(killed, "none", content("/f")), ["xb"]);
  assert.deepEqual(outcomes(killed, "none", names), ["/f /g"]);
});

test("prefix keeps the calls up to a point, which may lie within one", () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "----");
  put(file, "ab", 0);
  put(file, "c", 3);
  put(file, "d", 0);
  assert.deepEqual(outcomes(disk, "prefix", content("/f")), ["----", "a---", "ab--", "ab-c", "db-c"]);
});

test("random keeps any sectors, and of one written twice any version", () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "---");
  put(file, "ab", 0);
  put(file, "c", 0);
  assert.deepEqual(outcomes(disk, "random", content("/f")), ["---", "-b-", "a--", "ab-", "c--", "cb-"]);
});

test("allButOne drops one sector, back to its version before", () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "---");
  put(file, "ab", 0);
  put(file, "c", 0);
  assert.deepEqual(outcomes(disk, "allButOne", content("/f")), ["ab-", "c--"]);
});

test("last keeps only what the last call wrote", () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "----");
  put(file, "a", 0);
  put(file, "bc", 2);
  assert.deepEqual(outcomes(disk, "last", content("/f")), ["--bc"]);
});

test("a sector is written whole, with what was written to its other bytes before", () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "-");
  file.writeSync(Buffer.from("aaaa"), 0, 4, 0);
  file.writeSync(Buffer.from("bbbb"), 0, 4, 4);
  const start = (crashed: SimDisk) => crashed.peek("/f").subarray(0, 10).toString();
  assert.deepEqual(outcomes(disk, "random", start), ["----------", "aaaa------", "aaaabbbb--"]);
  assert.deepEqual(outcomes(disk, "last", start), ["aaaabbbb--"]);
});

test("a size may be durable without its bytes, and bytes without their size are not there", () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "a");
  put(file, "bc", 1);
  assert.deepEqual(outcomes(disk, "random", content("/f"), "zero"), ["a", "a..", "a.c", "ab.", "abc"]);
  assert.deepEqual(outcomes(disk, "none", content("/f")), ["a"]);
  // Whether the size or the bytes come first depends on the file system.
  assert.deepEqual(outcomes(disk, "prefix", content("/f"), "zero"), ["a", "a..", "ab.", "abc"]);
});

test("a hole reads as zeros, as a deleted file's bytes at the same place, or as garbage", () => {
  const disk = newDisk();
  durableFile(disk, "/deleted", "uvw").close();
  disk.unlink("/deleted");
  const file = durableFile(disk, "/f", "a");
  put(file, "bc", 1);
  assert.ok(outcomes(disk, "random", content("/f"), "old").includes("avw"));
  assert.ok(outcomes(disk, "random", content("/f"), "garbage").includes("a??"));
  const mixed = outcomes(disk, "random", content("/f"));
  for (const expected of ["a.c", "avc", "a?c", "a", "abc"])
    assert.ok(mixed.includes(expected), `${expected}: ${mixed}`);
  // An overwritten sector is never a hole: it has old contents to keep.
  const next = disk.kill(new SimRandom(0));
  put(next.openFile("/f", "write"), "x", 0);
  for (const outcome of outcomes(next, "random", content("/f"))) assert.match(outcome, /^[ax]/);
});

test("a truncation is pending until the sync", async () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "abc");
  await disk.clock.settle(file.truncate(SECTOR));
  assert.equal(content("/f")(disk.kill(new SimRandom(0))), "a");
  assert.deepEqual(outcomes(disk, "random", content("/f")), ["a", "abc"]);

  const other = newDisk();
  const cut = durableFile(other, "/f", "abc");
  await other.clock.settle(cut.truncate(100));
  await other.clock.settle(cut.truncate(2 * SECTOR));
  await other.clock.settle(cut.sync());
  const after = other.crash("none", new SimRandom(0)).peek("/f");
  assert.equal(after.length, 2 * SECTOR);
  assert.ok(after.subarray(0, 100).every((byte) => byte === 97));
  assert.ok(
    after.subarray(100).every((byte) => byte === 0),
    "what was cut off does not come back",
  );
});

test("a sync covers what was written before it was asked for, and not a write still under way", async () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "--");
  put(file, "a", 0);
  const synced = file.sync();
  put(file, "b", 1);
  await disk.clock.settle(synced);
  assert.deepEqual(outcomes(disk, "none", content("/f")), ["a-"]);

  let overtaken = false;
  for (let seed = 0; seed < 20 && !overtaken; seed++) {
    const trial = newDisk(undefined, seed);
    const target = durableFile(trial, "/f", "--");
    const both = Promise.all([target.write([sectors("a")], 0), target.sync()]);
    await trial.clock.settle(both);
    assert.equal(content("/f")(trial), "a-");
    overtaken = content("/f")(trial.crash("none", new SimRandom(0))) === "--";
  }
  assert.ok(overtaken, "no seed let the sync miss the write");
});

// Names.

test("a new file's name needs its directory's sync, however well its bytes are synced", async () => {
  const disk = newDisk();
  disk.mkdir("/d");
  disk.settle();
  const file = disk.openFile("/d/f", "create");
  put(file, "a");
  await disk.clock.settle(file.sync());
  await disk.clock.settle(disk.syncDirectory("/"));
  assert.deepEqual(outcomes(disk, "none", names), [""]);
  assert.deepEqual(outcomes(disk, "random", content("/d/f")), ["a", "none"]);
});

test("a name may be durable before the bytes are: rename without sync leaves an empty or torn file", async () => {
  const disk = newDisk();
  durableFile(disk, "/f", "ooo");
  const file = disk.openFile("/f.tmp", "create");
  put(file, "nn");
  disk.rename("/f.tmp", "/f");
  await disk.clock.settle(disk.syncDirectory("/"));
  assert.deepEqual(outcomes(disk, "none", content("/f")), [""]);
  assert.ok(outcomes(disk, "random", content("/f"), "zero").includes("n."));
});

test("replacing a file by sync, rename, directory sync gives the old one or the new one", async () => {
  const disk = newDisk();
  durableFile(disk, "/f", "o");
  const file = disk.openFile("/f.tmp", "create");
  put(file, "n");
  await disk.clock.settle(file.sync());
  disk.rename("/f.tmp", "/f");
  for (const policy of CRASH_POLICIES) {
    for (const outcome of outcomes(disk, policy, content("/f"))) assert.match(outcome, /^[on]$/, policy);
  }
  assert.deepEqual(outcomes(disk, "random", content("/f")), ["n", "o"]);
  assert.deepEqual(outcomes(disk, "random", names), ["/f", "/f /f.tmp"]);
});

test("a rename is all or nothing, and never gives one file two names", () => {
  const disk = newDisk();
  durableFile(disk, "/a", "x");
  disk.rename("/a", "/b");
  disk.rename("/b", "/c");
  for (const policy of CRASH_POLICIES) {
    for (const outcome of outcomes(disk, policy, names)) assert.match(outcome, /^\/[abc]$/, policy);
  }
  assert.deepEqual(outcomes(disk, "random", names), ["/a", "/b", "/c"]);
  assert.deepEqual(outcomes(disk, "last", names), ["/c"]);
  assert.deepEqual(outcomes(disk, "allButOne", names), ["/a", "/b"]);
});

test("independent names persist in any order", () => {
  const disk = newDisk();
  disk.openFile("/1", "create");
  disk.openFile("/2", "create");
  assert.deepEqual(outcomes(disk, "random", names), ["", "/1", "/1 /2", "/2"]);
  assert.deepEqual(outcomes(disk, "prefix", names), ["", "/1", "/1 /2"]);
  assert.deepEqual(outcomes(disk, "last", names), ["/2"]);
});

test("a removal is pending too: the file comes back, with its durable bytes", async () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "ab");
  put(file, "x", 0);
  file.close();
  disk.unlink("/f");
  assert.deepEqual(outcomes(disk, "random", content("/f")), ["ab", "none"]);
  const next = disk.kill(new SimRandom(0));
  await next.clock.settle(next.syncDirectory("/"));
  assert.deepEqual(outcomes(next, "none", content("/f")), ["none"]);
});

test("a directory sync covers the changes before it, in that directory, and what they depend on", async () => {
  const disk = newDisk();
  disk.mkdir("/d");
  disk.mkdir("/e");
  disk.settle();
  disk.openFile("/d/1", "create");
  disk.openFile("/e/2", "create");
  disk.rename("/d/1", "/e/1");
  const synced = disk.syncDirectory("/e");
  disk.openFile("/e/late", "create");
  await disk.clock.settle(synced);
  assert.deepEqual(outcomes(disk, "none", names), ["/e/1 /e/2"]);
});

test("a directory whose own name is not durable takes all in it along", async () => {
  const disk = newDisk();
  disk.mkdir("/a/b");
  durableFileIn(disk, "/a/b/f");
  await disk.clock.settle(disk.syncDirectory("/a/b"));
  await disk.clock.settle(disk.syncDirectory("/a"));
  assert.deepEqual(outcomes(disk, "none", names), [""]);
  const next = disk.kill(new SimRandom(0));
  await next.clock.settle(next.syncDirectory("/"));
  assert.deepEqual(outcomes(next, "none", names), ["/a/b/f"]);
});

function durableFileIn(disk: SimDisk, name: string): void {
  disk.openFile(name, "create").close();
}

// The end of a process.

test("after a crash or a kill the old process gets nothing but errors", async () => {
  for (const end of ["crash", "kill"] as const) {
    const disk = newDisk();
    const file = durableFile(disk, "/f", "a");
    const pending = file.sync().then(() => assert.fail("answered after the end"));
    void pending;
    const next = end === "crash" ? disk.crash("all", new SimRandom(0)) : disk.kill(new SimRandom(0));
    const ended = { code: "ESIMENDED" };
    assert.throws(() => file.writeSync(sectors("x"), 0, SECTOR, 0), ended);
    assert.throws(() => file.readSync(Buffer.alloc(1), 0, 1, 0), ended);
    assert.throws(() => file.size(), ended);
    await assert.rejects(file.sync(), ended);
    await assert.rejects(file.write([sectors("x")], 0), ended);
    assert.throws(() => disk.openFile("/f", "read"), ended);
    assert.throws(() => disk.unlink("/f"), ended);
    assert.throws(() => disk.list("/"), ended);
    await assert.rejects(disk.syncDirectory("/"), ended);
    assert.throws(() => file.close(), ended);
    await disk.clock.run();
    assert.equal(content("/f")(next), "a");
    assert.equal(next.bootId() === disk.bootId(), end === "kill");
    put(next.openFile("/f", "write"), "n");
    assert.equal(content("/f")(next), "n");
    assert.equal(content("/f")(disk), "a", "the successor's writes do not reach back");
  }
});

test("one history can be ended in many ways, each on its own", () => {
  const disk = newDisk();
  put(durableFile(disk, "/f", "aa"), "b", 0);
  const [none, all, killed] = [
    disk.crash("none", new SimRandom(0)),
    disk.crash("all", new SimRandom(0)),
    disk.kill(new SimRandom(0)),
  ];
  for (const next of [none, all, killed]) put(next.openFile("/f", "write"), "z", 1);
  assert.deepEqual([none, all, killed].map(content("/f")), ["az", "bz", "bz"]);
  assert.deepEqual(outcomes(none, "none", content("/f")), ["aa"]);
  assert.deepEqual(outcomes(all, "none", content("/f")), ["ba"]);
  assert.deepEqual(outcomes(killed, "none", content("/f")), ["aa"]);
});

test("a write under way at the end may be done, not done, or done in part", () => {
  const seen = new Set<string>();
  for (let seed = 0; seed < 100; seed++) {
    const disk = newDisk();
    const file = durableFile(disk, "/f", "---");
    void file.write([sectors("ab"), sectors("c")], 0);
    seen.add(content("/f")(disk.kill(new SimRandom(seed))));
  }
  for (const expected of ["---", "abc"]) assert.ok(seen.has(expected), expected);
  assert.ok(
    [...seen].some((outcome) => /^(a--|ab-|\?|a\?|ab\?)/.test(outcome)),
    [...seen].join(),
  );
});

test("haltAt ends the process at a call, before it takes effect", async () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "--");
  disk.haltAt(disk.calls + 2);
  put(file, "a", 0);
  assert.throws(() => put(file, "b", 1), { code: "ESIMENDED" });
  assert.equal(disk.halted, true);
  assert.throws(() => put(file, "c", 1), { code: "ESIMENDED" });
  assert.equal(content("/f")(disk.kill(new SimRandom(0))), "a-");

  const torn = newDisk();
  const target = durableFile(torn, "/f", "--");
  torn.haltAt(torn.calls + 1, SECTOR);
  assert.throws(() => put(target, "ab", 0), { code: "ESIMENDED" });
  assert.equal(content("/f")(torn.kill(new SimRandom(0))), "a-");

  // Within a sector, what is replaced is replaced as a whole.
  const whole = newDisk();
  const replaced = durableFile(whole, "/f", "--");
  whole.haltAt(whole.calls + 1, SECTOR - 1);
  assert.throws(() => put(replaced, "ab", 0), { code: "ESIMENDED" });
  assert.equal(content("/f")(whole.kill(new SimRandom(0))), "--");
});

test("a file that the dead process closes afterwards keeps what was pending", () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "a");
  disk.unlink("/f");
  disk.halt();
  assert.throws(() => file.close(), { code: "ESIMENDED" });
  assert.deepEqual(outcomes(disk, "none", content("/f")), ["a"]);
});

// Space.

test("a full disk takes what fits, then ENOSPC; overwriting needs no space; deleting gives it back", async () => {
  const disk = newDisk(4 * SECTOR);
  const file = disk.openFile("/f", "create");
  put(file, "abc");
  assert.equal(disk.usedBytes, 3 * SECTOR);
  const wide = sectors("xyz");
  assert.equal(file.writeSync(wide, 0, wide.length, 2 * SECTOR), 2 * SECTOR, "a short write first");
  assert.throws(() => file.writeSync(wide, 0, wide.length, 4 * SECTOR), { code: "ENOSPC" });
  await assert.rejects(disk.clock.settle(file.write([wide], 4 * SECTOR)), { code: "ENOSPC" });
  assert.equal(letters(disk.peek("/f")), "abxy");
  put(file, "mnop", 0);
  await disk.clock.settle(file.write([sectors("qr")], 0));
  assert.equal(letters(disk.peek("/f")), "qrop");
  await disk.clock.settle(file.sync());
  const other = disk.openFile("/g", "create");
  assert.throws(() => put(other, "n"), { code: "ENOSPC" });
  await disk.clock.settle(file.truncate(SECTOR));
  put(other, "nnn");
  assert.throws(() => put(file, "q", 1), { code: "ENOSPC" });
  disk.unlink("/g");
  assert.throws(() => put(file, "q", 1), { code: "ENOSPC" }, "still open");
  other.close();
  put(file, "qqq", 1);
  assert.equal(disk.usedBytes, 4 * SECTOR);
  assert.equal(disk.kill(new SimRandom(0)).usedBytes, 4 * SECTOR);
  assert.equal(disk.crash("all", new SimRandom(0)).usedBytes, 4 * SECTOR);
});

test("a hole made by truncation takes no space until it is written", async () => {
  const disk = newDisk(2 * SECTOR);
  const file = disk.openFile("/f", "create");
  await disk.clock.settle(file.truncate(10 * SECTOR));
  assert.equal(disk.usedBytes, 0);
  assert.equal(letters(disk.peek("/f")), "..........");
  put(file, "ab", 5);
  assert.throws(() => put(file, "c", 0), { code: "ENOSPC" });
});

// Faults.

test("failAt fails one call of any kind, once", async () => {
  const calls: [string, (disk: SimDisk, file: DiskFile) => unknown][] = [
    ["open", (disk) => disk.openFile("/new", "create")],
    ["list", (disk) => disk.list("/")],
    ["size", (disk) => disk.size("/f")],
    ["readFile", (disk) => disk.readFile("/f")],
    ["mkdir", (disk) => disk.mkdir("/d")],
    ["rename", (disk) => disk.rename("/f", "/g")],
    ["unlink", (disk) => disk.unlink("/f")],
    ["rmdir", (disk) => disk.rmdir("/empty")],
    ["syncDirectory", (disk) => disk.syncDirectory("/")],
    ["fileSize", (_disk, file) => file.size()],
    ["writeSync", (_disk, file) => file.writeSync(sectors("x"), 0, SECTOR, 0)],
    ["readSync", (_disk, file) => file.readSync(Buffer.alloc(1), 0, 1, 0)],
    ["write", (_disk, file) => file.write([sectors("x")], 0)],
    ["read", (_disk, file) => file.read(Buffer.alloc(1), 0, 1, 0)],
    ["sync", (_disk, file) => file.sync()],
    ["truncate", (_disk, file) => file.truncate(0)],
  ];
  for (const [kind, call] of calls) {
    const disk = newDisk();
    disk.mkdir("/empty");
    const file = durableFile(disk, "/f", "a");
    const heard: string[] = [];
    disk.onCall = (heardKind, _path, n) => heard.push(`${heardKind} ${n}`);
    disk.failAt(disk.calls + 1, { errno: "EIO" });
    const attempt = async () => call(disk, file);
    await assert.rejects(disk.clock.settle(attempt()), { code: "EIO", syscall: kind }, kind);
    assert.equal(`${names(disk)} ${content("/f")(disk)}`, "/f a", `${kind} changed something`);
    await disk.clock.settle(attempt());
    assert.deepEqual(heard, [`${kind} ${disk.calls - 1}`, `${kind} ${disk.calls}`]);
  }
});

test("a close never fails", () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "a");
  disk.failAt(disk.calls + 1, { errno: "EIO" });
  file.close();
  assert.throws(() => file.size(), { code: "EBADF" });
});

test("a sticky fault stays for its kind until it is cleared", async () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "-");
  disk.failAt(disk.calls + 1, { errno: "EROFS", sticky: true });
  for (let i = 0; i < 3; i++) assert.throws(() => put(file, "x"), { code: "EROFS" });
  await disk.clock.settle(file.write([sectors("y")], 0));
  assert.equal(file.readSync(Buffer.alloc(1), 0, 1, 0), 1);
  disk.clearFaults();
  put(file, "z");
  assert.equal(content("/f")(disk), "z");
});

test("a failing write may have taken a part", async () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "---");
  const fault: SimFault = { errno: "EIO", written: SECTOR };
  disk.failAt(disk.calls + 1, fault);
  assert.throws(() => put(file, "ab", 0), { code: "EIO" });
  disk.failAt(disk.calls + 1, fault);
  await assert.rejects(disk.clock.settle(file.write([sectors("cd")], SECTOR)), { code: "EIO" });
  assert.equal(content("/f")(disk), "ac-");
});

test("a short write says so", () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "--");
  disk.shortWriteAt(disk.calls + 1, SECTOR);
  disk.shortWriteAt(disk.calls + 2, 0);
  assert.equal(file.writeSync(sectors("ab"), 0, 2 * SECTOR, 0), SECTOR);
  assert.equal(file.writeSync(sectors("b"), 0, SECTOR, SECTOR), 0);
  assert.equal(content("/f")(disk), "a-");
});

test("after a failed sync the next one succeeds and has saved nothing", async () => {
  for (const pages of ["kept", "reverted"] as const) {
    const disk = newDisk();
    const file = durableFile(disk, "/f", "--");
    put(file, "a", 0);
    disk.failAt(disk.calls + 1, { errno: "EIO", pages });
    await assert.rejects(disk.clock.settle(file.sync()), { code: "EIO" });
    assert.equal(content("/f")(disk), pages === "kept" ? "a-" : "--");
    await disk.clock.settle(file.sync());
    assert.deepEqual(outcomes(disk, "all", content("/f")), ["--"]);
    const after = disk.kill(new SimRandom(0));
    const again = after.openFile("/f", "write");
    put(again, "b", 1);
    await after.clock.settle(again.sync());
    assert.deepEqual(outcomes(after, "none", content("/f")), ["-b"], "what is written later is saved again");
  }
});

test("a failed sync of a file that grew reverts to zeros", async () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "a");
  put(file, "b", 1);
  disk.failAt(disk.calls + 1, { errno: "EIO", pages: "reverted" });
  await assert.rejects(disk.clock.settle(file.sync()), { code: "EIO" });
  assert.equal(content("/f")(disk), "a.");
});

test("after a failed directory sync the names are never durable, though visible", async () => {
  const disk = newDisk();
  disk.openFile("/f", "create");
  disk.failAt(disk.calls + 1, { errno: "EIO" });
  await assert.rejects(disk.clock.settle(disk.syncDirectory("/")), { code: "EIO" });
  await disk.clock.settle(disk.syncDirectory("/"));
  assert.equal(names(disk), "/f");
  assert.deepEqual(outcomes(disk, "all", names), [""]);
});

test("rot is seen at once, survives syncs and crashes, and flips one bit", async () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "aa");
  put(file, "b", 1);
  disk.flipBit("/f", 3, 0);
  disk.flipBit("/f", SECTOR + 3, 7);
  await disk.clock.settle(file.sync());
  for (const after of [disk.crash("none", new SimRandom(0)), disk.kill(new SimRandom(0))]) {
    const bytes = after.peek("/f");
    const expected = sectors("ab");
    expected[3]! ^= 1;
    expected[SECTOR + 3]! ^= 128;
    assert.ok(bytes.equals(expected));
  }
  assert.throws(() => disk.flipBit("/f", 2 * SECTOR, 0), RangeError);
});

test("a lost write is in the cache and never on the platter", async () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "--");
  disk.loseWriteAt(disk.calls + 1);
  put(file, "a", 0);
  put(file, "b", 1);
  await disk.clock.settle(file.sync());
  assert.equal(content("/f")(disk), "ab");
  assert.deepEqual(outcomes(disk, "all", content("/f")), ["-b"]);
});

test("a misdirected write lands elsewhere on the platter", async () => {
  const disk = newDisk();
  const file = durableFile(disk, "/f", "---");
  const other = durableFile(disk, "/g", "--");
  disk.misdirectWriteAt(disk.calls + 1, 2 * SECTOR);
  put(file, "a", 0);
  disk.misdirectWriteAt(disk.calls + 1, 0, "/g");
  put(file, "b", 1);
  assert.equal(content("/f")(disk), "ab-");
  await disk.clock.settle(Promise.all([file.sync(), other.sync()]));
  assert.deepEqual(outcomes(disk, "all", content("/f")), ["--a"]);
  assert.deepEqual(outcomes(disk, "all", content("/g")), ["-b"]);
});

// Determinism, and likeness to the real thing.

test("the same seed gives the same disk; every policy is a function of it", () => {
  const build = () => {
    const disk = newDisk();
    const random = new SimRandom(5);
    for (let i = 0; i < 6; i++) {
      const file = durableFile(disk, `/${i}`, "--------");
      for (let j = 0; j < 5; j++) put(file, random.pick(["abc", "d", "ef"]), random.below(9));
    }
    disk.rename("/1", "/x");
    return disk;
  };
  const image = (disk: SimDisk) => disk.files().map((name) => `${name}:${disk.peek(name).toString("base64")}`);
  for (const policy of CRASH_POLICIES) {
    assert.deepEqual(image(build().crash(policy, new SimRandom(8))), image(build().crash(policy, new SimRandom(8))));
  }
  assert.notDeepEqual(
    image(build().crash("random", new SimRandom(8))),
    image(build().crash("random", new SimRandom(9))),
  );
});

const notLinux = process.platform !== "linux" && "other systems have other error codes, for unlinking a directory say";
test("a process that is never cut off cannot tell it from a real disk", { skip: notLinux }, async () => {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), "varve-sim-disk-"));
  try {
    for (let seed = 0; seed < 40; seed++) {
      const sim = newDisk(undefined, seed);
      sim.mkdir(`${root}/${seed}`);
      const real = new NodeDisk();
      real.mkdir(`${root}/${seed}`);
      const simTrace = await trace(sim, `${root}/${seed}`, seed, (promise) => sim.clock.settle(promise));
      const realTrace = await trace(real, `${root}/${seed}`, seed, (promise) => promise);
      assert.deepEqual(simTrace, realTrace, `seed ${seed}`);
    }
  } finally {
    fs.rmSync(root, { recursive: true, force: true });
  }
});

/** Does random things to a disk and tells what came of each: the value, or the error's code. */
async function trace(
  disk: Disk,
  root: string,
  seed: number,
  settle: <T>(promise: Promise<T>) => Promise<T>,
): Promise<string[]> {
  const random = new SimRandom(seed);
  const told: string[] = [];
  const open: DiskFile[] = [];
  const anyPath = () =>
    random.pick(["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a"].map((name) => `${root}/${name}`));
  const actions: (() => unknown)[] = [
    () => open.push(disk.openFile(anyPath(), "create")),
    () => open.push(disk.openFile(anyPath(), "create")),
    () => {
      const file = anyPath();
      // Opening a directory for reading works on some systems; varve never does it.
      if (disk.size(file) !== undefined && listable(disk, file)) return "directory";
      return open.push(disk.openFile(file, random.pick(["read", "write"])));
    },
    () => disk.list(anyPath()).sort(),
    () => {
      const file = anyPath();
      return listable(disk, file) ? "directory" : disk.size(file);
    },
    () => disk.readFile(anyPath()).toString("base64"),
    () => disk.mkdir(anyPath()),
    () => disk.rename(anyPath(), anyPath()),
    () => disk.unlink(anyPath()),
    () => disk.rmdir(anyPath()),
    () => disk.syncDirectory(root),
  ];
  const fileActions: ((file: DiskFile) => unknown)[] = [
    (file) => file.size(),
    (file) => {
      const bytes = Buffer.alloc(random.below(1500), random.below(256));
      return file.writeSync(bytes, 0, bytes.length, random.below(3000));
    },
    (file) => {
      const buffers = Array.from({ length: random.below(4) }, () => Buffer.alloc(random.below(700), random.below(256)));
      return file.write(buffers, random.below(3000));
    },
    (file) => {
      const bytes = Buffer.alloc(2000, 0xee);
      const count = file.readSync(bytes, 100, random.below(1500), random.below(3000));
      return `${count} ${bytes.toString("base64")}`;
    },
    async (file) => {
      const bytes = Buffer.alloc(2000, 0xee);
      const count = await file.read(bytes, 100, random.below(1500), random.below(3000));
      return `${count} ${bytes.toString("base64")}`;
    },
    (file) => file.sync(),
    (file) => file.truncate(random.below(4000)),
    (file) => file.close(),
  ];
  for (let i = 0; i < 120; i++) {
    const act =
      open.length > 0 && random.chance(0.6)
        ? () => random.pick(fileActions)(random.pick(open))
        : () => random.pick(actions)();
    try {
      told.push(`${i}: ${JSON.stringify((await settle((async () => act())())) ?? null)}`);
    } catch (error) {
      told.push(`${i}: ${(error as NodeJS.ErrnoException).code}`);
    }
  }
  for (const file of open) file.close();
  return told;
}

function listable(disk: Disk, name: string): boolean {
  try {
    disk.list(name);
    return true;
  } catch {
    return false;
  }
}
