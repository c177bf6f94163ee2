import os from "node:os";
import type { DiskFile } from "../../src/storage/disk.js";
import { forsakeBytes, type SimInode, settleFile } from "./sim-nodes.js";
import type { SimRandom } from "./sim-random.js";

export type CallKind =
  | "open"
  | "list"
  | "size"
  | "readFile"
  | "mkdir"
  | "rename"
  | "unlink"
  | "rmdir"
  | "syncDirectory"
  | "fileSize"
  | "writeSync"
  | "readSync"
  | "write"
  | "read"
  | "sync"
  | "truncate"
  | "close";

export interface SimFault {
  readonly errno: string;
  /** Also fails all later calls of the kind that was hit, until `clearFaults`. @defaultValue false */
  readonly sticky?: boolean;
  /** For writes: bytes that are taken before the error. @defaultValue 0 */
  readonly written?: number;
  /**
   * For `sync`: whether the cache keeps the data that did not reach the platter or reverts to what is there. Either
   * way it counts as clean from then on, as on Linux: the next sync succeeds without having written it.
   * @defaultValue "kept"
   */
  readonly pages?: "kept" | "reverted";
}

/** What an open file may do to its disk. */
export interface DiskInternals {
  /** The latest change so far. */
  stamp(): number;
  call(kind: CallKind, path: string): void;
  later<T>(
    kind: CallKind,
    path: string,
    perform: (call: number, fault: SimFault | undefined) => T,
    interrupt?: (call: number, random: SimRandom) => void,
  ): Promise<T>;
  writeNow(path: string, inode: SimInode, bytes: Uint8Array, position: number): number;
  store(call: number, inode: SimInode, bytes: Uint8Array, position: number): number;
  resize(inode: SimInode, size: number): void;
  drop(inode: SimInode): void;
}

export class SimFile implements DiskFile {
  readonly path: string;
  readonly #disk: DiskInternals;
  readonly #inode: SimInode;
  readonly #writable: boolean;
  #closed = false;

  constructor(disk: DiskInternals, path: string, inode: SimInode, writable: boolean) {
    this.path = path;
    this.#disk = disk;
    this.#inode = inode;
    this.#writable = writable;
    inode.handles++;
  }

  size(): number {
    this.#check("fileSize");
    this.#disk.call("fileSize", this.path);
    return this.#inode.cache.size;
  }

  writeSync(buffer: Uint8Array, start: number, length: number, position: number): number {
    this.#check("writeSync");
    checkRange(buffer, start, length, position);
    return this.#disk.writeNow(this.path, this.#inode, buffer.subarray(start, start + length), position);
  }

  readSync(buffer: Uint8Array, start: number, length: number, position: number): number {
    this.#check("readSync");
    checkRange(buffer, start, length, position);
    this.#disk.call("readSync", this.path);
    return this.#inode.cache.read(buffer, start, length, position);
  }

  async write(buffers: readonly Uint8Array[], position: number): Promise<void> {
    // Nothing to write is nothing to refuse, as in NodeDisk.
    this.#check(buffers.some((buffer) => buffer.length > 0) ? "write" : "read");
    checkRange(undefined, 0, 0, position);
    const list = [...buffers];
    await this.#later(
      "write",
      (call, fault) => {
        // Read only now, as the thread pool may: a buffer that was reused too early is written as it is by then.
        const bytes = Buffer.concat(list);
        const wanted = fault === undefined ? bytes : bytes.subarray(0, fault.written ?? 0);
        const taken = this.#disk.store(call, this.#inode, wanted, position);
        if (fault !== undefined) throw systemError(fault.errno, "write", this.path);
        if (taken < bytes.length) throw systemError("ENOSPC", "write", this.path);
      },
      (call, random) => {
        const bytes = Buffer.concat(list);
        const part = random.pick([0, random.below(bytes.length + 1), bytes.length]);
        this.#disk.store(call, this.#inode, bytes.subarray(0, part), position);
      },
    );
  }

  async read(buffer: Uint8Array, start: number, length: number, position: number): Promise<number> {
    this.#check("read");
    checkRange(buffer, start, length, position);
    return this.#later("read", (_call, fault) => {
      if (fault !== undefined) throw systemError(fault.errno, "read", this.path);
      return this.#inode.cache.read(buffer, start, length, position);
    });
  }

  async sync(): Promise<void> {
    this.#check("sync");
    // What is written while it is under way, it need not cover.
    const stamp = this.#disk.stamp();
    await this.#later("sync", (_call, fault) => {
      if (fault === undefined) {
        settleFile(this.#inode, stamp);
        return;
      }
      forsakeBytes(this.#inode, stamp, fault.pages ?? "kept");
      throw systemError(fault.errno, "sync", this.path);
    });
  }

  async truncate(length: number): Promise<void> {
    this.#check("truncate");
    checkRange(undefined, 0, 0, length);
    if (!this.#writable) throw systemError("EINVAL", "truncate", this.path);
    await this.#later("truncate", (_call, fault) => {
      if (fault !== undefined) throw systemError(fault.errno, "truncate", this.path);
      this.#disk.resize(this.#inode, length);
    });
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    try {
      this.#disk.call("close", this.path);
    } finally {
      this.#inode.handles--;
      this.#disk.drop(this.#inode);
    }
  }

  /** A call in the thread pool keeps the file in being, even if it is closed and deleted meanwhile. */
  async #later<T>(
    kind: CallKind,
    perform: (call: number, fault: SimFault | undefined) => T,
    interrupt?: (call: number, random: SimRandom) => void,
  ): Promise<T> {
    this.#inode.handles++;
    try {
      return await this.#disk.later(kind, this.path, perform, interrupt);
    } finally {
      this.#inode.handles--;
      this.#disk.drop(this.#inode);
    }
  }

  #check(kind: CallKind): void {
    const writes = kind === "writeSync" || kind === "write";
    if (this.#closed || (writes && !this.#writable)) throw systemError("EBADF", kind, this.path);
  }
}

/** As Node does: a caller's mistake must not pass here and fail on a real disk. */
function checkRange(buffer: Uint8Array | undefined, start: number, length: number, position: number): void {
  for (const value of [start, length, position]) {
    if (!Number.isSafeInteger(value) || value < 0) throw new RangeError(`${value} is not a whole number from 0 on`);
  }
  if (buffer !== undefined && start + length > buffer.length) {
    throw new RangeError(`${start} + ${length} is beyond a buffer of ${buffer.length} bytes`);
  }
}

/** An error as Node throws it. */
export function systemError(code: string, syscall: string, path: string): Error {
  const errno = (os.constants.errno as Record<string, number>)[code];
  return Object.assign(new Error(`${code}: simulated, ${syscall} '${path}'`), {
    code,
    errno: errno === undefined ? undefined : -errno,
    syscall,
    path,
  });
}
