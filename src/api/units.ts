/** Durations and sizes as people write them. Inside varve they are plain numbers: milliseconds and bytes. */

import type { Duration, Size } from "./contract.js";
import { VarveError } from "./errors.js";
import { show } from "./show.js";

const DURATION_UNITS_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

const SIZE_UNITS_BYTES = {
  B: 1,
  kB: 1000,
  KB: 1000,
  MB: 1000 ** 2,
  GB: 1000 ** 3,
  TB: 1000 ** 4,
  KiB: 1024,
  MiB: 1024 ** 2,
  GiB: 1024 ** 3,
  TiB: 1024 ** 4,
} as const;

const DURATION_PATTERN = /^(\d{1,15}(?:\.\d{1,15})?) ?(ms|s|m|h|d)$/;
const SIZE_PATTERN = /^(\d{1,15}(?:\.\d{1,15})?) ?(B|[kK]B|[MGT]B|[KMGT]iB)$/;

/**
 * A duration in whole milliseconds; fractions are rounded up, so that a wait is never cut short.
 * @throws VarveError `ERR_OPTION`, naming `option`
 */
export function parseDuration(value: Duration, option: string): number {
  let ms: number | undefined;
  if (typeof value === "number") {
    ms = value;
  } else if (typeof value === "string") {
    const match = DURATION_PATTERN.exec(value);
    if (match !== null) ms = Number(match[1]) * DURATION_UNITS_MS[match[2] as keyof typeof DURATION_UNITS_MS];
  }
  // Three decimals are kept when rounding up: 1.1 of a unit must not become a millisecond more through binary fractions.
  if (ms !== undefined && !Number.isInteger(ms)) ms = Math.ceil(Number(ms.toFixed(3)));
  if (ms === undefined || !Number.isSafeInteger(ms) || ms < 0) {
    throw new VarveError(
      "ERR_OPTION",
      `${option} must be a duration: milliseconds as a number >= 0, or a string with a unit (ms, s, m, h, d) such as ` +
        `"250ms" or "1.5h"; got ${show(value)}`,
      { details: { option } },
    );
  }
  return ms;
}

/**
 * A size in whole bytes; fractions in a string are rounded to the nearest byte.
 * @throws VarveError `ERR_OPTION`, naming `option`
 */
export function parseSize(value: Size, option: string): number {
  let bytes: number | undefined;
  if (typeof value === "number") {
    bytes = value;
  } else if (typeof value === "string") {
    const match = SIZE_PATTERN.exec(value);
    if (match !== null) {
      bytes = Math.round(Number(match[1]) * SIZE_UNITS_BYTES[match[2] as keyof typeof SIZE_UNITS_BYTES]);
    }
  }
  if (bytes === undefined || !Number.isSafeInteger(bytes) || bytes < 0) {
    throw new VarveError(
      "ERR_OPTION",
      `${option} must be a size: bytes as a whole number >= 0, or a string with a unit (B, KiB, MiB, GiB, TiB, or ` +
        `decimal kB, MB, GB, TB) such as "64MiB"; got ${show(value)}`,
      { details: { option } },
    );
  }
  return bytes;
}

/** For people: the largest unit that fits, at most one decimal. `1500` -> `"1.5s"`. */
export function formatDuration(ms: number): string {
  if (!Number.isFinite(ms)) return String(ms);
  return scale(ms, [
    ["d", DURATION_UNITS_MS.d],
    ["h", DURATION_UNITS_MS.h],
    ["m", DURATION_UNITS_MS.m],
    ["s", DURATION_UNITS_MS.s],
    ["ms", 1],
  ]);
}

/** For people: the largest binary unit that fits, at most one decimal. `1572864` -> `"1.5MiB"`. */
export function formatBytes(bytes: number): string {
  if (!Number.isFinite(bytes)) return String(bytes);
  return scale(bytes, [
    ["TiB", SIZE_UNITS_BYTES.TiB],
    ["GiB", SIZE_UNITS_BYTES.GiB],
    ["MiB", SIZE_UNITS_BYTES.MiB],
    ["KiB", SIZE_UNITS_BYTES.KiB],
    ["B", 1],
  ]);
}

/** `units` from the largest to the one of size 1. */
function scale(value: number, units: readonly (readonly [name: string, size: number])[]): string {
  const magnitude = Math.abs(value);
  let index = units.findIndex(([, size]) => magnitude >= size);
  if (index === -1) index = units.length - 1;
  let rounded = roundToTenth(magnitude / units[index]![1]);
  const larger = units[index - 1];
  if (larger !== undefined && rounded * units[index]![1] >= larger[1]) {
    // Rounded up to a whole one of the next unit: "1MiB", not "1024KiB".
    index -= 1;
    rounded = roundToTenth(magnitude / larger[1]);
  }
  return `${value < 0 ? "-" : ""}${rounded}${units[index]![0]}`;
}

function roundToTenth(value: number): number {
  return Math.round(value * 10) / 10;
}
