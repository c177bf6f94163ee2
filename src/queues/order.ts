/**
 * The order of the tasks that have an order key. Of each key at most `concurrencyPerKey` tasks hold a place: they are
 * ready, in someone's hands, or wait for their next attempt. The others that the cursor has come to are blocked, until a
 * holder ends: done, dead, cancelled, or given another time. Then the first of them follows: the most urgent, and of the
 * same priority the one that was enqueued first. A task that was enqueued for later takes its place when its time has
 * come, but not before the cursor has passed it.
 *
 * Which tasks are outstanding, and of which key, is in the log; who holds a place follows from that.
 */

import { type Ledger, type Outstanding, TaskPhase } from "./ledger.js";

export interface OrderRules {
  readonly concurrencyPerKey: number;
  /** Blocked tasks at most, those on their way to the log included. */
  readonly lookAhead: number;
}

interface Line {
  readonly holders: Set<Outstanding>;
  /** In their order. */
  readonly blocked: Outstanding[];
  /** On their way to the log: handed out / to be blocked. */
  comingOut: number;
  comingBlocked: number;
}

export class OrderKeys {
  /** Any task has had a key since the queue was opened. */
  isUsed = false;
  /** Called when tasks have become ready. */
  readied: (() => void) | undefined;
  readonly #rules: () => OrderRules;
  readonly #lines = new Map<number, Line>();
  readonly #coming = new Map<Outstanding, "out" | "blocked">();
  /** Tasks on their way to the log that will be blocked. */
  comingBlocked = 0;
  #blocked = 0;

  constructor(rules: () => OrderRules) {
    this.#rules = rules;
  }

  /** Whether any key has a task that is outstanding. */
  get inUse(): boolean {
    return this.#lines.size > 0;
  }

  /** Whether any task is on its way to the log. */
  get isBusy(): boolean {
    return this.#coming.size > 0;
  }

  /** Whether the cursor may not pass another blocked task. */
  get isFull(): boolean {
    return this.#blocked + this.comingBlocked >= this.#rules().lookAhead;
  }

  /** Takes in what a snapshot says. */
  restore(ledger: Ledger): void {
    for (const task of ledger.outstanding) {
      if (task.order === 0) continue;
      const line = this.#line(task.order);
      if (task.phase !== TaskPhase.Blocked) {
        line.holders.add(task);
      } else {
        task.isAhead = task.offset >= ledger.cursor;
        this.#insert(line, task);
      }
    }
  }

  /** Whether a task that the cursor has come to may be handed out now. */
  mayTake(order: number): boolean {
    const line = this.#lines.get(order);
    if (line === undefined) return true;
    return line.holders.size + line.comingOut + line.comingBlocked < this.#rules().concurrencyPerKey;
  }

  /** A task from the cursor is on its way to the log: handed out, or to be blocked. */
  coming(task: Outstanding, how: "out" | "blocked"): void {
    this.#coming.set(task, how);
    const line = this.#line(task.order);
    if (how === "out") {
      line.comingOut++;
    } else {
      line.comingBlocked++;
      this.comingBlocked++;
    }
  }

  /** It has arrived there, or never will. */
  arrived(task: Outstanding): void {
    const how = this.#coming.get(task);
    if (how === undefined) return;
    this.#coming.delete(task);
    const line = this.#line(task.order);
    if (how === "out") {
      line.comingOut--;
    } else {
      line.comingBlocked--;
      this.comingBlocked--;
    }
    this.#admit(task.order, line);
  }

  /**
   * Gives a task its place whose key has just been read: its time has come, and nobody had it before.
   * @param isAhead the cursor has not passed it yet
   * @returns whether it may be handed out now; otherwise it is blocked
   */
  join(task: Outstanding, order: number, isAhead: boolean): boolean {
    task.order = order;
    const line = this.#line(order);
    if (!isAhead && line.holders.size + line.comingOut + line.comingBlocked < this.#rules().concurrencyPerKey) {
      line.holders.add(task);
      return true;
    }
    task.isAhead = isAhead;
    task.ledger.block(task);
    this.#insert(line, task);
    return false;
  }

  /** The cursor passes a task that may have waited for that. */
  reached(task: Outstanding | undefined): void {
    if (task === undefined || !task.isAhead) return;
    task.isAhead = false;
    this.#admit(task.order, this.#line(task.order));
  }

