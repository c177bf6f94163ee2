import type { Hash } from "node:crypto";

/** What a disk writes in one piece: a power cut leaves such a sector old or new, never half of each. */
export const SECTOR_BYTES = 512;

const PAGE_BYTES = 4096;
const PAGE_SECTORS = PAGE_BYTES / SECTOR_BYTES;
const WHOLE_PAGE = 2 ** PAGE_SECTORS - 1;

/** Log files and spare space begin as zeros: these stand for all of them. */
const ZEROS = new Uint8Array(1024 * 1024);

/** Bytes of a file that nobody changes until they are copied, unless `owner` does: the one content that has them. */
interface Page {
  owner: object | undefined;
  readonly bytes: Uint8Array;
}

/** A copy of bytes that will not change any more. Zeros take no memory. */
export function frozen(bytes: Uint8Array): Uint8Array {
  const zeros = ZEROS.subarray(0, bytes.length);
  if (bytes.length === zeros.length && Buffer.compare(bytes, zeros) === 0) return zeros;
  // Whatever it is: `slice` of a Buffer is a view, and its owner uses it again.
  return new Uint8Array(bytes);
}

/**
 * The bytes of one simulated file, as the cache or as the platter has them. Clones share their pages until one of them
 * writes there, because most crashes leave most files as they are.
 *
 * Invariant: bytes at and beyond `size` are zero.
 */
export class SimContent {
  size = 0;
  /** Pages of zeros are not there. */
  #pages: (Page | undefined)[] = [];
  /** For each page a bit for each sector that has been written; the others are holes and take no space. */
  #mapped: number[] = [];
  #mappedCount = 0;
  /** The arrays are another content's as well. */
  #shared = false;
  #owner: object = {};

  /** Sectors that take space. */
  get sectors(): number {
    return this.#mappedCount;
  }

  isMapped(sector: number): boolean {
    const page = Math.floor(sector / PAGE_SECTORS);
    return page < this.#mapped.length && (this.#mapped[page]! & (1 << (sector % PAGE_SECTORS))) !== 0;
  }

  clone(): SimContent {
    const copy = new SimContent();
    copy.size = this.size;
    copy.#pages = this.#pages;
    copy.#mapped = this.#mapped;
    copy.#mappedCount = this.#mappedCount;
    copy.#shared = true;
    this.#shared = true;
    this.#owner = {};
    return copy;
  }

  /** Copies into `target`; returns how many bytes there were before the end of the file. */
  read(target: Uint8Array, start: number, length: number, position: number): number {
    const count = Math.max(0, Math.min(length, this.size - position));
    for (let done = 0; done < count; ) {
      const from = (position + done) % PAGE_BYTES;
      const part = Math.min(count - done, PAGE_BYTES - from);
      const page = this.#pages[(position + done - from) / PAGE_BYTES];
      if (page === undefined) target.fill(0, start + done, start + done + part);
      else target.set(part < PAGE_BYTES ? page.bytes.subarray(from, from + part) : page.bytes, start + done);
      done += part;
    }
    return count;
  }

