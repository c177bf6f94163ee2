import type { CallName } from "../api/call-name.js";
import type { Codec } from "../api/codec.js";
import type {
  AppendOptions,
  BatchesOptions,
  Bytes,
  CommitOptions,
  CompactionResult,
  Durability,
  GroupInfo,
  GroupMember,
  GroupOptions,
  Input,
  LogPosition,
  LogQueue,
  LogRecord,
  LogSettings,
  LogStats,
  SharedGroup,
  SharedGroupOptions,
  StoredLogSettings,
  TailOptions,
} from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { checkBatch } from "../api/input.js";
import { LEND_BATCHES, type LendingLog } from "../api/lending.js";
import { checkGroupName } from "../api/names.js";
import {
  checkOffset,
  DEFAULT_COMPACTION,
  describeLogConfig,
  mergeConsumerConfig,
  resolveAppendOptions,
  resolveBatchesOptions,
  resolveCommitOptions,
  resolveGroupOptions,
  resolveLogSettings,
  resolveSharedGroupOptions,
  resolveTailOptions,
  resolveTransactionAppendOptions,
} from "../api/options.js";
import { type Payloads, PUT_EACH, PUTS_INTO, type PutsEach } from "../api/put-each.js";
import { formatBytes } from "../api/units.js";
import type { Engine } from "../engine/engine.js";
import { ValueOperation } from "../engine/operation.js";
import { type IdentifiedCommit, requestBytes } from "../engine/requests.js";
import { payloadsBytesMax, type RecordParts, recordBytesMax } from "../storage/batch.js";
import { StreamReader } from "../storage/stream-reader.js";
import { asItStands, type Change, foreignQueue } from "./commit.js";
import { GroupType } from "./group.js";
import { EmbeddedMember, openGroup } from "./group-member.js";
import { checkPayloads, detach, InputReader, park, totalBytesMax } from "./input.js";
import { countRecords } from "./log-count.js";
import { LogRecords } from "./log-records.js";
import { needOf, type RoomClaim } from "./log-room.js";
import { configureLog, LOG_OP_BYTES_MAX, type LogGroup, LogOp, type LogState, outOfRange } from "./log-state.js";
import {
  type Answering,
  NOTHING,
  OFFSETS,
  putEach,
  type Request,
  requested,
  requestedEach,
  WHOLE_NUMBER,
  YES_OR_NO,
} from "./requested.js";
import { EmbeddedSharedGroup, setRules } from "./shared-source.js";
import { TOMBSTONE } from "./tombstone.js";

const NO_BYTES = new Uint8Array(0);
/** Bytes read at once by a replay. */
const SCAN_BYTES = 1024 * 1024;
/** The same, where what was read is lent: then the memory for it is used again. */
const LENT_BYTES = 256 * 1024;

/** Where a reader begins. */
interface Start {
  readonly offset: number;
  /** Records before this time are passed over. */
  readonly timestamp: number;
  /** Until something has been read, a trim may move the beginning: the oldest record then is meant. */
  readonly mayJump: boolean;
}

/** A log queue of an embedded directory. */
export class EmbeddedLog<I = Bytes, O = Buffer> implements LogQueue<I, O>, LendingLog, PutsEach<number> {
  readonly kind = "log";
  readonly name: string;
  readonly #engine: Engine;
  readonly #state: LogState;
  readonly #input: InputReader<I>;
  readonly #codec: Codec<I, O>;
  readonly #records: LogRecords<O>;

  constructor(engine: Engine, state: LogState, codec: Codec<I, O>) {
    this.name = state.name;
    this.#engine = engine;
    this.#state = state;
    this.#input = new InputReader(codec, engine.options.maxMessageBytes);
    this.#codec = codec;
    this.#records = new LogRecords(state, codec);
  }

