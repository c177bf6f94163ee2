import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { VarveError } from "../api/errors.js";
import { type Contestant, interleave, ratios, type Timing } from "./interleave.js";
import { type Latency, type Memory, MemorySampler, type Spread, spread } from "./measure.js";
import { messagesPerRound, type RunSettings } from "./settings.js";
import { warmMemory } from "./warm.js";
import { WORKLOADS, type Workload } from "./workloads.js";

/** Memory made warm before each turn, at most: beyond it the cost of fresh memory is part of the work. */
const WARM_BYTES_MAX = 1024 * 1024 * 1024;

export interface Speed {
  readonly messagesPerSecond: Spread;
  /** Payload bytes. */
  readonly bytesPerSecond: Spread;
  /** Of one operation: a batch where the workload works in batches. */
  readonly latency: Latency;
}

/** What a bare loop did in the same rounds. */
export interface BaselineResult extends Speed {
  readonly name: string;
  /** How many times as fast varve was, round by round. */
  readonly ratio: Spread;
}

export interface WorkloadResult extends Speed {
  readonly name: string;
  readonly description: string;
  readonly messages: number;
  readonly seconds: number;
  readonly memory: Memory;
  readonly baselines: readonly BaselineResult[];
}

/** Tells how far a run is. `fraction` is between 0 and 1. */
export type OnProgress = (fraction: number, label: string) => void;

function selected(only: readonly string[]): readonly Workload[] {
  const unknown = only.find((name) => WORKLOADS.every((workload) => workload.name !== name));
  if (unknown !== undefined) {
    const names = WORKLOADS.map(({ name }) => name).join(", ");
    throw new VarveError("ERR_OPTION", `--only names the unknown workload "${unknown}"; there are: ${names}`, {
      details: { option: "--only" },
    });
  }
  return only.length === 0 ? WORKLOADS : WORKLOADS.filter(({ name }) => only.includes(name));
}

function speed(timing: Timing, messageBytes: number): Speed {
  return {
    messagesPerSecond: spread(timing.rates),
    bytesPerSecond: spread(timing.rates.map((rate) => rate * messageBytes)),
    latency: timing.probe.latency(),
  };
}

async function runWorkload(
  workload: Workload,
  directory: string,
  settings: RunSettings,
  onProgress: OnProgress,
): Promise<WorkloadResult> {
  const messages = messagesPerRound(settings, workload.share);
  const bench = await workload.prepare(directory, settings, messages);
  try {
    const contestants: Contestant[] = [bench.contestant, ...bench.baselines];
    const sampler = new MemorySampler();
    let turns = 0;
    let timings: Map<Contestant, Timing>;
    let memory: Memory;
    try {
      timings = await interleave(contestants, {
        prepare: () =>
          warmMemory(directory, Math.min(WARM_BYTES_MAX, 2 * settings.messageBytes * messagesPerRound(settings))),
        rounds: settings.rounds,
        roundLimitMs: settings.roundLimitMs,
        messages: () => messages,
        onRound: () => onProgress(turns++ / (contestants.length * (settings.rounds + 1)), workload.name),
      });
    } finally {
      const { before, peak, after } = sampler.stop();
      memory = { before, peak, after };
    }
    const timing = timings.get(bench.contestant)!;
    return {
      name: workload.name,
      description: workload.describe(settings),
      messages: timing.messages,
      seconds: timing.seconds,
      ...speed(timing, settings.messageBytes),
      memory,
      baselines: bench.baselines.map((baseline) => {
        const bare = timings.get(baseline)!;
        return {
          name: baseline.name,
          ...speed(bare, settings.messageBytes),
          ratio: spread(ratios(timing, bare)),
        };
      }),
    };
  } finally {
    for (const baseline of bench.baselines) baseline.close();
    await bench.close();
  }
}

/** Runs the workloads one after another, each in a directory of its own below `directory`. */
export async function benchRun(
  directory: string,
  settings: RunSettings,
  onProgress: OnProgress = () => {},
): Promise<WorkloadResult[]> {
  const workloads = selected(settings.only);
  const results: WorkloadResult[] = [];
  for (const [index, workload] of workloads.entries()) {
    const path = join(directory, workload.name);
    mkdirSync(path);
    results.push(
      await runWorkload(workload, path, settings, (fraction, label) =>
        onProgress((index + fraction) / workloads.length, label),
      ),
    );
    rmSync(path, { recursive: true });
  }
  return results;
}
