/** Everything that can be wrong with a history, by name. */
export const ANOMALIES = {
  "lost-ack": "what was acknowledged is not there",
  phantom: "a payload that nobody had sent",
  mutated: "a payload that is not as it was sent",
  "aborted-read": "a payload whose sender was refused",
  duplicate: "one payload twice, or two tasks for one dedupe key",
  "inconsistent-offset": "one offset or task id names two payloads",
  reordered: "what was sent later stands before what was there already",
  "poll-skip": "a reader passed over a record",
  "non-monotonic": "a reader went back",
  "commit-regress": "a group's position went back behind an acknowledged commit",
  "undurable-visible": "what was seen is not there any more, although nobody removed it",
  "double-lease": "a task had two holders",
  "stale-accepted": "a lease or a turn that was over was taken for good",
  "acked-redelivered": "a task was delivered after it was acknowledged",
  "attempt-under": "a delivery did not count",
  "attempt-over": "a delivery counted that did not happen, or went beyond the most allowed",
  "dead-lost": "a dead letter is not there any more",
  "dead-both": "a dead task is in its queue as well",
  "dead-early": "a task died with attempts left",
  early: "a delayed task was delivered before its time",
  never: "a task that is due is not delivered to who asks",
  "torn-commit": "a commit is there in part",
  "silent-skip": "a group was not given a record, and not told",
  "absurd-stats": "numbers that cannot be true",
} as const;

export type AnomalyKind = keyof typeof ANOMALIES;

export interface Anomaly {
  readonly kind: AnomalyKind;
  /** When it showed, by the clock of the history. */
  readonly at: number;
  /** Queue, payload and calls, for people. */
  readonly what: string;
}

export type Report = (kind: AnomalyKind, at: number, what: string) => void;
