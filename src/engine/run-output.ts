import {
  BATCH_BYTES_TARGET,
  BATCH_HEADER_BYTES,
  batchFileBytes,
  type RecordCursor,
  sealBatch,
  zeroPadding,
} from "../storage/batch.js";
import { type Run, SEGMENT_HEADER_BYTES, type Segment, SparseIndex } from "../storage/segment.js";
import type { SegmentWriter } from "./segment-writer.js";

/** Bytes written at a time. */
const WRITE_BYTES = 512 * 1024;

/**
 * Writes records that are left of older runs to a new one. Their offsets stay, so there are holes between them: each
 * batch stands for the offsets up to the next one, and the whole run for all that the older ones stood for.
 */
export class RunOutput {
  readonly #writer: SegmentWriter;
  readonly #segment: Segment;
  readonly #streamId: number;
  readonly #first: number;
  readonly #index = new SparseIndex();
  #buffer = Buffer.allocUnsafeSlow(WRITE_BYTES + 2 * BATCH_BYTES_TARGET);
  /** Position in the file of the buffer's first byte. */
  #filePosition = SEGMENT_HEADER_BYTES;
  /** Where the open batch begins in the buffer; all before is complete. */
  #start = 0;
  #end = 0;
  /** Records in the open batch. */
  #inBatch = 0;
  #base = 0;
  #timestamp = 0;
  #lastOffset = 0;
  #count = 0;
  #firstTimestamp = 0;
  #lastTimestamp = 0;

  /** @param first the offset that the run stands for from on */
  constructor(writer: SegmentWriter, segment: Segment, streamId: number, first: number) {
    this.#writer = writer;
    this.#segment = segment;
    this.#streamId = streamId;
    this.#first = first;
  }

  /** True when `flush` is to be called. */
  get full(): boolean {
    return this.#start >= WRITE_BYTES;
  }

  add(record: RecordCursor): void {
    const { offset, timestamp, copyBytesMax } = record;
    if (this.#inBatch > 0 && this.#end - this.#start + copyBytesMax > BATCH_BYTES_TARGET) this.#closeBatch(offset);
    this.#reserve(BATCH_HEADER_BYTES + copyBytesMax);
    if (this.#inBatch === 0) {
      this.#base = this.#count === 0 ? this.#first : offset;
      this.#lastOffset = this.#base - 1;
      this.#timestamp = timestamp;
      this.#end += BATCH_HEADER_BYTES;
      if (this.#count === 0) this.#firstTimestamp = timestamp;
    }
    const follows = offset === this.#lastOffset + 1;
    const offsetDelta = follows ? undefined : offset - this.#base;
    this.#end = record.copyTo(this.#buffer, this.#end, timestamp - this.#timestamp, offsetDelta);
    this.#lastOffset = offset;
    this.#lastTimestamp = timestamp;
    this.#inBatch++;
    this.#count++;
  }

  /** Writes the batches that are complete; returns how many bytes that is. */
  async flush(): Promise<number> {
    const bytes = this.#start;
    if (bytes === 0) return 0;
    await this.#writer.write(this.#segment, [this.#buffer.subarray(0, bytes)], this.#filePosition);
    this.#filePosition += bytes;
    this.#buffer.copyWithin(0, bytes, this.#end);
    this.#end -= bytes;
    this.#start = 0;
    return bytes;
  }

  /** Writes the rest. The run stands for the offsets up to `next`. Undefined when no record was added. */
  async finish(next: number): Promise<Run | undefined> {
    if (this.#count === 0) return undefined;
    this.#closeBatch(next);
    await this.flush();
    const bytes = this.#filePosition - SEGMENT_HEADER_BYTES;
    this.#segment.bytes = this.#filePosition;
    return {
      segment: this.#segment,
      position: SEGMENT_HEADER_BYTES,
      bytes,
      first: this.#first,
      next,
      count: this.#count,
      firstTimestamp: this.#firstTimestamp,
      lastTimestamp: this.#lastTimestamp,
      index: this.#index,
    };
  }

  #closeBatch(next: number): void {
    const start = this.#start;
    const end = this.#end;
    const buffer = this.#buffer;
    sealBatch(buffer, start, end, this.#streamId, this.#inBatch, this.#base, this.#timestamp, next - this.#base);
    this.#index.note(this.#base, this.#filePosition + start, this.#timestamp);
    this.#end = start + batchFileBytes(end - start);
    zeroPadding(buffer, start, end - start);
    this.#start = this.#end;
    this.#inBatch = 0;
  }

  #reserve(bytes: number): void {
    const needed = this.#end + bytes + 8;
    if (needed <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafeSlow(needed);
    this.#buffer.copy(larger, 0, 0, this.#end);
    this.#buffer = larger;
  }
}
