/**
 * Dedupe keys: which task stands for a key, so that a producer's retry is never a second task.
 *
 * A key blocks for a window that begins when its first task is committed, whatever becomes of that task. The window runs
 * in the directory's elapsed time: a jump of the wall clock neither ends nor prolongs it, and time during which the
 * directory is closed does not count. Keys are bounded; when all of them block, a new one is refused rather than an old one
 * forgotten.
 *
 * A claim is made when a call is staged, so that calls of the same turn see each other, and becomes durable with the
 * enqueue that it belongs to: the operation that remembers the key is in the same commit.
 */

import { VarveError } from "../api/errors.js";
import { type Decoder, type Encoder, MalformedError } from "../storage/bytes.js";

export interface DedupeRules {
  readonly windowMs: number;
  readonly maxKeys: number;
}

/** What a key stands for. */
export interface DedupeClaim {
  readonly key: string;
  /** The task's id; undefined until its offset is known. */
  id: string | undefined;
  /** Elapsed time when the task was committed; undefined while it is on its way. */
  since: number | undefined;
}

export class DedupeTable {
  /** In the order in which they were committed, those on their way last. */
  readonly #claims = new Map<string, DedupeClaim>();

  get size(): number {
    return this.#claims.size;
  }

  /** The task that a key stands for now. */
  find(key: string, rules: DedupeRules, elapsedMs: number): DedupeClaim | undefined {
    const claim = this.#claims.get(key);
    return claim === undefined || hasEnded(claim, rules, elapsedMs) ? undefined : claim;
  }

  /**
   * Claims a key for a task that is being staged.
   * @returns the claim; `first` is false when an earlier task already stands for the key
   * @throws VarveError `ERR_QUEUE_FULL` when as many keys as allowed block already
   */
  claim(key: string, rules: DedupeRules, elapsedMs: number, queue: string): { claim: DedupeClaim; first: boolean } {
    const known = this.find(key, rules, elapsedMs);
    if (known !== undefined) return { claim: known, first: false };
    // In the order of their commits, the ended ones stand first.
    for (const claim of this.#claims.values()) {
      if (!hasEnded(claim, rules, elapsedMs)) break;
      this.#claims.delete(claim.key);
    }
    this.#claims.delete(key);
    if (this.#claims.size >= rules.maxKeys) {
      throw new VarveError(
        "ERR_QUEUE_FULL",
        `queue ${queue} remembers ${this.#claims.size} dedupe keys, as many as dedupe.maxKeys allows, and none of their ` +
          "windows has ended; nothing was enqueued. Raise dedupe.maxKeys, or shorten dedupe.window.",
        { details: { queue, limit: "dedupe.maxKeys", max: rules.maxKeys } },
      );
    }
    const claim: DedupeClaim = { key, id: undefined, since: undefined };
    this.#claims.set(key, claim);
    return { claim, first: true };
  }

  /** Gives up a claim whose task was not committed. */
  release(claim: DedupeClaim): void {
    if (this.#claims.get(claim.key) === claim && claim.since === undefined) this.#claims.delete(claim.key);
  }

  /** A task was committed with a key: live, and when the log is repeated. */
  committed(key: string, id: string, elapsedMs: number): void {
    const known = this.#claims.get(key);
    const claim: DedupeClaim = known !== undefined && known.since === undefined ? known : { key, id, since: elapsedMs };
    claim.id = id;
    claim.since = elapsedMs;
    this.#claims.delete(key);
    this.#claims.set(key, claim);
  }

  /** Forgets every key: the tasks are gone. Claims on their way stay. */
  clear(): void {
    for (const claim of this.#claims.values()) if (claim.since !== undefined) this.#claims.delete(claim.key);
  }

  encode(output: Encoder): void {
    let committed = 0;
    for (const claim of this.#claims.values()) if (claim.since !== undefined) committed++;
    output.varint(committed);
    for (const { key, id, since } of this.#claims.values()) {
      if (since === undefined) continue;
      output.string(key);
      output.string(id!);
      output.varint(since);
    }
  }

  static decode(input: Decoder): DedupeTable {
    const table = new DedupeTable();
    for (let count = input.varint(); count > 0; count--) {
      const key = input.string();
      if (table.#claims.has(key)) throw new MalformedError("a dedupe key stands twice");
      table.#claims.set(key, { key, id: input.string(), since: input.varint() });
    }
    return table;
  }
}

function hasEnded({ since }: DedupeClaim, { windowMs }: DedupeRules, elapsedMs: number): boolean {
  return since !== undefined && elapsedMs - since >= windowMs;
}
