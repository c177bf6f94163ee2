import type { Codec } from "../api/codec.js";
import type {
  CommitOptions,
  GroupMember,
  GroupPosition,
  GroupReadOptions,
  LogPosition,
  LogRecord,
} from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { resolveCommitOptions, resolveGroupReadOptions, resolvePosition } from "../api/options.js";
import { readRecords, type WireRecord } from "../wire/layouts.js";
import { Methods } from "../wire/methods.js";
import { foreign, Handle, type Opening } from "./handle.js";
import type { Link } from "./link.js";
import { decodeRecords } from "./records.js";

/**
 * A member that comes back soon after a lost connection goes on. Otherwise it joins again, unless it has read what is not
 * committed: that is for whoever reads next, and the member learns that its turn is over.
 */
class MemberHandle extends Handle {
  /** Behind the last record that has arrived since it joined or was moved; 0: none has. */
  arrived = 0;
  /** Behind the last record that was given out, and behind the last one that was committed. */
  read = 0;
  committed = 0;

  override reopen(_resumed: boolean): Opening | undefined {
    // Memberships wait for a shorter time than sessions: the answer tells whether this one has gone on.
    return super.reopen(false);
  }

  override reopened(goesOn: unknown): Error | undefined {
    if (goesOn === true) return undefined;
    if (this.read > this.committed) {
      return new VarveError(
        "ERR_FENCED",
        "the connection was lost, and with it this member's turn: what it had read and not committed is read again. Join again.",
      );
    }
    this.arrived = 0;
    return undefined;
  }
}

/** A member of an exclusive group of a daemon's log. */
export class DialledMember<O> implements GroupMember<O> {
  readonly name: string;
  readonly log: string;
  readonly #link: Link;
  readonly #handle: MemberHandle;
  readonly #codec: Codec<never, O>;
  /** Read, and not given out, as the first of them cannot be decoded. */
  #rest: readonly WireRecord[] = [];
  #reading: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  constructor(link: Link, id: number, again: Opening, name: string, log: string, codec: Codec<never, O>) {
    this.name = name;
    this.log = log;
    this.#link = link;
    this.#handle = new MemberHandle(id, again);
    this.#codec = codec;
    link.keep(this.#handle);
  }

  read(options?: GroupReadOptions): Promise<LogRecord<O>[]> {
    // One after another: each goes on where the one before it ended.
    const result = this.#reading.then(() => this.#read(options));
    this.#reading = result.catch(() => {});
    return result;
  }

  async #read(options: GroupReadOptions | undefined): Promise<LogRecord<O>[]> {
    const { max, maxBytes, waitMs, signal } = resolveGroupReadOptions(options);
    this.#check();
    if (this.#rest.length > 0) return this.#give(this.#rest);
    return await new Promise((resolve, reject) => {
      const { id } = this.#handle;
      const output = this.#link.begin(Methods.memberRead, id, waitMs);
      output.u32(max);
      output.u64(maxBytes);
      output.u64(this.#handle.arrived);
      const pending = this.#link.send<LogRecord<O>[]>(
        Methods.memberRead,
        id,
        resolve,
        (error) => {
          this.#passOver(error);
          reject(error);
        },
        (input) => {
          const records = readRecords(input);
          const last = records.at(-1);
          if (last !== undefined) this.#handle.arrived = last.offset + 1;
          if (records.length === 0 && this.#link.isClosing) this.#link.checkOpen();
          return this.#give(records);
        },
        waitMs,
        () => [],
      );
      if (signal !== undefined) this.#link.watch(pending, signal);
    });
  }

  /** What was removed before it could be read does not come again. */
  #passOver(error: Error): void {
    if (!isVarveError(error, "ERR_OFFSET_OUT_OF_RANGE") || typeof error.details.next !== "number") return;
    this.#handle.arrived = Math.max(this.#handle.arrived, error.details.next);
  }

  #give(records: readonly WireRecord[]): LogRecord<O>[] {
    const { decoded, rest, error } = decodeRecords(this.log, this.#codec, records);
    this.#rest = rest;
    const last = decoded.at(-1);
    if (last === undefined && error !== undefined) throw error;
    if (last !== undefined) this.#handle.read = last.offset + 1;
    return decoded;
  }

  async commit(upTo: number | { readonly offset: number }, options?: CommitOptions): Promise<void> {
    resolveCommitOptions(options);
    this.#check();
    const offset = offsetOf(upTo);
    await this.#link.call(Methods.memberCommit, this.#handle.id, [offset, options]);
    this.committed(offset);
  }

  async seek(to: LogPosition, options?: CommitOptions): Promise<number> {
    resolvePosition(to);
    resolveCommitOptions(options);
    this.#check();
    const offset = await this.#link.call<number>(Methods.memberSeek, this.#handle.id, [to, options]);
    this.#rest = [];
    this.#handle.arrived = offset;
    this.#handle.read = offset;
    this.#handle.committed = offset;
    return offset;
  }

  async position(): Promise<GroupPosition> {
    this.#check();
    const position = await this.#link.call<GroupPosition>(Methods.memberPosition, this.#handle.id, []);
    const [next] = this.#rest;
    return next === undefined ? position : { ...position, next: next.offset };
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#link.leave(this.#handle.id);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** The position has been moved behind this record. */
  committed(offset: number): void {
    this.#handle.committed = Math.max(this.#handle.committed, offset + 1);
  }

  /** @throws VarveError `ERR_ARGUMENT`: it is of another client */
  handleFor(link: Link): number {
    if (link !== this.#link) throw foreign(this.log);
    return this.#handle.id;
  }

  #check(): void {
    this.#link.checkOpen();
    if (this.#isClosed) {
      throw new VarveError("ERR_CLOSED", `this member has left group ${this.name} of ${this.log}`);
    }
    this.#handle.check();
  }
}

export function offsetOf(upTo: unknown): number {
  const offset = typeof upTo === "object" && upTo !== null ? (upTo as { offset?: unknown }).offset : upTo;
  return offset as number;
}
