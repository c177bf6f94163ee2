/**
 * A worker's life, turn by turn. Whatever happens in a turn of the event loop, handlers that end and slots that come
 * free, is dealt with at its end: first the outcomes are recorded, as one batch where that is possible, then free slots
 * are filled by one call of `dequeueBatch`. On an embedded queue both end up in the same commit.
 *
 * Invariants
 * - A delivery is in `#jobs` from its arrival until its outcome is recorded, it is given back, or its lease is lost.
 * - At most one call about a delivery is under way (`Job.exclusive`): a lease bears no more.
 * - At most one dequeue is under way, and it asks for no more tasks than there are free slots.
 * - One alarm serves renewals, timeouts, repeated attempts and the end of a close; nothing is armed once it has ended.
 */

import type {
  CloseWorkerOptions,
  CommitOptions,
  Duration,
  Handler,
  NackOptions,
  Task,
  Worker,
  WorkerEvents,
  WorkOptions,
} from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import {
  type ResolvedWorkOptions,
  resolveCloseWorkerOptions,
  resolveLease,
  resolveWorkOptions,
} from "../api/options.js";
import { show } from "../api/show.js";
import { formatDuration } from "../api/units.js";
import { Events } from "./events.js";
import { type Arrival, Context, Job, type JobCalls, Jobs, leaseFrom } from "./job.js";
import { failureText, isDiscard, retryDelayMs } from "./outcome.js";
import type { WorkSource, WorkTerms, WorkTimers } from "./source.js";

/** One dequeue waits this long; then comes the next. It only bounds how long a call is under way. */
const WAIT_MS = 60_000;
/** Waits between repeated attempts at what failed: doubled from the first to the last. */
const RETRY_MS_MIN = 100;
const RETRY_MS_MAX = 30_000;
/** Renewals that are due within this part of a lease are made together. */
const TOGETHER = 1 / 12;

/** Codes of errors after which the source will not work again. */
const FINAL = new Set(["ERR_CLOSED", "ERR_READ_ONLY", "ERR_NOT_FOUND"]);
/** Codes that say that the call itself is wrong, so that repeating it is no use. */
const REFUSED = new Set(["ERR_OPTION", "ERR_ARGUMENT", "ERR_ENCODE", "ERR_TOO_LARGE"]);

/** Starts a worker on a source of tasks: what an implementation of the contract does for `work()`. */
export function work<O>(
  source: WorkSource<O>,
  handler: Handler<O>,
  options: WorkOptions | undefined,
  terms: WorkTerms,
) {
  if (typeof handler !== "function") {
    throw new VarveError("ERR_ARGUMENT", `work() takes the handler, a function, first; got ${show(handler)}`);
  }
  return new QueueWorker(source, handler, resolveWorkOptions(options), terms);
}

class QueueWorker<O> implements Worker<O>, JobCalls<O> {
  readonly closed: Promise<void>;
  readonly #source: WorkSource<O>;
  readonly #handler: Handler<O>;
  readonly #options: ResolvedWorkOptions;
  readonly #commit: CommitOptions;
  readonly #terms: WorkTerms;
  readonly #timers: WorkTimers;
  readonly #events: Events<WorkerEvents<O>>;
  readonly #jobs = new Jobs<O>();
  /** Jobs that hold a slot: their handlers run, or their outcomes were refused and are waiting for another attempt. */
  #occupied = 0;
  #abandoned = 0;
  #deliveries = 0;
  /** Jobs whose handlers have ended in this turn. */
  #ended: Job<O>[] = [];
  #turnDue = false;
  #paused = false;
  #closing = false;
  #fetching = false;
  #stopFetch = new AbortController();
  #fetchFailures = 0;
  #fetchAtMs = 0;
  /** Calls under way that give tasks back. */
  #givingBack = 0;
  #giveUpAtMs = Number.POSITIVE_INFINITY;
  #alarm: { cancel(): void } | undefined;
  #alarmAtMs = Number.POSITIVE_INFINITY;
  #hasEnded = false;
  readonly #resolveClosed: () => void;
  readonly #forgetSource: () => void;

