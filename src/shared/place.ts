/**
 * Where the owner of a shared directory is reached by others: a socket beside the data, which only those can connect to who
 * may read the data anyhow.
 */

import { createHash } from "node:crypto";
import { lstatSync, mkdirSync, realpathSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { VarveError } from "../api/errors.js";
import type { Target } from "../wire/target.js";

/** Of a directory's own socket. */
const SOCKET_FILE = "SOCKET";
/** The systems' bounds are 104 (BSD, macOS) and 108 (Linux), with a zero at the end. */
const SOCKET_PATH_BYTES_MAX = 103;

/**
 * Of a directory that is there. What a former owner has left there is the listener's to replace.
 * @throws VarveError `ERR_ACCESS`: the path is too long for a socket, and the folder for such cases is not safe
 */
export function placeOf(directory: string): Target {
  const root = realpathSync(directory);
  if (process.platform === "win32") return { scheme: "pipe", path: `\\\\.\\pipe\\varve-${nameOf(root.toLowerCase())}` };
  const beside = join(root, SOCKET_FILE);
  const path = Buffer.byteLength(beside) <= SOCKET_PATH_BYTES_MAX ? beside : join(privateFolder(), nameOf(root));
  return { scheme: "unix", path };
}

function nameOf(root: string): string {
  return createHash("sha256").update(root).digest("hex").slice(0, 32);
}

/** A folder for sockets, of this user alone: anybody may write where temporary files are. */
function privateFolder(): string {
  const uid = process.getuid?.() ?? 0;
  const folder = join(tmpdir(), `varve-${uid}`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const stat = lstatSync(folder);
  if (!stat.isDirectory() || stat.uid !== uid || (stat.mode & 0o077) !== 0) {
    throw new VarveError(
      "ERR_ACCESS",
      `${folder} must be a folder of this user alone: the data directory's path is too long for a socket beside it`,
    );
  }
  return folder;
}
