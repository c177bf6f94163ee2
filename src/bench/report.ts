import { styleText } from "node:util";
import { formatBytes, formatDuration } from "../api/units.js";
import type { BacklogResult, BacklogSpeed } from "./backlog.js";
import type { CompactionBench } from "./compaction.js";
import type { Latency, Memory, Spread } from "./measure.js";
import type { OpenResult } from "./open.js";
import type { QueuesResult } from "./queues.js";
import type { WorkloadResult } from "./run.js";
import type { ScheduleResult } from "./schedule.js";

/** Columns as wide as their longest cell; the first aligned left, the others right. */
export function table(head: readonly string[], rows: readonly (readonly string[])[], dim = false): string {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => (row[column] ?? "").length)));
  const line = (row: readonly string[]): string =>
    widths
      .map((width, column) => (column === 0 ? (row[column] ?? "").padEnd(width) : (row[column] ?? "").padStart(width)))
      .join("  ")
      .trimEnd();
  return [dim ? styleText("dim", line(head)) : line(head), ...rows.map(line)].join("\n");
}

export function whole(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/** "0.52 (0.48 - 0.55)": the median and how far the rounds lie apart. */
export function ratio({ median, min, max }: Spread): string {
  const digits = (value: number): string => (value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2));
  return `${digits(median)} (${digits(min)} - ${digits(max)})`;
}

function microseconds(value: number): string {
  return value >= 10_000 ? `${whole(value / 1000)}ms` : `${value >= 100 ? whole(value) : value.toFixed(1)}us`;
}

const mebibytes = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);

function memoryText({ before, peak, after }: Memory): string {
  return [before, peak, after].map((bytes) => whole(bytes / 2 ** 20)).join(" / ");
}

export function runReport(results: readonly WorkloadResult[], dim: boolean): string {
  const head = ["workload", "messages/s", "MiB/s", "p50", "p99", "p99.9", "max", "memory MiB*"];
  const rows = results.map(({ name, messagesPerSecond, bytesPerSecond, latency, memory }) => [
    name,
    whole(messagesPerSecond.median),
    mebibytes(bytesPerSecond.median),
    ...[latency.p50Us, latency.p99Us, latency.p999Us, latency.maxUs].map(microseconds),
    memoryText(memory),
  ]);
  const against = results.flatMap(({ name, baselines }) =>
    baselines.map((baseline) => [
      name,
      baseline.name,
      whole(baseline.messagesPerSecond.median),
      mebibytes(baseline.bytesPerSecond.median),
      ratio(baseline.ratio),
    ]),
  );
  return [
    ...results.map(({ name, description }) => `${name.padEnd(14)}  ${description}`),
    "",
    table(head, rows, dim),
    "* resident: before, peak, after",
    "",
    table(["workload", "bare loop over", "messages/s", "MiB/s", "varve / bare loop"], against, dim),
  ].join("\n");
}

export function backlogReport(result: BacklogResult, dim: boolean): string {
  const speed = (name: string, { emptyPerSecond, backlogPerSecond, ratio: ratios }: BacklogSpeed): string[] => [
    name,
    whole(emptyPerSecond.median),
    whole(backlogPerSecond.median),
    ratio(ratios),
  ];
  return [
    table(
      ["enqueue + dequeue + ack", "empty, tasks/s", "backlog, tasks/s", "backlog / empty"],
      [speed("in batches", result.batches), speed("one by one", result.singly)],
      dim,
    ),
    "",
    table(
      ["resident memory", "MiB"],
      [
        ["warmed up, empty", mebibytes(result.emptyBytes)],
        ["with the backlog", mebibytes(result.backlogBytes)],
        ["difference", mebibytes(result.backlogBytes - result.emptyBytes)],
        ["peak of the process", mebibytes(result.peakBytes)],
      ],
      dim,
    ),
    "",
    `filled at ${whole(result.fillPerSecond)} tasks/s`,
  ].join("\n");
}

export function compactionReport(result: CompactionBench, dim: boolean): string {
  const { without, during, rateRatio, p99Ratio, seconds, bytesPerSecond } = result;
  const row = (name: string, { p50Us, p99Us, p999Us, maxUs }: Latency): string[] => [
    name,
    ...[p50Us, p99Us, p999Us, maxUs].map(microseconds),
  ];
  return [
    table(
      ["appends to another log", "p50", "p99", "p99.9", "max"],
      [row("without a compaction", without), row("during one", during)],
      dim,
    ),
    "",
    table(
      ["during / without", "ratio"],
      [
        ["p99", ratio(p99Ratio)],
        ["appends a second", ratio(rateRatio)],
      ],
      dim,
    ),
    "",
    `${whole(result.recordsBefore)} records in ${formatBytes(result.bytesBefore)}, of which ${whole(result.recordsRemoved)} went and ${formatBytes(result.bytesAfter)} stayed`,
    `took ${seconds.median.toFixed(1)} s, ${mebibytes(bytesPerSecond.median)} MiB/s`,
  ].join("\n");
}

export function openReport({ cases, ratio: ratios }: OpenResult, dim: boolean): string {
  const ms = ({ median, min, max }: Spread): string => `${median.toFixed(1)} (${min.toFixed(1)} - ${max.toFixed(1)})`;
  return [
    table(
      ["open after", "records", "open, ms", "until read and append, ms", "replayed"],
      cases.map((one) => [
        one.after === "close" ? "clean close" : "kill -9",
        whole(one.records),
        ms(one.openMs),
        ms(one.usableMs),
        formatBytes(one.replayedBytes),
      ]),
      dim,
    ),
    "",
    table(
      ["many / few records", "ratio"],
      [
        ["after a clean close", ratio(ratios.close)],
        ["after kill -9", ratio(ratios.kill)],
      ],
      dim,
    ),
  ].join("\n");
}

export function scheduleReport(result: ScheduleResult, dim: boolean): string {
  const { emptyBytes, scheduledBytes, peakBytes, fillPerSecond, lateMs, early } = result;
  const above = (bytes: number): string =>
    `${formatBytes(bytes)} (${formatBytes(Math.max(0, bytes - emptyBytes))} above)`;
  return table(
    ["scheduled tasks", ""],
    [
      ["memory with none", formatBytes(emptyBytes)],
      ["memory with all", above(scheduledBytes)],
      ["most memory", above(peakBytes)],
      ["scheduled per second", whole(fillPerSecond)],
      ["late, p50 / p99 / most", `${lateMs.p50} / ${lateMs.p99} / ${lateMs.max} ms`],
      ["early", String(early)],
    ],
    dim,
  );
}

export function queuesReport(result: QueuesResult, queues: number, dim: boolean): string {
  const files =
    result.openFiles === undefined
      ? "unknown on this system"
      : `${result.openFiles.before} before, ${result.openFiles.peak} at most`;
  return [
    table(
      ["appends one by one", "messages/s"],
      [
        ["one queue", whole(result.onePerSecond.median)],
        [`${whole(queues)} queues in turn`, whole(result.manyPerSecond.median)],
        ["many / one", ratio(result.ratio)],
      ],
      dim,
    ),
    "",
    `created with a record each    ${whole(result.createPerSecond)} queues/s`,
    `directory opened              in ${formatDuration(result.openMs.many)}; one with a single queue in ${formatDuration(result.openMs.one)}`,
    `queues opened                 ${whole(result.openQueuesPerSecond)} queues/s`,
    `open files                    ${files}`,
    `memory before / peak / after  ${memoryText(result.memory)} MiB`,
  ].join("\n");
}
