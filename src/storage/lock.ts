/**
 * One owner per directory, held by a lock of the kernel's on the file LOCK. Such a lock ends with the process that
 * holds it, however it ends, is not lost by a process that stands still, and holds between containers and threads.
 * Node has no call for it, so this takes the first of these that the system offers:
 *
 *   Windows             an open that shares the file with nobody
 *   macOS, BSD          an open that takes flock(2) with it
 *   Linux, other Unix   the utility `flock` on a descriptor that it inherits, or else flock(2) through the package
 *                       koffi, if the application has installed it
 *
 * All Unix ways take the same lock, flock(2): owners with different tools still exclude each other. (Packages that lock
 * with fcntl(2) would not: on Linux neither kind sees the other.)
 *
 * LOCK also says who the owner is, for the message to others. That is information only, and stays when a process is
 * killed. The file is never deleted: a lock on a deleted file would exclude nobody.
 */
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { VarveError } from "../api/errors.js";

/** Windows lets nobody read the locked file, so there the owner's particulars stand in a file of their own. */
const windows = process.platform === "win32";
export const LOCK_FILE = "LOCK";
export const OWNER_FILE = windows ? "LOCK.owner" : LOCK_FILE;

export interface DirectoryLock {
  /** Tells others, in the owner's particulars, where they can reach it; undefined: nowhere, it does not share after all. */
  announce(target: string | undefined): void;
  /** Gives the directory up. Further calls do nothing. */
  release(): void;
}

/** What an owner says of itself to those that find the directory locked. */
export interface OwnerTerms {
  /** It lets others use the directory through it. */
  readonly shared?: boolean | undefined;
  /** Others that use it never take over: they wait for it, or one like it, to come back. */
  readonly sole?: boolean | undefined;
  /** What holds for their commits, too. */
  readonly durability?: string | undefined;
}

/** Who holds a lock, as it wrote itself down. */
export interface Owner extends OwnerTerms {
  readonly pid: number;
  readonly host: string;
  /** When it took the lock; ISO 8601. */
  readonly since: string;
  /** Where others reach it, once they can. */
  readonly target?: string | undefined;
}

/**
 * Takes the directory for this process, without waiting.
 *
 * @throws VarveError `ERR_DIR_LOCKED` (held by another process, thread or open(); `details` has its `pid`, `host`, `since`,
 * and of one that shares `shared`, `durability` and `target`, where known), `ERR_LOCK_UNSUPPORTED`. Errors of opening LOCK are Node's own (ENOENT, EACCES, EROFS, ...).
 */
export async function lockDirectory(directory: string, terms: OwnerTerms = {}): Promise<DirectoryLock> {
  const root = fs.realpathSync(directory);
  const fd = await takeOrTell(root);
  const owner: Owner = { pid: process.pid, host: os.hostname(), since: new Date().toISOString(), ...terms };
  writeOwner(root, fd, owner);
  let held = true;
  return {
    announce(target) {
      if (held) writeOwner(root, fd, target === undefined ? { ...owner, shared: false } : { ...owner, target });
    },
    release() {
      if (!held) return;
      held = false;
      writeOwner(root, fd, undefined);
      fs.closeSync(fd);
    },
  };
}

/** Who says that it owns the directory, and may be alive. Only taking the lock tells for certain, which costs more. */
export function saidOwner(directory: string): Owner | undefined {
  const owner = parseOwner(directory);
  return owner !== undefined && mayBeAlive(owner) ? owner : undefined;
}

/**
 * The locked descriptor. For a moment after the lock was taken, and after it was given up, the owner's file is blank or names a
 * dead predecessor: whoever then says nothing true is looked for again, for a while, and the lock is tried again.
 */
async function takeOrTell(root: string): Promise<number> {
  const file = path.join(root, LOCK_FILE);
  for (let waitedMs = 0; ; waitedMs += OWNER_RETRY_MS) {
    if (waitedMs % LOCK_RETRY_MS === 0) {
      const fd = await takeLock(file);
      if (fd !== undefined) return fd;
    }
    const owner = saidOwner(root);
    if (owner !== undefined || waitedMs >= OWNER_WAIT_MS) throw heldBy(owner, root);
    await sleep(OWNER_RETRY_MS);
  }
}

/** The locked descriptor, or undefined if someone else has the lock. */
async function takeLock(file: string): Promise<number | undefined> {
  if (windows) return openLocked(file, UV_FS_O_EXLOCK, "EBUSY");
  if (BSD_PLATFORMS.has(process.platform)) return openLocked(file, O_EXLOCK | O_NONBLOCK, "EAGAIN");
  const fd = fs.openSync(file, OPEN_FLAGS, 0o600);
  try {
    const taken = flockUtility(fd, file) ?? (await flockKoffi(fd, file));
    if (taken === undefined) {
      throw unsupported(
        file,
        "install the utility `flock` (of util-linux or busybox) or the package koffi; neither is here",
      );
    }
    if (taken) return fd;
  } catch (error) {
    fs.closeSync(fd);
    throw error;
  }
  fs.closeSync(fd);
  return undefined;
}

