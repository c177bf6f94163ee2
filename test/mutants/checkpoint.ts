/** The checkpoint: what must be durable before what, and what it may leave out. */

import { directed, type Mutant, simulator, testFile } from "./mutant.js";

const checkpoint = "src/engine/checkpoint.ts";
const writer = "src/engine/segment-writer.ts";
const FULL_DISK = testFile("test/field-cases/case-06-the-disk-fills-up.test.ts", "without a free byte opens");
const KILLED_WHEN_FULL = testFile("test/sim/full-disk.test.ts", "in the midst of a checkpoint on a full disk");
const snapshot = "src/storage/snapshot.ts";

export const checkpointMutants: readonly Mutant[] = [
  {
    name: "segments are not synced",
    file: writer,
    search: "        await onlyOnce(segment.path, held.file.sync());\n",
    replacement: "",
    breaks: "a log file is reused only when what it held stands elsewhere",
    killer: simulator,
  },
  {
    name: "the names of segments are not synced",
    file: writer,
    search: "    for (const directory of directories) await onlyOnce(directory, disk.syncDirectory(directory));\n",
    replacement: "",
    breaks: "a log file is reused only when what it held stands elsewhere",
    killer: simulator,
  },
  {
    name: "folders above a new one are not synced",
    file: writer,
    search: "      this.#newDirectories.add(parent);",
    replacement: "",
    breaks: "a segment in a new folder is durable",
    killer: simulator,
  },
  {
    name: "a failed sync of segments or folders is taken for a full disk",
    file: writer,
    search: "  try {\n    await sync;\n  } catch (cause) {",
    replacement: "  try {\n    await sync;\n  } catch (cause) {\n    throw cause;",
    breaks: "a sync that succeeds after one that failed proves nothing",
    killer: directed("a checkpoint whose"),
  },
  {
    name: "a checkpoint goes on although the log has failed",
    file: checkpoint,
    search: "    if (this.#engine.failure === undefined) return false;\n",
    replacement: "    if (this.#engine.health !== undefined) return false;\n",
    breaks: "a sync that succeeds beside one that failed proves nothing",
    killer: directed("no snapshot asks"),
  },
  {
    name: "an open that failed leaves its checkpoint to be tried again",
    file: "src/engine/recovery.ts",
    search: "    await checkpointer?.stop();\n",
    replacement: "",
    breaks: "one writer at a time",
    killer: testFile("test/sim/full-disk.test.ts", "what an open that failed"),
  },
  {
    name: "a failed sync of a segment is passed over",
    file: writer,
    search: "  try {\n    await sync;\n  } catch (cause) {",
    replacement: "  try {\n    await sync;\n  } catch (cause) {\n    return;",
    breaks: "a failed sync proves nothing",
    killer: simulator,
  },
  {
    name: "the snapshot is not synced",
    file: snapshot,
    search: "    await file.sync();\n",
    replacement: "",
    breaks: "the snapshot that stands for the log is durable",
    killer: simulator,
  },
  {
    name: "the snapshot's name is not synced",
    file: snapshot,
    search: "  disk.rename(temporary, path);\n  await disk.syncDirectory(directory);",
    replacement: "  disk.rename(temporary, path);",
    breaks: "the snapshot that stands for the log is durable",
    killer: simulator,
  },
  {
    name: "the old snapshot goes before the new one stands",
    file: checkpoint,
    search: "    await this.#withReserves(() => writeFileAtomically(disk, folder, path, snapshot));",
    replacement:
      "    for (const name of disk.list(folder)) if (isSnapshotName(name)) disk.unlink(folder + '/' + name);\n" +
      "    await this.#withReserves(() => writeFileAtomically(disk, folder, path, snapshot));",
    breaks: "there is a snapshot at every moment",
    killer: simulator,
  },
  {
    name: "log files are reused before the snapshot stands",
    file: checkpoint,
    search: "    await this.#writeSnapshot(captured, sections, closing);",
    replacement:
      "    if (!closing) for (const _ of files.splice(0)) engine.wal.recycleOldest();\n    await this.#writeSnapshot(captured, sections, closing);",
    breaks: "a log file is reused only when a durable snapshot covers it",
    killer: simulator,
  },
  {
    name: "segments go before the snapshot stands",
    file: checkpoint,
    search: "    await this.#writeSnapshot(captured, sections, closing);",
    replacement: "    this.#writer.removeGarbage();\n    await this.#writeSnapshot(captured, sections, closing);",
    breaks: "a segment is removed only when no durable snapshot names it",
    killer: simulator,
  },
  {
    name: "batches of unfinished tasks are left out",
    file: checkpoint,
    search: "if (next <= stream.head || !stream.isNeeded(batches.baseOf(row), next)) this.#leftOut = true;",
    replacement: "if (next <= stream.head || !stream.isNeeded(next - 1, next)) this.#leftOut = true;",
    breaks: "a task that is not done is kept",
    killer: simulator,
  },
  {
    name: "batches are left out on the word of what is not durable",
    file: checkpoint,
    search: "    if (this.#leftOut) await engine.syncFiles();\n    else",
    replacement: "   ",
    breaks: "a task is given up only when it is durably done",
    killer: directed("what a purge removed"),
  },
  {
    name: "the name of the log file that follows is not awaited",
    file: checkpoint,
    search: "    else await engine.wal.files.find((file) => file.seq === captured.walSeq)?.named;\n",
    replacement: "",
    breaks: "the file that follows a snapshot is there",
    killer: directed("the log file that follows a snapshot is there"),
  },
  {
    name: "the snapshot is of now, not of the border between two log files",
    file: checkpoint,
    search: "    const sections = engine.catalog.sections(captured.queues, captured.deleted, captured.requests);",
    replacement:
      "    const sections = engine.catalog.sections(engine.catalog.capture(), captured.deleted, captured.requests);",
    breaks: "a snapshot and the log behind it make one history",
    killer: simulator,
  },
  {
    name: "a checkpoint makes more durable than it covers",
    file: checkpoint,
    search: "    engine.checkpointed(captured.lsn, captured.time.elapsedMs);",
    replacement: "    engine.checkpointed(engine.lsn, captured.time.elapsedMs);",
    breaks: "what was acknowledged in sync mode survives a power cut",
    killer: simulator,
  },
  {
    name: "readers are given segments before they are durable",
    file: checkpoint,
    search: "      await this.#writer.sync();\n    } catch (error) {",
    replacement: "      this.#writer.publish();\n      await this.#writer.sync();\n    } catch (error) {",
    breaks: "a failed checkpoint leaves the log in charge",
    killer: directed("a segment whose sync failed"),
  },
  {
    name: "space that is held in reserve is not given up",
    file: checkpoint,
    search: "        if (!(await this.#engine.reserves.giveUp())) throw error;\n",
    replacement: "        throw error;\n",
    breaks: "a full disk can be drained",
    killer: FULL_DISK,
  },
  {
    name: "no space is held in reserve",
    file: "src/engine/reserves.ts",
    search: "    this.#ballast.hold(entriesBytes + bytes + this.snapshotBytes + growBytes);",
    replacement: "    this.#ballast.hold(0 * (entriesBytes + bytes + growBytes));",
    breaks: "a full disk can be drained",
    killer: FULL_DISK,
  },
  {
    name: "space that is held in reserve is given up all at once",
    file: "src/engine/reserves.ts",
    search: "(await this.#ballast.giveUp(this.#wal.growBytes / 2))",
    replacement: "(await this.#ballast.giveUp(Number.POSITIVE_INFINITY))",
    breaks: "a full disk can be drained",
    killer: KILLED_WHEN_FULL,
  },
  {
    name: "what a failed write may have left in memory alone is not written again where no checkpoint has space",
    file: "src/engine/recovery.ts",
    search: "        if (failed) await wal.writeAgain();\n",
    replacement: "",
    breaks: "what readers are given is durable",
    killer: testFile("test/sim/full-disk.test.ts", "though a write had failed before"),
  },
];
