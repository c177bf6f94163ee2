/**
 * The reference: what clients were told, and therefore what may be found. It knows nothing of how varve works, only
 * the promises (a change that was acknowledged is there, one that was refused is not, the rest may be either, all of a
 * change or none of it) and which of them a given end of the process leaves in force.
 *
 * Every message has a number of its own in its payload, so that each is recognised wherever it turns up.
 */

export type Outcome = "pending" | "acked" | "refused" | "unknown";

/** One call that changes something. */
export class Commit {
  /** Order in which calls were made, and their answers came, on one scale. */
  readonly number: number;
  readonly label: string;
  readonly sync: boolean;
  readonly madeMs: number;
  /** Messages that it sends, and those that it ends for good. */
  readonly items: Item[] = [];
  readonly ended: Item[] = [];
  outcome: Outcome = "pending";
  answeredNumber = Number.POSITIVE_INFINITY;
  answeredMs = Number.POSITIVE_INFINITY;
  /** Must survive whatever comes: it was found after a recovery, or shown by a directory that only shows what is durable. */
  durable = false;

  constructor(number: number, label: string, sync: boolean, madeMs: number) {
    this.number = number;
    this.label = label;
    this.sync = sync;
    this.madeMs = madeMs;
  }

  get possible(): boolean {
    return this.outcome !== "refused";
  }
}

/** One message, from when it was sent. */
export interface Item {
  readonly number: number;
  readonly queue: string;
  readonly commit: Commit;
  /** Where a client was told that it stands. */
  offset: number | undefined;
  /** Calls that end it if they take effect. */
  readonly acks: Commit[];
  /** Calls that end it if it was a dead letter at the time. */
  readonly purges: Commit[];
  /** Not delivered before, in elapsed time of this life of the machine. */
  dueMs: number;
}

/** A task as its receivers know it, by queue and id. */
interface TaskFact {
  readonly item: Item;
  /** The latest delivery. */
  attempt: number;
  delivery: Commit | undefined;
  token: string | undefined;
  /** The lease lasts at least until then ... */
  leaseEndMs: number;
  /** ... and did at least until then, before it was prolonged by a call that a power cut may take back. */
  before: { readonly leaseEndMs: number; readonly extension: Commit } | undefined;
  /** Calls that may have ended or prolonged that lease. */
  settling: Commit[];
  dueMs: number;
}

interface LogFact {
  /** What each offset was ever said to hold. */
  readonly shown: Map<number, number>;
  readonly items: Item[];
  readonly trims: { readonly offset: number; readonly commit: Commit }[];
  /** Offsets passed over after power cuts, as `from`. */
  readonly jumps: Map<number, number>;
}

interface TaskQueueFact {
  readonly shown: Map<number, number>;
  readonly items: Item[];
  readonly tasks: Map<number, TaskFact>;
  /** Calls that may have redriven tasks, which gives them new ids. */
  redrives: Commit[];
}

/** How a life of the machine ended. */
export interface Ending {
  readonly kind: "close" | "kill" | "power";
  /** Offsets may be passed over: the power was cut, perhaps after a close, or a disk or a recovery failed. */
  readonly passesOver: boolean;
  readonly nowMs: number;
  /** Acknowledged this long ago: durable in any mode. */
  readonly asyncMs: number;
  /** A disk fault may have kept later syncs from working. */
  readonly faulty: boolean;
}

export interface SeenRecord {
  readonly offset: number;
  /** Undefined when the bytes are nobody's message. */
  readonly item: number | undefined;
}

export interface SeenTask extends SeenRecord {
  readonly attempt: number;
  readonly token: string | undefined;
  readonly leased: boolean;
}

export interface SeenLog {
  readonly name: string;
  readonly head: number;
  /** Where the next record goes. */
  readonly next: number;
  readonly records: readonly SeenRecord[];
}

export interface SeenTasks {
  readonly name: string;
  readonly live: readonly SeenTask[];
  readonly dead: readonly { readonly id: number; readonly item: number | undefined }[];
}

