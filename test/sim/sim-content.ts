/** What a disk writes in one piece: a power cut leaves such a sector old or new, never half of each. */
export const SECTOR_BYTES = 512;

/**
 * The bytes of one simulated file, as the cache or as the platter has them. Clones share their memory until one of
 * them is written to, because most crashes leave most files as they are.
 *
 * Invariant: bytes at and beyond `size` are zero.
 */
export class SimContent {
  size = 0;
  #bytes = new Uint8Array(0);
  /** 1 for each sector that has been written; the others are holes and take no space. */
  #mapped = new Uint8Array(0);
  #mappedCount = 0;
  #shared = false;

  /** Sectors that take space. */
  get sectors(): number {
    return this.#mappedCount;
  }

  isMapped(sector: number): boolean {
    return this.#mapped[sector] === 1;
  }

  clone(): SimContent {
    const copy = new SimContent();
    copy.size = this.size;
    copy.#bytes = this.#bytes;
    copy.#mapped = this.#mapped;
    copy.#mappedCount = this.#mappedCount;
    copy.#shared = true;
    this.#shared = true;
    return copy;
  }

  /** Copies into `target`; returns how many bytes there were before the end of the file. */
  read(target: Uint8Array, start: number, length: number, position: number): number {
    const count = Math.max(0, Math.min(length, this.size - position));
    if (count === 0) return 0;
    const stored = this.#bytes.subarray(position, position + count);
    target.set(stored, start);
    target.fill(0, start + stored.length, start + count); // Beyond the array, still within the file: a hole.
    return count;
  }

  toBuffer(): Buffer {
    const buffer = Buffer.alloc(this.size);
    this.read(buffer, 0, this.size, 0);
    return buffer;
  }

  /** Takes the bytes, and space for them, without moving the end of the file. */
  write(bytes: Uint8Array, position: number): void {
    if (bytes.length === 0) return;
    const end = position + bytes.length;
    this.#reserve(end);
    this.#bytes.set(bytes, position);
    for (let sector = Math.floor(position / SECTOR_BYTES); sector * SECTOR_BYTES < end; sector++) {
      if (this.#mapped[sector] === 1) continue;
      this.#mapped[sector] = 1;
      this.#mappedCount++;
    }
  }

  /** Moves the end of the file. What lies beyond it is given back. */
  resize(size: number): void {
    this.size = size;
    this.clearBeyondEnd();
  }

  clearBeyondEnd(): void {
    if (this.#bytes.length <= this.size) return;
    this.#own();
    this.#bytes.fill(0, this.size);
    for (let sector = Math.ceil(this.size / SECTOR_BYTES); sector < this.#mapped.length; sector++) {
      if (this.#mapped[sector] === 0) continue;
      this.#mapped[sector] = 0;
      this.#mappedCount--;
    }
  }

  /** A copy of one whole sector. */
  sector(sector: number): Uint8Array {
    const image = new Uint8Array(SECTOR_BYTES);
    image.set(this.#bytes.subarray(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES));
    return image;
  }

  flipBit(position: number, bit: number): void {
    this.#reserve(position + 1);
    this.#bytes[position]! ^= 1 << bit;
  }

  #reserve(end: number): void {
    this.#own();
    if (end <= this.#bytes.length) return;
    const sectors = Math.ceil(Math.max(end, 2 * this.#bytes.length) / SECTOR_BYTES);
    const bytes = new Uint8Array(sectors * SECTOR_BYTES);
    bytes.set(this.#bytes);
    this.#bytes = bytes;
    const mapped = new Uint8Array(sectors);
    mapped.set(this.#mapped);
    this.#mapped = mapped;
  }

  #own(): void {
    if (!this.#shared) return;
    this.#bytes = this.#bytes.slice();
    this.#mapped = this.#mapped.slice();
    this.#shared = false;
  }
}
