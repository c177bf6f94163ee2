import { closeSync, openSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";

const PIECE_BYTES = 1024 * 1024;

/**
 * Makes memory that is free warm: on a virtual machine a page that nobody has touched for a while is handed back to the
 * host, and the first to touch it again pays several times what the work on it costs. Whoever is measured next would pay
 * that by chance. Fills the page cache with a file of this size and removes the file.
 */
export function warmMemory(directory: string, bytes: number): void {
  const path = join(directory, "warm-up");
  const piece = Buffer.alloc(PIECE_BYTES, 1);
  const fd = openSync(path, "w");
  for (let done = 0; done < bytes; ) done += writeSync(fd, piece, 0, Math.min(PIECE_BYTES, bytes - done), done);
  closeSync(fd);
  unlinkSync(path);
}