const OPEN_FLAGS = fs.constants.O_RDWR | fs.constants.O_CREAT | (fs.constants.O_NOFOLLOW ?? 0);
/** libuv's name for dwShareMode 0. */
const UV_FS_O_EXLOCK = 0x10000000;
const BSD_PLATFORMS: ReadonlySet<NodeJS.Platform> = new Set(["darwin", "freebsd", "openbsd", "netbsd"]);
const O_EXLOCK = 0x20;
const O_NONBLOCK = 0x4;

function openLocked(file: string, flags: number, heldCode: string): number | undefined {
  try {
    return fs.openSync(file, OPEN_FLAGS | flags, 0o600);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === heldCode) return undefined;
    if (code === "ENOTSUP" || code === "EOPNOTSUPP")
      throw unsupported(file, "its file system has no locks; use a local one", error);
    throw error;
  }
}

/** flock(2) belongs to the open file, which parent and child share: it outlives the utility and ends with us. */
function flockUtility(fd: number, file: string): boolean | undefined {
  const { error, status, stderr } = spawnSync("flock", ["-n", "3"], {
    stdio: ["ignore", "ignore", "pipe", fd],
    encoding: "utf8",
    timeout: FLOCK_TIMEOUT_MS,
  });
  if (error !== undefined) {
    if (["ENOENT", "EACCES"].includes((error as NodeJS.ErrnoException).code ?? "")) return undefined;
    throw unsupported(file, "the utility `flock` could not be run", error);
  }
  if (status === 0) return true;
  // "Held" is status 1 without a word. Busybox has the same status for real failures, but explains those.
  if (status === 1 && stderr === "") return false;
  throw unsupported(file, `the utility \`flock\` failed: ${stderr.trim() || `status ${status}`}`);
}

/** A file server that does not answer must not hang the caller for good. */
const FLOCK_TIMEOUT_MS = 10_000;

/** The little that is needed of koffi's interface; varve does not depend on the package. */
interface Koffi {
  load(library: null): { func(prototype: string): (fd: number, operation: number) => number };
  errno(): number;
}

const LOCK_EX = 2;
const LOCK_NB = 4;

async function flockKoffi(fd: number, file: string): Promise<boolean | undefined> {
  const packageName: string = "koffi"; // Not a literal, so that neither the compiler nor a bundler goes looking for it.
  let koffi: Koffi;
  try {
    koffi = ((await import(packageName)) as { default: Koffi }).default;
  } catch {
    return undefined;
  }
  const flock = koffi.load(null).func("int flock(int fd, int operation)");
  if (flock(fd, LOCK_EX | LOCK_NB) === 0) return true;
  const errno = koffi.errno();
  if (errno === os.constants.errno.EWOULDBLOCK) return false;
  throw unsupported(file, `flock(2) failed with errno ${errno}`);
}

function unsupported(file: string, reason: string, cause?: unknown): VarveError {
  return new VarveError(
    "ERR_LOCK_UNSUPPORTED",
    `cannot lock ${file}: ${reason}. Without a lock two processes could destroy each other's data, so the directory is ` +
      "not opened",
    cause === undefined ? {} : { cause },
  );
}

/** Written over in place, always as long: on a full disk that needs no space. */
const OWNER_BYTES = 512;

function writeOwner(root: string, fd: number, owner: Owner | undefined): void {
  const bytes = Buffer.alloc(OWNER_BYTES, " ");
  if (owner !== undefined) bytes.write(JSON.stringify(owner));
  try {
    if (OWNER_FILE === LOCK_FILE) fs.writeSync(fd, bytes, 0, OWNER_BYTES, 0);
    else fs.writeFileSync(path.join(root, OWNER_FILE), bytes, { mode: 0o600 });
  } catch {
    // The lock holds without it; others only do not learn by whom.
  }
}

const OWNER_WAIT_MS = 500;
const OWNER_RETRY_MS = 10;
/** Some systems start a process for it. */
const LOCK_RETRY_MS = 50;

function parseOwner(root: string): Owner | undefined {
  try {
    const owner = JSON.parse(fs.readFileSync(path.join(root, OWNER_FILE), "utf8")) as Partial<Owner> | null;
    if (Number.isSafeInteger(owner?.pid) && typeof owner?.host === "string" && typeof owner.since === "string") {
      const { pid, host, since, shared, sole, durability, target } = owner as Owner;
      return {
        ...{ pid, host, since },
        ...(shared === true && { shared }),
        ...(sole === true && { sole }),
        ...(typeof durability === "string" && { durability }),
        ...(typeof target === "string" && { target }),
      };
    }
  } catch {
    // Blank, half written, or not readable.
  }
  return undefined;
}

function mayBeAlive(owner: Owner): boolean {
  if (owner.host !== os.hostname()) return true;
  try {
    process.kill(owner.pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

function heldBy(owner: Owner | undefined, root: string): VarveError {
  if (owner === undefined) {
    return new VarveError("ERR_DIR_LOCKED", `${root} is in use by another process, which did not say which it is`);
  }
  const self = owner.pid === process.pid && owner.host === os.hostname();
  const who = self ? "this process, which has opened it already" : `process ${owner.pid} on host ${owner.host}`;
  return new VarveError(
    "ERR_DIR_LOCKED",
    `${root} is in use by ${who} (since ${owner.since}); only one may open it at a time. Close it there first, or ` +
      "share its MessageQueue within that process.",
    { details: { ...owner } },
  );
}
