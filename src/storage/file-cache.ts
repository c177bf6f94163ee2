import type { Disk, DiskFile } from "./disk.js";

/** A file that is open and must stay so until released. */
export interface HeldFile {
  readonly file: DiskFile;
  readonly path: string;
  holders: number;
  /** Removed from the cache: closed by its last holder. */
  dropped: boolean;
}

/**
 * Keeps a bounded number of segment files open, least recently used first to go. Files that are held (a read or write
 * is under way) are never closed under their holder; they may take the count past the bound for that long.
 */
export class FileCache {
  readonly #disk: Disk;
  #max: number;
  /** By path, least recently used first. */
  readonly #open = new Map<string, HeldFile>();

  constructor(disk: Disk, max: number) {
    this.#disk = disk;
    this.#max = max;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Opens a file, or takes it from the cache, and holds it open until `release`. */
  hold(path: string, mode: "write" | "create" = "write"): HeldFile {
    let held = this.#open.get(path);
    if (held === undefined) {
      held = { file: this.#disk.openFile(path, mode), path, holders: 0, dropped: false };
    } else {
      this.#open.delete(path);
    }
    this.#open.set(path, held);
    held.holders++;
    if (this.#open.size > this.#max) this.#evict();
    return held;
  }

  release(held: HeldFile): void {
    held.holders--;
    if (held.holders > 0) return;
    if (held.dropped) held.file.close();
    else if (this.#open.size > this.#max) this.#evict();
  }

  /** Forgets a file that is about to be removed. */
  drop(path: string): void {
    const held = this.#open.get(path);
    if (held === undefined) return;
    this.#open.delete(path);
    held.dropped = true;
    if (held.holders === 0) held.file.close();
  }

  /** Closes all files. Those that are opened for a reader which has not noticed yet are closed when it is done. */
  close(): void {
    this.#max = 0;
    for (const path of [...this.#open.keys()]) this.drop(path);
  }

  #evict(): void {
    for (const held of this.#open.values()) {
      if (this.#open.size <= this.#max) return;
      if (held.holders === 0) this.drop(held.path);
    }
  }
}
