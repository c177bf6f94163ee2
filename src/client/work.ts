import type { Duration, Handler, Worker, WorkOptions } from "../api/contract.js";
import { isVarveError } from "../api/errors.js";
import type { WorkSource, WorkTerms, WorkTimers } from "../worker/source.js";
import { work } from "../worker/worker.js";
import type { Link } from "./link.js";

/** What a client needs of the platform besides sockets. */
export interface ClientPlatform {
  readonly timers: WorkTimers;
}

export const PLATFORM: ClientPlatform = Object.freeze({
  timers: {
    elapsedMs: () => performance.now(),
    setTimer(ms: number, callback: () => void, keepAlive = false) {
      const timer = setTimeout(callback, ms);
      if (!keepAlive) timer.unref();
      return { cancel: () => clearTimeout(timer) };
    },
    defer: (callback: () => void) => {
      process.nextTick(callback);
    },
  },
});

/** A queue that is gone is noticed after so long, at the latest, also while all handlers are busy. */
const LOOK_MS = 1000;

export interface ClientTerms extends Pick<WorkTerms, "keepsResults" | "leaseMs"> {
  /** Asks the daemon for what the terms are now; refused when the source has ended. */
  refresh(): Promise<unknown>;
  readonly onEnd?: WorkTerms["onEnd"];
}

/** Starts a worker in this process, whose tasks come from a daemon. */
export function workAt<O>(
  link: Link,
  platform: ClientPlatform,
  source: WorkSource<O>,
  handler: Handler<O>,
  options: WorkOptions | undefined,
  terms: ClientTerms,
): Worker<O> {
  return work(leasing(source, terms), handler, options, {
    timers: platform.timers,
    logger: link.logger,
    leaseMs: terms.leaseMs,
    get keepsResults() {
      return terms.keepsResults;
    },
    onEnd: (callback) => {
      const stops = [link.onClose(callback), terms.onEnd?.(callback), whenGone(platform, terms, callback)];
      return () => {
        for (const stop of stops) stop?.();
      };
    },
  });
}

/** Looks after the source from time to time. Returns what ends that. */
function whenGone({ timers }: ClientPlatform, terms: ClientTerms, gone: (error: Error) => void): () => void {
  let timer: { cancel(): void } | undefined;
  let stopped = false;
  const look = () => {
    terms.refresh().then(again, (error: unknown) => {
      if (stopped) return;
      if (isVarveError(error, "ERR_NOT_FOUND")) gone(error);
      else again();
    });
  };
  const again = () => {
    if (!stopped) timer = timers.setTimer(LOOK_MS, look);
  };
  again();
  return () => {
    stopped = true;
    timer?.cancel();
  };
}

/** The lease is the one that the worker renews by, whatever the daemon's has become meanwhile. */
function leasing<O>(source: WorkSource<O>, terms: Pick<WorkTerms, "leaseMs">): WorkSource<O> {
  return {
    name: source.name,
    dequeueBatch: (options) => source.dequeueBatch({ ...options, lease: options.lease ?? terms.leaseMs() }),
    ack: (task, options) => source.ack(task, options),
    ackBatch: (tasks, options) => source.ackBatch(tasks, options),
    nack: (task, options) => source.nack(task, options),
    release: (tasks, options) => source.release(tasks, options),
    extend: (task, lease: Duration | undefined, options) => source.extend(task, lease, options),
    ...(source.progress === undefined
      ? {}
      : { progress: (task, value, options) => source.progress!(task, value, options) }),
  };
}
