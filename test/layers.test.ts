/**
 * Imports point down only, and nothing below the faces reaches past what it is handed for the disk, time and chance.
 *
 * The compiler's parser reads every module of src/: its imports, its exports from elsewhere and its import() calls, and
 * the names by which it would reach for a clock, a timer or chance.
 */

import { deepStrictEqual, ok } from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix, relative, sep } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");

/** What each layer may import from besides itself. `index` is src/index.ts, the public face. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  api: [],
  storage: ["api"],
  engine: ["api", "storage"],
  worker: ["api"],
  queues: ["api", "storage", "engine", "worker"],
  wire: ["api"],
  net: ["api"],
  native: ["api", "wire", "net"],
  client: ["api", "wire", "worker"],
  shared: ["api", "storage", "queues", "wire", "native", "client"],
  index: ["api", "storage", "engine", "queues", "worker", "client", "shared"],
  bench: ["api", "index"],
  kestrel: ["api", "net"],
  auth: ["api"],
  daemon: ["api", "wire", "shared", "auth", "net", "native", "kestrel"],
  cli: ["api", "wire", "index", "auth", "bench", "daemon", "kestrel"],
};

/** Packages, by the layer that may use them. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  queues: ["croner"],
  cli: ["commander"],
  bench: ["commander"],
};

/** Built-in modules that reach outside the process or measure time. */
const OUTSIDE =
  /^node:(?:fs|fs\/promises|os|net|tls|http|https|http2|dgram|dns|child_process|worker_threads|cluster|timers|timers\/promises|perf_hooks|crypto)$/;

/** Layers that reach outside themselves, and how: files, processes and time, sockets alone, or hashes. */
const REACHES: Readonly<Record<string, RegExp>> = {
  cli: /./,
  bench: /./,
  auth: /^node:crypto$/,
  daemon: /^node:(?:net|tls|http|fs|crypto)$/,
  kestrel: /^node:net$/,
  net: /^node:net$/,
  native: /^node:(?:net|tls|crypto|fs)$/,
  client: /^node:(?:net|tls|crypto)$/,
  shared: /^node:(?:fs|os|crypto|timers\/promises)$/,
};

/** The files that stand for the platform. */
const PLATFORM_FILE = /^storage\/(?:node-[^/]+|lock)\.ts$/;

/** Names that stand for time, chance or the console, whoever asks. */
const AMBIENT_MEMBERS = new Set(["Date.now", "Math.random", "performance.now", "process.hrtime", "process.nextTick"]);
const AMBIENT_NAMES = new Set(["setTimeout", "setInterval", "setImmediate", "queueMicrotask", "console", "crypto"]);

/** Layers that are given the disk, time and chance. */
const SEALED = new Set(["storage", "engine", "worker", "queues", "wire"]);

interface Module {
  /** Below src/, with "/". */
  readonly path: string;
  readonly imports: readonly string[];
  readonly ambient: readonly { readonly name: string; readonly line: number }[];
}

function layerOf(path: string): string {
  return path === "index.ts" ? "index" : path.slice(0, path.indexOf("/"));
}

function parse(path: string, text: string): Module {
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const imports: string[] = [];
  const ambient: { name: string; line: number }[] = [];
  const visit = (node: ts.Node): void => {
    if ((ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) && node.moduleSpecifier !== undefined) {
      imports.push((node.moduleSpecifier as ts.StringLiteral).text);
    } else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      const [target] = node.arguments;
      imports.push(target !== undefined && ts.isStringLiteralLike(target) ? target.text : "(computed)");
    } else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) {
      imports.push((node.argument.literal as ts.StringLiteral).text);
    }
    const name = ambientName(node);
    if (name !== undefined)
      ambient.push({ name, line: source.getLineAndCharacterOfPosition(node.getStart()).line + 1 });
    ts.forEachChild(node, visit);
  };
  visit(source);
  return { path, imports, ambient };
}

function ambientName(node: ts.Node): string | undefined {
  if (ts.isPropertyAccessExpression(node)) {
    const name = node.getText().replace(/^globalThis\./, "");
    return AMBIENT_MEMBERS.has(name) || (name !== node.getText() && AMBIENT_NAMES.has(name)) ? name : undefined;
  }
  if (ts.isNewExpression(node) && node.expression.getText() === "Date" && (node.arguments ?? []).length === 0) {
    return "new Date()";
  }
  if (!ts.isIdentifier(node) || !AMBIENT_NAMES.has(node.text)) return undefined;
  // A member of something else, such as clock.setTimeout, is not the global.
  const member = ts.isPropertyAccessExpression(node.parent) && node.parent.name === node;
  return member || ts.isMethodDeclaration(node.parent) || ts.isMethodSignature(node.parent) ? undefined : node.text;
}

