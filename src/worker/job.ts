import type { Duration, Task, WorkContext } from "../api/contract.js";

/** How a call of the handler ended. */
export type Outcome =
  | { readonly kind: "returned"; readonly result: unknown }
  | { readonly kind: "threw"; readonly error: unknown };

/** One delivery in a worker's hands, from its arrival until its outcome is recorded or no longer counts. */
export class Job<O> {
  readonly task: Task<O>;
  /** The lease that the worker keeps renewing, in milliseconds. */
  readonly leaseMs: number;
  /** When the lease ends, as far as this side knows, and when to renew it; elapsed time. */
  leaseEndsMs: number;
  renewAtMs: number;
  /** When the handler's time is up. */
  readonly timesOutAtMs: number;
  outcome: Outcome | undefined;
  /** The handler runs although its outcome does not count any more. */
  abandoned = false;
  /** The handler has settled the task itself. */
  settled = false;
  /** It is about to. */
  settlingItself = false;
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

  /** @param takenAtMs elapsed time at which the delivery arrived */
  constructor(task: Task<O>, leaseMs: number, timeoutMs: number, takenAtMs: number) {
    this.task = task;
    this.leaseMs = leaseMs;
    this.leaseEndsMs = takenAtMs + leaseMs;
    this.renewAtMs = takenAtMs + leaseMs / 3;
    this.timesOutAtMs = takenAtMs + timeoutMs;
  }

  get running(): boolean {
    return this.outcome === undefined;
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

  /** The lease was made to end `leaseMs` after `askedAtMs`. */
  renewed(askedAtMs: number, leaseMs: number): void {
    this.leaseEndsMs = askedAtMs + leaseMs;
    this.renewAtMs = this.leaseEndsMs - (this.leaseMs * 2) / 3;
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
