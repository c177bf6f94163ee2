/**
 * The users file on the disk. It says who may log in, so it must be this user's alone: a file that others could have
 * written, or a link to one, is refused rather than read. It is replaced as a whole: a kill leaves the old one or the new.
 */

import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  lstatSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  type Stats,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import { VarveError } from "../api/errors.js";
import { formatUsers, NO_USERS, parseUsers, USERS_BYTES_MAX, type Users } from "../auth/users.js";

/** Not on Windows, which knows no such permissions: there the folder's access list is what protects the file. */
const POSIX = process.platform !== "win32";
const GROUP_AND_OTHERS = 0o077;

/**
 * @throws VarveError `ERR_OPTION`: it cannot be read, others may read or write it, it is a link or no file, or what it says is wrong
 */
export function readUsersFile(file: string): Users {
  return parseUsers(readPrivate(file), file);
}

/**
 * Replaces the file by one with a change, also when there is none yet. Only one program does so at a time.
 * @throws VarveError `ERR_OPTION`: as above, or another change is under way
 */
export function changeUsersFile(file: string, change: (users: Users) => Users): void {
  // What is written is also the lock: whoever comes second finds it there.
  const next = `${file}.new`;
  let descriptor: number;
  try {
    descriptor = openSync(next, "wx", 0o600);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "EEXIST") throw failed(next, "cannot be made", cause);
    throw refused(next, "is there already: another command is changing the users, or one was killed; if so, delete it");
  }
  try {
    try {
      const text = formatUsers(change(exists(file) ? readUsersFile(file) : NO_USERS));
      // What would be refused when it is read is not written.
      parseUsers(text, file);
      const bytes = Buffer.from(text);
      for (let at = 0; at < bytes.length; ) at += writeSync(descriptor, bytes, at);
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
    renameSync(next, file);
  } catch (error) {
    rmSync(next, { force: true });
    throw error instanceof VarveError ? error : failed(file, "cannot be written", error);
  }
  if (POSIX) syncFolder(dirname(file));
}

function readPrivate(file: string): string {
  let descriptor: number;
  try {
    // Without waiting, should it be a pipe.
    descriptor = openSync(file, constants.O_RDONLY | (POSIX ? constants.O_NOFOLLOW | constants.O_NONBLOCK : 0));
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ELOOP") throw refused(file, "is a symbolic link");
    throw failed(file, "cannot be read", cause);
  }
  try {
    const stats = fstatSync(descriptor);
    if (!POSIX && lstatSync(file).isSymbolicLink()) throw refused(file, "is a symbolic link");
    checkOwner(file, stats);
    // A byte more than allowed tells that there are more.
    const bytes = Buffer.alloc(USERS_BYTES_MAX + 1);
    let length = 0;
    for (;;) {
      const count = readSync(descriptor, bytes, length, bytes.length - length, null);
      length += count;
      if (count === 0 || length === bytes.length) break;
    }
    return bytes.toString("utf8", 0, length);
  } finally {
    closeSync(descriptor);
  }
}

function checkOwner(file: string, stats: Stats): void {
  if (!stats.isFile()) throw refused(file, "is no file");
  if (!POSIX) return;
  if ((stats.mode & GROUP_AND_OTHERS) !== 0) {
    const mode = (stats.mode & 0o777).toString(8).padStart(4, "0");
    throw refused(file, `may be used by others (mode ${mode}); chmod 600 makes it yours alone`);
  }
  const self = process.getuid?.();
  if (stats.uid !== self && stats.uid !== 0) throw refused(file, "belongs to another user");
}

/** Whether something stands there; what that is, is checked when it is read. */
function exists(file: string): boolean {
  return lstatSync(file, { throwIfNoEntry: false }) !== undefined;
}

/** So that a power cut does not bring back the old file. */
function syncFolder(folder: string): void {
  const descriptor = openSync(folder, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function refused(file: string, what: string): VarveError {
  return new VarveError("ERR_OPTION", `${file} ${what}`, { details: { file } });
}

function failed(file: string, what: string, cause: unknown): VarveError {
  return new VarveError("ERR_OPTION", `${file} ${what}: ${(cause as Error).message}`, { cause, details: { file } });
}
