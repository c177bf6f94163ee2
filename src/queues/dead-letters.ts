import type { Codec } from "../api/codec.js";
import type { DeadLetter, DeadLetters, DeadSelection } from "../api/contract.js";
import { resolveDeadReadOptions, resolveDeadSelection } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { type RecordCursor, type RecordParts, recordBytesMax } from "../storage/batch.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import { StreamReader } from "../storage/stream-reader.js";
import { type Consumer, ConsumerOp } from "./consumer.js";
import type { Lane } from "./lane.js";
import type { Redriven as RedrivenTask } from "./outcomes.js";
import { decodeTaskAttributes, encodeTaskAttributes } from "./task-record.js";

/** Dead letters moved or deleted by one commit, at most, and the bytes of their records, about. */
const CHUNK_LETTERS = 256;
const CHUNK_BYTES = 1024 * 1024;
/** What a letter adds to a commit besides its record: the operations that name it, and a batch of its own. */
const LETTER_BYTES_MAX = 640;

/** Letters that are searched at a time. */
const LETTERS_SEARCHED = 1024;

/** Which dead letters are meant. */
interface Selected {
  readonly ids: readonly string[] | undefined;
  /** Wall clock time by which they had died. */
  readonly diedBy: number | undefined;
  readonly limit: number | undefined;
}

/** A dead letter on its way back to its queue. */
interface Redriven {
  readonly offset: number;
  /** The task's. */
  readonly id: string;
  readonly lane: number;
  readonly parts: RecordParts;
}

/** The dead letters of an embedded task queue. */
export class EmbeddedDeadLetters<O> implements DeadLetters<O> {
  readonly #engine: Engine;
  readonly #consumer: Consumer;
  readonly #codec: Codec<unknown, O>;

  constructor(engine: Engine, consumer: Consumer, codec: Codec<never, O>) {
    this.#engine = engine;
    this.#consumer = consumer;
    this.#codec = codec as Codec<unknown, O>;
  }

