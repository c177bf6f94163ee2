/**
 * A log queue: a stream, where it begins, its settings, and the groups that read it.
 *
 *   op            fields                                          effect
 *   Trim          offset                                          records below are gone; groups behind it lose them
 *   Configure     JSON                                            the log's settings
 *   CreateGroup   group, type, name, position, (rules)            a group that begins there; rules of a shared one: JSON
 *   DeleteGroup   group                                           it is gone, with its position
 *   Commit        group, position                                 everything below is done; never back
 *   Seek          group, position, count                          the group goes on from there, after so many lost (shared: 0)
 *   Lose          group, count                                    a member was told of records that were removed
 *   SetRules      group, JSON                                     the rules of a shared group
 *
 * Those of a shared group's consumer are in consumer.ts.
 */

import type { Durability, GroupInfo, Headers } from "../api/contract.js";
import { assert, VarveError } from "../api/errors.js";
import {
  type ConsumerConfig,
  DEFAULT_LOG_CONFIG,
  type LogConfig,
  mergeLogConfig,
  type ResolvedLogSettings,
} from "../api/options.js";
import { onAbort } from "../api/signals.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { FIRST_QUEUE_OP, type LogTime, type QueueState } from "../engine/queue-state.js";
import { type IdentifiedCommit, requestBytes } from "../engine/requests.js";
import type { Rewriter } from "../engine/rewriter.js";
import { Wake } from "../engine/wake.js";
import { type Decoder, type Encoder, MalformedError, VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";
import { Compaction } from "./compaction.js";
import { isConsumerOp } from "./consumer.js";
import { Group, GroupType } from "./group.js";
import { LogExtent } from "./log-extent.js";
import { LogRoom } from "./log-room.js";
import { Retention } from "./retention.js";
import { groupIdOf, parseRules, SharedGroupState } from "./shared-group.js";

/** On disk: append, never renumber. */
export const LogOp = {
  Trim: FIRST_QUEUE_OP,
  Configure: 40,
  CreateGroup: 41,
  DeleteGroup: 42,
  Commit: 43,
  Seek: 44,
  Lose: 45,
  SetRules: 46,
} as const;

/** Any operation of a log except those that carry a name or settings. */
export const LOG_OP_BYTES_MAX = OPERATION_HEADER_BYTES + 3 * VARINT_BYTES_MAX;

export class LogState implements QueueState {
  readonly kind = 1;
  readonly id: number;
  readonly name: string;
  readonly streams: Stream[];
  readonly stream: Stream;
  readonly extent: LogExtent;
  readonly room: LogRoom;
  readonly groups = new Map<string, LogGroup>();
  /** Groups on their way through the log, by name. */
  readonly creating = new Map<string, Promise<LogGroup>>();
  config: LogConfig;
  /** As it will be when all changes that are staged have been applied. */
  planned: LogConfig;
  /** Why no more records will come. */
  ended: Error | undefined;

  #engine: Engine | undefined;
  #lastGroupId = 0;
  readonly #groupsById = new Map<number, LogGroup>();
  #retention: Retention | undefined;
  #compaction: Compaction | undefined;
  #resumed: { readonly last: LogTime; readonly now: LogTime } | undefined;
  /** Called when there are more records to read, or none will come any more. */
  readonly #watchers = new Set<() => void>();
  readonly #serveRoom = new Wake(() => this.room.serve());
  readonly #beginRetention = new Wake(() => this.#retention?.begin());

  private constructor(id: number, name: string, streams: Stream[], config: LogConfig) {
    this.id = id;
    this.name = name;
    this.streams = streams;
    this.stream = streams.find(({ folder }) => folder === "")!;
    this.config = config;
    this.planned = config;
    this.extent = new LogExtent(this.stream);
    this.room = new LogRoom(this);
    this.stream.onVisible = () => {
      this.#retention?.grown();
      this.#notify();
      for (const group of this.groups.values()) if (group.type === GroupType.shared) group.grown();
    };
  }

  static create(id: number, name: string, streams: Stream[], config: Buffer): LogState {
    return new LogState(id, name, streams, parseConfig(config.toString("utf8")));
  }

  static restore(id: number, name: string, streams: Stream[], input: Decoder): LogState {
    const state = new LogState(id, name, streams, parseConfig(input.string()));
    state.#lastGroupId = input.varint();
    for (let count = input.varint(); count > 0; count--) {
      const group = input.varint();
      const type = input.u8();
      const groupName = input.string();
      if (type === GroupType.shared) state.#addGroup(SharedGroupState.decode(state, group, groupName, input));
      else if (type === GroupType.exclusive) state.#addGroup(Group.decode(name, state.stream, group, groupName, input));
      else throw new MalformedError(`group type ${type} is not known`);
    }
    return state;
  }

  /** Connects the state to the engine that it lives in. Further calls do nothing. */
  attach(engine: Engine): void {
    if (this.#engine !== undefined) return;
    this.#engine = engine;
    this.#retention = new Retention(engine, this, this.#resumed);
    this.#retention.begin();
    this.#compaction = new Compaction(engine, this.stream);
    for (const group of this.groups.values()) if (group.type === GroupType.shared) group.attach(engine);
  }

  /** Once attached. */
  get compaction(): Compaction {
    assert(this.#compaction !== undefined, "a log is attached when it is opened");
    return this.#compaction;
  }

  // ---------------------------------------------------------------------------------------------------- for the engine

  get metadata(): Headers {
    return this.config.metadata;
  }

  get count(): number {
    return this.stream.recordsLeft(this.stream.head, this.stream.next);
  }

  replay(code: number, input: Decoder, time: LogTime): void {
    if (code === LogOp.Trim) {
      this.trim(input.varint());
    } else if (code === LogOp.Configure) {
      this.configure(parseConfig(input.string()));
    } else if (code === LogOp.CreateGroup) {
      const id = input.varint();
      const type = input.u8();
      const name = input.string();
      const position = input.varint();
      if (type === GroupType.shared) this.createSharedGroup(id, name, position, parseRules(input.string()));
      else if (type === GroupType.exclusive) this.createGroup(id, name, position, time.elapsedMs);
      else throw new MalformedError(`group type ${type} is not known`);
    } else if (code === LogOp.DeleteGroup) {
      const group = this.#group(input.varint());
      if (group !== undefined) this.deleteGroup(group);
    } else if (code === LogOp.Commit) {
      this.#exclusive(input.varint())?.commit(input.varint(), time.elapsedMs);
    } else if (code === LogOp.Seek) {
      const group = this.#group(input.varint());
      const position = input.varint();
      if (group?.type === GroupType.shared) group.seek(position);
      else group?.seek(position, input.varint(), time.elapsedMs);
    } else if (code === LogOp.Lose) {
      this.#exclusive(input.varint())?.lose(input.varint(), time.elapsedMs);
    } else if (code === LogOp.SetRules) {
      const group = this.#shared(input.varint());
      if (group !== undefined) group.rules = parseRules(input.string());
    } else if (isConsumerOp(code)) {
      this.#shared(input.varint())?.consumer.replay(code, input, time);
    } else {
      throw new MalformedError(`operation ${code} of a log is not known`);
    }
  }

  addStream(stream: Stream): void {
    const id = groupIdOf(stream);
    if (id === undefined) throw new MalformedError(`a log has no stream ${stream.folder}`);
    this.streams.push(stream);
    this.#shared(id)?.addStream(stream);
  }

  encode(output: Encoder): void {
    output.string(encodeConfig(this.config));
    output.varint(this.#lastGroupId);
    output.varint(this.groups.size);
    for (const group of this.groups.values()) {
      output.varint(group.groupId);
      output.u8(group.type);
      output.string(group.name);
      group.encode(output);
    }
  }

  neededFrom(stream: Stream): number {
    if (stream === this.stream) return stream.head;
    // Of a group that has been deleted, nothing is.
    return this.groupOf(stream)?.neededFrom(stream) ?? stream.next;
  }

  /** The shared group that has a stream of its own; undefined when it has been deleted. */
  groupOf(stream: Stream): SharedGroupState | undefined {
    const id = groupIdOf(stream);
    return id === undefined ? undefined : this.#shared(id);
  }

  upkeep(rewriter: Rewriter): Promise<void> | undefined {
    const { compaction } = this.config;
    return compaction && this.#compaction?.upkeep(rewriter, compaction);
  }

  upkeepDue(): number | undefined {
    const { compaction } = this.config;
    return compaction && this.#compaction?.dueMs(compaction.graceMs);
  }

  resume(last: LogTime, now: LogTime): void {
    this.#resumed = { last, now };
    for (const group of this.groups.values()) if (group.type === GroupType.shared) group.resume(last, now);
  }

  close(error: Error): void {
    this.ended = error;
    this.#retention?.close();
    this.room.close(error);
    for (const group of this.groups.values()) {
      if (group.type === GroupType.shared) group.close(error);
      else group.end(error);
    }
    this.#notify();
  }

  // --------------------------------------------------------------------------------------------------- applied changes

  /** Moves the head. Groups behind it lose what is removed. */
  trim(offset: number): void {
    const { head } = this.stream;
    if (offset <= head) return;
    this.extent.leave(offset);
    for (const group of this.groups.values()) group.trimmed(offset);
    this.stream.trimTo(offset);
    this.#engine?.wake(this.#serveRoom);
  }

  configure(config: LogConfig): void {
    this.config = config;
    if (this.#engine === undefined) this.planned = config;
    this.#engine?.wake(this.#serveRoom);
    this.#engine?.wake(this.#beginRetention);
  }

  createGroup(id: number, name: string, position: number, nowMs: number): Group {
    const group = new Group(id, name, this.name, this.stream, Math.max(position, this.stream.head), nowMs);
    this.#lastGroupId = Math.max(this.#lastGroupId, id);
    this.#addGroup(group);
    return group;
  }

  createSharedGroup(id: number, name: string, position: number, rules: ConsumerConfig): SharedGroupState {
    const group = new SharedGroupState(this, id, name, rules, Math.max(position, this.stream.head));
    this.#lastGroupId = Math.max(this.#lastGroupId, id);
    this.#addGroup(group);
    if (this.#engine !== undefined) group.attach(this.#engine);
    return group;
  }

  deleteGroup(group: LogGroup): void {
    if (this.groups.get(group.name) === group) this.groups.delete(group.name);
    this.#groupsById.delete(group.groupId);
    group.end(
      new VarveError("ERR_NOT_FOUND", `group ${group.name} of ${this.name} was deleted. Join again to make it.`),
    );
  }

  /** A number for a group that is about to be created; never given out twice. */
  newGroupId(): number {
    return ++this.#lastGroupId;
  }

  #addGroup(group: LogGroup): void {
    if (this.groups.has(group.name)) throw new MalformedError(`group ${group.name} of ${this.name} is there already`);
    this.groups.set(group.name, group);
    this.#groupsById.set(group.groupId, group);
  }

  /** Undefined for one that has been deleted: what was under way for it then changes nothing. */
  #group(id: number): LogGroup | undefined {
    if (id > this.#lastGroupId) throw new MalformedError(`group ${id} of ${this.name} is not known`);
    return this.#groupsById.get(id);
  }

  #exclusive(id: number): Group | undefined {
    const group = this.#group(id);
    if (group?.type !== GroupType.shared) return group;
    throw new MalformedError(`group ${id} of ${this.name} is a shared one`);
  }

  #shared(id: number): SharedGroupState | undefined {
    const group = this.#group(id);
    if (group?.type !== GroupType.exclusive) return group;
    throw new MalformedError(`group ${id} of ${this.name} is not a shared one`);
  }

  // ---------------------------------------------------------------------------------------------------------- staging

  /** Makes room for a trim that is staged by itself. */
  beginTrim(request?: IdentifiedCommit): void {
    this.#engine!.begin(0, 0, LOG_OP_BYTES_MAX + requestBytes(request), true);
  }

  stageTrim(offset: number): void {
    const engine = this.#engine!;
    engine.operation(LogOp.Trim, this.id).varint(offset);
    engine.endOperation();
  }

  // ---------------------------------------------------------------------------------------------------------- reading

  /** Resolves when a record at or above `offset` is visible, the log ends, or the signal is aborted. */
  async readable(offset: number, signal: AbortSignal | undefined): Promise<void> {
    while (this.stream.visible <= offset && this.ended === undefined && signal?.aborted !== true) {
      await new Promise<void>((resolve) => {
        const done = () => {
          unwatch();
          unabort?.();
          resolve();
        };
        const unwatch = this.watch(done);
        const unabort = signal === undefined ? undefined : onAbort(signal, done);
      });
    }
  }

  /** Calls back whenever there are more records, or none will come any more, until the returned function is called. */
  watch(callback: () => void): () => void {
    this.#watchers.add(callback);
    return () => this.#watchers.delete(callback);
  }

  /** The lowest position of a group that has done something since a moment of elapsed time; else the end. */
  heldFrom(sinceMs: number): number {
    let from = this.stream.visible;
    for (const group of this.groups.values()) if (group.activeMs > sinceMs) from = Math.min(from, group.committed);
    return from;
  }

  infoOf(group: LogGroup, wallMs: number): GroupInfo {
    const { name, committed, lag, lost, members } = group;
    const { stream } = this;
    const shared = group.type === GroupType.shared ? group.consumer : undefined;
    return {
      name,
      type: shared === undefined ? "exclusive" : "shared",
      committed,
      lag,
      lagAge: lag === 0 ? 0 : Math.max(0, wallMs - stream.timestampAt(stream.skipGaps(committed))),
      lost,
      members: members.size,
      heldBytes: lag === 0 ? 0 : this.extent.bytesFrom(committed),
      leased: shared?.leased ?? 0,
      dead: shared?.dead.countComing ?? 0,
      deadDropped: shared?.counts.deadDropped ?? 0,
    };
  }

  #notify(): void {
    if (this.#watchers.size === 0) return;
    for (const watcher of [...this.#watchers]) watcher();
  }
}

export type LogGroup = Group | SharedGroupState;

/** Logs what the settings are after a change. Resolves at once when nothing changes. */
export function configureLog(
  engine: Engine,
  state: LogState,
  given: ResolvedLogSettings,
  durability: Durability | undefined,
  resolve: () => void,
  reject: (error: Error) => void,
  request?: IdentifiedCommit,
): void {
  if (state.stream.deleted !== undefined) throw state.stream.deleted;
  const config = mergeLogConfig(state.planned, given);
  const text = encodeConfig(config);
  if (text === encodeConfig(state.planned)) {
    resolve();
    return;
  }
  const metaBytes = OPERATION_HEADER_BYTES + VARINT_BYTES_MAX + Buffer.byteLength(text) + requestBytes(request);
  engine.begin(0, 0, metaBytes, false);
  engine.operation(LogOp.Configure, state.id).string(text);
  engine.endOperation();
  state.planned = config;
  const apply = () => state.configure(config);
  engine.add({ durability: engine.durability(durability), apply, settle: resolve, fail: reject }, request);
}

export function outOfRange(name: string, offset: number, head: number): VarveError {
  return new VarveError(
    "ERR_OFFSET_OUT_OF_RANGE",
    `offset ${offset} of ${name} was removed; the first one still there is ${head}. Go on from there.`,
    { details: { offset, next: head } },
  );
}

/** Empty for the defaults, so that thousands of plain logs stay small. */
export function encodeConfig(config: LogConfig): string {
  const text = JSON.stringify(config);
  return text === JSON.stringify(DEFAULT_LOG_CONFIG) ? "" : text;
}

function parseConfig(text: string): LogConfig {
  if (text === "") return DEFAULT_LOG_CONFIG;
  try {
    return Object.freeze(JSON.parse(text)) as LogConfig;
  } catch {
    throw new MalformedError("the log's configuration is not JSON");
  }
}
