/** What should have been there, and what of a commit is there in part. */

import type { Report } from "./anomalies.js";
import type { Commit, Facts, Sent } from "./facts.js";

const NEVER = Number.POSITIVE_INFINITY;

export function judgeMissing(facts: Facts, report: Report): void {
  for (const commit of facts.commits) {
    for (const sent of commit.sent) judgeSent(sent, report);
    judgeAcks(commit, facts, report);
  }
}

function judgeSent(sent: Sent, report: Report): void {
  const { commit, value, queue, missingFrom, seenAt } = sent;
  if (missingFrom === undefined) return;
  const { outcome, client } = commit.call;
  const what = `${queue.name}: ${value}, sent by ${client}, is not there for ${missingFrom.client}`;
  const at = missingFrom.return;
  const others = commit.sent.some((other) => other !== sent && other.seenAt < NEVER && other.missingFrom === undefined);
  if (sent.deadAt < missingFrom.invoke || isExhausted(sent)) report("dead-lost", at, what);
  else if (seenAt >= at && (others || commit.ackSeenAt < NEVER)) report("torn-commit", at, `${what}; another part is`);
  else report(outcome === "ok" ? "lost-ack" : "undurable-visible", at, what);
}

function isExhausted({ queue, deliveries }: Sent): boolean {
  if (queue.kind !== "task") return false;
  return (deliveries.at(-1)?.attempt ?? 0) >= (queue.rules.maxAttempts ?? Number.POSITIVE_INFINITY);
}

/** Of a commit that nobody was told of, but that was seen, the acks must have taken effect too. */
function judgeAcks(commit: Commit, facts: Facts, report: Report): void {
  const { call, visibleAt } = commit;
  if (call.outcome !== "unknown" || visibleAt === NEVER) return;
  for (const { delivered } of commit.acks) {
    const { sent } = delivered;
    const last = facts.task(sent.queue.name).contents.at(-1);
    const there = last?.tasks?.some(([id]) => id === sent.place) === true && last.invoke >= visibleAt;
    const again = sent.deliveries.find((other) => other !== delivered && other.call.invoke > visibleAt);
    const at = there ? last.return : again?.call.return;
    if (at !== undefined) {
      report(
        "torn-commit",
        at,
        `${sent.queue.name}: ${sent.value} is not acked; another part of ${call.client}'s commit is there`,
      );
    }
  }
}
