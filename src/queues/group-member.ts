import type {
  CommitOptions,
  GroupMember,
  GroupPosition,
  GroupReadOptions,
  LogPosition,
  LogRecord,
} from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import {
  type ConsumerConfig,
  checkOffset,
  type ResolvedGroupReadOptions,
  resolveCommitOptions,
  resolveGroupReadOptions,
  resolvePosition,
} from "../api/options.js";
import { onAbort } from "../api/signals.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { requestBytes } from "../engine/requests.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import { StreamReader } from "../storage/stream-reader.js";
import type { Change } from "./commit.js";
import { type Group, GroupType, Membership, type Missed } from "./group.js";
import type { LogRecords } from "./log-records.js";
import { LOG_OP_BYTES_MAX, type LogGroup, LogOp, type LogState, outOfRange } from "./log-state.js";
import { NOTHING, type Request, requested, WHOLE_NUMBER } from "./requested.js";

/**
 * The group of a name, made where `from` says when there is none.
 * @param rules of a shared group; `undefined` for an exclusive one
 */
export async function openGroup(
  engine: Engine,
  state: LogState,
  name: string,
  from: LogPosition,
  rules: ConsumerConfig | undefined,
): Promise<LogGroup> {
  const known = state.groups.get(name);
  if (known !== undefined) return known;
  let creating = state.creating.get(name);
  if (creating === undefined) {
    creating = offsetOf(engine, state, from)
      .then((position) => createGroup(engine, state, name, position, rules))
      .finally(() => state.creating.delete(name));
    state.creating.set(name, creating);
  }
  return await creating;
}

function createGroup(
  engine: Engine,
  state: LogState,
  name: string,
  position: number,
  rules: ConsumerConfig | undefined,
): Promise<LogGroup> {
  return new Promise((resolve, reject) => {
    if (state.stream.deleted !== undefined) throw state.stream.deleted;
    const text = rules === undefined ? "" : JSON.stringify(rules);
    engine.begin(0, 0, OPERATION_HEADER_BYTES + 5 * VARINT_BYTES_MAX + name.length + text.length, false);
    const id = state.newGroupId();
    const output = engine.operation(LogOp.CreateGroup, state.id);
    output.varint(id);
    output.u8(rules === undefined ? GroupType.exclusive : GroupType.shared);
    output.string(name);
    output.varint(position);
    if (rules !== undefined) output.string(text);
    engine.endOperation();
    let group: LogGroup;
    engine.add({
      // Always: what is acknowledged later than the group is behind where it begins, also after a power cut.
      durability: "sync",
      apply: () => {
        group =
          rules === undefined
            ? state.createGroup(id, name, position, engine.entryTime.elapsedMs)
            : state.createSharedGroup(id, name, position, rules);
      },
      settle: () => resolve(group),
      fail: reject,
    });
  });
}

/** The offset that a position stands for now. */
export async function offsetOf(engine: Engine, { stream, name }: LogState, from: LogPosition): Promise<number> {
  if (from === "start") return stream.head;
  if (from === "end") return stream.visible;
  if (from instanceof Date) {
    const timestamp = from.getTime();
    const reader = new StreamReader(stream, engine, stream.offsetBefore(timestamp));
    for (;;) {
      const found = reader.next(stream.visible);
      if (found === "end") return stream.visible;
      if (found === "load") await reader.load();
      else if (reader.record.timestamp >= timestamp) return reader.record.offset;
    }
  }
  if (from < stream.head) throw outOfRange(name, from, stream.head);
  if (from <= stream.next) return from;
  throw new VarveError(
    "ERR_ARGUMENT",
    `offset ${from} is past the end of ${name}; the next record gets ${stream.next}`,
  );
}

/** A member of an exclusive group of an embedded log. */
export class EmbeddedMember<O> implements GroupMember<O> {
  readonly name: string;
  readonly log: string;
  readonly #engine: Engine;
  readonly #state: LogState;
  readonly #group: Group;
  readonly #member: Membership;
  readonly #records: LogRecords<O>;
  readonly #reader: StreamReader;
  /** Reads are one after another: each goes on where the one before it ended. */
  #reading: Promise<unknown> = Promise.resolve();

