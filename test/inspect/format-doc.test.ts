/** docs/format.md shows the bytes that varve writes. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { verifyDirectory } from "../../src/index.js";
import { ConsumerOp } from "../../src/queues/consumer.js";
import { FlowOp } from "../../src/queues/flows.js";
import { TaskPhase } from "../../src/queues/ledger.js";
import { LogOp } from "../../src/queues/log-state.js";
import { OutcomeOp } from "../../src/queues/outcomes.js";
import { RecurringOp } from "../../src/queues/recurrence.js";
import { ScheduledOp } from "../../src/queues/scheduled.js";
import { TaskChangeOp } from "../../src/queues/task-changes.js";
import { CursorOp } from "../../src/queues/task-cursors.js";
import { TaskOp } from "../../src/queues/task-state.js";
import { withDirectory } from "../support/directories.js";
import { exampleBlocks, makeExample } from "./example.js";

const DOC = readFileSync(join(dirname(fileURLToPath(import.meta.url)), "../../../docs/format.md"), "utf8");

test("the example in docs/format.md is what varve writes", async () => {
  await withDirectory(async (parent) => {
    const directory = join(parent, "data");
    const example = await makeExample(directory);
    for (const [name, block] of Object.entries(exampleBlocks(example))) {
      assert.ok(DOC.includes(block.replace(/^/gm, "    ")), `docs/format.md lacks this ${name}:\n${block}`);
    }
    assert.ok(DOC.includes(example.marker.toString("utf8").trim()), example.marker.toString("utf8"));
    assert.ok((await verifyDirectory(directory)).ok);
  });
});

test("docs/format.md lists every operation and phase with its number", () => {
  for (const numbers of [
    LogOp,
    TaskOp,
    ScheduledOp,
    TaskChangeOp,
    RecurringOp,
    CursorOp,
    OutcomeOp,
    FlowOp,
    ConsumerOp,
    TaskPhase,
  ]) {
    for (const [name, number] of Object.entries(numbers)) {
      if (number === TaskPhase.Done && numbers === TaskPhase) continue; // never stored
      assert.match(DOC, new RegExp(`^\\| ${number} +\\| ${name} `, "m"), `${name} ${number}`);
    }
  }
});
