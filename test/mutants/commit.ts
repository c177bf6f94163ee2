/** The group commit, and what it asks of the disk's space. */

import { directed, type Mutant, simulator, testFile } from "./mutant.js";

const file = "src/engine/engine.ts";

export const commitMutants: readonly Mutant[] = [
  {
    name: "acknowledged before it is synced",
    file,
    search: 'if (operation.durability === "sync") {',
    replacement: "if (false) {",
    breaks: "what was acknowledged in sync mode survives a power cut",
    killer: simulator,
  },
  {
    name: "acknowledged before it is written",
    file,
    search: "    let position: number;\n    try {",
    replacement:
      "    for (const operation of operations) if (operation.constructor !== Object) operation.settle();\n    let position: number;\n    try {",
    breaks: "a write that fails was not acknowledged",
    killer: simulator,
  },
  {
    name: "who waits is called back before there is something",
    file,
    search: "if (this.#wakes.length === 0 || this.#staging) return;",
    replacement: "if (this.#wakes.length === 0) return;",
    breaks: "who waits for a task gets it when there is one",
    killer: testFile("test/wakes.test.ts", "the turn in which a sync of others ends"),
  },
  {
    name: "what a sync began before is taken for covered by it",
    file,
    search: "    this.#becameDurable(target);\n",
    replacement: "    this.#becameDurable(this.lsn);\n",
    breaks: "entries written while a sync is under way wait for the next one",
    killer: simulator,
  },
  {
    name: "a sync does not wait for the one before it",
    file,
    search: "    await before;\n    this.#syncs.shift();",
    replacement: "    this.#syncs.shift();",
    breaks: "an entry is durable when those before it are",
    killer: simulator,
  },
  {
    name: "a failed sync is tried again",
    file,
    search: "      await this.wal.sync();\n    } catch (error) {",
    replacement:
      "      await this.wal.sync().catch(() => {\n        for (const each of this.wal.files) each.dirty = true;\n" +
      "        return this.wal.sync();\n      });\n    } catch (error) {",
    breaks: "a sync that succeeds after one that failed proves nothing",
    killer: simulator,
  },
  {
    name: "a failed sync is passed over",
    file,
    search:
      '      const failure = this.#fail("making the log durable", error);\n      this.#abandon(this.#unknown(failure));\n',
    replacement: '      this.logger.error({ error }, "passed over");',
    breaks: "a failed sync acknowledges nothing",
    killer: simulator,
  },
  {
    name: "a failed write is passed over",
    file,
    search:
      '      const unknown = this.#unknown(this.#fail("writing the log", error));\n      for (const operation of operations) operation.fail(unknown);\n      return;',
    replacement: "      position = this.wal.current.position;",
    breaks: "a change that could not be written is not acknowledged",
    killer: simulator,
  },
  {
    name: "after a failed write, writing goes on",
    file,
    search: "    if (this.#failure !== undefined) {\n      // What the disk holds is unknown by now",
    replacement: "    if (false) {\n      // What the disk holds is unknown by now",
    breaks: "nothing is written behind what the disk may not hold",
    killer: directed("what was staged when a sync failed"),
  },
  {
    name: "watermark 0",
    file,
    search: "    header.watermark = this.durableLsn;",
    replacement: "    header.watermark = 0;",
    breaks: "damage to what was durable is told from a torn tail",
    killer: simulator,
  },
  {
    name: "watermark of what was only written",
    file,
    search: "    header.watermark = this.durableLsn;",
    replacement: "    header.watermark = this.lsn;",
    breaks: "an ordinary power cut is not taken for damage",
    killer: simulator,
  },
  {
    name: "shown before it is durable",
    file,
    search: "    if (!sync) for (let row",
    replacement: "    for (let row",
    breaks: "in a sync directory nothing is visible before it is durable",
    killer: simulator,
  },
  {
    name: "a commit in two entries",
    file,
    search: "    const batch = this.#batch;\n    if (batch === undefined || batch.stream !== stream)",
    replacement:
      "    if (this.#batch !== undefined && this.#batch.stream !== stream) {\n      this.flush();\n      this.#open(200_000);\n    }\n" +
      "    const batch = this.#batch;\n    if (batch === undefined || batch.stream !== stream)",
    breaks: "a transaction or batch takes effect as a whole or not at all",
    killer: simulator,
  },
  {
    name: "timestamps may fall",
    file,
    search: "Math.max(this.#wallMs, stream.lastTimestamp)",
    replacement: "this.#wallMs",
    breaks: "the times of a stream's records never fall, whatever the wall clock does",
    killer: simulator,
  },
  {
    name: "room for a commit is not looked at",
    file,
    search: "    if (this.#staging && !this.#hasRoomFor(own)) this.flush();",
    replacement: "",
    breaks: "an entry stays within its block and its log file",
    killer: simulator,
  },
  {
    name: "the end of a log file is not looked at",
    file,
    search: "!this.wal.fits(this.#entryBytes() + own)",
    replacement: "false",
    breaks: "an entry fits its log file",
    killer: simulator,
  },
  {
    name: "the log is marked for early acks, but not durably",
    file,
    search: "      const noted = Promise.resolve().then(() => this.syncFiles());",
    replacement: "      const noted = Promise.resolve();",
    breaks: "an offset that was given out is never given out again",
    killer: directed("told early"),
  },
  {
    name: "the log is not marked for early acks",
    file,
    search: "        this.wal.markAsync();",
    replacement: "",
    breaks: "an offset that was given out is never given out again",
    killer: simulator,
  },
  {
    name: "the next log file is not marked for early acks",
    file,
    search: 'async: this.options.durability === "async" || this.#noting,',
    replacement: 'async: this.options.durability === "async",',
    breaks: "an offset that was given out is never given out again",
    killer: simulator,
  },
  {
    name: "wall clock in place of elapsed time",
    file,
    search: "    return this.#elapsedBase + this.clock.elapsedMs();",
    replacement:
      "    return ((this as any).wallBase ??= this.#elapsedBase + this.clock.elapsedMs() - this.clock.wallMs()) + this.clock.wallMs();",
    breaks: "leases last as long as they were given for, whatever the wall clock does",
    killer: simulator,
  },
  {
    name: "what is only in the log is durable an interval late",
    file,
    search: "const waitMs = this.#unsyncedSince + this.options.syncIntervalMs - this.elapsedMs();",
    replacement: "const waitMs = 100_000;",
    breaks: "a power cut costs async mode no more than the sync interval",
    killer: simulator,
  },
  {
    name: "a full disk is not told",
    file,
    search: "    } catch (error) {\n      throw this.#noSpace(error);\n    }\n    if (!this.#diskFull) return;",
    replacement:
      "    } catch (error) {\n      if (!isNoSpace(error)) throw this.#noSpace(error);\n    }\n    if (!this.#diskFull) return;",
    breaks: "what a full disk cannot take is refused",
    killer: directed("a full disk refuses"),
  },
  {
    name: "a full disk takes acks only up to the end of a log file",
    file,
    search: "      if (!this.wal.hasSpare) throw full;",
    replacement: "      throw full;",
    breaks: "a full disk can be drained",
    killer: directed("a full disk is drained, far past what is left of a log file of 4MiB"),
  },
  {
    name: "no log file is kept ready",
    file,
    search: "      this.wal.prepareSpare();\n",
    replacement: "",
    breaks: "a full disk takes acks past the end of a log file",
    killer: directed("a full disk is drained, far past what is left of a log file of 4MiB"),
  },
];