  constructor(engine: Engine, state: LogState, group: Group, sessionMs: number, records: LogRecords<O>) {
    this.name = group.name;
    this.log = state.name;
    this.#engine = engine;
    this.#state = state;
    this.#group = group;
    this.#records = records;
    this.#member = new Membership(sessionMs, engine.elapsedMs());
    group.join(this.#member);
    this.#reader = new StreamReader(state.stream, engine, this.#member.next);
  }

  read(options?: GroupReadOptions): Promise<LogRecord<O>[]> {
    const read = async () => {
      const resolved = resolveGroupReadOptions(options);
      this.#checkOpen();
      this.#group.enter(this.#member);
      try {
        return await this.#read(resolved);
      } finally {
        this.#group.exit(this.#member, this.#engine.elapsedMs());
      }
    };
    const result = this.#reading.then(read);
    this.#reading = result.catch(() => {});
    return result;
  }

  commit(upTo: number | { readonly offset: number }, options?: CommitOptions): Promise<void> {
    return requested(this.#engine, options, NOTHING, (request) => {
      return new Promise((resolve, reject) => {
        const engine = this.#engine;
        const { durability: given } = resolveCommitOptions(options);
        const position = this.#commitPosition(upTo);
        const identified = request?.tells();
        engine.begin(0, 0, LOG_OP_BYTES_MAX + requestBytes(identified), true);
        this.#stage(LogOp.Commit, position);
        const durability = engine.durability(given);
        const apply = () => this.#group.commit(position, engine.entryTime.elapsedMs);
        engine.add({ durability, apply, settle: resolve, fail: reject }, identified);
      });
    });
  }

  /** A commit as part of a larger one. */
  commitChange(engine: Engine, upTo: number | { readonly offset: number }): Change {
    if (engine !== this.#engine) {
      throw new VarveError("ERR_ARGUMENT", `${this.name} belongs to another directory; a transaction stays within one`);
    }
    const offset = offsetIn(upTo);
    let position = 0;
    return {
      bulkBytes: 0,
      records: 0,
      metaBytes: LOG_OP_BYTES_MAX,
      settles: true,
      reserve: () => {
        position = this.#commitPosition(offset);
      },
      release() {},
      stage: () => this.#stage(LogOp.Commit, position),
      apply: () => this.#group.commit(position, engine.entryTime.elapsedMs),
    };
  }

  seek(to: LogPosition, options?: CommitOptions): Promise<number> {
    return requested(this.#engine, options, WHOLE_NUMBER, (request) => this.#seek(to, options, request));
  }

  async #seek(
    to: LogPosition,
    options: CommitOptions | undefined,
    request: Request<number> | undefined,
  ): Promise<number> {
    const engine = this.#engine;
    const { durability } = resolveCommitOptions(options);
    const from = resolvePosition(to);
    this.#takeTurn();
    const position = await this.#busy(() => offsetOf(engine, this.#state, from));
    this.#takeTurn();
    await new Promise<void>((resolve, reject) => {
      // What is removed by changes that are staged is lost as well, and cannot be sought.
      engine.flush();
      const { head } = this.#state.stream;
      if (position < head) throw outOfRange(this.log, position, head);
      const identified = request?.tells(position);
      engine.begin(0, 0, LOG_OP_BYTES_MAX + requestBytes(identified), true);
      const lost = this.#member.missed?.count ?? 0;
      this.#stage(LogOp.Seek, position, lost);
      const apply = () => this.#group.seek(position, lost, engine.entryTime.elapsedMs);
      engine.add({ durability: engine.durability(durability), apply, settle: resolve, fail: reject }, identified);
    });
    return position;
  }

