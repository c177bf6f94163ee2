import { deepStrictEqual, ok } from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { ERRORS } from "../src/api/errors.js";

const DOCUMENT = join(dirname(fileURLToPath(import.meta.url)), "../../docs/errors.md");

test("docs/errors.md explains every code, each with cause and remedy, and no other", () => {
  const sections = readFileSync(DOCUMENT, "utf8")
    .split(/^(?=#{2,3} )/m)
    .filter((section) => section.startsWith("### "));
  const codes = sections.map((section) => /^### (.*)$/m.exec(section)?.[1]);
  deepStrictEqual(codes.toSorted(), Object.keys(ERRORS).sort());
  for (const section of sections) {
    const [cause, remedy] = section.replace(/^### .*\n/, "").split("**Remedy.**");
    ok((cause ?? "").trim().length > 30, `no cause: ${section}`);
    ok((remedy ?? "").trim().length > 20, `no remedy: ${section}`);
  }
});
