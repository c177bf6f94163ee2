import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { NodeDisk } from "./node-disk.js";

const windows = process.platform === "win32";
const root = fs.mkdtempSync(path.join(os.tmpdir(), "varve-node-disk-"));
after(() => fs.rmSync(root, { recursive: true, force: true }));

const disk = new NodeDisk();
const at = (name: string) => path.join(root, name);

test("create, write, read, size, rename, unlink", async () => {
  const file = disk.openFile(at("a"), "create");
  assert.equal(file.path, at("a"));
  assert.equal(file.size(), 0);
  assert.equal(file.writeSync(Buffer.from("xhellox"), 1, 5, 3), 5);
  assert.equal(file.size(), 8);
  const back = Buffer.alloc(8, 0xff);
  assert.equal(file.readSync(back, 0, 8, 0), 8);
  assert.equal(back.toString("latin1"), "\0\0\0hello");
  await file.sync();
  await file.truncate(4);
  assert.equal(disk.size(at("a")), 4);
  file.close();
  disk.rename(at("a"), at("b"));
  await disk.syncDirectory(root);
  assert.equal(disk.size(at("a")), undefined);
  assert.equal(disk.readFile(at("b")).toString("latin1"), "\0\0\0h");
  disk.unlink(at("b"));
  assert.equal(disk.size(at("b")), undefined);
});

test("open modes", () => {
  assert.throws(() => disk.openFile(at("none"), "read"), { code: "ENOENT" });
  assert.throws(() => disk.openFile(at("none"), "write"), { code: "ENOENT" });
  disk.openFile(at("modes"), "create").close();
  assert.equal(disk.size(at("modes/below")), undefined);
  assert.throws(() => disk.openFile(at("modes"), "create"), { code: "EEXIST" });
  const reader = disk.openFile(at("modes"), "read");
  assert.throws(() => reader.writeSync(Buffer.from("x"), 0, 1, 0), { code: "EBADF" });
  reader.close();
});

test("many buffers, empty ones among them, land one behind another", async () => {
  const buffers = Array.from({ length: 3000 }, (_, i) => randomBytes(i % 7));
  const expected = Buffer.concat(buffers);
  const file = disk.openFile(at("many"), "create");
  await file.write(buffers, 5);
  await file.write([], 0);
  await file.write([Buffer.alloc(0)], 0);
  file.close();
  assert.ok(disk.readFile(at("many")).subarray(5).equals(expected));
});

test("a write goes on after a short one, within and between buffers", async (t) => {
  const writev = fs.writev;
  const taken: number[] = [];
  t.mock.method(fs, "writev", (fd: number, buffers: Uint8Array[], position: number, callback: WritevCallback) => {
    const some = Buffer.concat(buffers).subarray(0, 1 + (taken.length % 5));
    taken.push(some.length);
    writev(fd, [some], position, (error, written) => callback(error, written, buffers));
  });
  const file = disk.openFile(at("short"), "create");
  const buffers = [randomBytes(3), randomBytes(1), randomBytes(11), randomBytes(4)];
  await file.write(buffers, 0);
  file.close();
  assert.ok(taken.length > 1);
  assert.ok(disk.readFile(at("short")).equals(Buffer.concat(buffers)));
});

test("a write that makes no progress is an error, not an endless loop", async (t) => {
  t.mock.method(fs, "writev", (_fd: number, buffers: Uint8Array[], _position: number, callback: WritevCallback) =>
    callback(null, 0, buffers),
  );
  const file = disk.openFile(at("stuck"), "create");
  await assert.rejects(file.write([Buffer.from("x")], 0), { code: "EIO" });
  file.close();
});

type WritevCallback = (error: NodeJS.ErrnoException | null, written: number, buffers: Uint8Array[]) => void;

test("a read goes on after a short one and ends at the end of the file", async (t) => {
  const content = randomBytes(100);
  const file = disk.openFile(at("read"), "create");
  file.writeSync(content, 0, 100, 0);
  const read = fs.read as unknown as (...args: unknown[]) => void;
  t.mock.method(fs, "read", (fd: number, buffer: Buffer, start: number, length: number, ...rest: unknown[]) =>
    read(fd, buffer, start, Math.min(length, 7), ...rest),
  );
  const back = Buffer.alloc(120, 0xee);
  assert.equal(await file.read(back, 10, 50, 20), 50);
  assert.ok(back.subarray(10, 60).equals(content.subarray(20, 70)));
  assert.equal(back[60], 0xee);
  assert.equal(await file.read(back, 0, 120, 40), 60);
  assert.equal(await file.read(back, 0, 10, 100), 0);
  file.close();
});

