/**
 * Judges a history by what its clients were told and given, and by nothing else: any queue that keeps varve's promises
 * passes, whatever it does inside. It takes n log n steps for n calls. It says nothing wrong of a history with calls
 * whose outcome is unknown, nor of one whose processes were killed or stood still, and it does not know of power cuts.
 */

import type { Anomaly, AnomalyKind } from "./anomalies.js";
import { Facts } from "./facts.js";
import { judgeGroup } from "./groups.js";
import type { History } from "./history.js";
import { judgeLog, KnownLog } from "./logs.js";
import { judgeMissing } from "./missing.js";
import { judgeLogStats, judgeTaskStats } from "./stats.js";
import { judgeTasks, noteAcks } from "./tasks.js";

/** Of one kind; what one broken promise leads to can be as long as the history. */
const EACH_MAX = 100;

/** All anomalies, the first 100 of each kind, by time. */
export function judge(history: History): Anomaly[] {
  const anomalies: Anomaly[] = [];
  const counts = new Map<AnomalyKind, number>();
  const report = (kind: AnomalyKind, at: number, what: string): void => {
    const count = (counts.get(kind) ?? 0) + 1;
    counts.set(kind, count);
    if (count <= EACH_MAX) anomalies.push({ kind, at, what });
  };
  const facts = new Facts(history, report);
  for (const queue of facts.tasks.values()) noteAcks(queue);
  for (const queue of facts.tasks.values()) {
    judgeTasks(queue, facts.faults, report);
    judgeTaskStats(queue, report);
  }
  for (const logFacts of facts.logs.values()) {
    const log = new KnownLog(logFacts);
    judgeLog(log, report);
    for (const group of logFacts.groups.values()) judgeGroup(group, log, report);
    judgeLogStats(log, report);
  }
  judgeMissing(facts, report);
  return anomalies.sort((a, b) => a.at - b.at);
}