/** What a module does that its layer may not, in words. */
function offences({ path, imports, ambient }: Module): string[] {
  const layer = layerOf(path);
  const allowed = MAY_IMPORT[layer];
  if (allowed === undefined) return [`${path}: the folder is no known layer`];
  const found: string[] = [];
  for (const target of imports) {
    if (target.startsWith("node:")) {
      const open = REACHES[layer]?.test(target) === true || PLATFORM_FILE.test(path);
      if (OUTSIDE.test(target) && !open) found.push(`${path} imports ${target}`);
    } else if (target.startsWith(".")) {
      const to = posix.normalize(posix.join(posix.dirname(path), target));
      if (to.startsWith("..") || !to.endsWith(".js")) {
        found.push(`${path} imports ${target}, which is no module of src/`);
        continue;
      }
      const toLayer = layerOf(to.replace(/\.js$/, ".ts"));
      if (toLayer !== layer && !allowed.includes(toLayer))
        found.push(`${path} (${layer}) imports ${target} (${toLayer})`);
    } else if (target === "(computed)" && PLATFORM_FILE.test(path)) {
      // An optional package, named so that bundlers leave it alone.
    } else if (!(PACKAGES[layer] ?? []).includes(target)) {
      found.push(`${path} imports ${target}`);
    }
  }
  if (SEALED.has(layer) && !PLATFORM_FILE.test(path)) {
    for (const { name, line } of ambient) found.push(`${path}:${line} uses ${name}`);
  }
  return found;
}

function modules(): Module[] {
  const root = join(ROOT, "src");
  return readdirSync(root, { recursive: true, encoding: "utf8" })
    .map((file) => file.split(sep).join("/"))
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
    .map((file) => parse(file, readFileSync(join(root, file), "utf8")));
}

test("imports point down, and only platform files reach outside", () => {
  const all = modules();
  ok(all.length >= 10, `saw only ${all.length} modules below ${relative(process.cwd(), ROOT)}/src`);
  ok(
    all.some(({ imports }) => imports.length > 0),
    "saw no imports at all",
  );
  deepStrictEqual(all.flatMap(offences), []);
});

test("the checks find what they are for", () => {
  const finds = (path: string, text: string, expected: string[]) =>
    deepStrictEqual(offences(parse(path, text)), expected);
  finds("storage/a.ts", 'import { b } from "../engine/b.js";', [
    "storage/a.ts (storage) imports ../engine/b.js (engine)",
  ]);
  finds("api/a.ts", 'export * from "../index.js";', ["api/a.ts (api) imports ../index.js (index)"]);
  finds("api/a.ts", 'type B = import("../storage/b.js").B;', ["api/a.ts (api) imports ../storage/b.js (storage)"]);
  finds("cli/a.ts", 'await import("../engine/b.js");', ["cli/a.ts (cli) imports ../engine/b.js (engine)"]);
  finds("engine/a.ts", "await import(name);", ["engine/a.ts imports (computed)"]);
  finds("engine/a.ts", 'import fs from "node:fs";', ["engine/a.ts imports node:fs"]);
  finds("storage/disk.ts", 'import fs from "node:fs/promises";', ["storage/disk.ts imports node:fs/promises"]);
  finds("engine/a.ts", 'import x from "left-pad";', ["engine/a.ts imports left-pad"]);
  finds("cli/a.ts", 'import x from "../../test/x.js";', [
    "cli/a.ts imports ../../test/x.js, which is no module of src/",
  ]);
  finds("other/a.ts", "", ["other/a.ts: the folder is no known layer"]);
  finds("queues/a.ts", "\nconst t = Date.now();", ["queues/a.ts:2 uses Date.now"]);
  finds("engine/a.ts", "const d = new Date();", ["engine/a.ts:1 uses new Date()"]);
  finds("engine/a.ts", "setTimeout(f, 1);", ["engine/a.ts:1 uses setTimeout"]);
  finds("engine/a.ts", "const r = Math.random;", ["engine/a.ts:1 uses Math.random"]);
  finds("engine/a.ts", "globalThis.setTimeout(f);", ["engine/a.ts:1 uses setTimeout"]);
  finds("storage/a.ts", "f(setImmediate, console);", [
    "storage/a.ts:1 uses setImmediate",
    "storage/a.ts:1 uses console",
  ]);
});

test("the checks leave alone what is allowed", () => {
  const fine = (path: string, text: string) => deepStrictEqual(offences(parse(path, text)), []);
  fine("storage/node-disk.ts", 'import fs from "node:fs"; setTimeout(f, Date.now());');
  fine("engine/a.ts", 'import { crc32 } from "node:zlib"; import { b } from "../storage/b.js";');
  fine("engine/a.ts", '// not Date.now()\n/* Math.random */ const s = "setTimeout"; const d = new Date(5);');
  fine("queues/a.ts", "const s = `Date.now setTimeout`; clock.setTimeout(f); if (a) { /* Date.now() */ }");
  fine("cli/a.ts", 'import { Command } from "commander"; import { open } from "../index.js"; console.log(Date.now());');
});