test("a closed file refuses every call, and closing waits for calls under way", async () => {
  const file = disk.openFile(at("closing"), "create");
  const content = randomBytes(1 << 20);
  const written = file.write([content.subarray(0, 1 << 19), content.subarray(1 << 19)], 0);
  const synced = file.sync();
  file.close();
  file.close();
  // Opened meanwhile: had the descriptor's number been free, this file would have been given it and the write.
  const other = disk.openFile(at("other"), "create");
  await Promise.all([written, synced]);
  assert.ok(disk.readFile(at("closing")).equals(content));
  assert.equal(other.size(), 0);
  other.close();
  for (const call of [
    () => file.size(),
    () => file.writeSync(content, 0, 1, 0),
    () => file.readSync(content, 0, 1, 0),
  ]) {
    assert.throws(call, { code: "EBADF" });
  }
  for (const call of [
    () => file.write([content], 0),
    () => file.read(content, 0, 1, 0),
    () => file.sync(),
    () => file.truncate(0),
  ]) {
    await assert.rejects(call(), { code: "EBADF" });
  }
});

test("an argument out of range rejects and leaves the file usable", async () => {
  const file = disk.openFile(at("range"), "create");
  await assert.rejects(file.read(Buffer.alloc(1), 0, 2, 0), { code: "ERR_OUT_OF_RANGE" });
  await file.write([Buffer.from("x")], 0);
  file.close();
  assert.throws(() => file.size(), { code: "EBADF" });
});

test("directories: made with those above, listed, removed when empty", async () => {
  disk.mkdir(at("d/e/f"));
  disk.mkdir(at("d/e/f"));
  disk.openFile(at("d/e/g"), "create").close();
  assert.deepEqual(disk.list(at("d/e")).sort(), ["f", "g"]);
  assert.throws(() => disk.list(at("nowhere")), { code: "ENOENT" });
  await assert.rejects(disk.syncDirectory(at("nowhere")), { code: "ENOENT" });
  assert.throws(() => disk.rmdir(at("d/e")), { code: "ENOTEMPTY" });
  disk.rmdir(at("d/e/f"));
  assert.deepEqual(disk.list(at("d/e")), ["g"]);
});

test("files and directories are the owner's alone", { skip: windows && "Windows has no modes" }, () => {
  disk.mkdir(at("private/inner"));
  disk.openFile(at("private/file"), "create").close();
  assert.equal(fs.statSync(at("private")).mode & 0o777, 0o700);
  assert.equal(fs.statSync(at("private/inner")).mode & 0o777, 0o700);
  assert.equal(fs.statSync(at("private/file")).mode & 0o777, 0o600);
});

test("a planted link is not followed", { skip: windows && "Windows has no O_NOFOLLOW" }, () => {
  fs.writeFileSync(at("target"), "secret");
  fs.symlinkSync(at("target"), at("link"));
  assert.throws(() => disk.openFile(at("link"), "read"), { code: "ELOOP" });
  assert.throws(() => disk.openFile(at("link"), "write"), { code: "ELOOP" });
  assert.throws(() => disk.openFile(at("link"), "create"), { code: "EEXIST" });
  assert.throws(() => disk.readFile(at("link")), { code: "ELOOP" });
});

test("the boot id is stable", () => {
  const id = disk.bootId();
  assert.equal(new NodeDisk().bootId(), id);
  if (process.platform === "linux") assert.match(id ?? "", /^[0-9a-f-]{36}$/);
});

test("each of several syncs at a time has a descriptor to itself, and all are closed", async (t) => {
  const file = disk.openFile(at("syncs"), "create");
  const closed: number[] = [];
  const { closeSync } = fs;
  t.mock.method(fs, "closeSync", (fd: number) => {
    closed.push(fd);
    closeSync(fd);
  });
  const used: number[] = [];
  let most = 0;
  const underWay = new Set<number>();
  const { fdatasync } = fs;
  t.mock.method(fs, "fdatasync", (fd: number, done: (error: Error | null) => void) => {
    assert.ok(!underWay.has(fd), "no descriptor has two syncs");
    underWay.add(fd);
    used.push(fd);
    most = Math.max(most, underWay.size);
    fdatasync(fd, (error) => {
      underWay.delete(fd);
      done(error);
    });
  });
  await Promise.all([file.sync(), file.sync(), file.sync()]);
  assert.equal(used.length, 3);
  assert.ok(most > 1, "they are under way at once");
  await Promise.all([file.sync(), file.sync(), file.sync()]);
  assert.ok(new Set(used).size <= 3, "descriptors are used again");
  file.close();
  assert.deepEqual([...closed].sort(), [...new Set(used)].sort());
});

test("where there is no further descriptor, or another file has the name by now, syncs take turns", async (t) => {
  const file = disk.openFile(at("turns"), "create");
  disk.rename(at("turns"), at("moved"));
  const used: number[] = [];
  const { fdatasync } = fs;
  t.mock.method(fs, "fdatasync", (fd: number, done: (error: Error | null) => void) => {
    used.push(fd);
    fdatasync(fd, done);
  });
  await Promise.all([file.sync(), file.sync(), file.sync()]);
  disk.openFile(at("turns"), "create").close();
  await Promise.all([file.sync(), file.sync()]);
  assert.equal(used.length, 5);
  assert.equal(new Set(used).size, 1);
  file.close();
});
