import assert from "node:assert/strict";
import type { GroupMember, LogQueue, LogRecord } from "../../src/index.js";
import { codeOf, rejectsWith } from "../support/expect.js";
import { Seeded, seedOr } from "../support/seeded.js";
import { type Check, passUntil, type Subject } from "./suite.js";

type Member = GroupMember<Buffer>;

const texts = (records: readonly LogRecord<Buffer>[]): string[] => records.map((record) => record.payload.toString());
const offsets = (records: readonly LogRecord<Buffer>[]): number[] => records.map((record) => record.offset);
const last = (records: readonly LogRecord<Buffer>[]): LogRecord<Buffer> =>
  records[records.length - 1] as LogRecord<Buffer>;

async function filled(subject: Subject, count: number): Promise<LogQueue> {
  const log = await subject.mq.openLog("events");
  if (count > 0) await log.appendBatch(Array.from({ length: count }, (_, index) => `${index}`));
  return log;
}

async function infoOf(log: LogQueue, name: string) {
  const info = (await log.groups()).find((each) => each.name === name);
  assert.ok(info !== undefined, `group ${name} is listed`);
  return info;
}

export function groupConformance(check: Check): void {
  check("groups: reads what was not committed, and goes on there after a reopen", async (subject) => {
    const log = await filled(subject, 5);
    const group = await log.group("billing");
    assert.equal(group.name, "billing");
    assert.equal(group.log, "events");
    const read = await group.read({ max: 3 });
    assert.deepEqual(texts(read), ["0", "1", "2"]);
    assert.deepEqual(await group.position(), { committed: 0, next: 3, lag: 5, active: true });
    await group.commit(read[1] as LogRecord<Buffer>);
    assert.deepEqual(await group.position(), { committed: 2, next: 3, lag: 3, active: true });
    assert.deepEqual(texts(await group.read()), ["3", "4"]);
    assert.deepEqual(await group.read(), []);
    const again = await (await subject.reopen()).openLog("events");
    const next = await again.group("billing", { from: "end" });
    assert.deepEqual(texts(await next.read()), ["2", "3", "4"], "what was read and not committed comes again");
    await next.commit(4);
    assert.equal((await infoOf(again, "billing")).lag, 0);
  });

  check("groups: begin at the start, at the end, at an offset or at a time", async (subject) => {
    const log = await filled(subject, 3);
    await subject.pass(20);
    await log.append("3");
    const time = (await log.read(3))?.timestamp as number;
    const begins = async (name: string, from: "start" | "end" | number | Date) => {
      const { committed } = await (await log.group(name, { from })).position();
      return committed;
    };
    assert.equal(await begins("a", "start"), 0);
    assert.equal(await begins("b", "end"), 4);
    assert.equal(await begins("c", 2), 2);
    assert.equal(await begins("d", 4), 4);
    assert.equal(await begins("e", new Date(time)), 3);
    assert.equal(await begins("f", new Date(time + 1)), 4);
    assert.equal(await begins("g", new Date(0)), 0);
    await rejectsWith("ERR_ARGUMENT", log.group("h", { from: 5 }), /past the end/);
    await log.trim(2);
    const error = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", log.group("i", { from: 1 }));
    assert.equal(error.details.next, 2);
    assert.deepEqual(
      (await log.groups()).map(({ name }) => name),
      ["a", "b", "c", "d", "e", "f", "g"],
    );
  });

  check("groups: a record acknowledged after a group was made at the end is seen", async ({ mq }) => {
    const log = await mq.openLog("events");
    for (let round = 0; round < 20; round++) {
      const acked: number[] = [];
      let made = false;
      const durability = round % 2 === 0 ? "sync" : "async";
      const appends = ["a", "b", "c"].map(async (text) => {
        const offset = await log.append(text, { durability });
        if (made) acked.push(offset);
      });
      const group = await log.group(`g${round}`, { from: "end" });
      made = true;
      await Promise.all([...appends, log.append("d").then((offset) => acked.push(offset))]);
      const seen = offsets(await group.read());
      for (const offset of acked) assert.ok(seen.includes(offset), `round ${round}: ${offset} is not in ${seen}`);
    }
  });

  check("groups: commits never regress and never pass what was read", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["0", "1", "2", "3"]);
    const group = await log.group("g");
    await rejectsWith("ERR_ARGUMENT", group.commit(0), /has read up to/);
    await group.read({ max: 3 });
    await rejectsWith("ERR_ARGUMENT", group.commit(3));
    await rejectsWith("ERR_ARGUMENT", group.commit(-1));
    await rejectsWith("ERR_ARGUMENT", group.commit(1.5));
    await Promise.all([group.commit(2), group.commit(0)]);
    assert.equal((await group.position()).committed, 3);
    await group.commit(1);
    assert.equal((await group.position()).committed, 3);
  });

  check("groups: read keeps to max and to maxBytes, except for one larger record", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch([1000, 1000, 1000, 9000, 1000].map((size) => Buffer.alloc(size)));
    const group = await log.group("g");
    assert.deepEqual(offsets(await group.read({ max: 1 })), [0]);
    assert.deepEqual(offsets(await group.read({ maxBytes: 1500 })), [1, 2]);
    assert.deepEqual(offsets(await group.read({ maxBytes: 1500 })), [3]);
    assert.deepEqual(offsets(await group.read()), [4]);
    await rejectsWith("ERR_OPTION", group.read({ max: 0 }));
  });

  check("groups: read waits for a record, up to its time or its signal", async (subject) => {
    const log = await filled(subject, 0);
    const group = await log.group("g");
    const waiting = group.read({ wait: "1h" });
    await subject.pass(20);
    await log.append("a");
    assert.deepEqual(texts(await waiting), ["a"]);
    assert.deepEqual(await passUntil(subject, group.read({ wait: 30 })), []);
    const control = new AbortController();
    const aborted = group.read({ wait: "1h", signal: control.signal });
    await subject.pass(10);
    control.abort();
    assert.deepEqual(await aborted, []);
    assert.deepEqual(await group.read({ wait: "1h", signal: control.signal }), []);
  });

  check("groups: reads that are called at once get one record after another", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["0", "1", "2", "3", "4", "5"]);
    const group = await log.group("g");
    const reads = await Promise.all([1, 2, 3].map((max) => group.read({ max })));
    assert.deepEqual(reads.map(offsets), [[0], [1, 2], [3, 4, 5]]);
  });

  check("groups: seek goes back and forth, durably", async (subject) => {
    const log = await filled(subject, 6);
    const group = await log.group("g");
    await group.commit(last(await group.read()));
    assert.equal(await group.seek(2), 2);
    assert.deepEqual(await group.position(), { committed: 2, next: 2, lag: 4, active: true });
    assert.deepEqual(offsets(await group.read()), [2, 3, 4, 5]);
    assert.equal(await group.seek("start"), 0);
    assert.equal(await group.seek("end"), 6);
    assert.deepEqual(await group.read(), []);
    await subject.pass(20);
    await log.append("6");
    const time = (await log.read(6))?.timestamp as number;
    assert.equal(await group.seek(new Date(time)), 6);
    assert.equal(await group.seek(new Date(time + 1)), 7);
    assert.equal(await group.seek(new Date(0)), 0);
    await group.seek(3);
    await rejectsWith("ERR_ARGUMENT", group.seek(8), /past the end/);
    await rejectsWith("ERR_OPTION", group.seek("middle" as "end"));
    await log.trim(1);
    await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", group.seek(0));
    const again = await (await subject.reopen()).openLog("events");
    assert.deepEqual(offsets(await (await again.group("g")).read({ max: 1 })), [3]);
  });

  check("groups: one member reads, the next one takes over when it closes", async (subject) => {
    const log = await filled(subject, 4);
    const first = await log.group("g");
    const second = await log.group("g");
    const third = await log.group("g");
    assert.equal((await infoOf(log, "g")).members, 3);
    const read = await first.read({ max: 2 });
    assert.deepEqual(await second.read(), [], "it is not its turn");
    assert.equal((await second.position()).active, false);
    await rejectsWith("ERR_FENCED", second.commit(0));
    await rejectsWith("ERR_FENCED", second.seek("start"));
    await first.commit(read[0] as LogRecord<Buffer>);
    const waits = [second.read({ max: 1, wait: "1h" }), third.read({ max: 1, wait: "1h" })];
    await subject.pass(20);
    await first.close();
    await first.close();
    assert.deepEqual(texts((await waits[0]) ?? []), ["1"], "from the committed position on");
    assert.equal((await second.position()).active, true);
    await rejectsWith("ERR_CLOSED", first.read());
    await rejectsWith("ERR_CLOSED", first.commit(0));
    assert.equal((await infoOf(log, "g")).members, 2);
    await second.close();
    assert.deepEqual(texts((await waits[1]) ?? []), ["1"]);
  });

  check(
    "groups: a member that makes no call loses its turn to one that stands by, and is fenced",
    async (subject) => {
      const log = await filled(subject, 4);
      const first = await log.group("g", { sessionTimeout: "10s" });
      await first.read({ max: 2 });
      await subject.pass(60_000);
      await first.commit(0);
      const second = await log.group("g", { sessionTimeout: "10s" });
      await subject.pass(9000);
      await first.commit(1);
      const waiting = second.read({ wait: "1h" });
      await subject.pass(9999);
      assert.equal((await first.position()).active, true);
      await subject.pass(1);
      assert.deepEqual(texts(await waiting), ["2", "3"]);
      await rejectsWith("ERR_FENCED", first.commit(1));
      await rejectsWith("ERR_FENCED", first.read());
      await rejectsWith("ERR_FENCED", first.seek("start"));
      await rejectsWith(
        "ERR_FENCED",
        subject.mq.transaction((tx) => tx.commitGroup(first, 1)),
      );
      assert.equal((await infoOf(log, "g")).members, 1);
      await second.commit(3);
      assert.equal((await second.position()).committed, 4);
    },
    { exactTime: true },
  );

  check(
    "groups: a member that waits in a read keeps its turn, and one that is alone never loses it",
    async (subject) => {
      const log = await filled(subject, 0);
      const first = await log.group("g", { sessionTimeout: "1s" });
      const second = await log.group("g");
      const read = first.read({ wait: "1h" });
      const standby = second.read({ wait: "30m" });
      await subject.pass(29 * 60_000);
      await log.append("a");
      assert.deepEqual(texts(await read), ["a"]);
      await subject.pass(1000);
      assert.deepEqual(texts(await standby), ["a"], "a second after the read it had the turn");
      await second.close();
      const third = await log.group("g", { sessionTimeout: "1s" });
      await third.read();
      await subject.pass(3_600_000);
      await third.commit(0);
    },
    { exactTime: true },
  );

  check("groups: trimming past a group is one explicit gap, and counted", async (subject) => {
    const log = await filled(subject, 20);
    const group = await log.group("g");
    await group.commit(last(await group.read({ max: 5 })));
    await log.trim(8);
    await log.trim(12);
    const info = await infoOf(log, "g");
    assert.deepEqual([info.committed, info.lag, info.lost], [12, 8, 7]);
    const error = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", group.read(), /7 records/);
    assert.deepEqual({ ...error.details }, { offset: 5, next: 12, lost: 7 });
    assert.deepEqual(offsets(await group.read({ max: 2 })), [12, 13]);
    assert.equal((await infoOf(log, "g")).lost, 7);
    await log.trim(20);
    const again = await (await subject.reopen()).openLog("events");
    const member = await again.group("g");
    assert.equal((await infoOf(again, "g")).lag, 0);
    const second = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", member.read());
    assert.deepEqual({ ...second.details }, { offset: 12, next: 20, lost: 8 });
    assert.deepEqual(await member.read(), []);
    assert.equal((await infoOf(await (await subject.reopen()).openLog("events"), "g")).lost, 15);
  });

  check("groups: what a member has read already is not lost to it by a trim", async (subject) => {
    const log = await filled(subject, 10);
    const group = await log.group("g");
    const read = await group.read({ max: 6 });
    await log.trim(4);
    assert.equal((await infoOf(log, "g")).lost, 0);
    assert.deepEqual(offsets(await group.read({ max: 1 })), [6]);
    await group.commit(last(read));
    const info = await infoOf(log, "g");
    assert.deepEqual([info.committed, info.lost, info.lag], [6, 0, 4]);
    const again = await (await subject.reopen()).openLog("events");
    assert.deepEqual(offsets(await (await again.group("g")).read()), [6, 7, 8, 9]);
  });

  check("groups: a deleted group stays deleted, and shares nothing with its successor", async (subject) => {
    const log = await filled(subject, 5);
    const group = await log.group("g");
    await group.commit(last(await group.read()));
    assert.equal(await log.deleteGroup("other"), false);
    assert.equal(await log.deleteGroup("g"), true);
    assert.equal(await log.deleteGroup("g"), false);
    for (const call of [group.read(), group.commit(0), group.seek(0), group.position()]) {
      assert.equal(await codeOf(call), "ERR_NOT_FOUND");
    }
    const again = await (await subject.reopen()).openLog("events");
    assert.deepEqual(await again.groups(), []);
    const successor = await again.group("g");
    assert.deepEqual(offsets(await successor.read({ max: 1 })), [0]);
  });

  check("groups: deleting one wakes whoever waits in it", async (subject) => {
    const log = await filled(subject, 0);
    const active = codeOf((await log.group("g")).read({ wait: "1h" }));
    const standby = codeOf((await log.group("g")).read({ wait: "1h" }));
    await subject.pass(20);
    await Promise.all([log.deleteGroup("g"), log.deleteGroup("g")]);
    assert.deepEqual(await Promise.all([active, standby]), ["ERR_NOT_FOUND", "ERR_NOT_FOUND"]);
  });

  check("groups: a read that waits ends when the directory is closed", async (subject) => {
    const log = await filled(subject, 0);
    const read = codeOf((await log.group("g")).read({ wait: "1h" }));
    await subject.pass(20);
    await subject.mq.close();
    assert.equal(await read, "ERR_CLOSED");
  });

  check("groups: a position is committed together with the work, or not at all", async (subject) => {
    const log = await filled(subject, 4);
    const out = await subject.mq.openLog("out");
    const group = await log.group("g");
    const read = await group.read({ max: 2 });
    await subject.mq.transaction((tx) => {
      tx.append(out, "did 0 and 1");
      tx.commitGroup(group, last(read));
    });
    assert.equal((await group.position()).committed, 2);
    await rejectsWith(
      "ERR_ARGUMENT",
      subject.mq.transaction((tx) => {
        tx.append(out, "never");
        tx.commitGroup(group, 3);
      }),
      /part 2 of the transaction \(commit of group g of events\)/,
    );
    assert.equal((await out.stats()).count, 1);
    await rejectsWith(
      "ERR_ARGUMENT",
      subject.mq.transaction((tx) => tx.commitGroup({} as Member, 3)),
    );
    const again = await (await subject.reopen()).openLog("events");
    assert.deepEqual(offsets(await (await again.group("g")).read()), [2, 3]);
  });

  check("groups: names are checked, and each log has its own", async ({ mq }) => {
    const [one, two] = await Promise.all([mq.openLog("one"), mq.openLog("two")]);
    for (const name of ["", "a/b", "x".repeat(201)]) await rejectsWith("ERR_QUEUE_NAME", one.group(name), /group name/);
    await rejectsWith("ERR_OPTION", one.group("g", { sessionTimeout: 0 }));
    await one.append("a");
    const [, group] = await Promise.all([one.group("g"), two.group("g"), one.group("g")]);
    assert.equal((await one.groups()).length, 1);
    assert.deepEqual(await group.read(), []);
    assert.equal(await one.deleteGroup("g"), true);
    assert.equal((await two.groups()).length, 1);
  });

  check("groups: which one is furthest back, by how much and for how long", async (subject) => {
    const log = await filled(subject, 0);
    assert.deepEqual([(await log.stats()).groups, (await log.stats()).furthestBack], [0, undefined]);
    const slow = await log.group("slow");
    const quick = await log.group("quick");
    assert.equal((await infoOf(log, "slow")).lagAge, 0);
    await log.appendBatch(Array.from({ length: 10 }, () => Buffer.alloc(1000)));
    await subject.pass(100);
    await quick.commit(last(await quick.read()));
    await slow.commit(last(await slow.read({ max: 4 })));
    const [first, second] = await log.groups();
    assert.deepEqual([first?.name, first?.lag, first?.heldBytes, first?.lagAge], ["quick", 0, 0, 0]);
    assert.deepEqual([second?.name, second?.lag], ["slow", 6]);
    assert.ok((second?.heldBytes as number) >= 6000 && (second?.heldBytes as number) < 7000, `${second?.heldBytes}`);
    assert.ok((second?.lagAge as number) >= 90, `${second?.lagAge} ms`);
    const { groups, furthestBack } = await log.stats();
    assert.equal(groups, 2);
    assert.equal(furthestBack?.group, "slow");
    assert.equal(furthestBack?.bytes, second?.heldBytes);
  });

  check("groups: a payload that cannot be decoded stays in the way until it is passed", async ({ mq }) => {
    const raw = await mq.openLog("events");
    await raw.appendBatch(["1", "not json", "3"]);
    const { json } = await import("../../src/index.js");
    const log = await mq.openLog("events", { codec: json<number>() });
    const group = await log.group("g");
    assert.deepEqual(
      (await group.read()).map(({ payload }) => payload),
      [1],
    );
    for (let round = 0; round < 2; round++) {
      const error = await rejectsWith("ERR_DECODE", group.read());
      assert.equal(error.details.offset, 1);
    }
    await group.seek(2);
    assert.deepEqual(
      (await group.read()).map(({ payload }) => payload),
      [3],
    );
  });

  check(
    "groups: random reads, commits, seeks, trims, closes and reopens agree with a model",
    async (subject) => {
      const random = new Seeded(seedOr(44_001));
      let log = await subject.mq.openLog("events");
      let members = [await log.group("g"), await log.group("g")];
      let [head, next, committed, reading, lost] = [0, 0, 0, 0, 0];
      let active = members[0];
      for (let step = 0; step < 500; step++) {
        const dice = random.below(100);
        if (dice < 35) {
          const count = 1 + random.below(5);
          await log.appendBatch(Array.from({ length: count }, (_, index) => `${next + index}`));
          next += count;
        } else if (dice < 65) {
          const max = 1 + random.below(8);
          if (reading < head) {
            const error = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", (active as Member).read());
            assert.deepEqual({ ...error.details }, { offset: reading, next: head, lost: head - reading });
            lost += head - reading;
            reading = head;
          } else {
            const read = await (active as Member).read({ max });
            const expected = Array.from({ length: Math.min(max, next - reading) }, (_, index) => reading + index);
            assert.deepEqual(offsets(read), expected);
            reading += read.length;
          }
        } else if (dice < 78) {
          if (reading > head) {
            const upTo = Math.max(0, reading - 1 - random.below(4));
            await (active as Member).commit(upTo);
            committed = Math.max(committed, upTo + 1);
          }
        } else if (dice < 84) {
          head = Math.max(head, Math.min(next, head + random.below(10)));
          await log.trim(head);
          if (committed < head && reading >= head) committed = head;
        } else if (dice < 90) {
          if (reading >= head) {
            reading = committed = head + random.below(next - head + 1);
            await (active as Member).seek(reading);
          }
        } else if (dice < 96) {
          const gone = active as Member;
          if (reading < head) continue;
          await gone.close();
          members = members.filter((member) => member !== gone);
          members.push(await log.group("g"));
          active = members[0];
          await (active as Member).read({ max: 1 }).then(
            (read) => {
              reading = committed + read.length;
            },
            (error) => assert.fail(String(error)),
          );
        } else {
          if (reading < head) continue;
          log = await (await subject.reopen()).openLog("events");
          members = [await log.group("g"), await log.group("g")];
          active = members[0];
          reading = committed;
        }
        const info = await infoOf(log, "g");
        assert.equal(info.committed, Math.max(committed, head), `step ${step}`);
        assert.equal(info.lag, next - Math.max(committed, head), `step ${step}`);
        if (reading >= head) assert.equal(info.lost, lost, `step ${step}`);
      }
    },
    { segmentBytes: "64KiB", walFileBytes: "1MiB" },
  );
}
