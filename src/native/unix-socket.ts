/**
 * Listening on a Unix socket that only this user may open. What a killed daemon left at the path goes; anything else that
 * stands there, and a socket at which somebody answers, stays.
 */

import { chmodSync, lstatSync, unlinkSync } from "node:fs";
import { connect, type Server } from "node:net";
import { VarveError } from "../api/errors.js";

/** What the socket's file is made with: nobody but its owner connects. */
const OTHERS_UMASK = 0o177;
const OWNER_ONLY = 0o600;
/** A path that is longer would be cut by the operating system, and the socket stand elsewhere. */
const PATH_BYTES_MAX = 103;

/**
 * Makes way at the path, and begins to listen there.
 * @throws VarveError `ERR_OPTION` (the path is too long, or something else stands there); `listen` reports the rest
 */
export async function listenOnUnixSocket(server: Server, path: string, backlog: number): Promise<void> {
  if (Buffer.byteLength(path) > PATH_BYTES_MAX) {
    throw new VarveError("ERR_OPTION", `the path of a Unix socket has at most ${PATH_BYTES_MAX} bytes; got ${path}`);
  }
  await removeStale(path);
  // The file is made within listen(): with the mask, at no time can others open it. Of a cluster, this process itself
  // listens, and nobody else for it.
  const before = setMask(OTHERS_UMASK);
  try {
    server.listen({ path, backlog, exclusive: true });
    if (server.listening) chmodSync(path, OWNER_ONLY);
  } finally {
    if (before !== undefined) setMask(before);
  }
}

/** undefined in a worker thread, which may not set it: there the file is others' to open for a moment. */
function setMask(mask: number): number | undefined {
  try {
    return process.umask(mask);
  } catch {
    return undefined;
  }
}

async function removeStale(path: string): Promise<void> {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!found.isSocket()) throw new VarveError("ERR_OPTION", `${path} is there already, and is no socket`);
  if (await answers(path)) throw new VarveError("ERR_OPTION", `a daemon listens on ${path} already`);
  unlinkSync(path);
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const settle = (answered: boolean) => {
      socket.destroy();
      resolve(answered);
    };
    socket.once("connect", () => settle(true));
    // What refuses was left behind. Of anything else, such as a lack of permission, nobody knows.
    socket.once("error", (error: NodeJS.ErrnoException) =>
      settle(error.code !== "ECONNREFUSED" && error.code !== "ENOENT"),
    );
  });
}
