import { FIRST_QUEUE_OP, type QueueState } from "../engine/queue-state.js";
import { type Decoder, MalformedError } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";
import { onAbort } from "./signals.js";

/** On disk: append, never renumber. */
export const LogOp = { Trim: FIRST_QUEUE_OP } as const;

/** A log queue: a stream, and where it begins. */
export class LogState implements QueueState {
  readonly kind = 1;
  readonly id: number;
  readonly name: string;
  readonly streams: readonly Stream[];
  readonly stream: Stream;
  /** Called when there are more records to read, or none will come any more. */
  readonly #watchers = new Set<() => void>();
  /** Why no more records will come. */
  ended: Error | undefined;

  constructor(id: number, name: string, streams: Stream[]) {
    this.id = id;
    this.name = name;
    this.streams = streams;
    this.stream = streams[0]!;
    this.stream.onVisible = () => this.#notify();
  }

  get count(): number {
    return this.stream.recordsBetween(this.stream.head, this.stream.next);
  }

  replay(code: number, input: Decoder): void {
    if (code !== LogOp.Trim) throw new MalformedError(`operation ${code} of a log is not known`);
    this.trim(input.varint());
  }

  trim(offset: number): void {
    this.stream.trimTo(offset);
  }

  addStream(stream: Stream): void {
    throw new MalformedError(`a log has no stream ${stream.folder}`);
  }

  encode(): void {}

  neededFrom(): number {
    return this.stream.head;
  }

  resume(): void {}

  close(error: Error): void {
    this.ended = error;
    this.#notify();
  }

  /** Resolves when a record at or above `offset` is visible, the log ends, or the signal is aborted. */
  async readable(offset: number, signal: AbortSignal | undefined): Promise<void> {
    while (this.stream.visible <= offset && this.ended === undefined && signal?.aborted !== true) {
      await new Promise<void>((resolve) => {
        const done = () => {
          this.#watchers.delete(done);
          unwatch?.();
          resolve();
        };
        this.#watchers.add(done);
        const unwatch = signal === undefined ? undefined : onAbort(signal, done);
      });
    }
  }

  #notify(): void {
    if (this.#watchers.size === 0) return;
    for (const watcher of [...this.#watchers]) watcher();
  }
}
