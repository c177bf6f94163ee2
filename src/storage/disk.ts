/**
 * All that varve asks of a file system, as an interface: the production engine and the simulator differ only in what
 * stands behind it. Paths are plain strings with "/" separators below the directory's root.
 *
 * Synchronous calls run on the event loop and must be short (WAL writes, opening and closing files); the others run
 * in the thread pool. Errors are Node's own (`code` is "ENOSPC", "EIO", "ENOENT", ...).
 */
export interface Disk {
  /** Opens a file. `create` opens for reading and writing and fails with EEXIST if the file exists. */
  openFile(path: string, mode: "read" | "write" | "create"): DiskFile;
  /** Names in a directory, unsorted. ENOENT if it does not exist. */
  list(path: string): string[];
  /** Size in bytes, or undefined if there is no such file. */
  size(path: string): number | undefined;
  readFile(path: string): Buffer;
  /** Creates a directory (mode 0700) and the missing ones above it. */
  mkdir(path: string): void;
  rename(from: string, to: string): void;
  unlink(path: string): void;
  /** The same in the thread pool: giving the space of a large file back takes milliseconds. */
  remove(path: string): Promise<void>;
  /** Removes an empty directory. */
  rmdir(path: string): void;
  /** Makes the names in a directory durable (creations, renames, removals). */
  syncDirectory(path: string): Promise<void>;
  /** Bytes that the file system of a path still has for us; undefined when that cannot be told. */
  freeBytes(path: string): number | undefined;
  /**
   * Changes whenever the operating system has restarted, so that memory it held back may be lost; undefined when
   * unknown. A killed process does not change it.
   */
  bootId(): string | undefined;
}

/** The disk, or the share of it that we may use, is full. */
export function isNoSpace(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  return code === "ENOSPC" || code === "EDQUOT";
}

/** The process, or the system, has no file descriptor left: only `open` fails so, and nothing has happened. */
export function isNoDescriptor(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  return code === "EMFILE" || code === "ENFILE";
}

/** What the operating system said, rather than a bug. */
export function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && typeof (error as NodeJS.ErrnoException).syscall === "string";
}

export interface DiskFile {
  readonly path: string;
  size(): number;
  /** Writes on the event loop; may write less than asked, like write(2). Returns the bytes written. */
  writeSync(buffer: Uint8Array, start: number, length: number, position: number): number;
  readSync(buffer: Uint8Array, start: number, length: number, position: number): number;
  /** Writes the buffers one behind another, all of them, in the thread pool. */
  write(buffers: readonly Uint8Array[], position: number): Promise<void>;
  /** Reads up to `length` bytes; fewer only at the end of the file. */
  read(buffer: Uint8Array, start: number, length: number, position: number): Promise<number>;
  /** fdatasync, in the thread pool. */
  sync(): Promise<void>;
  truncate(length: number): Promise<void>;
  /** Never fails. */
  close(): void;
}