  async read(options?: { readonly after?: number; readonly limit?: number }): Promise<DeadLetter<O>[]> {
    const { after, limit } = resolveDeadReadOptions(options);
    this.#checkOpen();
    const letters: DeadLetter<O>[] = [];
    await this.#each(after === undefined ? 0 : after + 1, (record) => {
      letters.push(this.#letter(record));
      return letters.length < limit;
    });
    return letters;
  }

  async redrive(selection?: DeadSelection): Promise<number> {
    const selected = this.#resolve(selection);
    return await this.#exclusively(async () => {
      const until = this.#consumer.dead.stream?.next ?? 0;
      const bytesMax = Math.min(CHUNK_BYTES, this.#engine.commitBytesMax - LETTER_BYTES_MAX);
      let moved = 0;
      for (let from = 0; ; ) {
        const chunk: Redriven[] = [];
        let bytes = 0;
        await this.#select(selected, moved, from, until, (record) => {
          const parts = redrivenParts(record);
          const own = recordBytesMax(parts);
          // One that does not fit any more begins the next chunk.
          if (chunk.length > 0 && bytes + own + (chunk.length + 1) * LETTER_BYTES_MAX > bytesMax) return false;
          chunk.push({ offset: record.offset, id: idOf(record), lane: laneOf(record), parts });
          bytes += own;
          return chunk.length < CHUNK_LETTERS;
        });
        const last = chunk[chunk.length - 1];
        if (last === undefined) return moved;
        await this.#redriveChunk(chunk, bytes);
        moved += chunk.length;
        from = last.offset + 1;
      }
    });
  }

  async purge(selection?: DeadSelection): Promise<number> {
    const selected = this.#resolve(selection);
    return await this.#exclusively(async () => {
      const { ids, diedBy, limit } = selected;
      if (ids === undefined && diedBy === undefined && limit === undefined) return await this.#purgeAll();
      const until = this.#consumer.dead.stream?.next ?? 0;
      let purged = 0;
      for (let from = 0; ; ) {
        const chunk = await this.#purgeChunk(selected, purged, from, until);
        if (chunk === undefined) return purged;
        purged += chunk.count;
        from = chunk.next;
      }
    });
  }

  /**
   * Deletes the oldest letters at or above an offset, as many as there are in all above `max`, or a commit's worth of them.
   * Returns how many; 0 when there is nothing to do.
   */
  dropAbove(max: number, from: number): Promise<number> {
    return this.#exclusively(async () => {
      const { counts, dead } = this.#consumer;
      const limit = Math.min(dead.count - max, CHUNK_LETTERS);
      if (limit <= 0) return 0;
      const oldest: Selected = { ids: undefined, diedBy: undefined, limit };
      const chunk = await this.#purgeChunk(oldest, 0, from, Number.POSITIVE_INFINITY, (count) => {
        counts.deadDropped += count;
      });
      return chunk?.count ?? 0;
    });
  }

  /** Deletes the first of the selected letters, in one commit. Undefined when there is none. */
  async #purgeChunk(
    selected: Selected,
    done: number,
    from: number,
    until: number,
    applied?: (count: number) => void,
  ): Promise<{ readonly count: number; readonly next: number } | undefined> {
    const { flows } = this.#consumer.host;
    const offsets: number[] = [];
    const gone: string[] = [];
    await this.#select(selected, done, from, until, (record) => {
      offsets.push(record.offset);
      gone.push(idOf(record));
      return offsets.length < CHUNK_LETTERS;
    });
    const last = offsets[offsets.length - 1];
    if (last === undefined) return undefined;
    await this.#remove(
      offsets,
      { bytes: 0, records: 0, meta: flows?.lettersBytesMax(gone.length) ?? 0 },
      () => flows?.stageLettersGone(gone),
      () => {
        flows?.lettersGone(gone);
        applied?.(offsets.length);
      },
    );
    return { count: offsets.length, next: last + 1 };
  }

  #resolve(selection: DeadSelection | undefined): Selected {
    const { ids, olderThanMs, limit } = resolveDeadSelection(selection);
    const diedBy = olderThanMs === undefined ? undefined : this.#engine.clock.wallMs() - olderThanMs;
    return { ids, diedBy, limit };
  }

  #checkOpen(): void {
    this.#engine.checkOpen();
    if (this.#consumer.deleted !== undefined) throw this.#consumer.deleted;
  }

  #exclusively(run: () => Promise<number>): Promise<number> {
    this.#checkOpen();
    return this.#engine.finishing(this.#consumer.dead.exclusively(run));
  }

  /** Visits selected letters with offsets in [from, until) until the visitor has enough. `done` count against the limit. */
  async #select(
    selected: Selected,
    done: number,
    from: number,
    until: number,
    visit: (record: RecordCursor) => boolean,
  ): Promise<void> {
    const ids = selected.ids === undefined ? undefined : new Set(selected.ids);
    let left = Math.min(selected.limit ?? Number.POSITIVE_INFINITY, ids?.size ?? Number.POSITIVE_INFINITY) - done;
    if (left <= 0) return;
    await this.#each(from, (record) => {
      if (record.offset >= until) return false;
      if (ids !== undefined && !ids.has(idOf(record))) return true;
      // Not the end of it: the clock may have been set back, and those behind it have died earlier by what they say.
      if (selected.diedBy !== undefined && diedAt(record) > selected.diedBy) return true;
      left--;
      return visit(record) && left > 0;
    });
  }

  async #redriveChunk(chunk: readonly Redriven[], bytes: number): Promise<void> {
    const consumer = this.#consumer;
    const offsets = chunk.map((letter) => letter.offset);
    const lanes = new Map<number, Lane>();
    if (consumer.deleted !== undefined) throw consumer.deleted;
    for (const { lane } of chunk) if (!lanes.has(lane)) lanes.set(lane, consumer.host.openLane(consumer, lane));
    const { redriving } = consumer.host;
    const tasks: RedrivenTask[] = [];
    const stage = () => {
      for (const { id, lane: died, parts } of chunk) {
        const lane = lanes.get(died)!;
        tasks.push({ id, lane: lane.number, offset: this.#engine.append(lane.stream, parts) });
      }
      redriving?.stage(tasks);
    };
    const applied = () => {
      redriving?.applied(tasks);
      consumer.counts.redriven += tasks.length;
      consumer.delivery.wake();
    };
    await this.#remove(
      offsets,
      { bytes, records: chunk.length, meta: redriving?.bytesMax(chunk.length) ?? 0 },
      stage,
      applied,
    );
  }

  #remove(
    offsets: readonly number[],
    more: { readonly bytes: number; readonly records: number; readonly meta: number },
    stage: () => void,
    applied: () => void,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      const consumer = this.#consumer;
      if (consumer.deleted !== undefined) throw consumer.deleted;
      const metaBytes = OPERATION_HEADER_BYTES + (offsets.length + 2) * VARINT_BYTES_MAX + more.meta;
      engine.begin(more.bytes, more.records, metaBytes, more.records === 0);
      stage();
      const output = consumer.operation(ConsumerOp.Exhume);
      output.varint(offsets.length);
      for (const offset of offsets) output.varint(offset);
      engine.endOperation();
      engine.add({
        durability: engine.options.durability,
        apply: () => {
          consumer.dead.exhume(offsets);
          applied();
        },
        settle: resolve,
        fail: reject,
      });
    });
  }

  #purgeAll(): Promise<number> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      const { dead, deleted } = this.#consumer;
      if (deleted !== undefined) throw deleted;
      engine.begin(0, 0, OPERATION_HEADER_BYTES + 2 * VARINT_BYTES_MAX, true);
      const until = dead.stream?.staged ?? 0;
      this.#consumer.operation(ConsumerOp.Purge).varint(until);
      engine.endOperation();
      let purged = 0;
      engine.add({
        durability: engine.options.durability,
        apply: () => {
          purged = dead.count;
          dead.purgeBelow(until);
          this.#consumer.host.flows?.allLettersGone();
        },
        settle: () => resolve(purged),
        fail: reject,
      });
    });
  }

  /** The letter of a task, looked for from the newest back; undefined when there is none. */
  async find(id: string): Promise<DeadLetter<O> | undefined> {
    const { stream } = this.#consumer.dead;
    if (stream === undefined) return undefined;
    for (let until = stream.visible; until > stream.head; until -= LETTERS_SEARCHED) {
      let found: DeadLetter<O> | undefined;
      await this.#each(Math.max(stream.head, until - LETTERS_SEARCHED), (record) => {
        if (record.offset >= until) return false;
        if (idOf(record) === id) found = this.#letter(record);
        return true;
      });
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** Visits the letters at or above an offset, oldest first, until the visitor has enough. */
  async #each(from: number, visit: (record: RecordCursor) => boolean): Promise<void> {
    const { stream, exhumed } = this.#consumer.dead;
    if (stream === undefined) return;
    const reader = new StreamReader(stream, this.#engine, from);
    for (;;) {
      const found = reader.next(stream.visible);
      if (found === "end") return;
      if (found === "load") await reader.load();
      else if (!exhumed.has(reader.record.offset) && !visit(reader.record)) return;
    }
  }

  #letter(record: RecordCursor): DeadLetter<O> {
    const { failures, death } = decodeTaskAttributes(record.attributes());
    const raw = record.payload();
    let payload: O | undefined;
    try {
      payload = this.#codec.decode(raw);
    } catch {
      // That may be why it is here; the bytes are in `raw`.
    }
    return {
      id: death?.id ?? "",
      offset: record.offset,
      enqueuedAt: death?.enqueuedAt ?? record.timestamp,
      diedAt: death?.diedAt ?? record.timestamp,
      attempts: death?.attempts ?? 0,
      reason: death?.reason ?? "",
      failures: failures ?? [],
      key: record.key(),
      headers: record.headers(),
      payload,
      raw,
    };
  }
}

function laneOf(record: RecordCursor): number {
  return decodeTaskAttributes(record.attributes()).lane;
}

function idOf(record: RecordCursor): string {
  return decodeTaskAttributes(record.attributes()).death?.id ?? "";
}

/** Wall clock time. */
function diedAt(record: RecordCursor): number {
  return decodeTaskAttributes(record.attributes()).death?.diedAt ?? record.timestamp;
}

/** The task again: as it was enqueued, with its history, its attempts counted from the start. */
function redrivenParts(record: RecordCursor): RecordParts {
  const attributes = decodeTaskAttributes(record.attributes());
  const { death } = attributes;
  const origin = death === undefined ? undefined : { id: death.id, timestamp: death.enqueuedAt };
  return {
    payload: record.payload(),
    key: record.key(),
    headers: record.headers(),
    attributes: encodeTaskAttributes({
      ...attributes,
      death: undefined,
      origin,
      lane: 0,
      expiresAt: 0,
      hasTtl: false,
      setAside: false,
    }),
  };
}
