/**
 * Repairs a directory whose lock is held: makes one of it that opens, with every queue and record that is undamaged.
 *
 *   look     the marker, the snapshot, every run of every queue, the log: what is intact, and whose it is (reads only)
 *   keep     copies of the marker, the snapshot and the log files that are damaged go to damaged/<time>/
 *   write    intact batches of damaged runs go to new shared segments; then a checkpoint moves what is in the log to
 *            segments and writes a new snapshot: the one switch
 *   tidy     files that the new snapshot no longer names go to damaged/<time>/ as well
 *
 * Everything new has a name that nothing had before. An interruption before the switch leaves the damage as it was, and
 * one after it a directory that opens; repair can be run again in either case.
 *
 * Offsets never change. Where records are missing there is a gap, which readers pass.
 *
 * The steps share what they find in repair-state.ts. Looking goes through repair-identity (which directory), -sections
 * (which queues), -runs (queues whose states are intact), -rebuild and -pieces (queues that are lost), -replay (the log)
 * and -settle (what is gone, and what is still in use). Records that no queue claims come after the log, as it may claim
 * them. repair-write.ts writes and tidies.
 */

import type { ResolvedOpenOptions } from "../api/options.js";
import { snapshotPath } from "../storage/snapshot.js";
import { Catalog } from "./catalog.js";
import { keepCopy } from "./damaged.js";
import { MARKER } from "./directory.js";
import type { EnginePlatform } from "./engine.js";
import type { VerifyProblem } from "./inspect-report.js";
import { newestSnapshot, walFilesFrom } from "./repair-files.js";
import { identify, writeMarker } from "./repair-identity.js";
import { claimTheRest, rebuildLost } from "./repair-rebuild.js";
import { LogReplay } from "./repair-replay.js";
import type { RepairReport } from "./repair-report.js";
import { surveyRuns } from "./repair-runs.js";
import { intactSections, loadIntact, loggedCreations } from "./repair-sections.js";
import { countRuns, settleGaps } from "./repair-settle.js";
import { salvageSnapshot } from "./repair-snapshot.js";
import { type LostQueue, type QueueRepairer, RepairState } from "./repair-state.js";
import { tidy, writeRepaired } from "./repair-write.js";

export type { QueueId, QueueRepairer } from "./repair-state.js";

export class DirectoryRepair {
  readonly #repair: RepairState;
  readonly #problems: readonly VerifyProblem[];

  constructor(
    platform: EnginePlatform,
    directory: string,
    options: ResolvedOpenOptions,
    repairer: QueueRepairer,
    problems: readonly VerifyProblem[],
  ) {
    this.#repair = new RepairState(platform, directory, options, repairer);
    this.#problems = problems;
  }

  /** @param dryRun only says what would be done */
  async run(dryRun: boolean): Promise<RepairReport> {
    try {
      return await this.#run(dryRun);
    } finally {
      for (const { file } of this.#repair.walFiles) file.close();
    }
  }

  async #run(dryRun: boolean): Promise<RepairReport> {
    const repair = this.#repair;
    const marker = `${repair.directory}/${MARKER}`;
    const newest = newestSnapshot(repair);
    const salvaged = newest === undefined ? undefined : salvageSnapshot(repair.disk.readFile(newest));
    identify(repair, salvaged?.snapshot);
    const indexes = this.#problems.filter(({ file }) => file.endsWith(".idx"));
    for (const { file } of indexes) this.#moveAway(file, "the index is damaged; it is derived again when needed");
    const others = this.#problems.length - indexes.length;
    const ofMarker = this.#problems.filter(({ file }) => file === marker).length;
    const state = others > ofMarker || salvaged === undefined;
    if (!repair.markerIsSound) {
      if (repair.disk.size(marker) !== undefined) repair.toCopy.add(marker);
      repair.findings.action(`${marker}: written again, with the id ${repair.directoryId} that the other files name`);
    }
    if (state) await this.#look(newest, salvaged);
    const kept = `${repair.directory}/damaged/${stamp(repair.platform.clock.wallMs())}`;
    const keeps = repair.toCopy.size + repair.toMove.size > 0;
    const report = repair.findings.report(dryRun, this.#problems, dryRun || !keeps ? undefined : kept);
    if (dryRun) return report;
    const below = kept.slice(kept.lastIndexOf("/") + 1);
    for (const path of repair.toCopy) await keepCopy(repair.disk, repair.directory, path, below);
    if (!repair.markerIsSound) await writeMarker(repair, marker);
    if (state) await writeRepaired(repair);
    await tidy(repair, below);
    return report;
  }

  /** Finds out what is intact, and whose it is. */
  async #look(path: string | undefined, salvaged: ReturnType<typeof salvageSnapshot>): Promise<void> {
    const repair = this.#repair;
    const { findings } = repair;
    let snapshot = salvaged?.snapshot;
    if (path !== undefined) repair.toCopy.add(path);
    if (snapshot !== undefined && path !== snapshotPath(`${repair.directory}/snap`, snapshot.header.lsn)) {
      snapshot = undefined;
    }
    if (snapshot !== undefined && snapshot.header.directoryId !== repair.directoryId) snapshot = undefined;
    if (snapshot === undefined) {
      findings.action("the snapshot is lost: the queues are made again from their segments and the log");
      findings.note("all tasks that are still there will be delivered again, except those the log says are done");
    } else if (salvaged!.corrected) {
      findings.action(`${path}: its checksum tells which byte was damaged, and what it was`);
    }
    const sources = walFilesFrom(repair, snapshot?.header.walSeq ?? 0);
    const created = snapshot === undefined ? await loggedCreations(repair, sources) : new Map<number, LostQueue>();
    const { sections, lost } = intactSections(repair, snapshot, created);
    repair.catalog = new Catalog(repair.directory, repair.repairer.kinds, sections);
    loadIntact(repair, lost);
    for (const entry of repair.catalog.entries) await surveyRuns(repair, entry.state!);
    await rebuildLost(repair, lost, snapshot === undefined);
    await new LogReplay(repair).read(snapshot, sources);
    if (snapshot === undefined) await claimTheRest(repair);
    settleGaps(repair);
    countRuns(repair);
  }

  /** Reports a file that is moved away for what is wrong with it alone. */
  #moveAway(path: string, reason: string): void {
    const repair = this.#repair;
    if (repair.disk.size(path) === undefined) return;
    repair.toMove.add(path);
    repair.findings.action(`${path}: ${reason}`);
  }
}

/** A time as a folder name. */
function stamp(wallMs: number): string {
  return new Date(wallMs).toISOString().replaceAll(":", "-");
}
