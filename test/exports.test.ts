/**
 * What is exported is imported somewhere, and every module is reached. The parser of the compiler reads src/ and test/;
 * scripts and the comparison with other stores, which are plain JavaScript, are searched for names.
 */

import { deepStrictEqual, ok } from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix, relative, sep } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");

/** Used from outside: the public face, the program, and what is checked by being compiled. */
const ENTRY = /^src\/(?:index|cli\/main)\.ts$|^test\/types\/|\.test\.ts$/;

interface Export {
  readonly name: string;
  readonly isType: boolean;
}

interface Module {
  readonly path: string;
  readonly exports: readonly Export[];
  /** Modules that it imports or exports again, with the names; "*" for all of them. */
  readonly uses: readonly { readonly from: string; readonly name: string }[];
  /** How often each identifier occurs. */
  readonly names: ReadonlyMap<string, number>;
}

function parse(path: string, text: string): Module {
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const exports: Export[] = [];
  const uses: { from: string; name: string }[] = [];
  const names = new Map<string, number>();
  const use = (specifier: ts.Expression | undefined, name: string): void => {
    if (specifier === undefined || !ts.isStringLiteral(specifier) || !specifier.text.startsWith(".")) return;
    const from = posix.join(posix.dirname(path), specifier.text).replace(/\.js$/, ".ts");
    uses.push({ from, name });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isIdentifier(node)) names.set(node.text, (names.get(node.text) ?? 0) + 1);
    if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) use(node.arguments[0], "*");
    ts.forEachChild(node, visit);
  };
  visit(source);
  for (const statement of source.statements) {
    if (ts.isImportDeclaration(statement)) {
      const bindings = statement.importClause?.namedBindings;
      if (bindings === undefined || ts.isNamespaceImport(bindings)) use(statement.moduleSpecifier, "*");
      else
        for (const { propertyName, name } of bindings.elements)
          use(statement.moduleSpecifier, (propertyName ?? name).text);
    } else if (ts.isExportDeclaration(statement)) {
      const clause = statement.exportClause;
      if (clause === undefined || ts.isNamespaceExport(clause)) use(statement.moduleSpecifier, "*");
      else
        for (const { propertyName, name } of clause.elements)
          use(statement.moduleSpecifier, (propertyName ?? name).text);
    } else if (ts.canHaveModifiers(statement)) {
      if (!ts.getModifiers(statement)?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword)) continue;
      const isType = ts.isInterfaceDeclaration(statement) || ts.isTypeAliasDeclaration(statement);
      const declared = ts.isVariableStatement(statement)
        ? statement.declarationList.declarations.map(({ name }) => name.getText(source))
        : [(statement as { name?: ts.Identifier }).name?.text ?? "default"];
      for (const name of declared) exports.push({ name, isType });
    }
  }
  return { path, exports, uses, names };
}

function filesBelow(folder: string, suffix: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(suffix))
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .filter((path) => !path.includes("node_modules/"));
}

/** `elsewhere` is text that may name exports, too. */
function unused(modules: readonly Module[], elsewhere: string): string[] {
  const used = new Set(modules.flatMap(({ uses }) => uses.map(({ from, name }) => `${from} ${name}`)));
  const words = new Set(elsewhere.match(/[\w$]+/g));
  const found: string[] = [];
  for (const { path, exports, names } of modules) {
    if (ENTRY.test(path) || used.has(`${path} *`)) continue;
    for (const { name, isType } of exports) {
      // A type that others are made of may be exported for whoever needs to name it.
      const partOfOthers = isType && (names.get(name) ?? 0) > 1;
      if (!used.has(`${path} ${name}`) && !words.has(name) && !partOfOthers) found.push(`${path}: ${name}`);
    }
  }
  return found;
}

test("every export is used by another module", () => {
  const paths = [...filesBelow("src", ".ts"), ...filesBelow("test", ".ts")];
  const modules = paths.map((path) => parse(path, readFileSync(join(ROOT, path), "utf8")));
  ok(modules.length > 100 && modules.some(({ exports }) => exports.length > 5), "the sources were found");
  const plain = [...filesBelow("scripts", ".mjs"), ...filesBelow("bench", ".js")];
  const elsewhere = plain.map((path) => readFileSync(join(ROOT, path), "utf8")).join("\n");
  deepStrictEqual(unused(modules, elsewhere), []);
});

test("the check for unused exports finds them", () => {
  const modules = [
    parse("src/a.ts", "export const one = 1, two = 2; export function three() {} export interface Four {}\n"),
    parse("src/b.ts", 'import { one } from "./a.js"; export type Five = 5; export const six: Five = 5;\n'),
    parse("src/c.ts", 'export * from "./d.js"; export class Seven {}'),
    parse("src/d.ts", "export class Eight {}"),
  ];
  deepStrictEqual(unused(modules, "there is a six and a Seven"), [
    "src/a.ts: two",
    "src/a.ts: three",
    "src/a.ts: Four",
  ]);
});
