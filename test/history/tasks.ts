/** Task queues: one holder, every attempt counted, nothing after an ack, nothing early, nothing for ever late. */

import type { Report } from "./anomalies.js";
import type { Delivered, Faults, Sent, Settle, TaskFacts } from "./facts.js";
import type { Call } from "./history.js";
import { countBelow, LargestBefore, sorted } from "./search.js";

/** Clocks are rounded to milliseconds, at both ends. */
const ROUNDING_MS = 2;
/** How much later than it is due a task may be given to one who waits for it; and who waits for less is not heard. */
const LATE_MS = 1000;
const DEDUPE_MS = 600_000;

export function judgeTasks(queue: TaskFacts, faults: Faults, report: Report): void {
  const lives = new Map<Sent, Life>();
  for (const sent of queue.sent.values()) {
    if (!sent.suspect) lives.set(sent, new Life(sent));
  }
  noteLetters(queue, lives);
  for (const life of lives.values()) sortDeliveries(life);
  const unseen = sorted(
    queue.dequeues.filter((call) => call.outcome === "unknown" || faults.disturbed(call)).map(({ invoke }) => invoke),
  );
  for (const life of lives.values()) {
    judgeDeliveries(queue, life, unseen, report);
    judgeSettles(queue, life, report);
  }
  judgeLetters(queue, lives, report);
  judgeContents(queue, lives, report);
  judgeDedupe(queue, report);
  judgeWaiting(queue, lives, faults, report);
}

/** What is known of one task besides its deliveries. */
class Life {
  readonly sent: Sent;
  /** The first ack that was acknowledged. */
  readonly acked: Settle | undefined;
  readonly mayBeAcked: boolean;
  readonly redrives: Call[] = [];

  constructor(sent: Sent) {
    this.sent = sent;
    let acked: Settle | undefined;
    let mayBeAcked = false;
    for (const { settles } of sent.deliveries) {
      for (const settle of settles) {
        const { kind, call } = settle;
        if (kind === "nack" && settle.dead === true) sent.deadAt = Math.min(sent.deadAt, call.return);
        if (kind !== "ack" || call.outcome === "refused") continue;
        mayBeAcked = true;
        if (call.outcome === "ok" && (acked === undefined || call.return < acked.call.return)) acked = settle;
      }
    }
    this.acked = acked;
    this.mayBeAcked = mayBeAcked;
  }

  redrivenBy(time: number): boolean {
    return this.redrives.some(({ invoke, outcome }) => outcome !== "refused" && invoke < time);
  }
}

/**
 * By when they were answered; of those that were under way at once, the attempts say the order, unless these may have begun
 * anew.
 */
function sortDeliveries(life: Life): void {
  const { deliveries } = life.sent;
  deliveries.sort((a, b) => a.call.return - b.call.return);
  for (let index = 1; index < deliveries.length; index++) {
    const delivered = deliveries[index] as Delivered;
    let at = index;
    for (; at > 0; at--) {
      const before = deliveries[at - 1] as Delivered;
      if (before.call.return < delivered.call.invoke || before.attempt <= delivered.attempt) break;
      if (life.redrivenBy(delivered.call.return)) break;
      deliveries[at] = before;
    }
    deliveries[at] = delivered;
  }
}

/** Whether nothing says which of two deliveries came first. */
function isOpen(life: Life, first: Delivered, second: Delivered): boolean {
  return second.call.invoke <= first.call.return && life.redrivenBy(second.call.return);
}

function noteLetters(queue: TaskFacts, lives: ReadonlyMap<Sent, Life>): void {
  for (const { return: at, letters = [] } of [...queue.letters, ...queue.contents]) {
    for (const [id] of letters) {
      const life = lives.get(queue.places.get(id) as Sent);
      if (life !== undefined) life.sent.deadAt = Math.min(life.sent.deadAt, at);
    }
  }
  for (const call of queue.redrives) {
    for (const id of call.ids) lives.get(queue.places.get(id) as Sent)?.redrives.push(call);
  }
}