  /** A task has been handed out. */
  handedOut(task: Outstanding): void {
    const line = this.#line(task.order);
    if (!line.holders.has(task)) {
      if (!this.#coming.has(task)) this.#remove(line, task);
      line.holders.add(task);
    }
    this.arrived(task);
  }

  /** A task that the cursor came to is not to be handed out yet. */
  block(task: Outstanding, elapsedMs: number): void {
    task.ledger.blockFresh(task, elapsedMs);
    this.#insert(this.#line(task.order), task);
    this.arrived(task);
    this.#admit(task.order, this.#line(task.order));
  }

  /** A task is no longer outstanding. */
  finished(task: Outstanding): void {
    const line = this.#lines.get(task.order);
    if (line === undefined) return;
    if (!line.holders.delete(task)) this.#remove(line, task);
    this.#admit(task.order, line);
  }

  /** A task is given another time: it leaves its place, and takes one again when that time has come. */
  leave(task: Outstanding): void {
    this.finished(task);
    task.order = 0;
    task.isAhead = false;
  }

  /** Has every key keep to the rules, which may have changed; what is in someone's hands or was there before comes first. */
  settle(): void {
    const most = this.#rules().concurrencyPerKey;
    for (const [order, line] of [...this.#lines]) {
      for (const task of line.blocked) if (task.offset < task.ledger.cursor) task.isAhead = false;
      let over = line.holders.size + line.comingOut - most;
      if (over > 0) {
        const idle = [...line.holders].filter(isIdle).sort(byPlace);
        for (let task = idle.pop(); task !== undefined && over > 0; task = idle.pop(), over--) {
          line.holders.delete(task);
          task.ledger.block(task);
          this.#insert(line, task);
        }
      }
      this.#admit(order, line);
    }
  }

  #line(order: number): Line {
    let line = this.#lines.get(order);
    if (line === undefined) {
      line = { holders: new Set(), blocked: [], comingOut: 0, comingBlocked: 0 };
      this.#lines.set(order, line);
      this.isUsed = true;
    }
    return line;
  }

  #insert(line: Line, task: Outstanding): void {
    const { blocked } = line;
    let at = blocked.length;
    while (at > 0 && byPlace(blocked[at - 1]!, task) > 0) at--;
    blocked.splice(at, 0, task);
    this.#blocked++;
  }

  #remove(line: Line, task: Outstanding): void {
    const at = line.blocked.indexOf(task);
    if (at < 0) return;
    line.blocked.splice(at, 1);
    this.#blocked--;
  }

  /** Lets the next ones follow where places are free. */
  #admit(order: number, line: Line): void {
    const { holders, blocked } = line;
    const most = this.#rules().concurrencyPerKey;
    while (blocked.length > 0 && holders.size + line.comingOut < most) {
      const at = blocked.findIndex(({ isAhead }) => !isAhead);
      if (at < 0) break;
      const task = blocked[at]!;
      blocked.splice(at, 1);
      this.#blocked--;
      holders.add(task);
      task.ledger.unblock(task);
      this.readied?.();
    }
    if (holders.size + blocked.length + line.comingOut + line.comingBlocked === 0) this.#lines.delete(order);
  }
}

/** Ready, and not on its way to anyone. */
function isIdle({ phase, reserved }: Outstanding): boolean {
  return !reserved && (phase === TaskPhase.Ready || phase === TaskPhase.Returned);
}

function byPlace(a: Outstanding, b: Outstanding): number {
  return b.ledger.lane - a.ledger.lane || a.offset - b.offset;
}

/**
 * What stands for an order key: 53 bits of it, mixed; never 0, which stands for none. Two keys with the same bits only
 * wait for each other without need.
 */
export function orderOf(key: string): number {
  let low = 0xdeadbeef;
  let high = 0x41c6ce57;
  for (let index = 0; index < key.length; index++) {
    const unit = key.charCodeAt(index);
    low = Math.imul(low ^ unit, 2654435761);
    high = Math.imul(high ^ unit, 1597334677);
  }
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  return (high & 0x1fffff) * 2 ** 32 + (low >>> 0) || 1;
}
