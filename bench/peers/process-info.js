/** What Linux tells about a process; NaN on other systems, and of a server on another machine. */

import { readFileSync } from "node:fs";

function read(path, find) {
  try {
    return find(readFileSync(path, "utf8"));
  } catch {
    return Number.NaN;
  }
}

/** Resident memory, in bytes. */
export const residentBytes = (pid) =>
  read(`/proc/${pid}/status`, (text) => Number(/^VmRSS:\s+(\d+) kB$/m.exec(text)[1]) * 1024);

/** Bytes that were handed to the file system to be stored, whenever that stores them. */
export const writtenBytes = (pid) => read(`/proc/${pid}/io`, (text) => Number(/^write_bytes: (\d+)$/m.exec(text)[1]));

/** Processor time so far, in microseconds. */
export const processorMicros = (pid) =>
  read(`/proc/${pid}/stat`, (text) => {
    // Behind the name, which may hold spaces: fields 14 and 15, in clock ticks, of which Linux shows 100 a second.
    const fields = text.replace(/^.*\) /s, "").split(" ");
    return (Number(fields[11]) + Number(fields[12])) * 10_000;
  });
