import type { Duration, Task, WorkContext } from "../api/contract.js";

/** A lease as its holder knows it, shared by the tasks that arrived together. Elapsed time, in whole milliseconds. */
export interface Lease {
  readonly endsMs: number;
  readonly renewAtMs: number;
}

/** What tasks that arrived together have in common. */
export interface Arrival {
  /** The lease that the worker keeps renewing. */
  readonly leaseMs: number;
  readonly lease: Lease;
  /** When the time of their handlers is up. */
  readonly timesOutAtMs: number;
}

/** @param renewedMs the lease that is renewed, after a third of its time */
export function leaseFrom(askedAtMs: number, leaseMs: number, renewedMs: number): Lease {
  const endsMs = Math.floor(askedAtMs + leaseMs);
  return { endsMs, renewAtMs: Math.floor(endsMs - (renewedMs * 2) / 3) };
}

/** One delivery in a worker's hands, from its arrival until its outcome is recorded or no longer counts. */
export class Job<O> {
  readonly task: Task<O>;
  readonly number: number;
  readonly arrival: Arrival;
  lease: Lease;
  /** How the call of the handler ended, with what it returned or threw. */
  outcome: "none" | "returned" | "threw" = "none";
  value: unknown;
  /** The handler runs although its outcome does not count any more. */
  abandoned = false;
  /** The handler has settled the task itself. */
  settled = false;
  /** It is about to. */
  settlingItself = false;
  /** Why it could not. */
  unsettledFor: { readonly error: unknown } | undefined;
  /** An ack or nack is on its way. */
  settling = false;
  /** Refused extras of the outcome, a result or a delay, are left out. */
  bare = false;
  /** When to try again to record the outcome, after so many failures. */
  retryAtMs = Number.POSITIVE_INFINITY;
  failures = 0;
  #busy: Promise<void> | undefined;
  #abort: AbortController | undefined;
  #abandonedFor: Error | undefined;

  /** Where it stands in the worker's list of jobs; -1 when it is in none. */
  place = -1;

  /** @param number rises from delivery to delivery of a worker */
  constructor(task: Task<O>, number: number, arrival: Arrival) {
    this.task = task;
    this.number = number;
    this.arrival = arrival;
    this.lease = arrival.lease;
  }

  get running(): boolean {
    return this.outcome === "none";
  }

  /** A call about this delivery is under way, and another one would be refused. */
  get busy(): Promise<void> | undefined {
    return this.#busy;
  }

  /** Made only when a handler asks for it: most do not. */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#abandonedFor !== undefined) this.#abort.abort(this.#abandonedFor);
    }
    return this.#abort.signal;
  }

  /** Tells the handler that its outcome does not count any more. */
  abandon(reason: Error): void {
    this.abandoned = true;
    this.#abandonedFor = reason;
    this.#abort?.abort(reason);
  }

  /** Makes a call about this delivery once the one before it has ended: a lease bears only one at a time. */
  exclusive<T>(call: () => Promise<T>): Promise<T> {
    const calling = this.#busy === undefined ? new Promise<T>((resolve) => resolve(call())) : this.#busy.then(call);
    const ended = () => {
      if (this.#busy === busy) this.#busy = undefined;
    };
    const busy: Promise<void> = calling.then(ended, ended);
    this.#busy = busy;
    return calling;
  }
}

/** What a handler's context leads to. */
export interface JobCalls<O> {
  progress(job: Job<O>, value: unknown): Promise<void>;
  extend(job: Job<O>, lease: Duration): Promise<void>;
  settle(job: Job<O>, how: () => Promise<unknown>): Promise<void>;
}

/** What the handler gets to see of its job. Getters, so that the members can be taken apart and cost nothing unused. */
export class Context<O> implements WorkContext {
  readonly #calls: JobCalls<O>;
  readonly #job: Job<O>;

  constructor(calls: JobCalls<O>, job: Job<O>) {
    this.#calls = calls;
    this.#job = job;
  }

  get signal(): AbortSignal {
    return this.#job.signal;
  }

  get progress(): WorkContext["progress"] {
    return (value) => heard(this.#calls.progress(this.#job, value));
  }

  get extend(): WorkContext["extend"] {
    return (lease) => heard(this.#calls.extend(this.#job, lease));
  }

  get settle(): WorkContext["settle"] {
    return (how) => heard(this.#calls.settle(this.#job, how));
  }
}

/** A handler need not wait for these calls: one that fails unheard must not end the process. */
function heard<T>(call: Promise<T>): Promise<T> {
  call.catch(() => {});
  return call;
}

/** The jobs of a worker: a set that leaves nothing behind for the garbage collector, however fast they come and go. */
export class Jobs<O> {
  readonly #jobs: Job<O>[] = [];

  get size(): number {
    return this.#jobs.length;
  }

  has(job: Job<O>): boolean {
    return job.place !== -1;
  }

  add(job: Job<O>): void {
    job.place = this.#jobs.push(job) - 1;
  }

  /** False when it was not there. */
  delete(job: Job<O>): boolean {
    if (job.place === -1) return false;
    const last = this.#jobs.pop()!;
    if (last !== job) {
      this.#jobs[job.place] = last;
      last.place = job.place;
    }
    job.place = -1;
    return true;
  }

  /** A list of its own, so that jobs may go while it is walked through. */
  list(): Job<O>[] {
    return [...this.#jobs];
  }
}
