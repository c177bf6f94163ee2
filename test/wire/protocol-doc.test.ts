import { deepStrictEqual } from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Kind } from "../../src/wire/frame.js";
import { Methods } from "../../src/wire/methods.js";

const DOCUMENT = join(dirname(fileURLToPath(import.meta.url)), "../../../docs/protocol.md");

/** The cells of the tables' rows that begin with a number. */
function rows(): string[][] {
  return readFileSync(DOCUMENT, "utf8")
    .split("\n")
    .filter((line) => /^\| 0x[0-9a-f]{2} \|/.test(line))
    .map((line) =>
      line
        .slice(1, -1)
        .split("|")
        .map((cell) => cell.trim()),
    );
}

const hex = (value: number) => `0x${value.toString(16).padStart(2, "0")}`;

test("docs/protocol.md lists every kind of frame and every method, as they are", () => {
  const inDocument = rows();
  const kinds = inDocument.filter((cells) => cells.length === 4).map(([number, name]) => [number, name]);
  deepStrictEqual(
    kinds,
    Object.entries(Kind).map(([name, number]) => [hex(number), name]),
  );
  const methods = inDocument.filter((cells) => cells.length === 7).map((cells) => cells.slice(0, 5));
  deepStrictEqual(
    methods,
    Object.values(Methods).map(({ opcode, name, needs, repeat, waits }) => {
      return [hex(opcode), name, needs, repeat, waits ? "yes" : ""];
    }),
  );
});