function judgeDeliveries(queue: TaskFacts, life: Life, unseen: readonly number[], report: Report): void {
  const { sent, acked } = life;
  const { deadAt } = sent;
  const { maxAttempts = Number.POSITIVE_INFINITY } = queue.rules;
  const name = `${queue.name}: ${sent.value}`;
  const due = sent.commit.call.invoke + sent.delayMs - ROUNDING_MS;
  let previous: Delivered | undefined;
  /** Deliveries that counted and that nobody has told of. */
  let excess = 0;
  let afterAck = false;
  for (const delivered of sent.deliveries) {
    const { attempt, call } = delivered;
    const { invoke, return: at } = call;
    const redriven = life.redrivenBy(at);
    const which = `${name}, attempt ${attempt} by ${call.client}`;
    if (attempt > maxAttempts) report("attempt-over", at, `${which}, of ${maxAttempts} at most`);
    if (invoke > deadAt && !redriven) report("dead-both", at, `${which}, after it was dead`);
    if (at < due) report("early", at, `${which}, ${(due - at).toFixed(1)} ms before its time`);
    if (afterAck && acked !== undefined && at >= acked.call.invoke && !isOpen(life, acked.delivered, delivered)) {
      report("acked-redelivered", at, `${which}, acked by ${acked.call.client}`);
    } else {
      if (previous !== undefined && !isOpen(life, previous, delivered)) judgePair(name, previous, delivered, report);
      const last = previous === undefined ? 0 : previous.attempt;
      const release = previous === undefined ? undefined : releaseOf(previous, at);
      if (redriven) excess = 0;
      else if (attempt < last + (release === undefined ? 1 : 0)) {
        report("attempt-under", at, `${which}, after attempt ${last}`);
      } else excess += Math.max(0, attempt - last - (release === "ok" ? 0 : 1));
    }
    // Of each call whose answer nobody had, one delivery may count.
    if (excess > countBelow(unseen, at) && attempt <= maxAttempts) {
      report("attempt-over", at, `${which}, and ${excess} of them were nobody's`);
      excess = 0;
    }
    afterAck ||= acked?.delivered === delivered;
    previous = delivered;
  }
}

/** What is known of its having been given back undone by a time. */
function releaseOf({ settles }: Delivered, time: number): "ok" | "unknown" | undefined {
  const outcomes = settles
    .filter(({ kind, call }) => kind === "release" && call.invoke < time)
    .map(({ call }) => call.outcome);
  return outcomes.includes("ok") ? "ok" : outcomes.includes("unknown") ? "unknown" : undefined;
}

/** Of two deliveries one after the other. */
function judgePair(name: string, first: Delivered, second: Delivered, report: Report): void {
  const at = second.call.return;
  let end = first.call.invoke + first.leaseMs;
  for (const { kind, call, leaseMs, delayMs, bury } of first.settles) {
    if (call.outcome === "refused" || call.invoke >= at) continue;
    if (kind === "extend") {
      const extended = call.invoke + leaseMs;
      end = call.outcome === "ok" ? extended : Math.min(end, extended);
    } else if (kind === "release" || kind === "nack") {
      end = Math.min(end, call.invoke);
      const due = call.invoke + (delayMs ?? 0) - ROUNDING_MS;
      if (kind === "nack" && call.outcome === "ok" && !bury && at < due) {
        report(
          "early",
          at,
          `${name} was given back for ${delayMs} ms, and delivered ${(due - at).toFixed(1)} ms too soon`,
        );
      }
    }
  }
  const overlap = end - at;
  if (overlap > ROUNDING_MS) {
    const holders = `${first.call.client} and ${second.call.client}`;
    report("double-lease", at, `${name} was held by ${holders} for ${overlap.toFixed(1)} ms`);
  }
}

function judgeSettles(queue: TaskFacts, life: Life, report: Report): void {
  const { deliveries } = life.sent;
  const { maxAttempts = Number.POSITIVE_INFINITY } = queue.rules;
  for (const [index, delivered] of deliveries.entries()) {
    const { attempt, settles } = delivered;
    const behind = deliveries[index + 1];
    const next = behind === undefined || isOpen(life, delivered, behind) ? undefined : behind;
    let settled: Settle | undefined;
    for (const settle of settles) {
      const { kind, call, bury, dead } = settle;
      if (call.outcome !== "ok") continue;
      const what = `${queue.name}: ${kind} of ${life.sent.value}, attempt ${attempt}, by ${call.client}`;
      // To say once more that a task is done is no harm.
      const again = settled !== undefined && settled.call.return < call.invoke;
      if (next !== undefined && next.call.return < call.invoke) {
        report("stale-accepted", call.return, `${what}, though ${next.call.client} had it`);
      } else if (again && !(kind === "ack" && settled?.kind === "ack")) {
        report("stale-accepted", call.return, `${what}, after its ${settled?.kind}`);
      }
      if (dead === true && !bury && attempt < maxAttempts) {
        report("dead-early", call.return, `${what}, of ${maxAttempts} attempts`);
      }
      if (kind !== "extend") settled ??= settle;
    }
  }
}

