import assert from "node:assert/strict";
import { test } from "node:test";
import { startChild } from "../support/child.js";
import { withDirectory } from "../support/directories.js";
import { scaled } from "../support/scale.js";

const MIB = 1024 * 1024;

interface Report {
  readonly accepted: number;
  readonly refused: number;
  readonly codes: readonly string[];
  readonly startBytes: number;
  readonly peakBytes: number;
  readonly ready: number;
  readonly drained: number;
  readonly openedBytes: number;
  readonly drainPeakBytes: number;
}

void test("case 12: memory has a ceiling, however fast producers push and however much is waiting", async () => {
  await withDirectory(async (directory) => {
    const count = scaled(150_000);
    const child = startChild(import.meta.url, "./pushing.js", {
      args: [directory, `${count}`],
      nodeOptions: ["--max-old-space-size=160"],
    });
    const report = await child.message<Report>(({ accepted }) => accepted !== undefined);
    const { code, stderr } = await child.exited;
    assert.equal(code, 0, stderr);
    assert.equal(report.accepted + report.refused, count, "each call is answered");
    for (const refusal of report.codes) assert.equal(refusal, "ERR_OVERLOADED");
    // The payloads alone would be more than this.
    const ceiling = Math.min(128 * MIB, (count * 1024 * 3) / 4);
    const pushing = report.peakBytes - report.startBytes;
    assert.ok(pushing < ceiling + 96 * MIB, `pushing took ${Math.round(pushing / MIB)} MiB`);
    assert.equal(report.drained, report.ready, "everything that was accepted is there, and nothing else");
    assert.ok(report.ready >= report.accepted);
    const draining = report.drainPeakBytes - report.openedBytes;
    assert.ok(draining < 64 * MIB, `draining ${report.ready} tasks took ${Math.round(draining / MIB)} MiB`);
  });
});
