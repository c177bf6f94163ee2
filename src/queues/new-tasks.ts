import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { FIRST_QUEUE_OP } from "../engine/queue-state.js";
import type { RecordParts } from "../storage/batch.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Change } from "./commit.js";
import type { DedupeClaim } from "./dedupe.js";
import { detach, totalBytesMax } from "./input.js";
import { type DueTerms, SCHEDULE_BYTES_MAX } from "./scheduled.js";
import { taskId } from "./task-record.js";
import type { TaskState } from "./task-state.js";

/** On disk: append, never renumber. n { key, id }: the key stands for the task from now on. */
export const OP_DEDUPE = FIRST_QUEUE_OP + 74;

/** What becomes of a task whose caller gave dedupe keys. */
interface KeyedTask {
  readonly key: string | undefined;
  claim: DedupeClaim | undefined;
  /** Not enqueued: an earlier task stands for its key. */
  duplicate: boolean;
  id: string;
}

/** Tasks with the same terms on their way into a queue, as one part of a commit. */
export class NewTasks implements Change {
  readonly bulkBytes: number;
  readonly records: number;
  readonly metaBytes: number;
  readonly settles = false;
  readonly #engine: Engine;
  readonly #state: TaskState;
  readonly #priority: number;
  readonly #due: DueTerms | undefined;
  readonly #parts: readonly RecordParts[];
  /** One for each record; `undefined` where none has a key. */
  readonly #keyed: readonly KeyedTask[] | undefined;
  readonly #isAdmitted: boolean;
  /** Gives up the room that is kept for them. */
  #claim: (() => void) | undefined;
  /** Of those that are enqueued: they are consecutive. */
  #first = 0;
  #count = 0;

  /**
   * @param due when they are due, if not at once; their records say so
   * @param keys dedupe keys, one for each record
   * @param isAdmitted the queue's limits have let them in; otherwise they are refused if there is no room
   */
  constructor(
    engine: Engine,
    state: TaskState,
    records: readonly RecordParts[],
    priority: number,
    due: DueTerms | undefined,
    keys: readonly (string | undefined)[] | undefined,
    isAdmitted: boolean,
  ) {
    this.#isAdmitted = isAdmitted;
    this.#engine = engine;
    this.#state = state;
    this.#priority = priority;
    this.#due = due;
    this.#parts = records;
    this.#keyed = keys?.some((key) => key !== undefined)
      ? keys.map((key) => ({ key, claim: undefined, duplicate: false, id: "" }))
      : undefined;
    this.bulkBytes = totalBytesMax(records);
    this.records = records.length;
    let metaBytes = due === undefined ? 0 : SCHEDULE_BYTES_MAX;
    if (this.#keyed !== undefined) metaBytes += OPERATION_HEADER_BYTES + VARINT_BYTES_MAX;
    for (const key of keys ?? []) if (key !== undefined) metaBytes += key.length * 3 + 4 * VARINT_BYTES_MAX;
    this.metaBytes = metaBytes;
  }

  own(): void {
    detach(this.#parts);
  }

  reserve(): void {
    const state = this.#state;
    const gone = state.tasks.deleted; // a directory that closes finishes what it has accepted
    if (gone !== undefined) throw gone;
    this.#state.openLane(this.#state.consumer, this.#priority);
    if (!this.#isAdmitted) this.#claim = state.room.require(this.#engine, this.#parts);
    if (this.#keyed === undefined) return;
    const { dedupe, config, name } = this.#state;
    const elapsedMs = this.#engine.elapsedMs();
    try {
      for (const task of this.#keyed) {
        if (task.key === undefined) continue;
        const { claim, first } = dedupe.claim(task.key, config.dedupe, elapsedMs, name);
        task.claim = claim;
        task.duplicate = !first;
      }
    } catch (error) {
      this.release();
      throw error;
    }
  }

  release(): void {
    this.#giveUpRoom();
    for (const { claim, duplicate } of this.#keyed ?? []) {
      if (claim !== undefined && !duplicate) this.#state.dedupe.release(claim);
    }
  }

  stage(): void {
    const engine = this.#engine;
    const { consumer, scheduled } = this.#state;
    const { stream } = consumer.lane(this.#priority);
    this.#giveUpRoom();
    const keyed = this.#keyed;
    this.#count = 0;
    for (let index = 0; index < this.records; index++) {
      const task = keyed?.[index];
      if (task?.duplicate === true) continue;
      const offset = engine.append(stream, this.#parts[index]!);
      if (this.#count++ === 0) this.#first = offset;
      if (task === undefined) continue;
      task.id = taskId(this.#priority, offset);
      if (task.claim !== undefined) task.claim.id = task.id;
    }
    if (this.#count === 0) return;
    if (this.#due !== undefined) scheduled.stage(engine, this.#priority, this.#first, this.#count, this.#due);
    if (keyed !== undefined) this.#stageKeys(keyed);
  }

  #stageKeys(keyed: readonly KeyedTask[]): void {
    const claimed = keyed.filter(({ claim, duplicate }) => claim !== undefined && !duplicate);
    if (claimed.length === 0) return;
    const output = this.#engine.operation(OP_DEDUPE, this.#state.id);
    output.varint(claimed.length);
    for (const { key, id } of claimed) {
      output.string(key!);
      output.string(id);
    }
    this.#engine.endOperation();
  }

  #giveUpRoom(): void {
    this.#claim?.();
    this.#claim = undefined;
  }

  apply(): void {
    if (this.#count === 0) return;
    const { dedupe, scheduled, consumer } = this.#state;
    const { entryTime } = this.#engine;
    for (const { key, id, duplicate } of this.#keyed ?? []) {
      if (key !== undefined && !duplicate) dedupe.committed(key, id, entryTime.elapsedMs);
    }
    if (this.#due === undefined) {
      consumer.delivery.wake();
    } else {
      this.#state.setAside(this.#priority, this.#count);
      scheduled.schedule(this.#priority, this.#first, this.#count, this.#due, entryTime);
      consumer.arm();
    }
  }

  /** What the caller is told, in order; once it is staged. */
  enqueued<T>(tell: (id: string, created: boolean) => T): T[] {
    const first = this.#first;
    if (this.#keyed === undefined)
      return this.#parts.map((_, index) => tell(taskId(this.#priority, first + index), true));
    return this.#keyed.map(({ id, claim, duplicate }) => tell(duplicate ? claim!.id! : id, !duplicate));
  }
}
