import assert from "node:assert/strict";
import type { LogSettings } from "../../src/index.js";
import { codeOf, eventually, rejectsWith } from "../support/expect.js";
import { recordsOf, textsOf } from "../support/state.js";
import type { Check } from "./suite.js";

const NONE = {
  retention: {
    maxAge: Number.POSITIVE_INFINITY,
    maxBytes: Number.POSITIVE_INFINITY,
    maxCount: Number.POSITIVE_INFINITY,
  },
  limits: {
    maxCount: Number.POSITIVE_INFINITY,
    maxBytes: Number.POSITIVE_INFINITY,
    maxMessageBytes: Number.POSITIVE_INFINITY,
    whenFull: "refuse",
  },
} as const;

export function logSettingsConformance(check: Check): void {
  check("log settings: none are set at first, and what is given is stored, member by member", async (subject) => {
    const log = await subject.mq.openLog("events");
    assert.deepEqual(await log.settings(), {
      retention: { ...NONE.retention, holdForGroups: 0 },
      compaction: false,
      limits: NONE.limits,
      metadata: {},
    });
    await log.configure({ retention: { maxAge: "7d", maxBytes: "1GiB" }, metadata: { owner: "billing" } });
    await log.configure({ retention: { maxAge: "1d" }, limits: { maxCount: 1000 }, compaction: { grace: "1h" } });
    const expected = {
      retention: { maxAge: 86_400_000, maxBytes: 2 ** 30, maxCount: Number.POSITIVE_INFINITY, holdForGroups: 0 },
      compaction: { grace: 3_600_000, minDirty: 0.5 },
      limits: { ...NONE.limits, maxCount: 1000 },
      metadata: { owner: "billing" },
    };
    assert.deepEqual(await log.settings(), expected);
    const again = await (await subject.reopen()).openLog("events", { limits: { whenFull: "wait" } });
    assert.deepEqual(await again.settings(), { ...expected, limits: { ...expected.limits, whenFull: "wait" } });
    await again.configure({
      retention: { maxAge: Number.POSITIVE_INFINITY, maxBytes: Number.POSITIVE_INFINITY },
      limits: { maxCount: Number.POSITIVE_INFINITY, whenFull: "refuse" },
      compaction: false,
      metadata: {},
    });
    const last = await (await subject.reopen()).openLog("events");
    assert.deepEqual(await last.settings(), {
      retention: { ...NONE.retention, holdForGroups: 0 },
      compaction: false,
      limits: NONE.limits,
      metadata: {},
    });
  });

  check("log settings: changes made at once do not undo each other", async ({ mq }) => {
    const log = await mq.openLog("events");
    await Promise.all([
      log.configure({ retention: { maxAge: "1d" } }),
      log.configure({ retention: { maxCount: 5 } }),
      mq.openLog("events", { metadata: { a: "1" } }),
    ]);
    const { retention, metadata } = await log.settings();
    assert.equal(retention.maxAge, 86_400_000);
    assert.equal(retention.maxCount, 5);
    assert.deepEqual(metadata, { a: "1" });
  });

  check("log settings: what cannot be is refused by its name, and changes nothing", async ({ mq }) => {
    const log = await mq.openLog("events");
    const before = await log.settings();
    const refused: readonly [string, unknown][] = [
      ["retention.maxAge", { retention: { maxAge: 0 } }],
      ["retention.maxAge", { retention: { maxAge: "0s" } }],
      ["retention.maxBytes", { retention: { maxBytes: 0 } }],
      ["retention.maxCount", { retention: { maxCount: 0 } }],
      ["retention.maxCount", { retention: { maxCount: 1.5 } }],
      ["retention.holdForGroups", { retention: { holdForGroups: -1 } }],
      ["limits.maxCount", { limits: { maxCount: 0 } }],
      ["limits.whenFull", { limits: { whenFull: "explode" } }],
      ["compaction.minDirty", { compaction: { minDirty: 2 } }],
      ['metadata["a"]', { metadata: { a: 1 } }],
      ["metadata", { metadata: { a: "x".repeat(4096) } }],
      ["retention.age", { retention: { age: 1 } }],
    ];
    for (const [option, settings] of refused) {
      const error = await rejectsWith("ERR_OPTION", log.configure(settings as LogSettings));
      assert.equal(error.details.option, option);
      await rejectsWith("ERR_OPTION", mq.openLog("events", settings as LogSettings));
    }
    assert.deepEqual(await log.settings(), before);
  });

  check("log settings: with create: false, a log that does not exist is not made", async (subject) => {
    await rejectsWith("ERR_NOT_FOUND", subject.mq.openLog("events", { create: false }));
    assert.deepEqual(await subject.mq.queues(), []);
    await subject.mq.openLog("events");
    const log = await (await subject.reopen()).openLog("events", { create: false });
    assert.equal(await log.append("a"), 0);
  });

  check("log: purge removes everything and offsets go on", async (subject) => {
    const log = await subject.mq.openLog("events");
    assert.equal(await log.purge(), 0);
    await log.appendBatch(["a", "b", "c"]);
    await log.trim(1);
    const [purged, offset] = await Promise.all([log.purge(), log.append("d")]);
    assert.equal(purged, 2);
    assert.equal(offset, 3, "a record appended after the call is not touched");
    assert.deepEqual(await textsOf(log), ["d"]);
    assert.equal(await log.purge(), 1);
    const again = await (await subject.reopen()).openLog("events");
    assert.deepEqual(await recordsOf(again), []);
    assert.equal(await again.append("e"), 4);
  });

  check("log limits: what does not fit is refused, and fits again after a trim", async ({ mq }) => {
    const log = await mq.openLog("events", { limits: { maxCount: 3 } });
    const results = await Promise.all(["a", "b", "c", "d", "e"].map((text) => codeOf(log.append(text))));
    assert.deepEqual(results, [undefined, undefined, undefined, "ERR_QUEUE_FULL", "ERR_QUEUE_FULL"]);
    await rejectsWith("ERR_QUEUE_FULL", log.appendBatch(["x"]), /3 records/);
    await rejectsWith("ERR_TOO_LARGE", log.appendBatch(["1", "2", "3", "4"]));
    assert.deepEqual(await textsOf(log), ["a", "b", "c"]);
    await log.trim(2);
    await rejectsWith("ERR_QUEUE_FULL", log.appendBatch(["x", "y", "z"]));
    await log.appendBatch(["d", "e"]);
    assert.deepEqual(await textsOf(log), ["c", "d", "e"]);
    await rejectsWith(
      "ERR_QUEUE_FULL",
      mq.transaction((tx) => tx.append(log, "x")),
      /part 1/,
    );
    await log.configure({ limits: { maxCount: Number.POSITIVE_INFINITY } });
    await log.append("f");
  });

  check("log limits: bytes", async ({ mq }) => {
    const log = await mq.openLog("events", { limits: { maxBytes: "64KiB", maxMessageBytes: "40KiB" } });
    await rejectsWith("ERR_TOO_LARGE", log.append(Buffer.alloc(41 * 1024)), /maxMessageBytes/);
    await log.append(Buffer.alloc(30 * 1024));
    await log.append(Buffer.alloc(30 * 1024));
    await rejectsWith("ERR_QUEUE_FULL", log.append(Buffer.alloc(30 * 1024)), /64KiB/);
    await log.append(Buffer.alloc(1024));
    await log.trim(1);
    await log.append(Buffer.alloc(30 * 1024));
    await rejectsWith("ERR_QUEUE_FULL", log.append(Buffer.alloc(30 * 1024)));
  });

  check("log limits: appends wait for room in the order of their calls", async ({ mq, pass }) => {
    const log = await mq.openLog("events", { limits: { maxCount: 2, whenFull: "wait" } });
    const done: string[] = [];
    const appends = ["a", "b", "c", "d", "e"].map((text) => log.append(text).then(() => done.push(text)));
    await eventually("two are in", () => done.length === 2, pass);
    await pass(50);
    assert.deepEqual(done, ["a", "b"]);
    await rejectsWith(
      "ERR_QUEUE_FULL",
      mq.transaction((tx) => tx.append(log, "x")),
    );
    await log.trim(1);
    await eventually("a third is in", () => done.length === 3, pass);
    assert.deepEqual(await textsOf(log), ["b", "c"]);
    await log.configure({ limits: { maxCount: 100 } });
    await Promise.all(appends);
    assert.deepEqual(await textsOf(log), ["b", "c", "d", "e"]);
  });

  check("log limits: a call that waits for room ends when the directory is closed", async (subject) => {
    const log = await subject.mq.openLog("events", { limits: { maxCount: 1, whenFull: "wait" } });
    await log.append("a");
    const outcome = codeOf(log.append("b"));
    const again = await (await subject.reopen()).openLog("events");
    assert.equal(await outcome, "ERR_CLOSED");
    assert.deepEqual(await textsOf(again), ["a"]);
  });

  check("log limits: the oldest records go for new ones, in the same commit", async (subject) => {
    const log = await subject.mq.openLog("events", { limits: { maxCount: 3, whenFull: "drop-oldest" } });
    await Promise.all(["a", "b", "c", "d"].map((text) => log.append(text)));
    assert.deepEqual(await textsOf(log), ["b", "c", "d"]);
    assert.deepEqual(await log.appendBatch(["e", "f"]), [4, 5]);
    assert.deepEqual(await textsOf(log), ["d", "e", "f"]);
    await subject.mq.transaction((tx) => {
      tx.append(log, "g");
      tx.append(log, "h");
    });
    assert.deepEqual(await textsOf(log), ["f", "g", "h"]);
    const again = await (await subject.reopen()).openLog("events");
    assert.deepEqual(await textsOf(again), ["f", "g", "h"]);
    await again.configure({ limits: { maxBytes: "10KiB" } });
    for (let round = 0; round < 30; round++) await again.append(Buffer.alloc(2000, round));
    const left = await recordsOf(again);
    assert.ok(left.length >= 2 && left.length <= 3, `${left.length} records`);
    assert.equal(left.at(-1)?.payload[0], 29);
  });

  check("log limits: a commit that is refused drops nothing, and leaves the log its limits", async (subject) => {
    const log = await subject.mq.openLog("events", { limits: { maxCount: 3, whenFull: "drop-oldest" } });
    const full = await subject.mq.openLog("full", { limits: { maxCount: 1, whenFull: "refuse" } });
    await log.appendBatch(["a", "b", "c"]);
    await full.append("full");
    const outcome = subject.mq.transaction((tx) => {
      tx.append(log, "x");
      tx.append(log, "y");
      tx.append(full, "z");
    });
    await rejectsWith("ERR_QUEUE_FULL", outcome);
    assert.deepEqual(await textsOf(log), ["a", "b", "c"]);
    await log.append("d");
    assert.deepEqual(await textsOf(log), ["b", "c", "d"]);
  });
}
