/**
 * The judge of histories is judged: by short histories with one thing wrong each (bad/<anomaly>[-<variant>].jsonl), of which
 * it must name that and nothing else, and by histories with nothing wrong (good/), whatever was unknown in them.
 */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { ANOMALIES, type AnomalyKind } from "./anomalies.js";
import { parseHistory } from "./history.js";
import { judge } from "./judge.js";

const FOLDER = join(fileURLToPath(new URL("../../..", import.meta.url)), "test/history");
const KINDS = Object.keys(ANOMALIES) as AnomalyKind[];

function histories(folder: string): { readonly name: string; readonly text: string }[] {
  return readdirSync(join(FOLDER, folder)).map((file) => ({
    name: file.replace(/\.jsonl$/, ""),
    text: readFileSync(join(FOLDER, folder, file), "utf8"),
  }));
}

/** The longest name of an anomaly that a file's name begins with. */
function kindOf(name: string): AnomalyKind {
  const kinds = KINDS.filter((kind) => name === kind || name.startsWith(`${kind}-`));
  return kinds.sort((a, b) => b.length - a.length)[0] as AnomalyKind;
}

for (const { name, text } of histories("bad")) {
  void test(`a bad history: ${name}`, () => {
    const found = judge(parseHistory(text));
    const kinds = [...new Set(found.map(({ kind }) => kind))];
    assert.deepEqual(kinds, [kindOf(name)], found.map(({ kind, what }) => `${kind}: ${what}`).join("\n"));
  });
}

void test("every anomaly has a bad history", () => {
  const shown = new Set(histories("bad").map(({ name }) => kindOf(name)));
  assert.deepEqual(
    KINDS.filter((kind) => !shown.has(kind)),
    [],
  );
});

for (const { name, text } of histories("good")) {
  void test(`a good history: ${name}`, () => {
    assert.deepEqual(judge(parseHistory(text)), []);
  });
}
