/** A history by queue and by payload: who sent what, where it was said or seen to be, who was given it. */

import type { Report } from "./anomalies.js";
import type { Call, Declared, Fault, History, Part, Value } from "./history.js";
import { firstFrom, LargestBefore } from "./search.js";

type Place = number | string;

/** What the many records of logs share. */
const NONE: Delivered[] = Object.freeze([]) as unknown as Delivered[];

/** One commit: what was to be there or gone as a whole. */
export class Commit {
  readonly call: Call;
  readonly sent: Sent[] = [];
  readonly acks: Settle[] = [];
  /** From when on an ack of it, which nobody else can have made, was seen to have taken effect. */
  ackSeenAt = Number.POSITIVE_INFINITY;

  constructor(call: Call) {
    this.call = call;
  }

  /** From when on all of it must be there: it was acknowledged, or a part of it was seen. */
  get visibleAt(): number {
    const { outcome, return: returned } = this.call;
    let at = Math.min(outcome === "ok" ? returned : Number.POSITIVE_INFINITY, this.ackSeenAt);
    for (const { seenAt } of this.sent) at = Math.min(at, seenAt);
    return at;
  }
}

/** One payload that was sent to one queue. */
export class Sent {
  readonly queue: LogFacts | TaskFacts;
  readonly value: Value;
  readonly commit: Commit;
  readonly delayMs: number;
  readonly dedupe: string | undefined;
  /** Its offset or task id, as far as known. */
  place: Place | undefined;
  /** When its place was told or seen first. */
  knownAt = Number.POSITIVE_INFINITY;
  seenAt = Number.POSITIVE_INFINITY;
  /** An earlier task stands for it: it must not be there. */
  stoodFor = false;
  /** Nobody was told whether an earlier task stands for it. */
  optional: boolean;
  /** Something is wrong with its place; that was said, and nothing else is derived from it. */
  suspect = false;
  /** Of a task: from when on it is known to be dead, or to have been. */
  deadAt = Number.POSITIVE_INFINITY;
  /** A view of everything that it should be in, and is not. */
  missingFrom: Call | undefined;
  readonly deliveries: Delivered[];

  constructor(queue: LogFacts | TaskFacts, value: Value, commit: Commit, delayMs = 0, dedupe?: string) {
    this.queue = queue;
    this.value = value;
    this.commit = commit;
    this.delayMs = delayMs;
    this.dedupe = dedupe;
    this.optional = dedupe !== undefined;
    this.deliveries = queue.kind === "task" ? [] : NONE;
  }
}

export class Delivered {
  readonly sent: Sent;
  readonly attempt: number;
  readonly call: Call;
  readonly leaseMs: number;
  /** What was done with its token. */
  readonly settles: Settle[] = [];

  constructor(sent: Sent, attempt: number, call: Call, leaseMs: number) {
    this.sent = sent;
    this.attempt = attempt;
    this.call = call;
    this.leaseMs = leaseMs;
  }
}

export interface Settle {
  readonly kind: "ack" | "nack" | "release" | "extend";
  readonly call: Call;
  /** The commit that it is a part of; none of an extension, a nack or a release. */
  readonly commit: Commit | undefined;
  readonly delivered: Delivered;
  /** Of a nack, unless the queue's backoff counts. */
  readonly delayMs: number | undefined;
  /** Of an extension. */
  readonly leaseMs: number;
  /** A nack that asks for a dead letter, and whether it was told of one. */
  readonly bury: boolean;
  readonly dead: boolean | undefined;
}

type Of<Op extends Call["op"]> = Extract<Call, { readonly op: Op }>;
/** A commit of a group, by itself or in a transaction. */
export type GroupCommit = Extract<Part, { readonly op: "commit" }> & { readonly by: Call };

/** What both kinds of queues have. */
class QueueFacts {
  readonly name: string;
  readonly sent = new Map<string, Sent>();
  readonly places = new Map<Place, Sent>();

  constructor(name: string) {
    this.name = name;
  }

