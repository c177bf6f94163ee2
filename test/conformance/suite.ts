/**
 * One suite for every implementation of the contract. An implementation says how to open itself; the suite does the
 * rest. What an implementation cannot hold is listed as an exception with its reason, and shows up as skipped.
 */

import { describe, test } from "node:test";
import type { MessageQueue, OpenOptions } from "../../src/index.js";
import { awake } from "../support/awake.js";
import { adminConformance } from "./admin.js";
import { closeConformance } from "./close.js";
import { codecConformance } from "./codecs.js";
import { compactionConformance } from "./compaction.js";
import { concurrencyConformance } from "./concurrency.js";
import { cursorConformance } from "./cursors.js";
import { deadLetterConformance } from "./dead-letters.js";
import { dedupeConformance } from "./dedupe.js";
import { expiryConformance } from "./expiry.js";
import { flowConformance } from "./flows.js";
import { groupConformance } from "./groups.js";
import { leaseConformance } from "./leases.js";
import { listConformance } from "./list.js";
import { logConformance } from "./log.js";
import { logSettingsConformance } from "./log-settings.js";
import { orderConformance } from "./order.js";
import { paceConformance } from "./pace.js";
import { priorityConformance } from "./priorities.js";
import { queueConformance } from "./queues.js";
import { releaseConformance } from "./releases.js";
import { requestConformance } from "./requests.js";
import { resultConformance } from "./results.js";
import { retentionConformance } from "./retention.js";
import { retryConformance } from "./retries.js";
import { scheduledConformance } from "./scheduled.js";
import { scheduleConformance } from "./schedules.js";
import { sharedGroupConformance } from "./shared-groups.js";
import { tailConformance } from "./tail.js";
import { taskConformance } from "./task.js";
import { taskLimitsConformance } from "./task-limits.js";
import { taskSettingsConformance } from "./task-settings.js";
import { taskStatsConformance } from "./task-stats.js";
import { transactionConformance } from "./transactions.js";
import { workConformance } from "./work.js";

/** One open message queue, empty at first, and the time that it lives in. */
export interface Subject {
  /** The one that is open now; another one after `reopen`. */
  readonly mq: MessageQueue;
  /** Closes in order and opens the same data again. */
  reopen(): Promise<MessageQueue>;
  /** Lets this much time go by, on every clock of the implementation. */
  pass(ms: number): Promise<void>;
  /** The implementation's wall clock, in milliseconds since 1970. */
  wallMs(): number;
  /** Sets the wall clock alone, ahead or back. Only where time stands still. */
  stepWall?(ms: number): void;
  /** Closes, if that has not happened, and removes everything. */
  dispose(): Promise<void>;
}

export interface Implementation {
  open(options?: OpenOptions): Promise<Subject>;
  /**
   * True when time stands still unless `pass` moves it, so that exact times can be asserted. Tests that need it are
   * skipped for the others.
   */
  readonly timeStandsStill?: boolean;
  /** Title of a test that this implementation does not hold, and why. */
  readonly exceptions?: Readonly<Record<string, string>>;
}

export interface CheckOptions extends OpenOptions {
  /** The test asserts exact times. */
  readonly exactTime?: boolean;
}

/** Lets time pass until the promise settles. */
export async function passUntil<T>(subject: Pick<Subject, "pass">, promise: Promise<T>): Promise<T> {
  let settled = false;
  const settle = (): void => {
    settled = true;
  };
  promise.then(settle, settle);
  while (!settled) await subject.pass(10);
  return promise;
}

/** Long enough for a machine that is busy with something else. */
const HANGS_AFTER_MS = 180_000;

/** Defines one test over a freshly opened subject. */
export type Check = (title: string, body: (subject: Subject) => Promise<void>, options?: CheckOptions) => void;

export function defineConformance(name: string, implementation: Implementation): void {
  const check: Check = (title, body, { exactTime = false, ...options } = {}) => {
    const exception = implementation.exceptions?.[title];
    const needsTime = exactTime && implementation.timeStandsStill !== true;
    const skip = exception ?? (needsTime ? "asserts exact times, which need a simulated clock" : false);
    void test(title, { skip, timeout: HANGS_AFTER_MS }, async ({ signal }) => {
      const subject = await implementation.open(options);
      try {
        await awake(() => body(subject), signal);
      } finally {
        await subject.dispose();
      }
    });
  };
  void describe(`conformance: ${name}`, () => {
    compactionConformance(check);
    logConformance(check);
    logSettingsConformance(check);
    groupConformance(check);
    sharedGroupConformance(check);
    resultConformance(check);
    flowConformance(check);
    retentionConformance(check);
    tailConformance(check);
    taskConformance(check);
    leaseConformance(check);
    priorityConformance(check);
    orderConformance(check);
    paceConformance(check);
    listConformance(check);
    releaseConformance(check);
    expiryConformance(check);
    retryConformance(check);
    dedupeConformance(check);
    scheduledConformance(check);
    scheduleConformance(check);
    deadLetterConformance(check);
    cursorConformance(check);
    taskLimitsConformance(check);
    taskSettingsConformance(check);
    taskStatsConformance(check);
    workConformance(check);
    transactionConformance(check);
    requestConformance(check);
    codecConformance(check);
    queueConformance(check);
    adminConformance(check);
    closeConformance(check);
    concurrencyConformance(check);
  });
}
