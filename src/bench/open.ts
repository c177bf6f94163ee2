/**
 * How long opening takes, after a clean close and after a kill -9, with few and with many records. Each measurement
 * is a process of its own, which opens the directory, reads the log's last record and appends one more.
 */

import { join } from "node:path";
import type { Durability } from "../api/contract.js";
import { open } from "../index.js";
import { type ChildSettings, runInChild } from "./child.js";
import { type Spread, spread } from "./measure.js";
import { payloadsOf } from "./payload.js";
import type { OnProgress } from "./run.js";

export interface OpenSettings extends ChildSettings {
  readonly few: number;
  readonly many: number;
  readonly messageBytes: number;
  readonly rounds: number;
  readonly durability: Durability;
  /** Bytes appended to another log before each kill, so that there is something in the write-ahead log to recover. */
  readonly tailBytes: number;
}

export interface OpenFill {
  readonly directory: string;
  readonly records: number;
  readonly messageBytes: number;
}

export interface OpenMeasure {
  readonly directory: string;
  readonly messageBytes: number;
  readonly durability: Durability;
  /** How the process will end: in order, or killed after it has appended this many bytes. */
  readonly end: { readonly kind: "close" } | { readonly kind: "kill"; readonly tailBytes: number };
}

export interface Opening {
  readonly records: number;
  readonly openMs: number;
  /** From the call of open until the last record is read and one more is appended. */
  readonly usableMs: number;
  readonly recovered: boolean;
  readonly replayedBytes: number;
}

export interface OpenCase {
  readonly after: "close" | "kill";
  readonly records: number;
  readonly openMs: Spread;
  readonly usableMs: Spread;
  /** Median bytes of the write-ahead log that were replayed. */
  readonly replayedBytes: number;
}

export interface OpenResult {
  readonly cases: readonly OpenCase[];
  /** Many records to few, in usable time, round by round. */
  readonly ratio: { readonly close: Spread; readonly kill: Spread };
}

const BATCH = 64;
const LOG = "records";
const TAIL_LOG = "recent";

/** Fills a log and closes the directory in order. */
export async function fill(settings: OpenFill, onProgress: OnProgress): Promise<void> {
  const mq = await open(settings.directory, { durability: "async" });
  const log = await mq.openLog(LOG);
  const batch = payloadsOf(settings.messageBytes, BATCH);
  for (let done = 0; done < settings.records; done += batch.length) {
    await log.appendBatch(batch.slice(0, settings.records - done));
    if (done % (BATCH * 1024) === 0) onProgress(done / settings.records, `filling ${settings.records} records`);
  }
  await mq.close();
}

/** Opens the directory once. With `kill` the directory stays open: the parent kills this process. */
export async function measureOpen(settings: OpenMeasure): Promise<Opening> {
  const startedMs = performance.now();
  const mq = await open(settings.directory, { durability: settings.durability });
  const openMs = performance.now() - startedMs;
  const log = await mq.openLog(LOG);
  const records = (await log.stats()).next;
  const last = await log.read(records - 1);
  if (last === undefined) throw new Error("the last record is missing");
  await log.append(last.payload);
  const usableMs = performance.now() - startedMs;
  const { recovered, replayedBytes } = (await mq.stats()).recovery;
  if (settings.end.kind === "close") {
    await mq.close();
  } else {
    const tail = await mq.openLog(TAIL_LOG);
    const batch = payloadsOf(settings.messageBytes, BATCH);
    for (let bytes = 0; bytes < settings.end.tailBytes; bytes += settings.messageBytes * BATCH) {
      await tail.appendBatch(batch);
    }
  }
  return { records, openMs, usableMs, recovered, replayedBytes };
}

export async function benchOpen(
  directory: string,
  settings: OpenSettings,
  onProgress: OnProgress,
): Promise<OpenResult> {
  const sizes = [settings.few, settings.many].map((records, index) => ({
    records,
    directory: join(directory, index === 0 ? "few" : "many"),
  }));
  for (const { directory: filled, records } of sizes) {
    await runInChild(
      "open-fill",
      { ...settings, directory: filled, records },
      { ...settings, onProgress: (fraction, label) => onProgress(fraction / 2, label) },
    );
  }
  const cases: OpenCase[] = [];
  const ratio: Partial<Record<"close" | "kill", Spread>> = {};
  for (const kind of ["close", "kill"] as const) {
    const end = kind === "close" ? { kind } : { kind, tailBytes: settings.tailBytes };
    const openings: Opening[][] = sizes.map(() => []);
    // What a round measures is how the one before it ended, so that the first only prepares the others.
    for (let round = 0; round <= settings.rounds; round++) {
      onProgress(0.5 + (round / (settings.rounds + 1) + (kind === "kill" ? 1 : 0)) / 4, `opening after a ${kind}`);
      for (const [index, size] of sizes.entries()) {
        const opening = await runInChild(
          "open-measure",
          { ...settings, directory: size.directory, end },
          { ...settings, end: kind === "kill" ? "kill" : "exit" },
        );
        if (round === 0) continue;
        if (opening.recovered !== (kind === "kill")) {
          throw new Error(`opening after a ${kind} reported recovered: ${opening.recovered}`);
        }
        openings[index]!.push(opening);
      }
    }
    for (const [index, size] of sizes.entries()) {
      const measured = openings[index]!;
      cases.push({
        after: kind,
        records: size.records,
        openMs: spread(measured.map(({ openMs }) => openMs)),
        usableMs: spread(measured.map(({ usableMs }) => usableMs)),
        replayedBytes: spread(measured.map(({ replayedBytes }) => replayedBytes)).median,
      });
    }
    const [few, many] = openings as [Opening[], Opening[]];
    ratio[kind] = spread(many.map(({ usableMs }, round) => usableMs / few[round]!.usableMs));
  }
  return { cases, ratio: ratio as OpenResult["ratio"] };
}
