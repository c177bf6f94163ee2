import type { Codec } from "../api/codec.js";
import type { CommitOptions, DeadLetter, DeadLetters, DeadSelection, Durability } from "../api/contract.js";
import { resolveCommitOptions, resolveDeadReadOptions, resolveDeadSelection } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { requestBytes } from "../engine/requests.js";
import { type RecordCursor, type RecordParts, recordBytesMax } from "../storage/batch.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import { StreamReader } from "../storage/stream-reader.js";
import { type Consumer, ConsumerOp } from "./consumer.js";
import type { Lane } from "./lane.js";
import type { Redriven as RedrivenTask } from "./outcomes.js";
import { type Answer, AnswerKind, type Request, requested } from "./requested.js";
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

/** How far a call has got that redrives or purges letters, as all its commits so far have left it. */
interface Progress {
  /** Of these letters: their queue may have been made again meanwhile. */
  readonly queue: number;
  readonly consumer: number;
  readonly count: number;
  /** The offsets that are still to be looked at: from `next` on, below `until`. */
  readonly next: number;
  readonly until: number;
  readonly diedBy: number | undefined;
}

const PROGRESS: Answer<Progress> = {
  kind: AnswerKind.Letters,
  goesOn: true,
  bytesMax: () => 6 * VARINT_BYTES_MAX,
  encode(output, { queue, consumer, count, next, until, diedBy }) {
    for (const field of [queue, consumer, count, next, until]) output.varint(field);
    output.varint(diedBy === undefined ? 0 : diedBy + 1);
  },
  decode(input) {
    const [queue, consumer, count, next, until, died] = Array.from({ length: 6 }, () => input.varint());
    return {
      queue: queue!,
      consumer: consumer!,
      count: count!,
      next: next!,
      until: until!,
      diedBy: died === 0 ? undefined : died! - 1,
    };
  },
  isNone: ({ count }) => count === 0,
};

/** Whose commits these are: how durable, and which call they carry out. */
interface Terms {
  readonly durability: Durability;
  readonly request?: Request<Progress> | undefined;
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

  redrive(selection?: DeadSelection, options?: CommitOptions): Promise<number> {
    return this.#stepByStep(selection, options, (selected, so, terms) => this.#redriveChunk(selected, so, terms));
  }

