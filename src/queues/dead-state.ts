import type { Decoder, Encoder } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";

/** The dead letters of a consumer: a stream, less those that were redriven or purged one by one. */
export class DeadState {
  /** `undefined` while nothing has ever died. */
  stream: Stream | undefined;
  /** Dead letters above the head of their stream that are gone. */
  readonly exhumed = new Set<number>();
  #exclusive: Promise<unknown> = Promise.resolve();

  constructor(stream: Stream | undefined) {
    this.stream = stream;
  }

  /** Those that can be read. */
  get count(): number {
    return this.#below(this.stream?.visible ?? 0);
  }

  /** Those on their way to the disk as well, which are nowhere else any more. */
  get countComing(): number {
    return this.#below(this.stream?.next ?? 0);
  }

  /** Those that are only about to be written to the log, too. */
  get countStaged(): number {
    return this.#below(this.stream?.staged ?? 0);
  }

  #below(end: number): number {
    const { stream } = this;
    return stream === undefined ? 0 : Math.max(0, stream.recordsBetween(stream.head, end) - this.exhumed.size);
  }

  encode(output: Encoder): void {
    output.varint(this.exhumed.size);
    for (const offset of this.exhumed) output.varint(offset);
  }

  decode(input: Decoder): void {
    for (let count = input.varint(); count > 0; count--) this.exhumed.add(input.varint());
  }

  /** Runs redrives and purges one after another: each must see what the one before it left. */
  exclusively<T>(run: () => Promise<T>): Promise<T> {
    const result = this.#exclusive.then(run, run);
    this.#exclusive = result;
    return result;
  }

  exhume(offsets: Iterable<number>): void {
    for (const offset of offsets) this.exhumed.add(offset);
    this.#trim();
  }

  purgeBelow(offset: number): void {
    this.stream?.trimTo(offset);
    for (const each of this.exhumed) if (each < offset) this.exhumed.delete(each);
    this.#trim();
  }

  /** Lets go of the beginning of the dead letters once all of it is gone. */
  #trim(): void {
    const { stream } = this;
    if (stream === undefined) return;
    let head = stream.skipGaps(stream.head);
    while (this.exhumed.delete(head)) head = stream.skipGaps(head + 1);
    stream.trimTo(Math.min(head, stream.next));
  }
}
