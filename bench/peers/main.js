/** Installs the other stores at the first run, then compares. */

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const directory = fileURLToPath(new URL(".", import.meta.url));

// Written by npm when an installation is complete.
if (!existsSync(new URL("./node_modules/.package-lock.json", import.meta.url))) {
  process.stderr.write("installing the stores to compare with; one of them is compiled, which takes a minute\n");
  // npm is a shell script on Windows.
  const { status } = spawnSync("npm", ["ci"], {
    cwd: directory,
    stdio: ["ignore", 2, 2],
    shell: process.platform === "win32",
  });
  if (status !== 0) process.exit(status ?? 1);
}

await import("./run.js");