  constructor(source: WorkSource<O>, handler: Handler<O>, options: ResolvedWorkOptions, terms: WorkTerms) {
    this.#source = source;
    this.#handler = handler;
    this.#options = options;
    this.#commit = options.durability === undefined ? {} : { durability: options.durability };
    this.#terms = terms;
    this.#timers = terms.timers;
    this.#events = new Events((event, error) => this.#log(`a listener for "${String(event)}" threw`, error));
    let resolveClosed = () => {};
    this.closed = new Promise((resolve) => {
      resolveClosed = resolve;
    });
    this.#resolveClosed = resolveClosed;
    this.#forgetSource = terms.onEnd((error) => {
      // Not at once: what listens to a handler's signal may call the queue, in whose midst this is.
      this.#timers.defer(() => this.#sourceEnded(error));
    });
    this.#wake();
  }

  get running(): number {
    return this.#jobs.size;
  }

  get abandoned(): number {
    return this.#abandoned;
  }

  get paused(): boolean {
    return this.#paused;
  }

  on<E extends keyof WorkerEvents<O>>(event: E, listener: (...args: WorkerEvents<O>[E]) => void): this {
    this.#events.on(event, listener);
    return this;
  }

  off<E extends keyof WorkerEvents<O>>(event: E, listener: (...args: WorkerEvents<O>[E]) => void): this {
    this.#events.off(event, listener);
    return this;
  }

  pause(): void {
    this.#paused = true;
    this.#stopFetch.abort();
  }

  resume(): void {
    this.#paused = false;
    this.#wake();
  }

  async close(options?: CloseWorkerOptions): Promise<void> {
    const { timeoutMs } = resolveCloseWorkerOptions(options);
    if (this.#hasEnded) return;
    this.#beginClosing();
    if (timeoutMs !== undefined) {
      this.#giveUpAtMs = Math.min(this.#giveUpAtMs, this.#timers.elapsedMs() + timeoutMs);
      this.#schedule(this.#giveUpAtMs);
    }
    await this.closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  // ------------------------------------------------------------------------------------------ what handlers call

  async progress(job: Job<O>, value: unknown): Promise<void> {
    if (this.#source.progress === undefined) {
      throw new VarveError("ERR_ARGUMENT", `${this.#source.name} keeps no progress of its tasks`);
    }
    await job.exclusive(async () => {
      this.#checkHeld(job);
      await this.#source.progress?.(job.task, value, this.#commit);
    });
  }

  async extend(job: Job<O>, lease: Duration): Promise<void> {
    const leaseMs = Math.max(resolveLease(lease) ?? 0, job.arrival.leaseMs);
    await this.#extend(job, leaseMs);
  }

  async settle(job: Job<O>, how: () => Promise<unknown>): Promise<void> {
    await job.exclusive(async () => {
      this.#checkHeld(job);
      job.settlingItself = true;
      try {
        await how();
        job.settled = true;
      } catch (error) {
        job.unsettledFor = { error };
        throw error;
      } finally {
        job.settlingItself = false;
      }
    });
  }

  #checkHeld(job: Job<O>): void {
    if (this.#jobs.has(job) && !job.abandoned && !job.settled) return;
    throw new VarveError("ERR_STALE_LEASE", `task ${job.task.id}: this call of the handler no longer holds its lease`);
  }

  // ------------------------------------------------------------------------------------------------- turn by turn

  #wake(): void {
    if (this.#turnDue || this.#hasEnded) return;
    this.#turnDue = true;
    this.#timers.defer(() => {
      this.#turnDue = false;
      this.#turn();
    });
  }

  #turn(): void {
    this.#record();
    this.#fetch();
    if (this.#closing && this.#jobs.size === 0 && !this.#fetching && this.#givingBack === 0) this.#end();
  }

  #end(): void {
    this.#hasEnded = true;
    this.#alarm?.cancel();
    this.#forgetSource();
    this.#resolveClosed();
  }

  #beginClosing(): void {
    this.#closing = true;
    this.#stopFetch.abort();
    this.#wake();
  }

  // ------------------------------------------------------------------------------------------------ taking tasks

  #fetch(): void {
    if (this.#closing || this.#paused || this.#fetching) return;
    const { concurrency } = this.#options;
    // Outcomes on their way hold no slot, but no more of them than handlers may pile up.
    const free = Math.min(concurrency - this.#occupied, 2 * concurrency - this.#jobs.size);
    if (free <= 0) return;
    const nowMs = this.#timers.elapsedMs();
    if (nowMs < this.#fetchAtMs) {
      this.#schedule(this.#fetchAtMs);
      return;
    }
    if (this.#stopFetch.signal.aborted) this.#stopFetch = new AbortController();
    this.#fetching = true;
    void this.#take(free);
  }

  async #take(max: number): Promise<void> {
    const { leaseMs: lease, durability } = this.#options;
    const leaseMs = lease ?? this.#terms.leaseMs();
    try {
      const { signal } = this.#stopFetch;
      const tasks = await this.#source.dequeueBatch({ max, wait: WAIT_MS, signal, lease, durability });
      this.#fetchFailures = 0;
      this.#fetching = false;
      const arrival = this.#arrival(leaseMs);
      if (this.#closing || this.#paused) this.#returnUntouched(tasks, arrival);
      else this.#start(tasks, arrival);
    } catch (error) {
      this.#fetching = false;
      if (isFinal(error)) {
        this.#sourceEnded(error);
      } else {
        this.#fetchAtMs = this.#timers.elapsedMs() + retryMs(this.#fetchFailures++);
        this.#report(error, undefined);
      }
    }
    this.#wake();
  }

  #arrival(leaseMs: number): Arrival {
    const nowMs = this.#timers.elapsedMs();
    const lease = leaseFrom(nowMs, leaseMs, leaseMs);
    return { leaseMs, lease, timesOutAtMs: nowMs + (this.#options.timeoutMs ?? Number.POSITIVE_INFINITY) };
  }

  #start(tasks: readonly Task<O>[], arrival: Arrival): void {
    if (tasks.length > 0) this.#schedule(Math.min(arrival.lease.renewAtMs, arrival.timesOutAtMs));
    for (const task of tasks) {
      const job = new Job(task, this.#deliveries++, arrival);
      this.#jobs.add(job);
      this.#occupied++;
      this.#run(job);
    }
  }

  /** Not an async function: those cost as much as all the rest that is done for a task. */
  #run(job: Job<O>): void {
    try {
      const returned = this.#handler(job.task, new Context(this, job));
      if (isThenable(returned)) {
        Promise.resolve(returned).then(
          (result) => this.#handlerEnded(job, "returned", result),
          (error: unknown) => this.#handlerEnded(job, "threw", error),
        );
      } else {
        this.#handlerEnded(job, "returned", returned);
      }
    } catch (error) {
      this.#handlerEnded(job, "threw", error);
    }
  }

  #handlerEnded(job: Job<O>, outcome: "returned" | "threw", value: unknown): void {
    if (job.abandoned) {
      this.#abandoned--;
      return;
    }
    job.outcome = outcome;
    job.value = value;
    this.#occupied--;
    this.#ended.push(job);
    this.#wake();
  }

  // -------------------------------------------------------------------------------------------- recording outcomes

  #record(): void {
    const ended = this.#ended;
    if (ended.length === 0) return;
    this.#ended = [];
    const plain: Job<O>[] = [];
    for (const job of ended) {
      if (!this.#jobs.has(job)) continue;
      if (this.#isPlain(job)) plain.push(job);
      else void this.#recordOne(job);
    }
    if (plain.length === 1) void this.#recordOne(plain[0]!);
    else if (plain.length > 1) void this.#acknowledge(plain);
  }

  /** Whether an ack in a batch says it all. */
  #isPlain({ outcome, value, busy, settled, unsettledFor }: Job<O>): boolean {
    if (busy !== undefined || settled || unsettledFor !== undefined) return false;
    return outcome === "returned" && (value === undefined || !this.#terms.keepsResults);
  }

  async #acknowledge(jobs: readonly Job<O>[]): Promise<void> {
    for (const job of jobs) job.settling = true;
    try {
      const tasks = jobs.map(({ task }) => task);
      await this.#source.ackBatch(tasks, this.#commit);
    } catch {
      // None is finished if one is refused: each for itself, then.
      for (const job of jobs) void this.#recordOne(job);
      return;
    }
    for (const job of jobs) this.#recorded(job, false);
    this.#wake();
  }

  async #recordOne(job: Job<O>): Promise<void> {
    try {
      const dead = await job.exclusive(() => this.#settle(job));
      job.settling = false;
      if (this.#jobs.has(job)) this.#recorded(job, dead);
      this.#wake();
    } catch (error) {
      job.settling = false;
      if (this.#jobs.has(job)) this.#notRecorded(job, error);
    }
  }

  /** Acknowledges the task or gives it back, as its outcome has it. True when it is a dead letter now. */
  async #settle(job: Job<O>): Promise<boolean> {
    const { task, bare } = job;
    if (job.settled || !this.#jobs.has(job)) return false;
    job.settling = true;
    const commit = this.#commit;
    if (job.outcome === "returned" && job.unsettledFor !== undefined) {
      // It may have returned without waiting for that, so its return says nothing.
      job.outcome = "threw";
      job.value = job.unsettledFor.error;
    }
    if (job.outcome === "returned") {
      const { value } = job;
      const keeps = this.#terms.keepsResults && value !== undefined && !bare;
      await this.#source.ack(task, keeps ? ({ ...commit, result: value } as CommitOptions) : commit);
      return false;
    }
    const error = failureText(job.value);
    const nack: NackOptions = isDiscard(job.value)
      ? { ...commit, error, dead: true }
      : { ...commit, error, delay: bare ? undefined : retryDelayMs(job.value) };
    return (await this.#source.nack(task, nack)).dead;
  }

  #recorded(job: Job<O>, dead: boolean): void {
    const { task, value } = job;
    this.#drop(job);
    if (job.outcome === "returned") this.#events.emit("completed", task, value);
    else if (job.settled) this.#report(value, task);
    else this.#events.emit(dead ? "dead" : "failed", task, value);
  }

  #notRecorded(job: Job<O>, error: unknown): void {
    if (isVarveError(error, "ERR_STALE_LEASE")) {
      this.#lost(job, error);
    } else if (isFinal(error)) {
      this.#drop(job);
      this.#sourceEnded(error);
    } else if (isVarveError(error, "ERR_OUTCOME_UNKNOWN")) {
      this.#drop(job);
      this.#report(error, job.task);
      this.#wake();
    } else if (isVarveError(error) && REFUSED.has(error.code) && !job.bare) {
      // The work is done, or has failed, whatever came with it.
      job.bare = true;
      this.#report(error, job.task);
      void this.#recordOne(job);
    } else {
      // It holds a slot meanwhile, so that outcomes which cannot be recorded stop the work.
      if (job.failures === 0) this.#occupied++;
      job.retryAtMs = this.#timers.elapsedMs() + retryMs(job.failures++);
      this.#schedule(Math.min(job.retryAtMs, job.lease.renewAtMs));
      this.#report(error, job.task);
    }
  }

  /** Nothing more is to be recorded of this job. */
  #drop(job: Job<O>): void {
    if (this.#jobs.delete(job) && job.failures > 0) this.#occupied--;
  }

  // --------------------------------------------------------------------------------------- leases, timeouts, the end

  #schedule(atMs: number): void {
    if (atMs >= this.#alarmAtMs || this.#hasEnded) return;
    this.#alarm?.cancel();
    this.#alarmAtMs = atMs;
    const ring = () => {
      this.#alarmAtMs = Number.POSITIVE_INFINITY;
      this.#ring();
    };
    this.#alarm = this.#timers.setTimer(Math.max(0, atMs - this.#timers.elapsedMs()), ring, true);
  }

  #ring(): void {
    const nowMs = this.#timers.elapsedMs();
    if (nowMs >= this.#giveUpAtMs) this.#giveUp();
    for (const job of this.#jobs.list()) this.#attend(job, nowMs);
    if (nowMs >= this.#fetchAtMs) this.#wake();
    else this.#schedule(this.#fetchAtMs);
    if (this.#jobs.size > 0) this.#schedule(this.#giveUpAtMs);
  }

  /** Does what is due for a job, and arms the alarm for what comes next. */
  #attend(job: Job<O>, nowMs: number): void {
    if (job.settling) return;
    const { leaseMs, timesOutAtMs } = job.arrival;
    if (job.running && nowMs >= timesOutAtMs) this.#timeOut(job);
    if (nowMs >= job.retryAtMs) {
      job.retryAtMs = Number.POSITIVE_INFINITY;
      void this.#recordOne(job);
    } else if (job.busy !== undefined) {
      // A call of the handler's own that never comes back must not hold the job for ever.
      const overdueMs = job.lease.endsMs + leaseMs;
      if (nowMs >= overdueMs) this.#lost(job, leaseRanOut(job));
      else this.#schedule(Math.min(overdueMs, nowMs + leaseMs * TOGETHER));
    } else if (nowMs >= job.lease.renewAtMs - leaseMs * TOGETHER) {
      void this.#renew(job);
    }
    if (job.busy === undefined) this.#schedule(Math.max(job.lease.renewAtMs, nowMs + 1));
    this.#schedule(job.retryAtMs);
    if (job.running) this.#schedule(timesOutAtMs);
  }

  async #renew(job: Job<O>): Promise<void> {
    const { leaseMs } = job.arrival;
    try {
      await this.#extend(job, leaseMs);
    } catch (error) {
      if (!this.#jobs.has(job) || job.settling || isVarveError(error, "ERR_STALE_LEASE")) return;
      if (isFinal(error)) {
        this.#sourceEnded(error);
        return;
      }
      this.#report(error, job.task);
      const nowMs = this.#timers.elapsedMs();
      const { endsMs } = job.lease;
      if (nowMs >= endsMs) this.#lost(job, leaseRanOut(job));
      else job.lease = { endsMs, renewAtMs: nowMs + leaseMs / 6 };
    }
    if (this.#jobs.has(job)) this.#schedule(job.lease.renewAtMs);
  }

  async #extend(job: Job<O>, leaseMs: number): Promise<void> {
    await job.exclusive(async () => {
      this.#checkHeld(job);
      const askedAtMs = this.#timers.elapsedMs();
      try {
        await this.#source.extend(job.task, leaseMs, this.#commit);
      } catch (error) {
        if (isVarveError(error, "ERR_STALE_LEASE")) this.#lost(job, error);
        throw error;
      }
      job.lease = leaseFrom(askedAtMs, leaseMs, job.arrival.leaseMs);
    });
  }

  /** The task is someone else's now, or will be. */
  #lost(job: Job<O>, error: Error): void {
    if (!this.#jobs.has(job)) return;
    this.#drop(job);
    if (job.running) this.#abandon(job, error);
    if (job.settled) this.#recorded(job, false);
    else this.#events.emit("failed", job.task, error);
    this.#wake();
  }

  #timeOut(job: Job<O>): void {
    const timeout = formatDuration(this.#options.timeoutMs ?? 0);
    const error = new VarveError("ERR_TIMEOUT", `the handler did not end within its timeout of ${timeout}`);
    this.#abandon(job, error);
    job.outcome = "threw";
    job.value = error;
    this.#ended.push(job);
    this.#wake();
  }

  /** Frees the slot of a handler that runs. */
  #abandon(job: Job<O>, reason: Error): void {
    this.#occupied--;
    this.#abandoned++;
    job.abandon(reason);
  }

  /** The time of a close is up: whatever has no outcome on its way is given back. */
  #giveUp(): void {
    this.#giveUpAtMs = Number.POSITIVE_INFINITY;
    const error = new VarveError("ERR_CLOSED", "the worker was closed before the handler had ended");
    this.#record();
    // The last one given back is the first to be delivered again.
    for (const job of this.#jobs.list().sort((a, b) => b.number - a.number)) {
      if (job.settling) continue;
      this.#drop(job);
      if (job.running) this.#abandon(job, error);
      // One whose outcome was refused keeps its lease: there is nothing that could be recorded of it now.
      if (job.retryAtMs === Number.POSITIVE_INFINITY) void this.#giveBack(job);
    }
    this.#wake();
  }

  async #giveBack(job: Job<O>): Promise<void> {
    // What the handler does of its own may never end, and then nobody waits for it.
    const waits = !job.settlingItself;
    if (waits) this.#givingBack++;
    try {
      await job.exclusive(() => (job.settled ? Promise.resolve() : this.#source.release(job.task, this.#commit)));
    } catch (error) {
      if (!isVarveError(error, "ERR_STALE_LEASE") && !isVarveError(error, "ERR_CLOSED")) this.#report(error, job.task);
    }
    if (waits) this.#givingBack--;
    this.#wake();
  }

  /** Tasks that arrived when none were wanted any more. */
  #returnUntouched(tasks: readonly Task<O>[], arrival: Arrival): void {
    for (const task of [...tasks].reverse()) void this.#giveBack(new Job(task, this.#deliveries++, arrival));
  }

  /** The source takes no more calls. */
  #sourceEnded(error: Error): void {
    if (!this.#closing && !isVarveError(error, "ERR_CLOSED")) this.#report(error, undefined);
    for (const job of this.#jobs.list()) {
      if (job.running) this.#abandon(job, error);
      if (job.running || job.retryAtMs !== Number.POSITIVE_INFINITY) this.#drop(job);
    }
    this.#beginClosing();
  }

  // ------------------------------------------------------------------------------------------------------- telling

  #report(error: unknown, task: Task<O> | undefined): void {
    const shown = error instanceof Error ? error : new Error(failureText(error));
    if (!this.#events.emit("error", shown, task)) this.#log("a worker met an error", shown, task);
  }

  #log(message: string, error: unknown, task?: Task<O>): void {
    this.#terms.logger.error({ queue: this.#source.name, task: task?.id, error }, message);
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}

function isFinal(error: unknown): error is VarveError {
  return isVarveError(error) && FINAL.has(error.code);
}

function retryMs(failures: number): number {
  return Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** failures);
}

function leaseRanOut<O>({ task }: Job<O>): VarveError {
  return new VarveError("ERR_STALE_LEASE", `task ${task.id}: its lease ran out before it could be renewed`);
}