  /** The payload that stands at a place; undefined, and an anomaly, when it does not belong there. */
  seen(place: Place, value: Value, call: Call, report: Report): Sent | undefined {
    const at = call.return;
    const where = `${this.name}: ${value} at ${place}`;
    const sent = this.sent.get(identityOf(value));
    if (sent === undefined || sent.commit.call.invoke > at) {
      report("phantom", at, `${where}, which nobody had sent`);
      return undefined;
    }
    if (sent.value !== value) {
      report("mutated", at, `${where}, sent as ${sent.value}`);
      return undefined;
    }
    if (sent.commit.call.outcome === "refused") {
      report("aborted-read", at, `${where}, refused with ${sent.commit.call.code ?? "an error"}`);
      return undefined;
    }
    if (sent.stoodFor) {
      report("duplicate", at, `${where}, for which an earlier task stands`);
      return undefined;
    }
    sent.seenAt = Math.min(sent.seenAt, at);
    this.told(place, sent, at, report);
    return sent;
  }

  told(place: Place, sent: Sent, at: number, report: Report): void {
    const other = this.places.get(place);
    if (other !== undefined && other !== sent) {
      if (!sent.suspect) {
        report("inconsistent-offset", at, `${this.name}: ${place} is ${other.value} and ${sent.value}`);
      }
      sent.suspect = other.suspect = true;
    } else if (sent.place !== undefined && sent.place !== place) {
      if (!sent.suspect) report("duplicate", at, `${this.name}: ${sent.value} is at ${sent.place} and ${place}`);
      sent.suspect = true;
    } else {
      this.places.set(place, sent);
      sent.place = place;
      sent.knownAt = Math.min(sent.knownAt, at);
    }
  }
}

export class LogFacts extends QueueFacts {
  readonly kind = "log";
  readonly commits: Commit[] = [];
  readonly reads: Of<"read">[] = [];
  readonly tails: Of<"tail">[] = [];
  readonly scans: Of<"scan">[] = [];
  readonly trims: Of<"trim">[] = [];
  readonly stats: Of<"stats">[] = [];
  readonly groups = new Map<string, GroupFacts>();
}

export interface GroupFacts {
  readonly name: string;
  readonly joins: Of<"join">[];
  readonly fetches: Of<"fetch">[];
  readonly seeks: Of<"seek">[];
  readonly positions: Of<"position">[];
  readonly commits: GroupCommit[];
}

export class TaskFacts extends QueueFacts {
  readonly kind = "task";
  readonly rules: Declared;
  readonly delivered = new Map<string, Delivered>();
  readonly dequeues: Of<"dequeue">[] = [];
  readonly letters: Of<"letters">[] = [];
  readonly redrives: Of<"redrive">[] = [];
  readonly contents: Of<"contents">[] = [];
  readonly stats: Of<"stats">[] = [];

  constructor(name: string, rules: Declared) {
    super(name);
    this.rules = rules;
  }
}

/** When the daemon, and clients, could not answer. */
export class Faults {
  /** Of the daemon. */
  readonly outages: { readonly from: number; readonly to: number }[] = [];
  readonly #kills: Fault[] = [];
  readonly #times: readonly number[];

  constructor(faults: readonly Fault[]) {
    this.#times = faults.map(({ at }) => at);
    let since: number | undefined;
    for (const fault of faults) {
      if (fault.fault === "kill") this.#kills.push(fault);
      if (fault.whom !== "daemon") continue;
      if (fault.fault === "kill" || fault.fault === "pause") since ??= fault.at;
      else if (since !== undefined) {
        this.outages.push({ from: since, to: fault.at });
        since = undefined;
      }
    }
    if (since !== undefined) this.outages.push({ from: since, to: Number.POSITIVE_INFINITY });
  }

  /** The latest end of a time that began at `start`: one that an outage fell into may begin anew after it. */
  latestEnd(start: number, durationMs: number): number {
    let end = start + durationMs;
    for (const { from, to } of this.outages) {
      if (from > end) break;
      if (to >= start) end = Math.max(end, to + durationMs);
    }
    return end;
  }