  purge(selection?: DeadSelection, options?: CommitOptions): Promise<number> {
    return this.#stepByStep(selection, options, async (selected, so, terms) => {
      const { ids, diedBy, limit } = selected;
      const all = ids === undefined && diedBy === undefined && limit === undefined;
      return all ? await this.#purgeAll(so, terms) : await this.#purgeChunk(selected, so, terms);
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
      const so = { ...this.#begin(undefined), next: from };
      const terms = { durability: this.#engine.options.durability };
      const after = await this.#purgeChunk(oldest, so, terms, (count) => {
        counts.deadDropped += count;
      });
      return after?.count ?? 0;
    });
  }

  /**
   * Does what is asked for the selected letters, commit by commit, and tells of how many. A call that is repeated goes on
   * where its last commit left it, and counts on.
   * @param step makes one commit, and tells how far it got; undefined when nothing was left to do
   */
  async #stepByStep(
    selection: DeadSelection | undefined,
    options: CommitOptions | undefined,
    step: (selected: Selected, so: Progress, terms: Terms) => Promise<Progress | undefined>,
  ): Promise<number> {
    const { ids, olderThanMs, limit } = resolveDeadSelection(selection);
    const durability = this.#engine.durability(resolveCommitOptions(options).durability);
    const diedBy = olderThanMs === undefined ? undefined : Math.max(0, this.#engine.clock.wallMs() - olderThanMs);
    const run = async (request: Request<Progress> | undefined, before: Progress | undefined): Promise<Progress> => {
      let so = before ?? this.#begin(diedBy);
      const { id, number } = this.#place;
      // The letters that it was about went with their queue.
      if (so.queue !== id || so.consumer !== number) return so;
      for (;;) {
        const after = await step({ ids, diedBy: so.diedBy, limit }, so, { durability, request });
        if (after === undefined) return so;
        so = after;
      }
    };
    const { count } = await requested(this.#engine, options, PROGRESS, (request, before) => {
      return this.#exclusively(() => run(request, before));
    });
    return count;
  }

  get #place(): { readonly id: number; readonly number: number } {
    const { host, number } = this.#consumer;
    return { id: host.id, number };
  }

  /** Nothing is done yet. Of letters that come from now on nothing will be. */
  #begin(diedBy: number | undefined): Progress {
    const { id, number } = this.#place;
    return { queue: id, consumer: number, count: 0, next: 0, until: this.#consumer.dead.stream?.next ?? 0, diedBy };
  }

  /** Deletes the first of the selected letters, in one commit. */
  async #purgeChunk(
    selected: Selected,
    so: Progress,
    terms: Terms,
    applied?: (count: number) => void,
  ): Promise<Progress | undefined> {
    const { flows } = this.#consumer.host;
    const offsets: number[] = [];
    const gone: string[] = [];
    await this.#select(selected, so, (record) => {
      offsets.push(record.offset);
      gone.push(idOf(record));
      return offsets.length < CHUNK_LETTERS;
    });
    const last = offsets[offsets.length - 1];
    if (last === undefined) return undefined;
    const after = { ...so, count: so.count + offsets.length, next: last + 1 };
    await this.#remove(
      offsets,
      { bytes: 0, records: 0, meta: flows?.lettersBytesMax(gone.length) ?? 0 },
      () => flows?.stageLettersGone(gone),
      () => {
        flows?.lettersGone(gone);
        applied?.(offsets.length);
      },
      { ...terms, request: terms.request?.tells(after) },
    );
    return after;
  }

  #checkOpen(): void {
    this.#engine.checkOpen();
    if (this.#consumer.deleted !== undefined) throw this.#consumer.deleted;
  }

  #exclusively<T>(run: () => Promise<T>): Promise<T> {
    this.#checkOpen();
    return this.#engine.finishing(this.#consumer.dead.exclusively(run));
  }

  /** Visits the selected letters that are still to be looked at until the visitor has enough. */
  async #select(
    selected: Selected,
    { count, next, until }: Progress,
    visit: (record: RecordCursor) => boolean,
  ): Promise<void> {
    const ids = selected.ids === undefined ? undefined : new Set(selected.ids);
    let left = Math.min(selected.limit ?? Number.POSITIVE_INFINITY, ids?.size ?? Number.POSITIVE_INFINITY) - count;
    if (left <= 0) return;
    await this.#each(next, (record) => {
      if (record.offset >= until) return false;
      if (ids !== undefined && !ids.has(idOf(record))) return true;
      // Not the end of it: the clock may have been set back, and those behind it have died earlier by what they say.
      if (selected.diedBy !== undefined && diedAt(record) > selected.diedBy) return true;
      left--;
      return visit(record) && left > 0;
    });
  }

  /** Has the first of the selected letters enqueued again, in one commit. */
  async #redriveChunk(selected: Selected, so: Progress, terms: Terms): Promise<Progress | undefined> {
    const bytesMax = Math.min(CHUNK_BYTES, this.#engine.commitBytesMax - LETTER_BYTES_MAX);
    const chunk: Redriven[] = [];
    let bytes = 0;
    await this.#select(selected, so, (record) => {
      const parts = redrivenParts(record);
      const own = recordBytesMax(parts);
      // One that does not fit any more begins the next chunk.
      if (chunk.length > 0 && bytes + own + (chunk.length + 1) * LETTER_BYTES_MAX > bytesMax) return false;
      chunk.push({ offset: record.offset, id: idOf(record), lane: laneOf(record), parts });
      bytes += own;
      return chunk.length < CHUNK_LETTERS;
    });
    const last = chunk[chunk.length - 1];
    if (last === undefined) return undefined;
    const after = { ...so, count: so.count + chunk.length, next: last.offset + 1 };
    await this.#enqueueAgain(chunk, bytes, { ...terms, request: terms.request?.tells(after) });
    return after;
  }

  async #enqueueAgain(chunk: readonly Redriven[], bytes: number, terms: Terms): Promise<void> {
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
      terms,
    );
  }

  #remove(
    offsets: readonly number[],
    more: { readonly bytes: number; readonly records: number; readonly meta: number },
    stage: () => void,
    applied: () => void,
    { durability, request }: Terms,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      const consumer = this.#consumer;
      if (consumer.deleted !== undefined) throw consumer.deleted;
      const metaBytes = OPERATION_HEADER_BYTES + (offsets.length + 2) * VARINT_BYTES_MAX + more.meta;
      engine.begin(more.bytes, more.records, metaBytes + requestBytes(request), more.records === 0);
      stage();
      const output = consumer.operation(ConsumerOp.Exhume);
      output.varint(offsets.length);
      for (const offset of offsets) output.varint(offset);
      engine.endOperation();
      const apply = () => {
        consumer.dead.exhume(offsets);
        applied();
      };
      engine.add({ durability, apply, settle: resolve, fail: reject }, request);
    });
  }

  /** All that have died so far, whatever has come since the call was made. */
  async #purgeAll(so: Progress, { durability, request }: Terms): Promise<Progress | undefined> {
    const engine = this.#engine;
    const { dead, deleted } = this.#consumer;
    if (deleted !== undefined) throw deleted;
    if (so.count > 0 || dead.countStaged === 0) return undefined;
    return await new Promise((resolve, reject) => {
      engine.begin(0, 0, OPERATION_HEADER_BYTES + 2 * VARINT_BYTES_MAX + requestBytes(request), true);
      // Making room may have taken in what was staged before.
      const until = dead.stream!.staged;
      const after = { ...so, count: dead.countStaged, next: until, until };
      this.#consumer.operation(ConsumerOp.Purge).varint(until);
      engine.endOperation();
      const apply = () => {
        dead.purgeBelow(until);
        this.#consumer.host.flows?.allLettersGone();
      };
      engine.add({ durability, apply, settle: () => resolve(after), fail: reject }, request?.tells(after));
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
