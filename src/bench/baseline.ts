/**
 * What the machine itself can do, as loops over bare system calls: the ceiling for any store. Each handles the same
 * number of payload bytes as the workload that it is compared with, and nothing else: no checksums, no framing.
 */

import { closeSync, fdatasync, fdatasyncSync, fsyncSync, openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Contestant } from "./interleave.js";
import type { Probe } from "./measure.js";
import { payloadsOf, random } from "./payload.js";

const PIECE_BYTES = 64 * 1024;
const PREALLOCATED_BYTES = 64 * 1024 * 1024;
const READS_PER_LAP = 16;

const fdatasyncAsync = promisify(fdatasync);

export interface Baseline extends Contestant {
  close(): void;
}

function writeFully(fd: number, buffer: Uint8Array, length: number, position: number): void {
  for (let done = 0; done < length; ) done += writeSync(fd, buffer, done, length - done, position + done);
}

function piece(): Buffer {
  return Buffer.concat(payloadsOf(1024, PIECE_BYTES / 1024));
}

/** Writes the bytes to a new file, in pieces of 64 KiB, without syncing. */
export function rawWrite(directory: string, messageBytes: number): Baseline {
  const path = join(directory, "raw-write");
  const buffer = piece();
  let written = false;
  const settle = (): void => {
    if (written) unlinkSync(path);
    written = false;
  };
  return {
    name: "raw write",
    run(messages, probe) {
      const fd = openSync(path, "w");
      written = true;
      const bytes = messages * messageBytes;
      let position = 0;
      for (let over = false; position < bytes && !over; ) {
        const length = Math.min(PIECE_BYTES, bytes - position);
        const startedMs = performance.now();
        writeFully(fd, buffer, length, position);
        position += length;
        over = probe.lap(startedMs);
      }
      closeSync(fd);
      return position / messageBytes;
    },
    settle,
    close: settle,
  };
}

function filled(path: string, bytes: number): number {
  const fd = openSync(path, "w+");
  const buffer = piece();
  for (let position = 0; position < bytes; position += PIECE_BYTES) {
    writeFully(fd, buffer, Math.min(PIECE_BYTES, bytes - position), position);
  }
  fsyncSync(fd);
  return fd;
}

/** Reads a file of this many messages from its start, in pieces of 64 KiB. */
export function rawScan(directory: string, messageBytes: number, messages: number): Baseline {
  const path = join(directory, "raw-scan");
  const bytes = messageBytes * messages;
  const fd = filled(path, bytes);
  const buffer = Buffer.alloc(PIECE_BYTES);
  return {
    name: "raw sequential read",
    run(wanted, probe) {
      let done = 0;
      for (let over = false; done < wanted * messageBytes && !over; ) {
        const startedMs = performance.now();
        const length = Math.min(PIECE_BYTES, wanted * messageBytes - done);
        done += readSync(fd, buffer, 0, Math.min(length, bytes - (done % bytes)), done % bytes);
        over = probe.lap(startedMs);
      }
      return done / messageBytes;
    },
    close() {
      closeSync(fd);
      unlinkSync(path);
    },
  };
}

/** Reads messages at random places of a file of this many. */
export function rawRead(directory: string, messageBytes: number, messages: number): Baseline {
  const path = join(directory, "raw-read");
  const fd = filled(path, messageBytes * messages);
  const buffer = Buffer.alloc(messageBytes);
  const next = random(1);
  return {
    name: "raw random read",
    run(wanted, probe) {
      let done = 0;
      for (let over = false; done < wanted && !over; ) {
        const startedMs = performance.now();
        for (let i = 0; i < READS_PER_LAP && done < wanted; i++, done++) {
          readSync(fd, buffer, 0, messageBytes, next(messages) * messageBytes);
        }
        over = probe.lap(startedMs);
      }
      return done;
    },
    close() {
      closeSync(fd);
      unlinkSync(path);
    },
  };
}

/** Overwrites a preallocated file, message by message, with an fdatasync after each: in the thread pool, or blocking. */
export function overwriteSync(directory: string, messageBytes: number, mode: "pool" | "blocking"): Baseline {
  const path = join(directory, `overwrite-${mode}`);
  const fd = filled(path, Math.max(PREALLOCATED_BYTES, messageBytes));
  const slots = Math.max(1, Math.floor(PREALLOCATED_BYTES / messageBytes));
  const payload = payloadsOf(messageBytes, 1)[0]!;
  let slot = 0;
  const write = (): void => {
    writeFully(fd, payload, messageBytes, slot * messageBytes);
    slot = (slot + 1) % slots;
  };
  const inPool = async (messages: number, probe: Probe): Promise<number> => {
    let done = 0;
    for (let over = false; done < messages && !over; done++) {
      const startedMs = performance.now();
      write();
      await fdatasyncAsync(fd);
      over = probe.lap(startedMs);
    }
    return done;
  };
  const blocking = (messages: number, probe: Probe): number => {
    let done = 0;
    for (let over = false; done < messages && !over; done++) {
      const startedMs = performance.now();
      write();
      fdatasyncSync(fd);
      over = probe.lap(startedMs);
    }
    return done;
  };
  return {
    name: mode === "pool" ? "overwrite + fdatasync" : "overwrite + fdatasyncSync",
    run: mode === "pool" ? inPool : blocking,
    close() {
      closeSync(fd);
      unlinkSync(path);
    },
  };
}