  /** The latest time at which a call without an answer can have taken effect. */
  lastEffect(call: Call): number {
    let end = call.return;
    if (end === Number.POSITIVE_INFINITY) {
      const { client, invoke } = call;
      const kill = this.#kills.find(
        ({ whom, at }) => at >= invoke && (client === whom || client.startsWith(`${whom}.`)),
      );
      end = kill?.at ?? end;
    }
    return this.latestEnd(end, 0);
  }

  /** Whether anything was done to anybody during a call, so that it may have been made twice. */
  disturbed(call: Call): boolean {
    const next = this.#times[firstFrom(this.#times, call.invoke)];
    if (next !== undefined && next <= call.return) return true;
    return this.outages.some(({ from, to }) => from <= call.return && to >= call.invoke);
  }
}

function identityOf(value: Value): string {
  const end = value.indexOf("#");
  return end < 0 ? value : value.slice(0, end);
}

export class Facts {
  readonly logs = new Map<string, LogFacts>();
  readonly tasks = new Map<string, TaskFacts>();
  readonly commits: Commit[] = [];
  readonly faults: Faults;
  readonly #commitOf = new Map<Call, Commit>();
  readonly #declared: ReadonlyMap<string, Declared>;
  readonly #report: Report;

  constructor(history: History, report: Report) {
    this.#declared = history.queues;
    this.#report = report;
    this.faults = new Faults(history.faults);
    // First what was sent, then where it was told to be, then all that was seen of it.
    for (const call of history.calls) this.#send(call);
    for (const call of history.calls) this.#see(call);
    for (const call of history.calls) this.#settle(call);
  }

  log(name: string): LogFacts {
    return getOr(this.logs, name, () => new LogFacts(name));
  }

  task(name: string): TaskFacts {
    const rules = this.#declared.get(name) ?? { declare: name, leaseMs: 30_000 };
    return getOr(this.tasks, name, () => new TaskFacts(name, rules));
  }

