/** What the scripts share: a checkout becomes ready to run with Node and npm alone. */

import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("..", import.meta.url));

/**
 * Options of Node for processes that simulate. Every life of an engine leaves its memory behind at once: with room for much of
 * it, little is ever looked at again. A run goes through all of the code and stays nowhere, so that optimizing it as soon as the
 * V8 of Node 20 does costs more than it brings; later ones have another compiler for that.
 */
export const SIMULATOR_ARGS = [
  "--initial-old-space-size=512",
  "--min-semi-space-size=16",
  "--max-semi-space-size=32",
  "--single-threaded-gc",
  ...(Number.parseInt(process.versions.node, 10) < 21 ? ["--interrupt-budget=1000000"] : []),
];

export function step(text) {
  process.stderr.write(`varve: ${text}\n`);
}

/** Ends the process with a message for people. */
export function fail(text, exitCode = 1) {
  step(text);
  process.exit(exitCode);
}

export function checkNode() {
  const wanted = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")).engines.node.replace(">=", "");
  const [major, minor] = process.versions.node.split(".").map(Number);
  const [wantedMajor, wantedMinor] = wanted.split(".").map(Number);
  if (major < wantedMajor || (major === wantedMajor && minor < wantedMinor)) {
    fail(`needs Node ${wanted} or newer; this is ${process.versions.node}`);
  }
}

/** Runs a program of this Node and waits; a failure ends this process with the same exit code. */
export function run(what, script, args, options = {}) {
  const result = spawnSync(process.execPath, [script, ...args], {
    cwd: ROOT,
    stdio: ["ignore", "inherit", "inherit"],
    ...options,
  });
  if (result.error !== undefined) fail(`${what} could not be started: ${result.error.message}`);
  if (result.status !== 0) fail(`${what} failed`, result.status ?? 1);
}

/** `npm ci`, unless node_modules is there and newer than the lock file. */
export function install() {
  const lock = join(ROOT, "package-lock.json");
  // npm writes this one last, so it also tells an installation that was cut short.
  const installed = join(ROOT, "node_modules", ".package-lock.json");
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return;
  step("installing development packages (npm ci) ...");
  const args = ["ci", "--include=dev", "--no-audit", "--no-fund", "--loglevel=error"];
  const npm = process.env.npm_execpath;
  if (npm?.endsWith("js")) return run("npm ci", npm, args);
  const result = spawnSync("npm", args, {
    cwd: ROOT,
    stdio: ["ignore", "inherit", "inherit"],
    shell: process.platform === "win32",
  });
  if (result.error !== undefined) fail(`npm could not be started: ${result.error.message}`);
  if (result.status !== 0) fail("npm ci failed", result.status ?? 1);
}

/** Files below a folder of the repository whose names end like this, as paths with "/", sorted. */
export function listFiles(folder, suffix) {
  const root = join(ROOT, folder);
  if (!existsSync(root)) return [];
  return readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(suffix))
    .map((entry) =>
      relative(ROOT, join(entry.parentPath ?? entry.path, entry.name))
        .split(sep)
        .join("/"),
    )
    .sort();
}

/** Compiles src/ and test/ into dist/, and bundles the command line. */
export async function build() {
  step("building ...");
  run("tsc", join(ROOT, "node_modules", "typescript", "bin", "tsc"), ["-p", "."]);
  removeOrphans();
  await bundleCommandLine();
}

/** Output whose source is gone would still be packed. */
function removeOrphans() {
  for (const folder of ["dist/src", "dist/test"]) {
    for (const file of listFiles(folder, "")) {
      const source = file.replace(/^dist\//, "").replace(/\.(?:d\.ts|js)(?:\.map)?$/, ".ts");
      if (!existsSync(join(ROOT, source))) rmSync(join(ROOT, file));
    }
  }
}

/**
 * One file with the command line, the library and the packages they use: users install none of those that only commands need,
 * and a command starts in half the time that the library's many files would take.
 */
async function bundleCommandLine() {
  const entry = join(ROOT, "src/cli/main.ts");
  if (!existsSync(entry)) return;
  const esbuild = await import("esbuild");
  const { metafile } = await esbuild.build({
    metafile: true,
    entryPoints: [entry],
    outfile: join(ROOT, "dist/bin/varve.js"),
    bundle: true,
    platform: "node",
    target: "node20",
    format: "esm",
    logLevel: "warning",
    // Packages in CommonJS call require(), which an ES module has to make for itself.
    banner: {
      js: [
        'import { createRequire as varveCreateRequire } from "node:module";',
        "const require = varveCreateRequire(import.meta.url);",
      ].join("\n"),
    },
  });
  chmodSync(join(ROOT, "dist/bin/varve.js"), 0o755);
  writeFileSync(join(ROOT, "dist/bin/LICENSES.txt"), licences(Object.keys(metafile.inputs)));
}

/** The licences of the packages whose code is in the bundle, as they ask for. */
function licences(inputs) {
  const packages = new Set(inputs.flatMap((input) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1] ?? []));
  return [...packages]
    .map((name) => {
      const folder = join(ROOT, "node_modules", name);
      const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
      if (file === undefined) throw new Error(`${name} is bundled but has no licence file`);
      return `varve.js contains code of ${name}:\n\n${readFileSync(join(folder, file), "utf8")}`;
    })
    .join("\n");
}
