/** The judge must convict: true journals, changed in one place each, of a directory that is sound. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { OPEN_OPTIONS, TASK_OPTIONS } from "../crash/shape.js";
import { withDirectory } from "../support/directories.js";
import { Seeded } from "../support/seeded.js";
import { Caller, type Scene } from "./caller.js";
import { type Entry, Journal, type Note, readEntries } from "./journal.js";
import { type End, Judge } from "./judge.js";
import { openOn } from "./machine.js";
import { judgeCopy } from "./rounds.js";

const CUT: End = { kind: "cut", syncIntervalMs: 100 };
const KILL: End = { kind: "kill" };

async function workIn(directory: string, path: string): Promise<Entry[]> {
  const mq = await openOn(directory, OPEN_OPTIONS, {});
  const journal = new Journal(path);
  journal.write({ kind: "opened" });
  const scene: Scene = {
    journal,
    mq,
    log: await mq.openLog("events"),
    jobs: await mq.openTask("jobs", TASK_OPTIONS),
    durability: "sync",
    mixed: false,
    backlog: 0,
  };
  const caller = new Caller("w", scene, new Seeded(1));
  for (let call = 0; call < 40; call++) await caller.produce();
  const taken = await caller.take(10, 0);
  assert.ok(typeof taken !== "string" && taken.length === 10);
  await caller.ack(taken.slice(0, 5));
  journal.close();
  await mq.close();
  return readEntries(path);
}

function lastOf<K extends Note["kind"]>(
  entries: readonly Entry[],
  kind: K,
  test: (entry: Extract<Entry, { kind: K }>) => boolean = () => true,
): Extract<Entry, { kind: K }> {
  const found = entries.findLast((entry) => entry.kind === kind && test(entry as Extract<Entry, { kind: K }>));
  assert.ok(found !== undefined);
  return found as Extract<Entry, { kind: K }>;
}

/** A call of which the directory knows nothing. */
function missing(durability: "sync" | "async", at: number): Entry[] {
  const made = { log: ["x.0.r0"], tasks: [], acks: [] };
  return [
    { kind: "intent", op: "x.0", durability, at, ...made },
    { kind: "done", op: "x.0", offsets: [], at },
  ];
}

void test("the judge of the real world convicts each kind of wrong", async () => {
  await withDirectory(async (folder) => {
    const directory = join(folder, "data");
    const entries = await workIn(directory, join(folder, "journal"));
    const endedAt = (entries.at(-1) as Entry).at + 1;
    const judged = async (changed: readonly Entry[], end: End = KILL): Promise<Judge> => {
      const judge = new Judge(["ERR_READ_ONLY"]);
      judge.life(changed, endedAt);
      await judgeCopy(judge, directory, folder, end);
      return judge;
    };
    const replaced = (from: Entry, ...to: Entry[]): Entry[] =>
      entries.flatMap((entry) => (entry === from ? to : [entry]));

    assert.ok((await judged(entries)).acknowledged > 40);
    await judged(entries, CUT);
    assert.equal((await judged([...entries, ...missing("async", endedAt - 10)], CUT)).lost, 1);

    const appended = lastOf(entries, "done", ({ offsets }) => offsets.length > 0);
    const held = lastOf(entries, "took");
    const acked = lastOf(entries, "intent", ({ acks }) => acks.length > 0).acks[0]?.task as string;
    const intent = lastOf(entries, "intent", ({ op }) => op === appended.op);
    const stolen = { ...intent, op: "x.1", log: [], tasks: [], acks: [{ task: held.task, attempt: held.attempt }] };
    const turns = Array.from({ length: 500 }, (_, index): Entry => ({ kind: "turn", at: endedAt - 5000 + 10 * index }));
    const wrongs: [RegExp, Entry[], End][] = [
      [/x\.0 was acknowledged \(sync\) and is lost/, [...entries, ...missing("sync", endedAt)], CUT],
      [/x\.0 was acknowledged \(async\) and is lost/, [...entries, ...missing("async", endedAt)], KILL],
      [/was lost .* ms after it was acknowledged/, [...entries, ...missing("async", endedAt - 5000), ...turns], CUT],
      [
        /is there, though something acknowledged before it was called is lost/,
        replaced(intent, ...missing("async", endedAt), intent),
        CUT,
      ],
      [
        /was refused/,
        replaced(appended, { kind: "failed", op: appended.op, code: "ERR_READ_ONLY", at: endedAt }),
        KILL,
      ],
      [
        /failed with ERR_INTERNAL/,
        [...entries, { kind: "trouble", what: "x", code: "ERR_INTERNAL", at: endedAt }],
        KILL,
      ],
      [/nobody sent/, entries.filter((entry) => entry !== intent && entry !== appended), KILL],
      [/offset \d+ was .* and is now/, replaced(appended, { ...appended, offsets: [0] }), KILL],
      [/in part/, replaced(intent, { ...intent, log: [...intent.log, "x.2.r0"] }), KILL],
      [/attempt 1 after attempt 1/, [...entries, held], KILL],
      [/had two holders/, [...entries, { ...held, attempt: held.attempt + 1 }], KILL],
      [/acked and then delivered again/, [...entries, { ...held, task: acked, attempt: 9 }], KILL],
      [/x\.1 was acknowledged/, [...entries, stolen, { kind: "done", op: "x.1", offsets: [], at: endedAt }], KILL],
    ];
    for (const [pattern, changed, end] of wrongs) {
      await assert.rejects(judged(changed, end), pattern, String(pattern));
    }
  });
});