  #send(call: Call): void {
    const parts = partsOf(call);
    let sends = 0;
    let acks = 0;
    for (const part of parts) {
      if (part.op === "append" || part.op === "enqueue") sends += part.values.length;
      else if (part.op === "ack") acks += part.tokens.length;
    }
    // One ack alone is there or not, and never in part.
    if (sends + acks === 0 || (sends === 0 && acks === 1)) return;
    const commit = new Commit(call);
    this.commits.push(commit);
    if (acks > 0) this.#commitOf.set(call, commit);
    for (const part of parts) {
      if (part.op === "append") {
        const log = this.log(part.log);
        if (log.commits.at(-1) !== commit) log.commits.push(commit);
        for (const value of part.values) this.#sent(new Sent(log, value, commit));
      } else if (part.op === "enqueue") {
        const queue = this.task(part.queue);
        for (const [index, value] of part.values.entries()) {
          this.#sent(new Sent(queue, value, commit, part.delayMs, part.dedupe?.[index] ?? undefined));
        }
      }
    }
    if (call.outcome !== "ok") return;
    const report = this.#report;
    if (call.op === "append") {
      for (const [index, offset] of (call.offsets ?? []).entries()) {
        const sent = commit.sent[index];
        if (sent !== undefined) this.log(call.log).told(offset, sent, call.return, report);
      }
    } else if (call.op === "enqueue") {
      for (const [index, id] of (call.ids ?? []).entries()) {
        const sent = commit.sent[index];
        if (sent === undefined) continue;
        sent.optional = false;
        if (call.created?.[index] === false) sent.stoodFor = true;
        else this.task(call.queue).told(id, sent, call.return, report);
      }
    }
  }

  #sent(sent: Sent): void {
    const { queue } = sent;
    const identity = identityOf(sent.value);
    if (queue.sent.has(identity)) throw new Error(`${queue.name}: ${identity} was sent twice, so it cannot be judged`);
    queue.sent.set(identity, sent);
    sent.commit.sent.push(sent);
  }

  #see(call: Call): void {
    const report = this.#report;
    switch (call.op) {
      case "read":
        this.log(call.log).reads.push(call);
        if (call.value != null) this.log(call.log).seen(call.offset, call.value, call, report);
        break;
      case "tail":
        this.#records(this.log(call.log).tails, call);
        break;
      case "scan":
        this.#records(this.log(call.log).scans, call);
        break;
      case "trim":
        this.log(call.log).trims.push(call);
        break;
      case "join":
        this.#group(call).joins.push(call);
        break;
      case "fetch":
        this.#records(this.#group(call).fetches, call);
        break;
      case "seek":
        this.#group(call).seeks.push(call);
        break;
      case "position":
        this.#group(call).positions.push(call);
        break;
      case "dequeue": {
        const queue = this.task(call.queue);
        queue.dequeues.push(call);
        for (const [id, value, attempt, token] of call.tasks ?? []) {
          const sent = queue.seen(id, value, call, report);
          if (sent === undefined) continue;
          const delivered = new Delivered(sent, attempt, call, call.leaseMs ?? queue.rules.leaseMs);
          sent.deliveries.push(delivered);
          queue.delivered.set(token, delivered);
        }
        break;
      }
      case "letters":
        this.task(call.queue).letters.push(call);
        for (const [id, value] of call.letters ?? []) this.task(call.queue).seen(id, value, call, report);
        break;
      case "redrive":
        this.task(call.queue).redrives.push(call);
        break;
      case "contents": {
        const queue = this.task(call.queue);
        queue.contents.push(call);
        for (const [id, value] of [...(call.tasks ?? []), ...(call.letters ?? [])]) queue.seen(id, value, call, report);
        break;
      }
      case "stats":
        if (call.log !== undefined) this.log(call.log).stats.push(call);
        if (call.queue !== undefined) this.task(call.queue).stats.push(call);
        break;
      default:
        for (const part of partsOf(call)) {
          if (part.op === "commit") this.#group(part).commits.push({ ...part, by: call });
        }
    }
  }

  #records<C extends Of<"tail"> | Of<"scan"> | Of<"fetch">>(calls: C[], call: C): void {
    calls.push(call);
    for (const [offset, value] of call.records ?? []) this.log(call.log).seen(offset, value, call, this.#report);
  }

  #group({ log, group }: { readonly log: string; readonly group: string }): GroupFacts {
    return getOr(this.log(log).groups, group, () => ({
      name: `${log}/${group}`,
      joins: [],
      fetches: [],
      seeks: [],
      positions: [],
      commits: [],
    }));
  }

  #settle(call: Call): void {
    if (call.op === "extend") this.#settled(call, "extend", call.queue, call.token, { leaseMs: call.leaseMs });
    for (const part of partsOf(call)) {
      if (part.op === "ack" || part.op === "release") {
        for (const token of part.tokens) this.#settled(call, part.op, part.queue, token, {});
      } else if (part.op === "nack") {
        const { delayMs, bury = false } = part;
        const dead = call.op === "nack" ? call.dead : undefined;
        this.#settled(call, "nack", part.queue, part.token, { delayMs, bury, dead });
      }
    }
  }

  #settled(
    call: Call,
    kind: Settle["kind"],
    queue: string,
    token: string,
    { delayMs, leaseMs = 0, bury = false, dead }: Partial<Settle>,
  ): void {
    const delivered = this.task(queue).delivered.get(token);
    if (delivered === undefined) return;
    const commit = kind === "ack" ? this.#commitOf.get(call) : undefined;
    const settle: Settle = { kind, call, commit, delivered, delayMs, leaseMs, bury, dead };
    delivered.settles.push(settle);
    commit?.acks.push(settle);
  }
}

function partsOf(call: Call): readonly Part[] {
  switch (call.op) {
    case "append":
    case "enqueue":
    case "ack":
    case "release":
    case "nack":
    case "commit":
      return [call];
    case "transaction":
      return call.parts;
    default:
      return [];
  }
}

/** The largest offset below which anything may have been removed by a time. */
export function trimsOf({ trims }: LogFacts): LargestBefore {
  return new LargestBefore(
    trims.filter(({ outcome }) => outcome !== "refused").map(({ invoke, offset }) => [invoke, offset]),
  );
}

function getOr<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}