function judgeLetters(queue: TaskFacts, lives: ReadonlyMap<Sent, Life>, report: Report): void {
  const { maxAttempts = Number.POSITIVE_INFINITY } = queue.rules;
  const early = new Set<Sent>();
  for (const { return: at, letters = [] } of [...queue.letters, ...queue.contents]) {
    for (const [id, value, attempts] of letters) {
      const life = lives.get(queue.places.get(id) as Sent);
      if (life === undefined || early.has(life.sent)) continue;
      if (life.acked !== undefined && life.acked.call.return < at) {
        early.add(life.sent);
        report("acked-redelivered", at, `${queue.name}: ${value} is dead, acked by ${life.acked.call.client}`);
      } else if (attempts < maxAttempts && !mayBeBuried(life.sent, at)) {
        early.add(life.sent);
        const told = life.sent.deliveries.some(({ settles }) => settles.some(({ dead }) => dead === true));
        if (!told)
          report("dead-early", at, `${queue.name}: ${value} died after ${attempts} of ${maxAttempts} attempts`);
      }
    }
  }
  // Once dead it stays so until it is redriven.
  const dead = [...lives.values()].filter(({ sent }) => sent.deadAt < Number.POSITIVE_INFINITY);
  const lists = [...queue.letters, ...queue.contents].filter(({ outcome, letters }) => outcome === "ok" && letters);
  const [last] = lists.sort((a, b) => b.invoke - a.invoke);
  if (last === undefined) return;
  const listed = new Set(last.letters?.map(([id]) => id));
  for (const { sent, redrives } of dead) {
    if (sent.deadAt >= last.invoke || listed.has(sent.place as string) || redrives.length > 0) continue;
    sent.missingFrom ??= last;
  }
}

function mayBeBuried({ deliveries }: Sent, time: number): boolean {
  return deliveries.some(({ settles }) =>
    settles.some(({ bury, call }) => bury && call.outcome !== "refused" && call.invoke < time),
  );
}

/** The last complete list of a queue: who should be there and is not, and the other way round. */
function judgeContents(queue: TaskFacts, lives: ReadonlyMap<Sent, Life>, report: Report): void {
  const last = queue.contents.findLast(({ outcome, tasks }) => outcome === "ok" && tasks !== undefined);
  if (last === undefined) return;
  const { invoke, return: at, tasks = [], letters = [] } = last;
  const waiting = new Set(tasks.map(([id]) => id));
  const dead = new Set(letters.map(([id]) => id));
  for (const life of lives.values()) {
    const { sent, acked, mayBeAcked } = life;
    const id = sent.place as string;
    const there = waiting.has(id);
    const what = `${queue.name}: ${sent.value} is there`;
    if (there && (dead.has(id) || sent.deadAt < invoke) && !life.redrivenBy(at))
      report("dead-both", at, `${what}, and dead`);
    if (there && acked !== undefined && acked.call.return < invoke) {
      report("lost-ack", at, `${what}, though ${acked.call.client} acked it`);
    }
    if (there || dead.has(id) || mayBeAcked || sent.optional || sent.stoodFor) continue;
    // Nobody changes anything meanwhile: what it shows a part of, it must show as a whole.
    if (sent.commit.visibleAt <= at) sent.missingFrom ??= last;
  }
}

/**
 * Notes of a task that is gone, though it was there for sure, that an ack has done that, if only one can have. What else was
 * in its commit must then be there.
 */
export function noteAcks(queue: TaskFacts): void {
  const last = queue.contents.findLast(({ outcome, tasks }) => outcome === "ok" && tasks !== undefined);
  if (last === undefined) return;
  const listed = new Set([...(last.tasks ?? []), ...(last.letters ?? [])].map(([id]) => id));
  for (const sent of queue.sent.values()) {
    if (sent.suspect || sent.place === undefined || listed.has(sent.place as string)) continue;
    const acks = sent.deliveries.flatMap(({ settles }) =>
      settles.filter(({ kind, call }) => kind === "ack" && call.outcome !== "refused"),
    );
    const [ack] = acks;
    if (ack?.commit === undefined || acks.length > 1 || ack.call.invoke > last.invoke) continue;
    ack.commit.ackSeenAt = Math.min(ack.commit.ackSeenAt, last.invoke);
  }
}

/** Of the tasks of one dedupe key, one is there while its window lasts. */
function judgeDedupe(queue: TaskFacts, report: Report): void {
  const byKey = new Map<string, Sent[]>();
  for (const sent of queue.sent.values()) {
    if (sent.dedupe === undefined || sent.place === undefined || sent.suspect) continue;
    const others = byKey.get(sent.dedupe);
    if (others === undefined) byKey.set(sent.dedupe, [sent]);
    else others.push(sent);
  }
  const { dedupeMs = DEDUPE_MS } = queue.rules;
  for (const [key, all] of byKey) {
    all.sort((a, b) => a.commit.call.invoke - b.commit.call.invoke);
    for (const [index, { value, commit, knownAt }] of all.entries()) {
      const first = all[index - 1];
      if (first === undefined || Math.min(knownAt, commit.call.return) >= first.commit.call.invoke + dedupeMs) continue;
      report("duplicate", knownAt, `${queue.name}: ${first.value} and ${value} are both there for the key ${key}`);
    }
  }
}

