import { batchFileBytes, zeroPadding } from "../storage/batch.js";
import type { BatchTable } from "../storage/batch-table.js";
import type { WalFile } from "../storage/wal.js";

/**
 * Log bytes read at a time. Each step waits for a turn of the event loop, which under load is long: few large steps.
 */
export const WINDOW_BYTES = 2 * 1024 * 1024;

/** Bytes of a log file with the batches of the rows [from, to) of a list, while they are read into memory and after. */
interface Window {
  readonly from: number;
  readonly to: number;
  readonly buffer: Buffer;
  /** Position of the first byte in the file. */
  readonly start: number;
  readonly done: Promise<void>;
}

/**
 * Reads batches back from log files, as they are to stand in segments: with zeros behind each. One at a time: its two
 * buffers are reused.
 */
export class LogWindows {
  readonly #buffers: Buffer[] = [];

  /**
   * Reads the stretches of a log file that hold the given batches, rows of its table in order, the next one while the last is
   * being used.
   */
  async each(
    file: WalFile,
    rows: Uint32Array,
    visit: (rows: Uint32Array, buffer: Buffer, start: number) => Promise<void> | void,
  ): Promise<void> {
    const { batches } = file;
    let reading = this.#read(file, rows, 0, 0);
    for (let count = 1; reading !== undefined; count++) {
      const { from, to, buffer, start, done } = reading;
      await done;
      reading = this.#read(file, rows, to, count);
      const finished = reading?.done.catch(() => {});
      try {
        const read = rows.subarray(from, to);
        // No checksum is over the padding: where a sector that was torn held the same records before, it may hold more.
        for (let at = from; at < to; at++) {
          zeroPadding(buffer, batches.positionOf(rows[at]!) - start, batches.bytesOf(rows[at]!));
        }
        await visit(read, buffer, start);
      } catch (error) {
        // The buffers are the next call's as soon as this one has failed: nothing may be on its way into them.
        await finished;
        throw error;
      }
    }
  }

  #read(file: WalFile, rows: Uint32Array, from: number, count: number): Window | undefined {
    if (from >= rows.length) return undefined;
    const { batches } = file;
    const start = batches.positionOf(rows[from]!);
    let length = endOf(batches, rows[from]!) - start;
    let to = from + 1;
    while (to < rows.length && endOf(batches, rows[to]!) - start <= WINDOW_BYTES) {
      length = endOf(batches, rows[to++]!) - start;
    }
    const buffer = length > WINDOW_BYTES ? Buffer.allocUnsafeSlow(length) : this.#buffer(count % 2, length);
    const done = file.file.read(buffer, 0, length, start).then((read) => {
      if (read < length) throw new Error(`${file.file.path}: ends at ${start + read} while being read`);
    });
    return { from, to, buffer, start, done };
  }

  /** As large as it had to be so far: a directory in which little happens needs no more. */
  #buffer(index: number, length: number): Buffer {
    const buffer = this.#buffers[index];
    if (buffer !== undefined && buffer.length >= length) return buffer;
    const larger = Buffer.allocUnsafeSlow(Math.min(WINDOW_BYTES, Math.max(length, 2 * (buffer?.length ?? 0))));
    this.#buffers[index] = larger;
    return larger;
  }
}

/** Position behind a batch and what pads it. */
function endOf(batches: BatchTable, row: number): number {
  return batches.positionOf(row) + batchFileBytes(batches.bytesOf(row));
}
