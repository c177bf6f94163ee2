/**
 * Every benchmark runs with parameters so small that the figures mean nothing: what is checked is that each works, from
 * end to end, and reports what it did.
 */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import type { BacklogResult } from "../../src/bench/backlog.js";
import type { Spread } from "../../src/bench/measure.js";
import type { OpenResult } from "../../src/bench/open.js";
import type { QueuesResult } from "../../src/bench/queues.js";
import type { WorkloadResult } from "../../src/bench/run.js";
import { withDirectory } from "../support/directories.js";

const PROGRAM = fileURLToPath(new URL("./program.js", import.meta.url));

function bench(directory: string, ...args: string[]): { stdout: string; stderr: string; status: number | null } {
  const command = [PROGRAM, "bench", ...args, "--data-dir", directory];
  return spawnSync(process.execPath, command, { encoding: "utf8" });
}

function benchJson<R>(directory: string, ...args: string[]): R {
  const { stdout, stderr, status } = bench(directory, ...args, "--json");
  assert.equal(status, 0, stderr);
  assert.equal(stderr, "");
  assert.deepEqual(readdirSync(directory), [], "nothing is left behind");
  return (JSON.parse(stdout) as { result: R }).result;
}

function positive(values: Spread, what: string): void {
  assert.ok(values.min > 0 && values.min <= values.median && values.median <= values.max, what);
}

test("bench run measures every workload against its bare loops", () =>
  withDirectory(async (directory) => {
    const results = benchJson<WorkloadResult[]>(directory, "run", "--bytes", "1MiB", "--rounds", "2");
    assert.deepEqual(
      results.map(({ name, messages }) => `${name} ${messages}`),
      [
        "append 1024",
        "append-single 1024",
        "scan 1024",
        "read 256",
        "enqueue 1024",
        "enqueue-single 1024",
        "cycle 1024",
        "cycle-single 1024",
        "worker 1024",
        "shared-group 1024",
        "transaction 1024",
        "sync 16",
      ],
    );
    for (const { name, messagesPerSecond, latency, memory, baselines } of results) {
      positive(messagesPerSecond, name);
      assert.ok(latency.p50Us > 0 && latency.p50Us <= latency.p99Us && latency.p99Us <= latency.maxUs, name);
      assert.ok(memory.peak >= memory.before && memory.peak >= memory.after, name);
      assert.ok(baselines.length > 0, name);
      for (const baseline of baselines) positive(baseline.ratio, `${name} against ${baseline.name}`);
    }
  }));

test("bench run spreads the work over several queues, in sync mode too, and prints a table", () =>
  withDirectory(async (directory) => {
    const args = ["--bytes", "64KiB", "--rounds", "1", "--queues", "3", "--batch", "4", "--durability", "sync"];
    const { stdout, status, stderr } = bench(directory, "run", ...args, "--only", "append,cycle-single");
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^append {2,}[\d,]+/m);
    assert.match(stdout, /^cycle-single +raw write +[\d,]+ +[\d.,]+ +[\d.]+ \([\d.]+ - [\d.]+\)$/m);
    assert.match(stdout, /^sync, 1 round: /m);
    assert.doesNotMatch(stdout, /^scan/m);
  }));

test("bench run refuses unknown workloads and runs too small to measure, and leaves nothing behind", () =>
  withDirectory(async (directory) => {
    const unknown = bench(directory, "run", "--only", "append,swim");
    assert.notEqual(unknown.status, 0);
    assert.match(unknown.stderr, /ERR_OPTION/);
    assert.match(unknown.stderr, /"swim"/);
    const small = bench(directory, "run", "--bytes", "1000");
    assert.notEqual(small.status, 0);
    assert.match(small.stderr, /ERR_OPTION/);
    assert.deepEqual(readdirSync(directory), []);
  }));

test("bench backlog compares a filled queue with an empty one in a process of its own", () =>
  withDirectory(async (directory) => {
    const result = benchJson<BacklogResult>(
      directory,
      ...["backlog", "--tasks", "2000", "--round-tasks", "256", "--rounds", "1", "--semi-space", "2"],
    );
    positive(result.batches.ratio, "batches");
    positive(result.singly.ratio, "singly");
    assert.ok(result.peakBytes >= result.backlogBytes && result.emptyBytes > 0);
  }));

test("bench open opens after a clean close and after a kill -9", () =>
  withDirectory(async (directory) => {
    const result = benchJson<OpenResult>(
      directory,
      ...["open", "--few", "100", "--many", "1000", "--tail", "64KiB", "--rounds", "1"],
    );
    assert.deepEqual(
      result.cases.map(({ after, records }) => `${after} ${records}`),
      ["close 100", "close 1000", "kill 100", "kill 1000"],
    );
    for (const { after, replayedBytes, openMs, usableMs } of result.cases) {
      assert.equal(replayedBytes >= 64 * 1024, after === "kill", `${after}: ${replayedBytes}`);
      assert.ok(usableMs.median > openMs.median);
    }
    positive(result.ratio.close, "close");
    positive(result.ratio.kill, "kill");
  }));

test("bench queues compares many queues with one", () =>
  withDirectory(async (directory) => {
    const result = benchJson<QueuesResult>(
      directory,
      ...["queues", "--queues", "50", "--round-messages", "512", "--rounds", "1"],
    );
    positive(result.ratio, "ratio");
    if (process.platform === "linux") assert.ok(result.openFiles !== undefined && result.openFiles.before > 0);
  }));
