/**
 * The two bounded memories of a directory: blocks, in which new data is encoded and which afterwards serve recent
 * reads; and chunks, which hold what was read from files. Both are rings of reused buffers, because fresh memory is
 * slow at first touch and because resident memory must not follow the backlog.
 */

export const BLOCK_BYTES = 256 * 1024;
export const CHUNK_BYTES = 256 * 1024;

/** A place where entries of the log are encoded, one behind another. What stood in it is gone when `life` changes. */
export interface Block {
  readonly buffer: Buffer;
  used: number;
  life: number;
}

/** The blocks, used in turn: taking one overwrites the oldest. */
export class BlockRing {
  readonly #count: number;
  readonly #blocks: Block[] = [];
  #next = 0;

  constructor(bytes: number) {
    this.#count = Math.max(2, Math.floor(bytes / BLOCK_BYTES));
  }

  get bytes(): number {
    return this.#blocks.length * BLOCK_BYTES;
  }

  /** An empty block of at least `bytes`. One for an entry larger than a block is not kept for reuse. */
  take(bytes: number): Block {
    if (bytes > BLOCK_BYTES) return { buffer: Buffer.allocUnsafeSlow(bytes), used: 0, life: 0 };
    let block = this.#blocks[this.#next];
    if (block === undefined) {
      block = { buffer: Buffer.allocUnsafeSlow(BLOCK_BYTES), used: 0, life: 0 };
      this.#blocks.push(block);
    }
    this.#next = (this.#next + 1) % this.#count;
    block.used = 0;
    block.life++;
    return block;
  }
}

/** Bytes [start, end) of a file, in memory. `owner` changes when the chunk is taken away for another reader. */
export interface Chunk {
  buffer: Buffer;
  /** Identity of the file (not its path, which may be reused). */
  file: object | undefined;
  start: number;
  end: number;
  owner: object | undefined;
  /** A read into it is under way. */
  busy: boolean;
  /** Nothing that was read into it has been looked at yet: it is not taken away for long, or many readers might never get to read. */
  isNew: boolean;
  /** When it was used last, in chunks used. */
  usedAt: number;
}

/** Of a chunk beside the pool, at least. */
const OWN_BYTES_MIN = 16 * 1024;
/** In pools: a chunk that has not been used while as many others were is not about to be; nor one that was not even looked at. */
const IDLE_POOLS = 4;
const FORGOTTEN_POOLS = 64;

export class ChunkPool {
  readonly #max: number;
  /** Least recently used first. */
  readonly #chunks = new Set<Chunk>();
  /** Given back by their readers: used again before memory that has not been touched yet. */
  readonly #free: Chunk[] = [];
  /** Chunks used so far. */
  #uses = 0;

  constructor(bytes: number) {
    this.#max = Math.max(4, Math.floor(bytes / CHUNK_BYTES));
  }

  get bytes(): number {
    return this.#chunks.size * CHUNK_BYTES;
  }

  /**
   * A chunk for `owner` that takes so many bytes, taken from the reader that used its own the longest time ago when all are in
   * use. Where none can be taken, its own for a while, and no larger than it has to be: there may be many.
   */
  take(owner: object, bytes: number): Chunk {
    const pooled = bytes <= CHUNK_BYTES ? (this.#unused(owner) ?? this.#taken(owner, 0)) : undefined;
    if (pooled !== undefined) return pooled;
    // It counts, so that chunks which nobody came back for are found out.
    this.#uses++;
    return newChunk(owner, Math.max(bytes, OWN_BYTES_MIN));
  }

  /** One for what `owner` does not want yet, of CHUNK_BYTES: there is none while all are in use. */
  spare(owner: object): Chunk | undefined {
    return this.#unused(owner) ?? this.#taken(owner, IDLE_POOLS * this.#max);
  }

  #unused(owner: object): Chunk | undefined {
    const free = this.#free.pop();
    if (free === undefined && this.#chunks.size >= this.#max) return undefined;
    const chunk = free ?? newChunk(owner, CHUNK_BYTES);
    this.#chunks.add(chunk);
    chunk.owner = owner;
    chunk.isNew = false;
    this.touch(chunk);
    return chunk;
  }

  /**
   * The one that was used the longest time ago.
   * @param uses of others since then, at least
   */
  #taken(owner: object, uses: number): Chunk | undefined {
    const forgotten = FORGOTTEN_POOLS * this.#max;
    for (const chunk of this.#chunks) {
      const unused = this.#uses - chunk.usedAt;
      if (unused < uses) return undefined;
      if (chunk.busy || chunk.owner === undefined || (chunk.isNew && unused < forgotten)) continue;
      this.touch(chunk);
      chunk.owner = owner;
      chunk.file = undefined;
      chunk.isNew = false;
      return chunk;
    }
    return undefined;
  }

  /** Takes a chunk back from a reader that needs it no more. */
  release(chunk: Chunk): void {
    if (chunk.busy || chunk.owner === undefined || !this.#chunks.has(chunk)) return;
    chunk.owner = undefined;
    chunk.file = undefined;
    this.#free.push(chunk);
  }

  /** Marks a chunk as just used. */
  touch(chunk: Chunk): void {
    if (!this.#chunks.delete(chunk)) return;
    this.#chunks.add(chunk);
    chunk.usedAt = ++this.#uses;
  }
}

export function newChunk(owner: object, bytes: number): Chunk {
  return {
    buffer: Buffer.allocUnsafeSlow(bytes),
    file: undefined,
    start: 0,
    end: 0,
    owner,
    busy: false,
    isNew: false,
    usedAt: 0,
  };
}
