import type { CommitOptions, Logger, TaskRef, TaskSource } from "../api/contract.js";

/** What a worker takes its tasks from. */
export interface WorkSource<O>
  extends Pick<TaskSource<O>, "name" | "dequeueBatch" | "ack" | "ackBatch" | "nack" | "release" | "extend"> {
  /** Where tasks have progress. */
  progress?(task: TaskRef, value: unknown, options?: CommitOptions): Promise<void>;
}

/** Time, as a worker needs it. The engine's clock is one. */
export interface WorkTimers {
  /** Elapsed time in milliseconds from an arbitrary start. Never falls. */
  elapsedMs(): number;
  /** Calls back once, `ms` from now, keeping the process alive for it if asked to. */
  setTimer(ms: number, callback: () => void, keepAlive?: boolean): { cancel(): void };
  /** Calls back at the end of this turn of the event loop. */
  defer(callback: () => void): void;
}

/** What an implementation lends to its workers. */
export interface WorkTerms {
  readonly timers: WorkTimers;
  readonly logger: Logger;
  /** The queue's lease, as it is now. */
  leaseMs(): number;
  /** Whether an ack may carry the task's result. */
  readonly keepsResults: boolean;
  /**
   * Calls back once if the source ends, with what its calls are refused with from then on. The worker would learn that from
   * its next call, which may be far off while all its handlers are busy.
   * @returns stops waiting for that
   */
  onEnd(callback: (error: Error) => void): () => void;
}
