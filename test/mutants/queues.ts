/** What task queues do besides giving out tasks and taking them back. */

import { type Mutant, simulator, testFile } from "./mutant.js";

const ledger = "src/queues/ledger.ts";
const newTasks = "src/queues/new-tasks.ts";
const delivery = "src/queues/delivery.ts";

export const queueMutants: readonly Mutant[] = [
  {
    name: "a task given back has used up an attempt",
    file: ledger,
    search: "    task.attempt--;",
    replacement: "",
    breaks: "giving a task back undone counts as nothing",
    killer: simulator,
  },
  {
    name: "what a session held is not given back",
    file: ledger,
    search: "        this.#takeBack(task);\n        if (toHead) this.#makeReturned(task, elapsedMs);",
    replacement: "        if (toHead) continue;",
    breaks: "a session's leases end with it",
    killer: simulator,
  },
  {
    name: "what is taken at once is not logged",
    file: delivery,
    search: "    const output = this.#consumer.operation(autoAck ? taken : ConsumerOp.Deliver);",
    replacement:
      "    if (autoAck) return to;\n    const output = this.#consumer.operation(autoAck ? taken : ConsumerOp.Deliver);",
    breaks: "what was delivered and done in one is not delivered again",
    killer: simulator,
  },
  {
    name: "expired tasks are delivered",
    file: delivery,
    search: "    if (attributes.expiresAt === 0 && ttlMs === 0) return false;",
    replacement: "    if (attributes.expiresAt >= 0) return false;",
    breaks: "a task whose time is over is not delivered",
    killer: simulator,
  },
  {
    name: "priorities are turned round",
    file: "src/queues/consumer.ts",
    search: "    this.lanes.sort((a, b) => b.number - a.number);",
    replacement: "    this.lanes.sort((a, b) => a.number - b.number);",
    breaks: "the more urgent task comes first",
    killer: simulator,
  },
  {
    name: "a dedupe key is not in the commit of its task",
    file: newTasks,
    search: "    if (keyed !== undefined) this.#stageKeys(keyed);",
    replacement: "",
    breaks: "a producer's retry makes no second task, also after a crash",
    killer: simulator,
  },
  {
    name: "a dedupe key stands for nothing",
    file: "src/queues/dedupe.ts",
    search: "    if (known !== undefined) return { claim: known, first: false };",
    replacement: "",
    breaks: "a producer's retry makes no second task",
    killer: simulator,
  },
  {
    name: "a purge forgets what waits for its time",
    file: "src/queues/task-settings.ts",
    search: "        state.scheduled.clear();\n",
    replacement: "",
    breaks: "a purge leaves nothing that waits",
    killer: simulator,
  },
  {
    name: "a purge forgets what is ready again",
    file: ledger,
    search: "      if (task.offset < offset && task.phase !== TaskPhase.Leased) this.finish(task);",
    replacement: "      if (task.offset < offset && task.phase === TaskPhase.Waiting) this.finish(task);",
    breaks: "a purge leaves nothing that waits",
    killer: testFile("test/conformance/embedded-sync.test.ts", "purge"),
  },
  {
    name: "a deleted queue is not gone from the log",
    file: "src/engine/recovery.ts",
    search: "      this.#catalog.delete(entry, decodeDeletion(fields).lastStreamId);\n",
    replacement: "",
    breaks: "a deleted queue stays deleted",
    killer: simulator,
  },
  {
    name: "the reads of a cursor that failed are forgotten by a snapshot",
    file: "src/queues/task-cursors.ts",
    search:
      "    output.varint(this.byName.size);\n    for (const { number, cursorName, consumer } of this.byName.values()) {",
    replacement: "    output.varint(0);\n    for (const { number, cursorName, consumer } of [] as Cursor[]) {",
    breaks: "a cursor goes on where it was",
    killer: testFile("test/sim/cursors.test.ts"),
  },
];