  async position(): Promise<GroupPosition> {
    this.#checkOpen();
    const { committed, lag } = this.#group;
    const active = this.#group.isActive(this.#member);
    return { committed, next: active ? this.#member.next : committed, lag, active };
  }

  async close(): Promise<void> {
    this.#group.leave(this.#member, this.#engine.elapsedMs());
    this.#member.end(new VarveError("ERR_CLOSED", `this member has left group ${this.name} of ${this.log}`));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #read({ max, maxBytes, waitMs, signal }: ResolvedGroupReadOptions): Promise<LogRecord<O>[]> {
    const engine = this.#engine;
    const member = this.#member;
    const { stream } = this.#state;
    const until = engine.elapsedMs() + waitMs;
    while (signal?.aborted !== true) {
      this.#checkOpen();
      if (!this.#group.claim(member, engine.elapsedMs())) {
        if (!(await this.#wait(until, this.#group.turnEndsMs, signal))) return [];
        continue;
      }
      if (member.missed !== undefined) {
        // What is removed by changes that are staged counts as well; what is removed after this one is told next time.
        if (engine.failure === undefined) engine.flush();
        if (member.missed !== undefined) throw await this.#missed(member.missed);
        continue;
      }
      this.#reader.seek(member.next);
      const { visible } = stream;
      const { records, found } = this.#records.take(this.#reader, max, maxBytes, 0);
      if (records.length > 0) {
        member.next = records[records.length - 1]!.offset + 1;
        return records;
      }
      if (found === "load") {
        // It may have passed offsets whose records are gone, up to where it has to read on.
        member.next = Math.max(member.next, this.#reader.position);
        await this.#reader.load();
      } else if (stream.visible === visible && !(await this.#wait(until, Number.POSITIVE_INFINITY, signal))) {
        return [];
      }
    }
    return [];
  }

  /** Takes note that records were removed before the group had read them. What the caller is told is counted first. */
  async #missed({ from, count }: Missed): Promise<VarveError> {
    const engine = this.#engine;
    const { next } = this.#member;
    if (engine.failure === undefined) {
      await new Promise<void>((resolve, reject) => {
        engine.begin(0, 0, LOG_OP_BYTES_MAX, true);
        this.#stage(LogOp.Lose, count);
        let counted = false;
        engine.add({
          durability: engine.options.durability,
          apply: () => {
            this.#group.lose(count, engine.entryTime.elapsedMs);
            this.#member.missed = undefined;
            counted = true;
          },
          settle: resolve,
          fail: (error) => {
            // The caller is told of the failure, and of what was removed by the next call.
            if (counted) this.#group.untold(this.#member, { from, count }, next);
            reject(error);
          },
        });
      });
    } else {
      this.#member.missed = undefined;
    }
    return new VarveError(
      "ERR_OFFSET_OUT_OF_RANGE",
      `${count} records of ${this.log} from offset ${from} on were removed before group ${this.name} had read them. The ` +
        `next call goes on at ${next}.`,
      { details: { offset: from, next, lost: count } },
    );
  }

  /** Waits until something may have changed: false when the time is up. */
  #wait(untilMs: number, againMs: number, signal: AbortSignal | undefined): Promise<boolean> {
    const engine = this.#engine;
    const now = engine.elapsedMs();
    if (now >= untilMs) return Promise.resolve(false);
    return new Promise((resolve) => {
      const wake = () => {
        timer.cancel();
        unwatch();
        unabort?.();
        this.#member.wakes.delete(wake);
        resolve(true);
      };
      const timer = engine.clock.setTimer(Math.max(1, Math.min(untilMs, againMs) - now), wake, true);
      const unwatch = this.#state.watch(wake);
      const unabort = signal === undefined ? undefined : onAbort(signal, wake);
      this.#member.wakes.add(wake);
    });
  }

  /** The position behind a record, if this member may commit it now. */
  #commitPosition(upTo: number | { readonly offset: number }): number {
    const offset = offsetIn(upTo);
    this.#checkOpen();
    this.#member.seenMs = this.#engine.elapsedMs();
    if (!this.#group.isActive(this.#member)) throw this.#standsBy();
    const { next } = this.#member;
    if (offset < next) return offset + 1;
    throw new VarveError(
      "ERR_ARGUMENT",
      `offset ${offset} cannot be committed: this member of group ${this.name} of ${this.log} has read up to ${next - 1}`,
      { details: { offset, next } },
    );
  }

  #takeTurn(): void {
    this.#checkOpen();
    const now = this.#engine.elapsedMs();
    if (!this.#group.claim(this.#member, now)) throw this.#standsBy();
    this.#member.seenMs = now;
  }

  async #busy<T>(run: () => Promise<T>): Promise<T> {
    this.#group.enter(this.#member);
    try {
      return await run();
    } finally {
      this.#group.exit(this.#member, this.#engine.elapsedMs());
    }
  }

  #standsBy(): VarveError {
    return new VarveError(
      "ERR_FENCED",
      `it is another member's turn in group ${this.name} of ${this.log}; this one stands by. Nothing was changed.`,
      { details: { group: this.name } },
    );
  }

  #stage(code: number, ...values: number[]): void {
    const output = this.#engine.operation(code, this.#state.id);
    output.varint(this.#group.groupId);
    for (const value of values) output.varint(value);
    this.#engine.endOperation();
  }

  #checkOpen(): void {
    if (this.#member.ended !== undefined) throw this.#member.ended;
    this.#engine.checkOpen();
    if (this.#state.ended !== undefined) throw this.#state.ended;
  }
}

function offsetIn(upTo: number | { readonly offset: number }): number {
  const offset = typeof upTo === "object" && upTo !== null ? upTo.offset : upTo;
  return checkOffset(offset);
}
