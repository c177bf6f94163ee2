/**
 * Writes what a repair has found.
 *
 * - Everything new has a name that nothing had before, and is durable before the snapshot names it.
 * - The closing checkpoint's snapshot is the one switch; nothing is moved away before that.
 * - Nothing is removed: what nothing refers to any more goes to `damaged/`.
 */

import { FileCache } from "../storage/file-cache.js";
import { FAILED_MARK, Wal } from "../storage/wal.js";
import { Checkpointer } from "./checkpoint.js";
import { folderOf, keptPath, syncUpTo } from "./damaged.js";
import { Engine } from "./engine.js";
import { writeShared } from "./repair-segments.js";
import type { RepairState, ReplacedRun } from "./repair-state.js";

/** Writes the segments, and what is in the log and the queues' states by way of a checkpoint. */
export async function writeRepaired(repair: RepairState): Promise<void> {
  const { disk, directory } = repair;
  for (const folder of ["wal", "snap", "shared"]) disk.mkdir(`${directory}/${folder}`);
  await disk.syncDirectory(directory);
  await writeSegments(repair);
  const wal = new Wal(disk, `${directory}/wal`, {
    fileBytes: repair.options.walFileBytes,
    directoryId: repair.directoryId,
    bootId: disk.bootId() ?? "",
  });
  const engine = new Engine(repair.platform, {
    directory,
    directoryId: repair.directoryId,
    options: repair.options,
    catalog: repair.catalog,
    wal,
    files: new FileCache(disk, repair.options.maxOpenFiles),
    lsn: repair.lsn + 1,
    crc: repair.crc,
    generation: repair.generation,
    elapsedMs: repair.elapsedMs,
    recovering: false,
    snapshotBytes: 0,
  });
  try {
    wal.files.push(...repair.walFiles);
    const header = { firstLsn: repair.lsn + 2, generation: repair.generation, prevCrc: repair.crc, async: false };
    wal.begin(header, repair.seqMax + 1);
    await wal.sync();
    await new Checkpointer(engine).close();
    if (engine.failure !== undefined) throw engine.failure;
  } finally {
    engine.files.close();
    wal.close();
  }
}

/** The intact parts of damaged segments, each segment's in a new one. */
async function writeSegments(repair: RepairState): Promise<void> {
  const bySource = new Map<string, ReplacedRun[]>();
  for (const replaced of repair.replaced) {
    const { path } = replaced.pieces[0]!;
    const list = bySource.get(path);
    if (list === undefined) bySource.set(path, [replaced]);
    else list.push(replaced);
  }
  for (const list of bySource.values()) {
    const segment = repair.catalog.newShared();
    const moves = list.map(({ stream, run, pieces }) => ({
      pieces,
      placed: (position: number, bytes: number) => {
        stream.bytes += bytes - run.bytes;
        stream.runs[stream.runs.indexOf(run)] = { ...run, segment, position, bytes };
      },
    }));
    await writeShared(repair.disk, segment, repair.directoryId, moves);
    repair.catalog.shared.set(segment.sharedId, segment);
  }
}

/** Moves away what nothing refers to any more. @param below folder within `damaged` for it */
export async function tidy(repair: RepairState, below: string): Promise<void> {
  const { disk } = repair;
  for (const path of repair.toMove) {
    if (disk.size(path) === undefined) continue;
    const target = keptPath(repair.directory, path, below);
    disk.mkdir(folderOf(target));
    disk.rename(path, target);
    await syncUpTo(disk, repair.directory, folderOf(target));
    await disk.syncDirectory(folderOf(path));
  }
  const failed = `${repair.directory}/wal/${FAILED_MARK}`;
  if (repair.skip > 0 && disk.size(failed) !== undefined) disk.unlink(failed);
}
