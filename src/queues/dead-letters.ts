import type { Codec } from "../api/codec.js";
import type { DeadLetter, DeadLetters, DeadSelection } from "../api/contract.js";
import { type ResolvedDeadSelection, resolveDeadReadOptions, resolveDeadSelection } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { type RecordCursor, type RecordParts, recordBytesMax } from "../storage/batch.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import { StreamReader } from "../storage/stream-reader.js";
import { decodeTaskAttributes, encodeTaskAttributes } from "./task-record.js";
import { TaskOp, type TaskState } from "./task-state.js";

/** Dead letters moved or deleted by one commit, at most, and the bytes of their records, about. */
const CHUNK_LETTERS = 256;
const CHUNK_BYTES = 1024 * 1024;

/** A dead letter on its way back to its queue. */
interface Redriven {
  readonly offset: number;
  readonly parts: RecordParts;
}

/** The dead letters of an embedded task queue. */
export class EmbeddedDeadLetters<O> implements DeadLetters<O> {
  readonly #engine: Engine;
  readonly #state: TaskState;
  readonly #codec: Codec<unknown, O>;

  constructor(engine: Engine, state: TaskState, codec: Codec<never, O>) {
    this.#engine = engine;
    this.#state = state;
    this.#codec = codec as Codec<unknown, O>;
  }

  async read(options?: { readonly after?: number; readonly limit?: number }): Promise<DeadLetter<O>[]> {
    const { after, limit } = resolveDeadReadOptions(options);
    this.#engine.checkOpen();
    const letters: DeadLetter<O>[] = [];
    await this.#each(after === undefined ? 0 : after + 1, (record) => {
      letters.push(this.#letter(record));
      return letters.length < limit;
    });
    return letters;
  }

  async redrive(selection?: DeadSelection): Promise<number> {
    const selected = resolveDeadSelection(selection);
    return await this.#exclusively(async () => {
      const until = this.#state.deadTasks.next;
      let moved = 0;
      for (let from = 0; ; ) {
        const chunk: Redriven[] = [];
        let bytes = 0;
        await this.#select(selected, moved, from, until, (record) => {
          const parts = redrivenParts(record);
          chunk.push({ offset: record.offset, parts });
          bytes += recordBytesMax(parts);
          return chunk.length < CHUNK_LETTERS && bytes < CHUNK_BYTES;
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
    const selected = resolveDeadSelection(selection);
    return await this.#exclusively(async () => {
      if (selected.ids === undefined && selected.limit === undefined) return await this.#purgeAll();
      const until = this.#state.deadTasks.next;
      let purged = 0;
      for (let from = 0; ; ) {
        const offsets: number[] = [];
        await this.#select(selected, purged, from, until, (record) => {
          offsets.push(record.offset);
          return offsets.length < CHUNK_LETTERS;
        });
        const last = offsets[offsets.length - 1];
        if (last === undefined) return purged;
        await this.#remove(
          offsets,
          0,
          0,
          () => {},
          () => {},
        );
        purged += offsets.length;
        from = last + 1;
      }
    });
  }

  #exclusively(run: () => Promise<number>): Promise<number> {
    this.#engine.checkOpen();
    return this.#engine.finishing(this.#state.exclusively(run));
  }

  /** Visits selected letters with offsets in [from, until) until the visitor has enough. `done` count against the limit. */
  async #select(
    selected: ResolvedDeadSelection,
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
      left--;
      return visit(record) && left > 0;
    });
  }

  async #redriveChunk(chunk: readonly Redriven[], bytes: number): Promise<void> {
    const state = this.#state;
    const offsets = chunk.map((letter) => letter.offset);
    const stage = () => {
      for (const { parts } of chunk) this.#engine.append(state.tasks, parts);
    };
    await this.#remove(offsets, bytes, chunk.length, stage, () => state.wakeReceivers());
  }

  #remove(
    offsets: readonly number[],
    bulkBytes: number,
    records: number,
    stage: () => void,
    applied: () => void,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      const state = this.#state;
      const metaBytes = OPERATION_HEADER_BYTES + (offsets.length + 1) * VARINT_BYTES_MAX;
      engine.begin(bulkBytes, records, metaBytes, records === 0);
      stage();
      const output = engine.operation(TaskOp.Exhume, state.id);
      output.varint(offsets.length);
      for (const offset of offsets) output.varint(offset);
      engine.endOperation();
      engine.add({
        durability: engine.options.durability,
        apply: () => {
          state.exhume(offsets);
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
      const state = this.#state;
      engine.begin(0, 0, OPERATION_HEADER_BYTES + VARINT_BYTES_MAX, true);
      const until = state.deadTasks.staged;
      engine.operation(TaskOp.Purge, state.id).varint(until);
      engine.endOperation();
      let purged = 0;
      engine.add({
        durability: engine.options.durability,
        apply: () => {
          purged = state.deadCount;
          state.purgeBelow(until);
        },
        settle: () => resolve(purged),
        fail: reject,
      });
    });
  }

  /** Visits the letters at or above an offset, oldest first, until the visitor has enough. */
  async #each(from: number, visit: (record: RecordCursor) => boolean): Promise<void> {
    const { deadTasks, exhumed } = this.#state;
    const reader = new StreamReader(deadTasks, this.#engine, from);
    for (;;) {
      const found = reader.next(deadTasks.visible);
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

function idOf(record: RecordCursor): string {
  return decodeTaskAttributes(record.attributes()).death?.id ?? "";
}

/** The task again: as it was enqueued, with its history, its attempts counted from the start. */
function redrivenParts(record: RecordCursor): RecordParts {
  const { limit, failures, death } = decodeTaskAttributes(record.attributes());
  const origin = death === undefined ? undefined : { offset: Number(death.id), timestamp: death.enqueuedAt };
  return {
    payload: record.payload(),
    key: record.key(),
    headers: record.headers(),
    attributes: encodeTaskAttributes({ limit, failures, death: undefined, origin }),
  };
}
