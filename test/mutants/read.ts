/** Reading what stands on disk. */

import { flips, type Mutant, simulator, tampered, testFile } from "./mutant.js";

const file = "src/storage/stream-reader.ts";

export const readMutants: readonly Mutant[] = [
  {
    name: "the checksum of batches is not looked at when reading segments",
    file,
    search: "          if (batchIsIntact(buffer, at, header.bytes)) {\n            const missing",
    replacement: "          if (true) {\n            const missing",
    breaks: "a payload is byte for byte what was sent",
    killer: flips(2),
  },
  {
    name: "the checksum of batches is not looked at when reading the log",
    file,
    search: "|| !batchIsIntact(buffer, at, bytes)) {",
    replacement: ") {",
    breaks: "a payload is byte for byte what was sent",
    killer: tampered("rot in a log file is noticed"),
  },
  {
    name: "a damaged batch is passed over in silence",
    file,
    search: "      this.#damage = damaged(run.segment.path, from, lost, header.baseOffset);",
    replacement: "      void lost;",
    breaks: "what cannot be read is reported",
    killer: tampered("a damaged batch costs"),
  },
  {
    name: "damage at the end of a run is passed over in silence",
    file,
    search: "      throw damaged(run.segment.path, this.#runPosition, from, run.next);",
    replacement: "      void from;",
    breaks: "what cannot be read is reported",
    killer: flips(6),
  },
  {
    name: "whose batch it is is not looked at",
    file,
    search:
      "  return header.streamId === streamId && header.baseOffset >= from && header.baseOffset + header.span <= to;",
    replacement: "  return header.baseOffset >= from && header.baseOffset + header.span <= to;",
    breaks: "nothing foreign is ever delivered",
    killer: tampered("the batch of another stream"),
  },
  {
    name: "which batch of a run it is is not looked at",
    file,
    search: "if (missing !== undefined && missing < limit) {",
    replacement: "if (missing !== undefined && missing < 0) {",
    breaks: "no record is passed over",
    killer: tampered("written over others"),
  },
  {
    name: "memory that was used again is read",
    file,
    search: "    if (this.#block !== undefined) return this.#block.life === this.#blockLife;",
    replacement: "    if (this.#block !== undefined) return true;",
    breaks: "a payload is byte for byte what was sent",
    killer: simulator,
  },
  {
    name: "memory that was used again is entered",
    file: "src/storage/batch-table.ts",
    search: "    return block.life === life ? block : undefined;",
    replacement: "    void life;\n    return block;",
    breaks: "a payload is byte for byte what was sent",
    killer: simulator,
  },
  {
    name: "a batch that was left half-way is not looked for again",
    file,
    search: "    this.record.leave();\n    this.#run = undefined;\n  }\n\n  /** True while",
    replacement: "    this.record.leave();\n  }\n\n  /** True while",
    breaks: "no record is passed over",
    killer: simulator,
  },
  {
    name: "memory is taken away from readers before they have read in it",
    file: "src/storage/memory.ts",
    search: " || (chunk.isNew && unused < forgotten)) continue;",
    replacement: ") continue;",
    breaks: "readers that are more than there is memory for go on",
    killer: testFile("src/storage/stream-reader.test.ts"),
  },
];