  /** Size and bytes. */
  addTo(hash: Hash): void {
    hash.update(`${this.size}`);
    for (const [index, page] of this.#pages.entries())
      if (page !== undefined) hash.update(`${index}`).update(page.bytes);
  }

  toBuffer(): Buffer {
    const buffer = Buffer.allocUnsafe(this.size);
    this.read(buffer, 0, this.size, 0);
    return buffer;
  }

  /** Takes the bytes, which must not change any more, and space for them, without moving the end of the file. */
  write(bytes: Uint8Array, position: number): void {
    const { length } = bytes;
    if (length === 0) return;
    this.#ownArrays();
    const zeros = bytes.buffer === ZEROS.buffer;
    for (let done = 0; done < length; ) {
      const at = position + done;
      const from = at % PAGE_BYTES;
      const part = Math.min(length - done, PAGE_BYTES - from);
      const index = (at - from) / PAGE_BYTES;
      this.#reserve(index);
      if (part === PAGE_BYTES) {
        this.#pages[index] = zeros ? undefined : { owner: undefined, bytes: bytes.subarray(done, done + PAGE_BYTES) };
        this.#map(index, WHOLE_PAGE);
      } else {
        if (!zeros) this.#own(index).set(part < length ? bytes.subarray(done, done + part) : bytes, from);
        else if (this.#pages[index] !== undefined) this.#own(index).fill(0, from, from + part);
        this.#map(index, sectorBits(from, from + part));
      }
      done += part;
    }
  }

  /** Takes sectors [first, end) of another content as they are there. */
  copySectors(source: SimContent, first: number, end: number): void {
    this.#ownArrays();
    for (let sector = first; sector < end; ) {
      const from = sector % PAGE_SECTORS;
      const part = Math.min(end - sector, PAGE_SECTORS - from);
      const index = (sector - from) / PAGE_SECTORS;
      const page = source.#pages[index];
      this.#reserve(index);
      if (part === PAGE_SECTORS) {
        if (page !== undefined) page.owner = undefined;
        this.#pages[index] = page;
      } else if (page !== undefined) {
        const start = from * SECTOR_BYTES;
        this.#own(index).set(page.bytes.subarray(start, start + part * SECTOR_BYTES), start);
      } else if (this.#pages[index] !== undefined) {
        this.#own(index).fill(0, from * SECTOR_BYTES, (from + part) * SECTOR_BYTES);
      }
      this.#map(index, ((1 << part) - 1) << from);
      sector += part;
    }
  }

  /** Moves the end of the file. What lies beyond it is given back. */
  resize(size: number): void {
    this.size = size;
    this.clearBeyondEnd();
  }

  clearBeyondEnd(): void {
    const within = this.size % PAGE_BYTES;
    const last = (this.size - within) / PAGE_BYTES;
    if (last >= this.#pages.length) return;
    this.#ownArrays();
    for (let index = last + (within > 0 ? 1 : 0); index < this.#pages.length; index++) this.#unmap(index, WHOLE_PAGE);
    this.#pages.length = Math.min(this.#pages.length, last + (within > 0 ? 1 : 0));
    this.#mapped.length = this.#pages.length;
    if (within === 0) return;
    if (this.#pages[last] !== undefined) this.#own(last).fill(0, within);
    const kept = Math.ceil(within / SECTOR_BYTES);
    this.#unmap(last, WHOLE_PAGE & ~((1 << kept) - 1));
  }

  /** A copy of one whole sector. */
  sector(sector: number): Uint8Array {
    const image = new Uint8Array(SECTOR_BYTES);
    const start = (sector % PAGE_SECTORS) * SECTOR_BYTES;
    const page = this.#pages[Math.floor(sector / PAGE_SECTORS)];
    if (page !== undefined) image.set(page.bytes.subarray(start, start + SECTOR_BYTES));
    return image;
  }

  flipBit(position: number, bit: number): void {
    this.#ownArrays();
    const index = Math.floor(position / PAGE_BYTES);
    this.#reserve(index);
    this.#own(index)[position % PAGE_BYTES]! ^= 1 << bit;
  }

  #reserve(index: number): void {
    while (this.#pages.length <= index) {
      this.#pages.push(undefined);
      this.#mapped.push(0);
    }
  }

  #map(index: number, bits: number): void {
    const added = bits & ~this.#mapped[index]!;
    if (added === 0) return;
    this.#mapped[index]! |= added;
    this.#mappedCount += countBits(added);
  }

  #unmap(index: number, bits: number): void {
    const gone = bits & this.#mapped[index]!;
    this.#mapped[index]! &= ~gone;
    this.#mappedCount -= countBits(gone);
  }

  #ownArrays(): void {
    if (!this.#shared) return;
    this.#pages = this.#pages.slice();
    this.#mapped = this.#mapped.slice();
    this.#shared = false;
  }

  /** The bytes of a page, to be changed. */
  #own(index: number): Uint8Array {
    const page = this.#pages[index];
    if (page !== undefined && page.owner === this.#owner) return page.bytes;
    const bytes = page === undefined ? new Uint8Array(PAGE_BYTES) : new Uint8Array(page.bytes);
    this.#pages[index] = { owner: this.#owner, bytes };
    return bytes;
  }
}

/** The bits of the sectors that bytes [from, to) of a page touch. */
function sectorBits(from: number, to: number): number {
  return (1 << Math.ceil(to / SECTOR_BYTES)) - (1 << Math.floor(from / SECTOR_BYTES));
}

function countBits(bits: number): number {
  let count = 0;
  for (let rest = bits; rest !== 0; rest &= rest - 1) count++;
  return count;
}
