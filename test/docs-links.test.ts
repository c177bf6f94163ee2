/** Links in the documents lead somewhere: to a file that is there and, with an anchor, to a heading in it. */

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");
const FOLDERS = ["docs", "test", "bench", "src", "scripts"];

function documents(): string[] {
  const found = readdirSync(ROOT).filter((name) => name.endsWith(".md"));
  for (const folder of FOLDERS) {
    if (!existsSync(join(ROOT, folder))) continue;
    for (const entry of readdirSync(join(ROOT, folder), { recursive: true }) as string[]) {
      if (entry.endsWith(".md") && !/(?:^|[\\/])node_modules[\\/]/.test(entry)) found.push(join(folder, entry));
    }
  }
  return found;
}

/** Text without what stands in blocks of code, where brackets are no links. */
function prose(markdown: string): string {
  return markdown.replace(/^( *)(```|~~~)[\s\S]*?^\1\2.*$/gm, "").replace(/^(?: {4}|\t).*$/gm, "");
}

/** As a heading is named by those who show the documents. */
function anchorOf(heading: string): string {
  return heading
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/[`*]/g, "")
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}_\- ]/gu, "")
    .replaceAll(" ", "-");
}

function anchorsOf(markdown: string): Set<string> {
  const anchors = new Set<string>();
  const seen = new Map<string, number>();
  for (const [, heading = ""] of prose(markdown).matchAll(/^#{1,6} +(.+)$/gm)) {
    const anchor = anchorOf(heading);
    const count = seen.get(anchor) ?? 0;
    seen.set(anchor, count + 1);
    anchors.add(count === 0 ? anchor : `${anchor}-${count}`);
  }
  return anchors;
}

/** What is wrong with the links of a document. */
function brokenLinks(path: string, markdown: string): string[] {
  const wrong: string[] = [];
  const text = prose(markdown).replace(/`[^`\n]*`/g, "");
  for (const [, target = ""] of text.matchAll(/\]\(<?([^()\s>]+)>?(?: "[^"]*")?\)/g)) {
    if (/^[a-z][a-z+.-]*:/i.test(target)) continue;
    const [file = "", anchor] = target.split("#", 2);
    const linked = file === "" ? path : join(dirname(path), decodeURIComponent(file));
    if (!existsSync(linked)) {
      wrong.push(`${relative(ROOT, path)}: ${target} is not there`);
    } else if (anchor !== undefined && linked.endsWith(".md")) {
      const there = anchorsOf(linked === path ? markdown : readFileSync(linked, "utf8"));
      if (!there.has(anchor)) wrong.push(`${relative(ROOT, path)}: ${target} names no heading`);
    }
  }
  return wrong;
}

void test("relative links and anchors of all documents lead somewhere", () => {
  const paths = documents();
  assert.ok(paths.length > 20, `only ${paths.length} documents found`);
  assert.deepEqual(
    paths.flatMap((path) => brokenLinks(join(ROOT, path), readFileSync(join(ROOT, path), "utf8"))),
    [],
  );
});

void test("what is broken is noticed", () => {
  const path = join(ROOT, "README.md");
  const text =
    "# A `heading` twice\n# A heading twice\n[a](#a-heading-twice) [b](#a-heading-twice-1) [c](#none) [d](no.md)";
  assert.deepEqual(brokenLinks(path, text), ["README.md: #none names no heading", "README.md: no.md is not there"]);
  assert.deepEqual(brokenLinks(path, "```\n[a](no.md)\n```\n    [b](no.md)\n`[c](no.md)`"), []);
});
