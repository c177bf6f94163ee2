import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { dirname } from "node:path";
import type { Disk, DiskFile } from "./disk.js";

/** A link planted in place of a file is refused (ELOOP), not followed. Windows has no such flag. */
const NOFOLLOW = fs.constants.O_NOFOLLOW ?? 0;
const OPEN_FLAGS = {
  read: fs.constants.O_RDONLY | NOFOLLOW,
  write: fs.constants.O_RDWR | NOFOLLOW,
  create: fs.constants.O_RDWR | fs.constants.O_CREAT | fs.constants.O_EXCL | NOFOLLOW,
} as const;

/** IOV_MAX: the most buffers that one writev takes on Linux, macOS and the BSDs. */
const WRITEV_BUFFERS_MAX = 1024;

/** How often, and how long, a sync of a directory waits for a file descriptor: half a minute in all. */
const DESCRIPTOR_WAITS_MAX = 1500;
const DESCRIPTOR_WAIT_MS = 20;

/** The machine's own file system. Paths are absolute (or relative to the working directory). */
export class NodeDisk implements Disk {
  #bootId: string | undefined;
  #bootIdKnown = false;

  openFile(path: string, mode: "read" | "write" | "create"): DiskFile {
    return new NodeFile(path, fs.openSync(path, OPEN_FLAGS[mode], 0o600));
  }

  list(path: string): string[] {
    return fs.readdirSync(path);
  }

  size(path: string): number | undefined {
    try {
      return fs.lstatSync(path, { throwIfNoEntry: false })?.size;
    } catch (error) {
      // A file where a directory above it should be: there is no such file either.
      if ((error as NodeJS.ErrnoException).code === "ENOTDIR") return undefined;
      throw error;
    }
  }

  readFile(path: string): Buffer {
    const fd = fs.openSync(path, OPEN_FLAGS.read);
    try {
      return fs.readFileSync(fd);
    } finally {
      fs.closeSync(fd);
    }
  }

