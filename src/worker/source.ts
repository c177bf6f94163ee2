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
}