  append(input: Input<I>, options?: AppendOptions): Promise<number> {
    if (options?.request === undefined) return this.#appendOne(input, options, undefined);
    return requested(this.#engine, options, WHOLE_NUMBER, (request) => this.#appendOne(input, options, request));
  }

  #appendOne(
    input: Input<I>,
    options: AppendOptions | undefined,
    request: Request<number> | undefined,
  ): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#checkOpen();
      const { durability, key, headers } = resolveAppendOptions(options);
      const parts = this.#input.read(input, key, headers);
      this.#append([parts], recordBytesMax(parts), durability, firstOf, resolve, reject, request);
    });
  }

  appendBatch(inputs: readonly Input<I>[], options?: CommitOptions): Promise<number[]> {
    const request = options?.request;
    if (request?.each !== true) {
      return requested(this.#engine, options, OFFSETS, (request) => this.#appendAll(inputs, options, request));
    }
    return requestedEach(
      this.#engine,
      request,
      WHOLE_NUMBER,
      inputs,
      (requests) => this.#appendAll(inputs, options, requests),
      (index, name) => this.append(inputs[index]!, { ...options, request: name }),
    );
  }

  get [PUTS_INTO](): object {
    return this.#state;
  }

  [PUT_EACH](
    payloads: Payloads,
    durability: Durability | undefined,
    names: readonly CallName[] | undefined,
  ): Promise<number[]> | Promise<number>[] {
    return putEach(
      this.#engine,
      names,
      WHOLE_NUMBER,
      payloads.count,
      !this.#state.room.limited, // a batch goes in as a whole, or not at all
      (run, resolve, reject) => {
        this.#checkOpen();
        const engine = this.#engine;
        const { stream, config } = this.#state;
        const { maxMessageBytes } = config.limits;
        checkPayloads(payloads, Math.min(maxMessageBytes || Number.POSITIVE_INFINITY, engine.options.maxMessageBytes));
        if (stream.deleted !== undefined) throw stream.deleted;
        engine.begin(payloadsBytesMax(payloads.count, payloads.bytes), payloads.count, requestBytes(run), false);
        const first = engine.appendAll(stream, payloads);
        const told: number[] = [];
        for (let index = 0; index < payloads.count; index++) told.push(first + index);
        engine.add(new ValueOperation(engine.durability(durability), told, resolve, reject), run?.tells(told));
      },
      (index, request) => this.append(payloads.at(index) as Input<I>, { durability, request }),
    );
  }

  #appendAll(
    inputs: readonly Input<I>[],
    options: CommitOptions | undefined,
    request: Answering<number[]> | undefined,
  ): Promise<number[]> {
    return new Promise((resolve, reject) => {
      this.#checkOpen();
      const { durability } = resolveCommitOptions(options);
      checkBatch(inputs);
      if (inputs.length === 0) {
        resolve([]);
        return;
      }
      const records = inputs.map((input) => this.#input.read(input, undefined, undefined));
      this.#append(records, totalBytesMax(records), durability, allOf, resolve, reject, request);
    });
  }

  delete(key: string | Uint8Array, options?: Omit<AppendOptions, "key">): Promise<number> {
    return requested(this.#engine, options, WHOLE_NUMBER, (request) => {
      return new Promise((resolve, reject) => {
        this.#checkOpen();
        const { durability, key: checked, headers } = resolveAppendOptions({ ...options, key });
        if (checked === undefined) throw new VarveError("ERR_OPTION", "delete() takes the key whose record is to go");
        const parts = { payload: NO_BYTES, key: checked, headers, attributes: TOMBSTONE };
        this.#append([parts], recordBytesMax(parts), durability, firstOf, resolve, reject, request);
      });
    });
  }

  async compact(): Promise<CompactionResult> {
    const { compaction, config } = this.#state;
    this.#checkOpen();
    return await compaction.run((config.compaction ?? DEFAULT_COMPACTION).graceMs);
  }

  /**
   * Appends records as one commit, when the log and the engine have room for them.
   * @param tell what the caller is told, of their offsets
   */
  #append<T>(
    records: readonly RecordParts[],
    bytes: number,
    given: Durability | undefined,
    tell: (offsets: number[]) => T,
    resolve: (told: T) => void,
    reject: (error: Error) => void,
    request: Answering<T> | undefined,
  ): void {
    const engine = this.#engine;
    const { room, stream, config } = this.#state;
    checkSizes(records, config.limits.maxMessageBytes);
    const need = room.limited ? needOf(records) : undefined;
    let place: "line" | "head" = "line";
    const stage = () => {
      if (stream.deleted !== undefined) throw stream.deleted;
      if (need === undefined) {
        this.#stage(records, bytes, given, tell, resolve, reject, request);
        return;
      }
      const asked = room.ask(need, place);
      if (asked === "wait") {
        detach(records);
        const again = () => {
          place = "head";
          attempt();
        };
        room.wait(need, again, reject);
        return;
      }
      const dropTo = asked === "fits" ? 0 : asked;
      engine.begin(bytes, records.length, (dropTo > 0 ? LOG_OP_BYTES_MAX : 0) + requestBytes(request), false);
      const claim = room.take(need, dropTo);
      const told = tell(records.map((record) => engine.append(stream, record)));
      const durability = engine.durability(given);
      claim.staged();
      if (dropTo > 0) this.#state.stageTrim(dropTo);
      const operation = {
        durability,
        apply: () => {
          claim.applied();
          if (dropTo > 0) this.#state.trim(dropTo);
        },
        settle: () => resolve(told),
        fail: (error: Error) => {
          claim.failed();
          reject(error);
        },
      };
      engine.add(operation, request?.tells(told));
    };
    const attempt = () => {
      try {
        if (engine.stalled) park(engine, bytes, records, stage, reject);
        else stage();
      } catch (error) {
        reject(error as Error);
      }
    };
    attempt();
  }

  /** Stages an append to a log without limits. Throws when it cannot be made. */
  #stage<T>(
    records: readonly RecordParts[],
    bytes: number,
    durability: Durability | undefined,
    tell: (offsets: number[]) => T,
    resolve: (told: T) => void,
    reject: (error: Error) => void,
    request: Answering<T> | undefined,
  ): void {
    const engine = this.#engine;
    const { stream } = this.#state;
    engine.begin(bytes, records.length, requestBytes(request), false);
    const told = tell(records.map((record) => engine.append(stream, record)));
    engine.add(new ValueOperation(engine.durability(durability), told, resolve, reject), request?.tells(told));
  }

  async read(offset: number): Promise<LogRecord<O> | undefined> {
    checkOffset(offset);
    this.#checkOpen();
    const { stream } = this.#state;
    const reader = new StreamReader(stream, this.#engine, offset, { single: true });
    try {
      for (;;) {
        if (offset < stream.head) throw outOfRange(this.name, offset, stream.head);
        const limit = Math.min(offset + 1, stream.visible);
        if (offset >= limit) return undefined;
        const found = reader.next(limit);
        if (found === "record") {
          return reader.record.offset === offset
            ? this.#records.record(reader.record, reader.record.payload())
            : undefined;
        }
        if (found === "end") return undefined;
        await reader.load();
      }
    } finally {
      reader.close();
    }
  }

  tail(options?: TailOptions): AsyncIterable<LogRecord<O>> {
    const { from, signal } = resolveTailOptions(options);
    this.#checkOpen();
    return this.#tail(this.#start(from), signal);
  }

  batches(options?: BatchesOptions): AsyncIterable<LogRecord<O>[]> {
    const { from, maxBytes, follow, signal } = resolveBatchesOptions(options);
    this.#checkOpen();
    return this.#batches(this.#start(from), maxBytes, follow, signal);
  }

  trim(offset: number, options?: CommitOptions): Promise<number> {
    return requested(this.#engine, options, WHOLE_NUMBER, (request) => {
      return new Promise((resolve, reject) => {
        const { durability } = resolveCommitOptions(options);
        checkOffset(offset);
        const { stream } = this.#state;
        if (offset > stream.next) {
          throw new VarveError(
            "ERR_ARGUMENT",
            `offset ${offset} is past the end of ${this.name}; the next record gets ${stream.next}, up to which it can be trimmed`,
          );
        }
        const identified = request?.answers(() => Math.max(stream.head, offset));
        this.#trim(offset, durability, () => resolve(stream.head), reject, identified);
      });
    });
  }

  purge(options?: CommitOptions): Promise<number> {
    return requested(this.#engine, options, WHOLE_NUMBER, (request) => {
      return new Promise((resolve, reject) => {
        const { durability } = resolveCommitOptions(options);
        const { stream } = this.#state;
        const { staged } = stream;
        const identified = request?.answers(() => stream.recordsBetween(stream.head, staged));
        this.#trim(staged, durability, resolve, reject, identified);
      });
    });
  }

  /** @param settle told how many records there were */
  #trim(
    offset: number,
    durability: Durability | undefined,
    settle: (records: number) => void,
    reject: (error: Error) => void,
    request: IdentifiedCommit | undefined,
  ): void {
    const engine = this.#engine;
    const state = this.#state;
    this.#checkOpen();
    // The answer goes to the log before this takes effect: nothing else may on its way.
    if (request !== undefined) engine.flush();
    state.beginTrim(request);
    state.stageTrim(offset);
    let records = 0;
    const operation = {
      durability: engine.durability(durability),
      apply: () => {
        records = Math.max(0, state.stream.recordsBetween(state.stream.head, offset));
        state.trim(offset);
      },
      settle: () => settle(records),
      fail: reject,
    };
    engine.add(operation, request);
  }

  async group(name: string, options?: GroupOptions): Promise<GroupMember<O>> {
    const { from, sessionMs } = resolveGroupOptions(options);
    this.#checkOpen();
    checkGroupName(name);
    const group = await openGroup(this.#engine, this.#state, name, from, undefined);
    if (group.type === GroupType.shared) throw wrongType(name, "a shared one: join it with sharedGroup()");
    return new EmbeddedMember(this.#engine, this.#state, group, sessionMs, this.#records);
  }

  async sharedGroup(name: string, options?: SharedGroupOptions): Promise<SharedGroup<O>> {
    const { from, ...given } = resolveSharedGroupOptions(options);
    this.#checkOpen();
    checkGroupName(name);
    const rules = mergeConsumerConfig(undefined, given);
    const group = await openGroup(this.#engine, this.#state, name, from, rules);
    if (group.type === GroupType.exclusive) throw wrongType(name, "an exclusive one: join it with group()");
    await setRules(this.#engine, this.#state, group, mergeConsumerConfig(group.rules, given));
    return new EmbeddedSharedGroup(this.#engine, this.#state, group, this.#codec);
  }

  async groups(): Promise<GroupInfo[]> {
    this.#checkOpen();
    const wallMs = this.#engine.clock.wallMs();
    const infos = [...this.#state.groups.values()].map((group) => this.#state.infoOf(group, wallMs));
    return infos.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  deleteGroup(name: string, options?: CommitOptions): Promise<boolean> {
    return requested(this.#engine, options, YES_OR_NO, (request) => {
      return new Promise((resolve, reject) => {
        const engine = this.#engine;
        const state = this.#state;
        this.#checkOpen();
        const { durability: given } = resolveCommitOptions(options);
        checkGroupName(name);
        const group = state.groups.get(name);
        if (group === undefined) {
          resolve(false);
          return;
        }
        const identified = request?.tells(true);
        engine.begin(0, 0, LOG_OP_BYTES_MAX + requestBytes(identified), true);
        engine.operation(LogOp.DeleteGroup, state.id).varint(group.groupId);
        engine.endOperation();
        const durability = engine.durability(given);
        const apply = () => state.deleteGroup(group);
        // Of two calls in one turn, both are told that there was one.
        engine.add({ durability, apply, settle: () => resolve(true), fail: reject }, identified);
      });
    });
  }

  configure(settings: LogSettings, options?: CommitOptions): Promise<void> {
    return requested(this.#engine, options, NOTHING, async (request) => {
      const given = resolveLogSettings(settings);
      const { durability } = resolveCommitOptions(options);
      this.#checkOpen();
      await new Promise<void>((resolve, reject) => {
        configureLog(this.#engine, this.#state, given, durability, resolve, reject, request?.tells());
      });
      await asItStands(this.#engine, this.#engine.durability(durability));
    });
  }

  async settings(): Promise<StoredLogSettings> {
    this.#checkOpen();
    return describeLogConfig(this.#state.config);
  }

  async stats(): Promise<LogStats> {
    this.#checkOpen();
    const { stream, groups, extent } = this.#state;
    const count = await countRecords(this.#engine, stream);
    let furthest: LogGroup | undefined;
    for (const group of groups.values()) {
      if (group.lag > 0 && (furthest === undefined || group.committed < furthest.committed)) furthest = group;
    }
    return {
      kind: "log",
      name: this.name,
      head: stream.head,
      // A trim may have taken effect before what it removed was visible.
      next: Math.max(stream.head, stream.visible),
      count,
      bytes: stream.bytes,
      groups: groups.size,
      furthestBack:
        furthest === undefined ? undefined : { group: furthest.name, bytes: extent.bytesFrom(furthest.committed) },
    };
  }

  /** An append as part of a larger commit. */
  appendChange(engine: Engine, input: Input<I>, options: Omit<AppendOptions, keyof CommitOptions> | undefined): Change {
    if (engine !== this.#engine) throw foreignQueue(this.name);
    const { key, headers } = resolveTransactionAppendOptions(options);
    const parts = this.#input.read(input, key, headers);
    checkSizes([parts], this.#state.config.limits.maxMessageBytes);
    return new AppendChange(engine, this.#state, parts);
  }

  /** @throws VarveError when there is nothing to be had from here any more */
  #checkOpen(): void {
    this.#engine.checkOpen();
    if (this.#state.ended !== undefined) throw this.#state.ended;
  }

  async *#tail(start: Start, signal: AbortSignal | undefined): AsyncGenerator<LogRecord<O>> {
    for await (const records of this.#batches(start, 64 * 1024, true, signal)) yield* records;
  }

  async *#batches(
    start: Start,
    maxBytes: number,
    follow: boolean,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<LogRecord<O>[]> {
    const ownedChunkBytes = Math.min(SCAN_BYTES, Math.max(64 * 1024, maxBytes));
    const reader = new StreamReader(this.#state.stream, this.#engine, start.offset, { ownedChunkBytes });
    let { mayJump } = start;
    while (this.#mayRead(reader, mayJump, follow, signal)) {
      const { visible } = this.#state.stream;
      const { records, found } = this.#records.take(reader, Number.POSITIVE_INFINITY, maxBytes, start.timestamp);
      if (records.length > 0) {
        mayJump = false;
        yield records;
      }
      if (!(await this.#more(reader, found, visible, follow, signal))) return;
    }
  }

  async [LEND_BATCHES](
    options: BatchesOptions,
    bytesMax: number,
    take: (records: readonly LogRecord[]) => boolean | Promise<boolean>,
  ): Promise<void> {
    const { from, maxBytes: given, follow, signal } = resolveBatchesOptions(options);
    this.#checkOpen();
    const start = this.#start(from);
    const { stream } = this.#state;
    const maxBytes = Math.min(bytesMax, given);
    const ownedChunkBytes = Math.min(LENT_BYTES, Math.max(64 * 1024, 2 * maxBytes));
    const reader = new StreamReader(stream, this.#engine, start.offset, { ownedChunkBytes, lendsChunks: true });
    const records = this.#records as LogRecords<unknown> as LogRecords<Buffer>;
    let { mayJump } = start;
    while (this.#mayRead(reader, mayJump, follow, signal)) {
      const { visible } = stream;
      const read = records.take(reader, Number.POSITIVE_INFINITY, maxBytes, start.timestamp);
      if (read.records.length > 0) {
        mayJump = false;
        const goesOn = take(read.records);
        reader.returned();
        if (!(typeof goesOn === "boolean" ? goesOn : await goesOn)) return;
      }
      if (!(await this.#more(reader, read.found, visible, follow, signal))) return;
    }
  }

  /** @throws VarveError why there is nothing to be had any more, where that is no end */
  #mayRead(reader: StreamReader, mayJump: boolean, follow: boolean, signal: AbortSignal | undefined): boolean {
    if (signal?.aborted === true) return false;
    const { ended, stream } = this.#state;
    if (ended !== undefined) {
      // A replay that is cut short must not look like one that came to its end.
      if (follow && isVarveError(ended, "ERR_CLOSED")) return false;
      throw ended;
    }
    if (reader.position < stream.head && !mayJump) throw outOfRange(this.name, reader.position, stream.head);
    return true;
  }

  /** Resolves when there may be more to read; with false at the end. */
  async #more(
    reader: StreamReader,
    found: "record" | "end" | "load",
    visible: number,
    follow: boolean,
    signal: AbortSignal | undefined,
  ): Promise<boolean> {
    if (found === "load") {
      await reader.load();
    } else if (found === "end") {
      if (!follow) return false;
      reader.rest();
      // Offsets below `visible` may have been passed over: nothing will ever stand there.
      await this.#state.readable(Math.max(reader.position, visible), signal);
    }
    return true;
  }

  #start(from: LogPosition): Start {
    const { stream } = this.#state;
    if (from === "start") return { offset: stream.head, timestamp: 0, mayJump: true };
    if (from === "end") return { offset: stream.visible, timestamp: 0, mayJump: false };
    if (from instanceof Date) {
      return { offset: stream.offsetBefore(from.getTime()), timestamp: from.getTime(), mayJump: true };
    }
    if (from < stream.head) throw outOfRange(this.name, from, stream.head);
    return { offset: from, timestamp: 0, mayJump: false };
  }
}

function firstOf(offsets: readonly number[]): number {
  return offsets[0]!;
}

function allOf(offsets: number[]): number[] {
  return offsets;
}

function wrongType(name: string, what: string): VarveError {
  return new VarveError("ERR_ARGUMENT", `the group ${name} is ${what}`);
}

/** The log's own limit, which is below the directory's. 0: none. */
/** An append as part of a larger commit. */
class AppendChange implements Change {
  readonly bulkBytes: number;
  readonly records = 1;
  readonly metaBytes: number;
  readonly settles = false;
  readonly #engine: Engine;
  readonly #state: LogState;
  readonly #parts: RecordParts;
  /** What a log with limits has room for. */
  readonly #need: ReturnType<typeof needOf> | undefined;
  #claim: RoomClaim | undefined;

  constructor(engine: Engine, state: LogState, parts: RecordParts) {
    this.#engine = engine;
    this.#state = state;
    this.#parts = parts;
    this.#need = state.room.limited ? needOf([parts]) : undefined;
    this.bulkBytes = recordBytesMax(parts);
    this.metaBytes = this.#need === undefined ? 0 : LOG_OP_BYTES_MAX;
  }

  own(): void {
    detach([this.#parts]);
  }

  reserve(): void {
    const { room, stream } = this.#state;
    if (stream.deleted !== undefined) throw stream.deleted;
    if (this.#need === undefined) return;
    const asked = room.ask(this.#need, "transaction");
    this.#claim = room.take(this.#need, typeof asked === "number" ? asked : 0);
  }

  release(): void {
    this.#claim?.failed();
  }

  stage(): void {
    this.#engine.append(this.#state.stream, this.#parts);
    if (this.#claim === undefined) return;
    this.#claim.staged();
    if (this.#claim.dropTo > 0) this.#state.stageTrim(this.#claim.dropTo);
  }

  apply(): void {
    if (this.#claim === undefined) return;
    this.#claim.applied();
    if (this.#claim.dropTo > 0) this.#state.trim(this.#claim.dropTo);
  }
}

function checkSizes(records: readonly RecordParts[], bytesMax: number): void {
  if (bytesMax === 0) return;
  for (const { payload } of records) {
    const bytes = Buffer.byteLength(payload);
    if (bytes <= bytesMax) continue;
    throw new VarveError(
      "ERR_TOO_LARGE",
      `the payload has ${bytes} bytes (${formatBytes(bytes)}); the log takes at most ${bytesMax} (limits.maxMessageBytes).`,
      { details: { size: bytes, limit: bytesMax } },
    );
  }
}