  mkdir(path: string): void {
    try {
      fs.mkdirSync(path, { recursive: true, mode: 0o700 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      // Node takes some refusals, such as EROFS, for a missing parent: the first folder that is missing says which.
      let missing = path;
      for (let parent = dirname(missing); !fs.existsSync(parent) && parent !== missing; parent = dirname(missing)) {
        missing = parent;
      }
      fs.mkdirSync(missing, { mode: 0o700 });
      fs.mkdirSync(path, { recursive: true, mode: 0o700 });
    }
  }

  rename(from: string, to: string): void {
    fs.renameSync(from, to);
  }

  remove(path: string): Promise<void> {
    return new Promise((resolve, reject) => {
      fs.unlink(path, (error) => (error === null ? resolve() : reject(error)));
    });
  }

  unlink(path: string): void {
    fs.unlinkSync(path);
  }

  rmdir(path: string): void {
    fs.rmdirSync(path);
  }

  async syncDirectory(path: string): Promise<void> {
    // Windows cannot open a directory for this, and NTFS journals its names by itself.
    if (process.platform === "win32") return;
    const fd = await openDirectory(path);
    try {
      await new Promise<void>((resolve, reject) => {
        fs.fsync(fd, (error) => (error ? reject(error) : resolve()));
      });
    } finally {
      fs.closeSync(fd);
    }
  }

  freeBytes(path: string): number | undefined {
    try {
      const { bavail, bsize } = fs.statfsSync(path);
      return bavail * bsize;
    } catch {
      return undefined;
    }
  }

  bootId(): string | undefined {
    if (!this.#bootIdKnown) {
      this.#bootId = readBootId();
      this.#bootIdKnown = true;
    }
    return this.#bootId;
  }
}

/**
 * Opens a directory to sync it. Without a free descriptor it waits for one: nothing has failed yet, and a sync that fails
 * would end all changes.
 */
async function openDirectory(path: string): Promise<number> {
  for (let waits = 0; ; waits++) {
    try {
      return fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if ((code !== "EMFILE" && code !== "ENFILE") || waits === DESCRIPTOR_WAITS_MAX) throw error;
      await new Promise((resolve) => setTimeout(resolve, DESCRIPTOR_WAIT_MS));
    }
  }
}

function readBootId(): string | undefined {
  try {
    if (process.platform === "linux") return nonEmpty(fs.readFileSync("/proc/sys/kernel/random/boot_id", "latin1"));
    if (process.platform === "darwin") {
      return nonEmpty(execFileSync("/usr/sbin/sysctl", ["-n", "kern.bootsessionuuid"], { encoding: "latin1" }));
    }
  } catch {
    // Unknown is an answer: the engine then trusts nothing that was not synced.
  }
  return undefined;
}

function nonEmpty(text: string): string | undefined {
  return text.trim() || undefined;
}

/**
 * One open file. A descriptor is closed only after the last call in the thread pool has come back: the number could
 * otherwise be given to another file while a write is on its way to it.
 */
class NodeFile implements DiskFile {
  readonly path: string;
  readonly #fd: number;
  #inFlight = 0;
  #closed = false;
  /**
   * The system says once for each descriptor that it could not write something back, and the next sync over it succeeds: of two
   * at a time, one would be told of the other's failure in its place. So each has a descriptor to itself.
   */
  readonly #descriptors: number[];
  /** Those that no sync is using. */
  readonly #idle: number[];
  /** Syncs that there was no further descriptor for. */
  readonly #syncsWaiting: Done<void>[] = [];

  constructor(path: string, fd: number) {
    this.path = path;
    this.#fd = fd;
    this.#descriptors = [fd];
    this.#idle = [fd];
  }

  size(): number {
    this.#assertOpen();
    return fs.fstatSync(this.#fd).size;
  }

  writeSync(buffer: Uint8Array, start: number, length: number, position: number): number {
    this.#assertOpen();
    return fs.writeSync(this.#fd, buffer, start, length, position);
  }

  readSync(buffer: Uint8Array, start: number, length: number, position: number): number {
    this.#assertOpen();
    return fs.readSync(this.#fd, buffer, start, length, position);
  }

  write(buffers: readonly Uint8Array[], position: number): Promise<void> {
    // writev answers an empty list with an error on some systems, and empty buffers waste its slots.
    const rest = buffers.filter((buffer) => buffer.length > 0);
    return this.#call((done) => this.#writeRest(rest, 0, position, done));
  }

  #writeRest(buffers: Uint8Array[], first: number, position: number, done: Done<void>): void {
    if (first === buffers.length) {
      done(null);
      return;
    }
    const chunk = buffers.slice(first, first + WRITEV_BUFFERS_MAX);
    fs.writev(this.#fd, chunk, position, (error, written) => {
      if (error) {
        done(error);
        return;
      }
      if (written === 0) {
        done(ioError("EIO", `writev took no byte of ${this.path} at ${position}`, this.path));
        return;
      }
      let next = first;
      let left = written;
      while (next < buffers.length && left >= buffers[next]!.length) left -= buffers[next++]!.length;
      if (left > 0) buffers[next] = buffers[next]!.subarray(left);
      this.#writeRest(buffers, next, position + written, done);
    });
  }

  read(buffer: Uint8Array, start: number, length: number, position: number): Promise<number> {
    return this.#call((done) => this.#readRest(buffer, start, length, position, 0, done));
  }

  #readRest(buf: Uint8Array, start: number, length: number, position: number, got: number, done: Done<number>): void {
    if (got === length) {
      done(null, got);
      return;
    }
    fs.read(this.#fd, buf, start + got, length - got, position + got, (error, count) => {
      if (error) done(error);
      else if (count === 0) done(null, got);
      else this.#readRest(buf, start, length, position, got + count, done);
    });
  }

  sync(): Promise<void> {
    return this.#call((done) => {
      const fd = this.#idle.pop();
      if (fd !== undefined) this.#syncOver(fd, done);
      else this.#openAnother((another) => this.#syncOverEither(another ?? this.#idle.pop(), done));
    });
  }

  #syncOverEither(fd: number | undefined, done: Done<void>): void {
    if (fd === undefined) this.#syncsWaiting.push(done);
    else this.#syncOver(fd, done);
  }

  #syncOver(fd: number, done: Done<void>): void {
    fs.fdatasync(fd, (error) => {
      const next = this.#syncsWaiting.shift();
      if (next === undefined) this.#idle.push(fd);
      else this.#syncOver(fd, next);
      done(error);
    });
  }

  /** Gives nothing where there are no more to be had, or the name is another file's by now. */
  #openAnother(give: (fd: number | undefined) => void): void {
    fs.open(this.path, fs.constants.O_RDWR, (error, fd) => {
      if (error !== null) {
        give(undefined);
      } else if (isSameFile(this.#fd, fd)) {
        this.#descriptors.push(fd);
        give(fd);
      } else {
        closeQuietly(fd);
        give(undefined);
      }
    });
  }

  truncate(length: number): Promise<void> {
    return this.#call((done) => fs.ftruncate(this.#fd, length, done));
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#inFlight === 0) this.#closeAll();
  }

  #closeAll(): void {
    for (const fd of this.#descriptors) closeQuietly(fd);
  }

  /** Runs one operation of the thread pool. Callbacks, because Node's own promise API costs several times as much. */
  #call<T>(start: (done: Done<T>) => void): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#assertOpen();
      this.#inFlight++;
      const done = (error: Error | null, value?: T) => {
        if (--this.#inFlight === 0 && this.#closed) this.#closeAll();
        if (error) reject(error);
        else resolve(value as T);
      };
      try {
        start(done);
      } catch (error) {
        done(error as Error); // Node throws at once when an argument is out of range.
      }
    });
  }

  #assertOpen(): void {
    if (this.#closed) throw ioError("EBADF", `${this.path} is closed`, this.path);
  }
}

function isSameFile(fd: number, other: number): boolean {
  try {
    const [one, two] = [fs.fstatSync(fd, { bigint: true }), fs.fstatSync(other, { bigint: true })];
    return one.ino === two.ino && one.dev === two.dev;
  } catch {
    return false;
  }
}

type Done<T> = (error: Error | null, value?: T) => void;

function ioError(code: string, message: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${message}`), { code, path });
}

/** What counts has been synced; after close(2), whatever it says, the descriptor is gone and there is nothing to be done. */
function closeQuietly(fd: number): void {
  try {
    fs.closeSync(fd);
  } catch {
    // Said above.
  }
}
