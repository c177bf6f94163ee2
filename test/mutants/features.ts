/** Flows, results, pace, transactions, schedules, dedupe windows, settings, expiry, ages. */

import { directed, type Mutant, simulator, testFile } from "./mutant.js";

const flows = "src/queues/flows.ts";
const pace = "src/queues/pace.ts";

function flowTest(only: string): Mutant["killer"] {
  return testFile("test/flows-under-stress.test.ts", only);
}

/** Calls with the power cut at each of their disk calls. */
function cut(only: string): Mutant["killer"] {
  return testFile("test/sim/cuts.test.ts", only);
}

export const featureMutants: readonly Mutant[] = [
  {
    name: "a parent does not wait for all its children",
    file: flows,
    search: "    if (parent.pending > 0 || parent.gone !== undefined) return;",
    replacement: "    if (parent.gone !== undefined) return;",
    breaks: "a parent is handed out when all its children are done",
    killer: simulator,
  },
  {
    name: "the end of a child does not count",
    file: flows,
    search: "    parent.pending = Math.max(0, parent.pending - count);",
    replacement: "    parent.pending = Math.max(0, parent.pending);",
    breaks: "a parent is handed out when its children are done",
    killer: simulator,
  },
  {
    name: "a child that was cancelled counts as done",
    file: flows,
    search: '    else if (how !== "done") this.#lost(child, reasonOf(how));',
    replacement:
      '    else if (how !== "done") this.#host.flowsOf(child.parent.queueId)?.childrenDone(child.parent, 1, 0);',
    breaks: "a parent is handed out when its children are done, and not when they never can be",
    killer: simulator,
  },
  {
    name: "a flow is not in the log",
    file: flows,
    search: "    const output = engine.operation(FlowOp.Wait, this.#host.id);\n    output.varint(parents.length);",
    replacement:
      "    const output = engine.operation(FlowOp.Wait, this.#host.id);\n    output.varint(0);\n    if (parents.length > 0) return engine.endOperation();",
    breaks: "a flow outlives the process",
    killer: simulator,
  },
  {
    name: "a child's end is not noted as the directory closes",
    file: "src/queues/task-state.ts",
    search: "    if (queueId === this.id) return this.flows;",
    replacement: "    if (queueId === this.id) return this.ended === undefined ? this.flows : undefined;",
    breaks: "what was accepted before a close is done",
    killer: flowTest("as the directory closes is not"),
  },
  {
    name: "a parent whose child is gone waits for somebody else's commit",
    file: flows,
    search: "    if (this.#isDue) engine.clock.defer(this.#work);",
    replacement: "    this.#wake();",
    breaks: "a parent that can never be ready is a dead letter",
    killer: flowTest("whatever else is done"),
  },
  {
    name: "parents are told only before others are buried",
    file: flows,
    search: "        else return;\n",
    replacement: "        else break;\n        if (parent !== undefined && this.#nextGone() === undefined) break;\n",
    breaks: "a parent that can never be ready is a dead letter",
    killer: flowTest("another one is on its way"),
  },
  {
    name: "a queue is deleted and the parents of its tasks are not told",
    file: "src/engine/deletion.ts",
    search: "    told?.stage(engine);\n",
    replacement: "",
    breaks: "a parent that can never be ready is a dead letter, also after a crash",
    killer: flowTest("die with it"),
  },
  {
    name: "a reader gives back the memory that it goes on with",
    file: "src/storage/stream-reader.ts",
    search: "if (present !== undefined && present !== chunk) {",
    replacement: "if (present !== undefined) {",
    breaks: "reading comes to its end",
    killer: directed("only the memory"),
  },
  {
    name: "a result is not kept",
    file: "src/queues/task-outcomes.ts",
    search: "      kept();\n",
    replacement: "      void kept;\n",
    breaks: "what a task brought is told to whoever asks",
    killer: simulator,
  },
  {
    name: "progress is not kept",
    file: "src/queues/outcomes.ts",
    search: "    task.progress = json;",
    replacement: "    void json;",
    breaks: "how far a task is is told to whoever asks",
    killer: testFile("test/conformance/embedded-sync.test.ts", "from its enqueue to its end"),
  },
  {
    name: "leases do not count for the concurrency of a queue",
    file: pace,
    search: "room = concurrency - this.#leased();",
    replacement: "room = concurrency;",
    breaks: "no more tasks are leased at once than a queue allows",
    killer: simulator,
  },
  {
    name: "a window counts the last delivery alone",
    file: pace,
    search: "    this.#given += count;",
    replacement: "    this.#given = count;",
    breaks: "no more tasks are handed out in a window than a queue allows",
    killer: simulator,
  },
  {
    name: "one more of a key may be under way",
    file: "src/queues/order.ts",
    search: "    while (blocked.length > 0 && holders.size + line.comingOut < most) {",
    replacement: "    while (blocked.length > 0 && holders.size + line.comingOut <= most) {",
    breaks: "tasks of a key are worked on one after the other",
    killer: simulator,
  },
  {
    name: "a task that failed gives up its place",
    file: "src/queues/order.ts",
    search: "    return line.holders.size + line.comingOut + line.comingBlocked < this.#rules().concurrencyPerKey;",
    replacement:
      "    const active = [...line.holders].filter(({ phase }) => phase !== TaskPhase.Waiting).length;\n" +
      "    return active + line.comingOut + line.comingBlocked < this.#rules().concurrencyPerKey;",
    breaks: "the order of a key survives retries",
    killer: testFile("test/conformance/embedded-sync.test.ts", "stays ahead of its key"),
  },
  {
    name: "the parts of a transaction are commits of their own",
    file: "src/queues/commit.ts",
    search: "  for (const change of changes) change.stage();\n",
    replacement:
      "  for (const change of changes) {\n    if (change !== changes[0]) {\n      engine.flush();\n" +
      "      engine.begin(change.bulkBytes, change.records, change.metaBytes, change.settles);\n    }\n    change.stage();\n  }\n",
    breaks: "all of a transaction takes effect, or none of it",
    killer: simulator,
  },
  {
    name: "a group's commit in a transaction is not logged",
    file: "src/queues/group-member.ts",
    search: "      stage: () => this.#stage(LogOp.Commit, position),",
    replacement: "      stage: () => {},",
    breaks: "a transaction moves the position of a group with the rest",
    killer: simulator,
  },
  {
    name: "a dedupe key stands for half its window",
    file: "src/queues/dedupe.ts",
    search: "    return claim === undefined || hasEnded(claim, rules, elapsedMs) ? undefined : claim;",
    replacement:
      "    return claim === undefined || hasEnded(claim, rules, 2 * elapsedMs - (claim.since ?? elapsedMs)) ? undefined : claim;",
    breaks: "a producer's retry within the window makes no second task",
    killer: simulator,
  },
  {
    name: "a schedule fires, and notes it later",
    file: "src/queues/recurrence.ts",
    search: "    commit(engine, [...changes, advance], engine.options.durability, () => {}, failed);",
    replacement:
      "    commit(engine, changes, engine.options.durability, () => {}, failed);\n    engine.flush();\n" +
      "    commit(engine, [advance], engine.options.durability, () => {}, failed);",
    breaks: "a schedule fires once for each due time",
    killer: testFile("test/sim/schedules.test.ts"),
  },
  {
    name: "settings are not replayed",
    file: "src/queues/log-state.ts",
    search: "      this.configure(parseConfig(input.string()));",
    replacement: "      parseConfig(input.string());",
    breaks: "settings that were acknowledged hold",
    killer: cut("settings are the old ones"),
  },
  {
    name: "a shared group that is moved keeps what it had in hand",
    file: "src/queues/shared-group.ts",
    search: "    for (const task of [...this.#ledger.outstanding]) this.#ledger.finish(task);\n    this.consumer",
    replacement: "    this.consumer",
    breaks: "what is handed out by a group that was moved is as if it never had been",
    killer: cut("a shared group is where it was"),
  },
  {
    name: "a record is buried by who does not hold it any more",
    file: "src/queues/consumer.ts",
    search: "      if (task.phase === TaskPhase.Done) throw takenAway(task);\n",
    replacement: "      void takenAway;\n",
    breaks: "a task is in one place: dead, or not",
    killer: testFile("test/sim/groups.test.ts", "on its way to the dead letters when"),
  },
  {
    name: "retention waits for no group",
    file: "src/queues/retention.ts",
    search: "holdForGroupsMs > 0 ? this.#state.heldFrom",
    replacement: "holdForGroupsMs > Number.MAX_VALUE ? this.#state.heldFrom",
    breaks: "what a group has not committed stays while it is held for it",
    killer: cut("a group for whom retention waits"),
  },
  {
    name: "a task whose time is over does not arrive where it is moved to",
    file: "src/queues/task-state.ts",
    search: "    return { stream: heir.tasks, parts, applied: () => heir.consumer.delivery.wake(), decided };",
    replacement: "    decided();\n    void parts;\n    return undefined;",
    breaks: "a task is in one queue or in the other",
    killer: cut("a task whose time is over"),
  },
  {
    name: "the age of dead letters is not asked for",
    file: "src/queues/dead-letters.ts",
    search: "      if (selected.diedBy !== undefined && diedAt(record) > selected.diedBy) return true;\n",
    replacement: "",
    breaks: "no letter is redriven that is younger than was said",
    killer: cut("dead letters of an age"),
  },
];
