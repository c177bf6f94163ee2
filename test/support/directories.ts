import { createHash } from "node:crypto";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { awake } from "./awake.js";

/** A new empty directory for one test. */
export function makeDirectory(): string {
  return mkdtempSync(join(tmpdir(), "varve-test-"));
}

export function removeDirectory(directory: string): void {
  rmSync(directory, { recursive: true, force: true });
}

/** Runs the body with a new directory and removes it afterwards. */
export async function withDirectory<T>(body: (directory: string) => Promise<T>): Promise<T> {
  const directory = makeDirectory();
  try {
    return await awake(() => body(directory));
  } finally {
    removeDirectory(directory);
  }
}

export function copyDirectory(from: string, to: string): void {
  cpSync(from, to, { recursive: true });
}

/** Every file below a directory, as paths relative to it, sorted. */
export function filesBelow(directory: string): string[] {
  const found: string[] = [];
  const visit = (path: string): void => {
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      const child = join(path, entry.name);
      if (entry.isDirectory()) visit(child);
      else found.push(relative(directory, child));
    }
  };
  visit(directory);
  return found.sort();
}

/** Path to content hash of every file that `matches`, to show that something left a directory as it was. */
export function fingerprint(
  directory: string,
  matches: (path: string) => boolean = () => true,
): Record<string, string> {
  const prints: Record<string, string> = {};
  for (const path of filesBelow(directory)) {
    if (!matches(path)) continue;
    prints[path] = createHash("sha256")
      .update(readFileSync(join(directory, path)))
      .digest("hex");
  }
  return prints;
}

/** Bytes of all files below a directory, which may be in use: files may go meanwhile. */
export function bytesBelow(directory: string): number {
  const sizeOf = (path: string) => statSync(join(directory, path), { throwIfNoEntry: false })?.size ?? 0;
  return filesBelow(directory).reduce((sum, path) => sum + sizeOf(path), 0);
}