/** A time during which a task was to be given to whoever asked. */
interface Ready {
  readonly sent: Sent;
  readonly from: number;
  readonly to: number;
}

/**
 * A call that waited for long and came back with nothing is wrong, if a task had been due since before it and nobody can have
 * held it. One that did not wait may only have come before the disk had been read.
 */
function judgeWaiting(queue: TaskFacts, lives: ReadonlyMap<Sent, Life>, faults: Faults, report: Report): void {
  const { dequeues, rules } = queue;
  const unseen = dequeues.filter((call) => call.outcome === "unknown" || faults.disturbed(call));
  const excused = new LargestBefore([
    ...unseen.map((call): [number, number] => {
      const { invoke, leaseMs = rules.leaseMs } = call;
      return [invoke, faults.latestEnd(faults.lastEffect(call), leaseMs) + LATE_MS];
    }),
    ...faults.outages.map(({ from, to }): [number, number] => [from, to]),
  ]);
  const ready: Ready[] = [];
  for (const life of lives.values()) ready.push(...readyTimes(queue, life, faults));
  ready.sort((a, b) => a.from - b.from);
  const due = new LatestEnd();
  let index = 0;
  for (const { outcome, tasks, invoke, return: at, client } of dequeues) {
    if (outcome !== "ok" || tasks === undefined || tasks.length > 0 || at - invoke < LATE_MS) continue;
    for (let next = ready[index]; next !== undefined && next.from + LATE_MS <= invoke; next = ready[++index])
      due.add(next);
    if (excused.before(at, 0) > invoke) continue;
    for (let top = due.top; top !== undefined && top.to >= at; top = due.top) {
      due.remove();
      const [waited, late] = [at - invoke, at - top.from].map((ms) => ms.toFixed(0));
      const what = `${client} waited for ${waited} ms and was given nothing, though ${top.sent.value} was due for ${late} ms`;
      report("never", at, `${queue.name}: ${what}`);
    }
  }
}

function* readyTimes(queue: TaskFacts, { sent, redrives }: Life, faults: Faults): Iterable<Ready> {
  const { maxAttempts = Number.POSITIVE_INFINITY, backoffMs = 0 } = queue.rules;
  const { commit, delayMs, deliveries, optional, stoodFor, missingFrom, deadAt } = sent;
  if (optional || stoodFor || missingFrom !== undefined || redrives.length > 0) return;
  let from = faults.latestEnd(commit.visibleAt, delayMs);
  for (const [index, { attempt, call, leaseMs, settles }] of deliveries.entries()) {
    yield { sent, from, to: call.invoke };
    const last = index === deliveries.length - 1;
    if (last && (attempt >= maxAttempts || deadAt < Number.POSITIVE_INFINITY)) return;
    from = faults.latestEnd(call.return, leaseMs);
    for (const { kind, call: by, delayMs: wait = backoffMs, leaseMs: extended, bury } of settles) {
      if (by.outcome === "refused") continue;
      if (kind === "ack" || bury) from = Number.POSITIVE_INFINITY;
      else if (kind === "extend") from = Math.max(from, faults.latestEnd(by.return, extended));
      else if (by.outcome === "ok") from = Math.min(from, faults.latestEnd(by.return, kind === "nack" ? wait : 0));
      else from = faults.latestEnd(from, wait);
    }
  }
  yield { sent, from, to: Number.POSITIVE_INFINITY };
}

/** A heap of times, the one that ends last on top. */
class LatestEnd {
  readonly #items: Ready[] = [];

  get top(): Ready | undefined {
    return this.#items[0];
  }

  add(item: Ready): void {
    const items = this.#items;
    let at = items.length;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = items[parent] as Ready;
      if (above.to >= item.to) break;
      items[at] = above;
      at = parent;
    }
    items[at] = item;
  }

  remove(): void {
    const items = this.#items;
    const item = items.pop();
    if (item === undefined || items.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if ((items[child + 1]?.to ?? Number.NEGATIVE_INFINITY) > (items[child] as Ready).to) child++;
      if ((items[child] as Ready).to <= item.to) break;
      items[at] = items[child] as Ready;
      at = child;
    }
    items[at] = item;
  }
}
