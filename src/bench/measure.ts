import { createHistogram, type RecordableHistogram } from "node:perf_hooks";

/** The middle of several measurements and how far they lie apart. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

export function spread(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  const lower = sorted.length % 2 === 0 ? (sorted[middle - 1] ?? Number.NaN) : upper;
  return { median: (lower + upper) / 2, min: sorted[0] ?? Number.NaN, max: sorted.at(-1) ?? Number.NaN };
}

/** Latencies in microseconds. */
export interface Latency {
  readonly p50Us: number;
  readonly p99Us: number;
  readonly p999Us: number;
  readonly maxUs: number;
}

const LATENCY_MS_MAX = 3_600_000;

/**
 * What a workload tells while it runs: how long its operations take, and whether its time is over. Reading the clock
 * twice costs about as much as a tenth of the fastest operations, so that those are timed only now and then.
 */
export class Probe {
  readonly #histogram: RecordableHistogram = createHistogram({ figures: 3, highest: LATENCY_MS_MAX * 1e6 });
  readonly #onLap: (() => void) | undefined;
  #deadlineMs = Number.POSITIVE_INFINITY;

  constructor(onLap?: () => void) {
    this.#onLap = onLap;
  }

  /** Forgets what was recorded: the warm-up does not count. */
  reset(): void {
    this.#histogram.reset();
  }

  /** From here on, laps after `limitMs` say that the round must end. */
  begin(limitMs: number): void {
    this.#deadlineMs = performance.now() + limitMs;
  }

  /** Records an operation that began at `startedMs` of performance.now(); true once the round's time is over. */
  lap(startedMs: number): boolean {
    const nowMs = performance.now();
    this.#histogram.record(Math.max(1, Math.min(LATENCY_MS_MAX * 1e6, Math.round((nowMs - startedMs) * 1e6))));
    this.#onLap?.();
    return nowMs >= this.#deadlineMs;
  }

  /** Counts what another one has recorded as well. */
  add(other: Probe): void {
    this.#histogram.add(other.#histogram);
  }

  latency(): Latency {
    const microseconds = (percentile: number): number => this.#histogram.percentile(percentile) / 1000;
    return {
      p50Us: microseconds(50),
      p99Us: microseconds(99),
      p999Us: microseconds(99.9),
      maxUs: this.#histogram.count === 0 ? 0 : this.#histogram.max / 1000,
    };
  }
}

/** Resident memory in bytes. */
export interface Memory {
  readonly before: number;
  readonly peak: number;
  readonly after: number;
}

const SAMPLE_INTERVAL_MS = 20;

/** Samples the resident memory of this process until it is stopped. */
export class MemorySampler {
  readonly #before = process.memoryUsage.rss();
  readonly #samples: number[] = [this.#before];
  readonly #timer = setInterval(() => this.#samples.push(process.memoryUsage.rss()), SAMPLE_INTERVAL_MS).unref();

  stop(): Memory & { readonly median: number } {
    clearInterval(this.#timer);
    const after = process.memoryUsage.rss();
    this.#samples.push(after);
    const { median, max } = spread(this.#samples);
    return { before: this.#before, peak: max, after, median };
  }
}