/** Delays go on by the wall clock while a directory is closed, which counts whole milliseconds. */
const WALL_ROUNDING_MS = 2;

/** What must become of a settling call. */
export type Expected = "good" | "stale" | "open";

export class Model {
  readonly violations: string[] = [];
  readonly items = new Map<number, Item>();
  readonly #logs = new Map<string, LogFact>();
  readonly #tasks = new Map<string, TaskQueueFact>();
  #commits: Commit[] = [];
  #number = 0;

  /** Another that knows the same, and to which what is found next means nothing. */
  clone(): Model {
    const copy = new Model();
    copy.#number = this.#number;
    const commits = new Map<Commit, Commit>();
    const commitOf = (commit: Commit): Commit => {
      const known = commits.get(commit);
      if (known !== undefined) return known;
      const { number, label, sync, madeMs, outcome, answeredNumber, answeredMs, durable } = commit;
      const fields = { outcome, answeredNumber, answeredMs, durable };
      const twin = Object.assign(new Commit(number, label, sync, madeMs), fields);
      commits.set(commit, twin);
      return twin;
    };
    for (const [number, item] of this.items) {
      const { commit, acks, purges } = item;
      copy.items.set(number, {
        ...item,
        commit: commitOf(commit),
        acks: acks.map(commitOf),
        purges: purges.map(commitOf),
      });
    }
    const itemOf = ({ number }: Item): Item => copy.items.get(number)!;
    copy.#commits = this.#commits.map(commitOf);
    for (const [name, { shown, items, trims, jumps }] of this.#logs) {
      copy.#logs.set(name, {
        shown: new Map(shown),
        items: items.map(itemOf),
        trims: trims.map(({ offset, commit }) => ({ offset, commit: commitOf(commit) })),
        jumps: new Map(jumps),
      });
    }
    for (const [name, { shown, items, tasks, redrives }] of this.#tasks) {
      const facts = new Map<number, TaskFact>();
      for (const [id, fact] of tasks) {
        const { item, delivery, before, settling } = fact;
        facts.set(id, {
          ...fact,
          item: itemOf(item),
          delivery: delivery && commitOf(delivery),
          before: before && { ...before, extension: commitOf(before.extension) },
          settling: settling.map(commitOf),
        });
      }
      const twin = { shown: new Map(shown), items: items.map(itemOf), tasks: facts, redrives: redrives.map(commitOf) };
      copy.#tasks.set(name, twin);
    }
    for (const [commit, twin] of commits) {
      twin.items.push(...commit.items.map(itemOf));
      twin.ended.push(...commit.ended.map(itemOf));
    }
    return copy;
  }

  // ---------------------------------------------------------------------------------------------------- what is done

  begin(label: string, sync: boolean, nowMs: number): Commit {
    const commit = new Commit(++this.#number, label, sync, nowMs);
    this.#commits.push(commit);
    return commit;
  }

  acked(commit: Commit, nowMs: number): void {
    commit.outcome = "acked";
    commit.answeredNumber = ++this.#number;
    commit.answeredMs = nowMs;
  }

  /** Everything that was acknowledged before a `sync()` was called, which has now been answered. */
  synced(callNumber: number): void {
    for (const commit of this.#commits) {
      if (commit.outcome === "acked" && commit.answeredNumber < callNumber) commit.durable = true;
    }
  }

  /** The number that the next call would get. */
  get now(): number {
    return ++this.#number;
  }

  send(queue: string, commit: Commit, dueMs = 0): Item {
    const item: Item = { number: this.items.size + 1, queue, commit, offset: undefined, acks: [], purges: [], dueMs };
    this.items.set(item.number, item);
    commit.items.push(item);
    (queue.startsWith("log/") ? this.#log(queue) : this.#queue(queue)).items.push(item);
    return item;
  }

  placed(item: Item, offset: number): void {
    item.offset = offset;
    const { shown } = item.queue.startsWith("log/") ? this.#log(item.queue) : this.#queue(item.queue);
    this.#show(item.queue, shown, offset, item.number);
  }

  trimming(queue: string, offset: number, commit: Commit): void {
    this.#log(queue).trims.push({ offset, commit });
  }

  redriving(queue: string, commit: Commit): void {
    this.#queue(queue).redrives.push(commit);
  }

  purging(queue: string, commit: Commit, items: readonly number[] | undefined): void {
    const purged = items?.map((number) => this.items.get(number)) ?? this.#queue(queue).items;
    for (const item of purged) item?.purges.push(commit);
  }

  // ---------------------------------------------------------------------------------------------------- what is seen

  /** A record was read. `durable`: its directory shows only what is durable. */
  read(queue: string, { offset, item: number }: SeenRecord, durable: boolean): void {
    const item = this.#known(queue, offset, number);
    if (item === undefined) return;
    this.#show(queue, this.#log(queue).shown, offset, item.number);
    item.offset ??= offset;
    if (durable) item.commit.durable = true;
  }

  /** Records that one scan gave, which reached from `from` (or the head) to what was the end. */
  scanned(queue: string, records: readonly SeenRecord[]): void {
    const log = this.#log(queue);
    for (let at = 1; at < records.length; at++) {
      const expected = records[at - 1]!.offset + 1;
      const { offset } = records[at]!;
      if (offset !== expected && !mayJump(log, expected, offset)) {
        this.#violate(`${queue}: a read went from offset ${expected - 1} to ${offset}`);
      }
    }
  }

  delivered(
    queue: string,
    delivery: Commit,
    seen: SeenTask & { readonly token: string },
    leaseMs: number,
    nowMs: number,
    durable: boolean,
  ): void {
    const { offset, attempt, token } = seen;
    const item = this.#known(queue, offset, seen.item);
    if (item === undefined) return;
    const facts = this.#queue(queue);
    this.#show(queue, facts.shown, offset, item.number);
    if (durable) item.commit.durable = true;
    const what = `${queue} task ${offset} (message ${item.number}), attempt ${attempt}`;
    if (item.acks.some((ack) => ack.outcome === "acked")) {
      this.#violate(`${what}: delivered after its ack was acknowledged`);
    }
    let fact = facts.tasks.get(offset);
    if (fact === undefined) {
      const again = item.offset !== undefined && item.offset !== offset;
      if (again && !facts.redrives.some((redrive) => redrive.possible)) {
        this.#violate(`${what}: is a second copy of task ${item.offset}, and nothing was redriven`);
      }
      fact = newFact(item, again ? 0 : item.dueMs);
      facts.tasks.set(offset, fact);
    }
    item.offset = offset;
    if (attempt !== fact.attempt + 1) this.#violate(`${what}: follows attempt ${fact.attempt}`);
    if (fact.token !== undefined && fact.settling.length === 0 && nowMs < fact.leaseEndMs) {
      this.#violate(`${what}: delivered at ${nowMs}, while leased until ${fact.leaseEndMs}`);
    }
    if (nowMs < fact.dueMs) this.#violate(`${what}: delivered at ${nowMs}, due at ${fact.dueMs}`);
    fact.attempt = attempt;
    fact.delivery = delivery;
    fact.token = token;
    fact.leaseEndMs = delivery.madeMs + leaseMs;
    fact.before = undefined;
    fact.settling = [];
    fact.dueMs = 0;
  }

  /** A settling call is made. Returns whether it must be accepted, or must not be, as far as can be told. */
  settling(queue: string, id: number, token: string, commit: Commit, ends: boolean): Expected {
    const fact = this.#queue(queue).tasks.get(id);
    if (ends && fact !== undefined && fact.token === token) {
      fact.item.acks.push(commit);
      commit.ended.push(fact.item);
    }
    if (fact === undefined || fact.token !== token) return "stale";
    const others = fact.settling.filter((other) => other.possible && !other.label.startsWith("extend"));
    fact.settling.push(commit);
    if (others.some((other) => other.outcome === "acked")) return "stale";
    return fact.settling.length === 1 && commit.madeMs < fact.leaseEndMs ? "good" : "open";
  }

  /** How a settling call went. */
  settled(queue: string, id: number, commit: Commit, expected: Expected, refused: boolean): void {
    if (!refused && expected === "stale") this.#violate(`${queue} task ${id}: a stale ${commit.label} was accepted`);
    if (refused && expected === "good")
      this.#violate(`${queue} task ${id}: a good ${commit.label} was refused as stale`);
  }

  extended(queue: string, id: number, commit: Commit, leaseMs: number): void {
    const fact = this.#queue(queue).tasks.get(id);
    if (fact === undefined || !fact.settling.includes(commit)) return;
    fact.settling = fact.settling.filter((other) => other !== commit);
    fact.before = {
      leaseEndMs: Math.min(fact.leaseEndMs, fact.before?.leaseEndMs ?? fact.leaseEndMs),
      extension: commit,
    };
    fact.leaseEndMs = commit.madeMs + leaseMs;
  }

  nacked(queue: string, id: number, commit: Commit, delayMs: number): void {
    const fact = this.#queue(queue).tasks.get(id);
    if (fact?.settling.includes(commit) === true) fact.dueMs = commit.madeMs + delayMs;
  }

  /** The wall clock was set: delays that count on it may be over. */
  forgetDelays(): void {
    for (const item of this.items.values()) item.dueMs = 0;
    for (const { tasks } of this.#tasks.values()) for (const fact of tasks.values()) fact.dueMs = 0;
  }

  /** The process stood still, and could not make anything durable. */
  stalled(ms: number): void {
    for (const commit of this.#commits) if (commit.outcome === "acked") commit.answeredMs += ms;
  }

  unexpected(text: string): void {
    this.#violate(text);
  }

  // ------------------------------------------------------------------------------------------------ the end of a life

  /** No call that is still under way will be answered. */
  silence(): void {
    for (const commit of this.#commits) if (commit.outcome === "pending") commit.outcome = "unknown";
  }

  /** Whether the end leaves the change in force. */
  #required(commit: Commit, ending: Ending): boolean {
    if (commit.durable) return true;
    if (commit.outcome !== "acked") return false;
    if (commit.sync) return true;
    if (ending.kind === "close") return true;
    if (ending.faulty) return false;
    return ending.kind !== "power" || ending.nowMs - commit.answeredMs > ending.asyncMs;
  }

  /** Compares everything found after a recovery with what was promised, and takes it as what is. */
  recovered(logs: readonly SeenLog[], queues: readonly SeenTasks[], ending: Ending, pendingDequeues: number): void {
    const seen: Found = { items: new Set(), gone: new Set(), unsure: new Set() };
    const seenLogs = new Map(logs.map((log) => [log.name, log]));
    const seenQueues = new Map(queues.map((queue) => [queue.name, queue]));
    for (const name of seenLogs.keys()) this.#log(name);
    for (const name of this.#logs.keys()) this.#recoveredLog(name, seenLogs.get(name), ending, seen);
    for (const name of this.#tasks.keys()) {
      this.#recoveredTasks(name, seenQueues.get(name), ending, pendingDequeues, seen);
    }
    this.#checkCommits(ending, seen);
    this.#adopt(seen);
  }

  /** A queue on a disk that lied: every message is one that was sent there, stands once, and where it was shown. */
  suspected(queue: SeenLog | SeenTasks): void {
    const found = new Set<Item>();
    const see = (offset: number, number: number | undefined, shown: Map<number, number> | undefined) => {
      const item = this.#known(queue.name, offset, number);
      if (item === undefined) return;
      if (found.has(item)) this.#violate(`${queue.name}: message ${item.number} stands twice, now at ${offset}`);
      found.add(item);
      if (shown !== undefined) this.#show(queue.name, shown, offset, item.number);
    };
    if ("records" in queue) {
      for (const { offset, item } of queue.records) see(offset, item, this.#log(queue.name).shown);
    } else {
      for (const { offset, item } of queue.live) see(offset, item, this.#queue(queue.name).shown);
      for (const { id, item } of queue.dead) see(id, item, undefined);
    }
  }

  #recoveredLog(name: string, seen: SeenLog | undefined, ending: Ending, found: Found): void {
    const log = this.#log(name);
    const head = seen?.head ?? 0;
    let expected = head;
    const jumpTo = (offset: number) => {
      if (offset === expected || mayJump(log, expected, offset)) return;
      if (!ending.passesOver || offset < expected) {
        this.#violate(`${name}: offset ${offset} follows ${expected - 1} after a ${ending.kind}`);
      }
      log.jumps.set(expected, offset);
    };
    for (const { offset, item: number } of seen?.records ?? []) {
      const item = this.#known(name, offset, number);
      if (item === undefined) continue;
      if (found.items.has(item)) this.#violate(`${name}: message ${item.number} stands twice, now at ${offset}`);
      found.items.add(item);
      this.#show(name, log.shown, offset, item.number);
      if (item.offset !== undefined && item.offset !== offset) {
        this.#violate(`${name}: message ${item.number} was given offset ${item.offset} and stands at ${offset}`);
      }
      item.offset = offset;
      jumpTo(offset);
      expected = offset + 1;
    }
    if (seen !== undefined) jumpTo(seen.next);
    let least = 0;
    let most = 0;
    for (const { offset, commit } of log.trims) {
      if (this.#required(commit, ending)) least = Math.max(least, offset);
      if (commit.possible) most = Math.max(most, offset);
    }
    if (head < least) this.#violate(`${name}: the head is ${head}; a trim to ${least} was acknowledged`);
    // A head may stand behind a jump.
    if (head > most && log.jumps.get(most) !== head && seen !== undefined && most < head) {
      if (![...log.jumps.values()].includes(head)) this.#violate(`${name}: the head is ${head}; trims went to ${most}`);
    }
    for (const item of log.items) {
      if (found.items.has(item)) continue;
      if (item.offset !== undefined && item.offset < head) found.gone.add(item);
      else if (item.offset === undefined && head > 0) found.unsure.add(item);
    }
    const kept = log.trims.filter(({ commit }) => commit.possible);
    log.trims.length = 0;
    // What was trimmed stays so, whoever asked for it.
    if (head > 0) log.trims.push({ offset: head, commit: durableCommit("trim") });
    else log.trims.push(...kept.filter(({ offset }) => offset === 0));
  }

  #recoveredTasks(
    name: string,
    seen: SeenTasks | undefined,
    ending: Ending,
    pendingDequeues: number,
    found: Found,
  ): void {
    const queue = this.#queue(name);
    const find = (item: Item, where: string) => {
      if (found.items.has(item)) this.#violate(`${name}: message ${item.number} is in two places, now ${where}`);
      found.items.add(item);
      const done = item.acks.find((ack) => this.#required(ack, ending));
      if (done !== undefined) this.#violate(`${name}: message ${item.number} is ${where} after its ${done.label}`);
    };
    const live = new Map<number, SeenTask>();
    for (const task of seen?.live ?? []) {
      live.set(task.offset, task);
      const item = this.#known(name, task.offset, task.item);
      if (item === undefined) continue;
      this.#show(name, queue.shown, task.offset, item.number);
      find(item, `task ${task.offset}`);
      this.#recoveredTask(name, queue, item, task, ending, pendingDequeues);
      item.offset = task.offset;
    }
    for (const letter of seen?.dead ?? []) {
      const item = this.#known(name, letter.id, letter.item);
      if (item !== undefined) find(item, `dead letter ${letter.id}`);
    }
    for (const item of queue.items) {
      if (found.items.has(item)) continue;
      const ended = item.acks.some((ack) => ack.possible) || item.purges.some((purge) => purge.possible);
      if (!ended || !item.commit.possible) continue;
      // Was it lost, or was it there and then ended? There is no telling, but it will not come back.
      if (!this.#required(item.commit, ending)) found.unsure.add(item);
      found.gone.add(item);
    }
    for (const [id, fact] of queue.tasks) if (!live.has(id)) queue.tasks.set(id, { ...fact, token: undefined });
    queue.redrives = queue.redrives.filter((redrive) => redrive.possible);
  }

  #recoveredTask(
    name: string,
    queue: TaskQueueFact,
    item: Item,
    task: SeenTask,
    ending: Ending,
    pendingDequeues: number,
  ): void {
    let fact = queue.tasks.get(task.offset);
    if (fact === undefined) {
      fact = newFact(item, item.offset === undefined || item.offset === task.offset ? item.dueMs : 0);
      queue.tasks.set(task.offset, fact);
    }
    const what = `${name} task ${task.offset} (message ${item.number})`;
    const delivered = fact.delivery !== undefined && this.#required(fact.delivery, ending);
    if (delivered && task.attempt < fact.attempt) {
      this.#violate(`${what}: has had ${task.attempt} attempts; attempt ${fact.attempt} was delivered`);
    }
    if (task.attempt > fact.attempt + pendingDequeues) {
      this.#violate(`${what}: has had ${task.attempt} attempts; only ${fact.attempt} were delivered`);
    }
    const same = task.leased && task.token === fact.token && task.attempt === fact.attempt;
    const settled = fact.settling.some((commit) => commit.possible);
    const { before } = fact;
    if (before !== undefined && !this.#required(before.extension, ending)) {
      fact.leaseEndMs = Math.min(fact.leaseEndMs, before.leaseEndMs);
    }
    fact.before = undefined;
    if (delivered && fact.token !== undefined && !same && !settled && ending.nowMs < fact.leaseEndMs) {
      this.#violate(`${what}: the lease of attempt ${fact.attempt} is gone before its time`);
    }
    const nacked = fact.settling.find((commit) => commit.label === "nack" && this.#required(commit, ending));
    if (same && nacked !== undefined) this.#violate(`${what}: still leased after an acknowledged nack`);
    if (same) {
      // An extension that was never answered may have made the lease shorter.
      if (settled) fact.leaseEndMs = 0;
      fact.dueMs = 0;
      fact.settling = [];
      return;
    }
    if (task.attempt !== fact.attempt) fact.dueMs = 0;
    fact.attempt = task.attempt;
    fact.token = undefined;
    fact.delivery = undefined;
    fact.settling = [];
  }

  /** All of a change or none of it; what was promised is there; nothing is there before what came first. */
  #checkCommits(ending: Ending, found: Found): void {
    let lost: Commit | undefined;
    const took = new Set<Commit>();
    for (const commit of this.#commits) {
      let yes: Item | undefined;
      let no: Item | undefined;
      if (!commit.possible) continue;
      for (const item of commit.items) {
        if (found.unsure.has(item)) continue;
        if (found.items.has(item) || found.gone.has(item)) yes = item;
        else no = item;
      }
      for (const item of commit.ended) {
        const others = [...item.acks, ...item.purges].some((each) => each !== commit && each.possible);
        if (found.items.has(item)) no = item;
        else if (!others && found.gone.has(item) && !found.unsure.has(item)) yes = item;
      }
      const what = `${commit.label} ${commit.number} (${commit.sync ? "sync" : "async"}, ${commit.outcome})`;
      if (yes !== undefined && found.items.has(yes)) took.add(commit);
      if (no === undefined) continue;
      if (yes !== undefined) this.#violate(`${what}: took effect on message ${yes.number}, but not on ${no.number}`);
      if (this.#required(commit, ending)) {
        this.#violate(`${no.queue}: ${what} is lost after a ${ending.kind}: message ${no.number}, offset ${no.offset}`);
      }
      if (commit.outcome === "acked" && (lost === undefined || commit.answeredNumber < lost.answeredNumber))
        lost = commit;
    }
    if (lost === undefined) return;
    for (const commit of took) {
      if (commit.number < lost.answeredNumber) continue;
      this.#violate(`${commit.label} ${commit.number} is there, but not ${lost.label} ${lost.number} from before it`);
    }
  }

  /** What was found is what is: the unknown is known now, and all of it is durable. */
  #adopt(found: Found): void {
    for (const item of this.items.values()) {
      const { commit } = item;
      const gone = found.gone.has(item);
      if (!found.unsure.has(item)) {
        const took = gone || found.items.has(item);
        commit.outcome = took ? "acked" : "refused";
        commit.durable = took;
        commit.answeredMs = 0;
      } else if (!gone) {
        continue;
      }
      item.purges.length = 0;
      item.acks.length = 0;
      if (gone && !item.queue.startsWith("log/")) item.acks.push(durableCommit("ack"));
    }
    this.#commits = this.#commits.filter((commit) => commit.items.length > 0);
    for (const commit of this.#commits) commit.ended.length = 0;
  }

  // ---------------------------------------------------------------------------------------------------------- private

  #known(queue: string, offset: number, number: number | undefined): Item | undefined {
    const item = number === undefined ? undefined : this.items.get(number);
    if (item === undefined) {
      this.#violate(`${queue}: what stands at ${offset} is no message that was sent`);
      return undefined;
    }
    if (item.queue !== queue) this.#violate(`${queue}: message ${number} at ${offset} was sent to ${item.queue}`);
    if (!item.commit.possible) this.#violate(`${queue}: message ${number} at ${offset} was refused`);
    return item;
  }

  #show(queue: string, shown: Map<number, number>, offset: number, number: number): void {
    const before = shown.get(offset);
    if (before !== undefined && before !== number) {
      this.#violate(`${queue}: ${offset} was given to message ${before}, and now to message ${number}`);
    }
    shown.set(offset, number);
  }

  #log(name: string): LogFact {
    let log = this.#logs.get(name);
    if (log === undefined) {
      log = { shown: new Map(), items: [], trims: [], jumps: new Map() };
      this.#logs.set(name, log);
    }
    return log;
  }

  #queue(name: string): TaskQueueFact {
    let queue = this.#tasks.get(name);
    if (queue === undefined) {
      queue = { shown: new Map(), items: [], tasks: new Map(), redrives: [] };
      this.#tasks.set(name, queue);
    }
    return queue;
  }

  /** A new life of the machine: its elapsed time starts elsewhere, and `downMs` have passed on the wall clock. */
  restarted(lastMs: number, nowMs: number, downMs: number): void {
    // What was over stays over, whatever the rounding.
    const shifted = (ms: number, byMs: number) => (ms - byMs <= lastMs ? 0 : nowMs + (ms - byMs - lastMs));
    for (const item of this.items.values()) item.dueMs = shifted(item.dueMs, downMs + WALL_ROUNDING_MS);
    for (const { tasks } of this.#tasks.values()) {
      for (const fact of tasks.values()) {
        fact.leaseEndMs = shifted(fact.leaseEndMs, 0);
        if (fact.before !== undefined) {
          fact.before = { ...fact.before, leaseEndMs: shifted(fact.before.leaseEndMs, 0) };
        }
        fact.dueMs = shifted(fact.dueMs, downMs + WALL_ROUNDING_MS);
      }
    }
    for (const commit of this.#commits) if (commit.outcome === "acked") commit.answeredMs += nowMs - lastMs;
  }

  #violate(text: string): void {
    this.violations.push(text);
  }
}

/** What a recovery left of the messages. */
interface Found {
  /** In one place. */
  readonly items: Set<Item>;
  /** No longer there, as they may be: trimmed, acked, purged. */
  readonly gone: Set<Item>;
  /** There is no telling. */
  readonly unsure: Set<Item>;
}

/** Whether the offsets in between were passed over, all of them or, where a log was trimmed, the rest. */
function mayJump({ jumps }: LogFact, from: number, to: number): boolean {
  for (const [first, next] of jumps) if (next === to && first <= from) return true;
  return false;
}

function durableCommit(label: string): Commit {
  const commit = new Commit(0, label, true, 0);
  commit.outcome = "acked";
  commit.durable = true;
  return commit;
}

function newFact(item: Item, dueMs: number): TaskFact {
  return {
    item,
    attempt: 0,
    delivery: undefined,
    token: undefined,
    leaseEndMs: 0,
    before: undefined,
    settling: [],
    dueMs,
  };
}
