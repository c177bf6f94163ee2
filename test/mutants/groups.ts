/** Groups of logs, and what logs remove of themselves. */

import { directed, type Mutant, simulator, testFile } from "./mutant.js";

const member = "src/queues/group-member.ts";
const group = "src/queues/group.ts";
const state = "src/queues/log-state.ts";
const compaction = "src/queues/compaction.ts";
const shared = "src/queues/shared-group.ts";

function groups(only: string): Mutant["killer"] {
  return testFile("test/sim/groups.test.ts", only);
}

export const groupMutants: readonly Mutant[] = [
  {
    name: "a group's commit is not logged",
    file: member,
    search: "        this.#stage(LogOp.Commit, position);\n",
    replacement: "",
    breaks: "the position of a group is durable",
    killer: simulator,
  },
  {
    name: "a member commits what it has not read",
    file: member,
    search: "    if (offset < next) return offset + 1;",
    replacement: "    if (offset < next || offset > 0) return offset + 1;",
    breaks: "a group never commits beyond what was read",
    killer: simulator,
  },
  {
    name: "a member that was fenced may commit",
    file: member,
    search: "    if (!this.#group.isActive(this.#member)) throw this.#standsBy();\n    const { next }",
    replacement: "    const { next }",
    breaks: "a group has one reader at a time",
    killer: testFile("test/conformance/embedded-still.test.ts", "one member reads, the next one takes over"),
  },
  {
    name: "a commit moves a group back",
    file: group,
    search: "    if (position <= this.committed) return;",
    replacement: "",
    breaks: "a group's position never goes back by a commit",
    killer: simulator,
  },
  {
    name: "a loss is not told",
    file: group,
    search: "      this.#active.missed = this.#missing(this.#active.missed, this.#active.next, offset);",
    replacement: "",
    breaks: "a reader is told of records that were removed before it read them",
    killer: simulator,
  },
  {
    name: "a loss hides one that is on its way",
    file: member,
    search: "        if (engine.failure === undefined) engine.flush();",
    replacement: "",
    breaks: "every record that is lost is counted",
    killer: groups("are told of next"),
  },
  {
    name: "a new reader does not begin where the group stands",
    file: group,
    search: "    member.next = this.committed;",
    replacement: "    member.next = this.committed + 1;",
    breaks: "a group reads every record",
    killer: simulator,
  },
  {
    name: "a group is left out of the snapshot",
    file: state,
    search: "    output.varint(this.groups.size);\n    for (const group of this.groups.values()) {",
    replacement: "    output.varint(0);\n    for (const group of []) {",
    breaks: "groups outlive the log files that they were made in",
    killer: simulator,
  },
  {
    name: "retention trims without logging it",
    file: "src/queues/retention.ts",
    search: "    state.stageTrim(offset);",
    replacement: "",
    breaks: "what was removed stays so",
    killer: simulator,
  },
  {
    name: "retention removes what is to be kept",
    file: "src/queues/retention.ts",
    search: "const many = maxCount > 0 && stream.recordsLeft(unit.next, stream.visible) >= maxCount;",
    replacement: "const many = maxCount > 0;",
    breaks: "a log keeps as much as its rules say",
    killer: simulator,
  },
  {
    name: "a full log takes more",
    file: "src/queues/log-room.ts",
    search: "    return tooMany <= 0 && tooMuch <= 0 ? undefined :",
    replacement: "    return tooMany <= 0 || tooMany < 9 ? undefined :",
    breaks: "a log holds no more than its limits say",
    killer: simulator,
  },
  {
    name: "compaction keeps an older record",
    file: compaction,
    search: "      if ((table.lastOf(key) ?? record.offset) > record.offset) return false;",
    replacement: "      if ((table.lastOf(key) ?? record.offset) === record.offset) return false;",
    breaks: "the last record of a key stays",
    killer: simulator,
  },
  {
    name: "compaction brings back what was deleted",
    file: compaction,
    search: "      if (!isTombstone(record)) return true;",
    replacement: "      if (isTombstone(record)) return false;\n      if (!isTombstone(record)) return true;",
    breaks: "a tombstone stays for its grace period",
    killer: simulator,
  },
  {
    name: "a rewritten segment is published before it is synced",
    file: "src/engine/rewriter.ts",
    search: "    await this.#writer.syncFile(segment);\n    this.#check();\n    await this.#writer.sync();\n",
    replacement: "    this.#check();\n",
    breaks: "what a rewritten segment holds survives a power cut",
    killer: directed("wherever the power is cut"),
  },
  {
    name: "a shared group forgets what it lost",
    file: shared,
    search: "    group.lost = lost;",
    replacement: "    void lost;",
    breaks: "every record that a group has lost is counted",
    killer: simulator,
  },
  {
    name: "a shared group goes on with what was trimmed",
    file: shared,
    search: "      ledger.advance(offset);\n    }\n    this.#lose(offset);",
    replacement: "      ledger.advance(offset);\n    }",
    breaks: "a group gives out what is there",
    killer: simulator,
  },
  {
    name: "a trim before a redelivery cannot be repeated",
    file: "src/queues/consumer.ts",
    search: "    if (lane.ofLog && !ledger.outstanding.has(offset)) return new Outstanding(ledger, offset);\n",
    replacement: "",
    breaks: "a directory opens",
    killer: groups("gave it out again"),
  },
  {
    name: "a record that is superseded is missing",
    file: "src/queues/lane.ts",
    search: '    if (this.ofLog) return "gone";\n',
    replacement: "",
    breaks: "compaction takes nothing from a shared group but what is superseded",
    killer: groups("is not missing"),
  },
  {
    name: "a reader goes back before a hole for what stands behind it",
    file: "src/queues/lane.ts",
    search: '      if (found === "load") this.taken = Math.max(this.taken, reader.position);\n',
    replacement: "",
    breaks: "a group comes to the end of a log that is compacted",
    killer: groups("go on behind"),
  },
  {
    name: "a member goes back before a hole for what stands behind it",
    file: member,
    search: "        member.next = Math.max(member.next, this.#reader.position);\n",
    replacement: "",
    breaks: "a group comes to the end of a log that is compacted",
    killer: groups("go on behind"),
  },
  {
    name: "a deleted group's tasks are ended twice",
    file: "src/queues/ledger.ts",
    search: "  finish(task: Outstanding): void {\n    if (task.phase === TaskPhase.Done) return;",
    replacement: "  finish(task: Outstanding): void {",
    breaks: "a deletion disturbs nothing else",
    killer: groups("may be deleted"),
  },
];
