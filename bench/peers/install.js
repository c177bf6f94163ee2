/** Gets what is compared with: npm's packages into this folder, and Debian's where that is the system and this is root. */

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { versionOf } from "./servers.js";

/** By program: Debian's package, and the option that asks for the version. */
const PROGRAMS = {
  "redis-server": "--version",
  beanstalkd: "-v",
  "nats-server": "--version",
};

function installPackages() {
  // Written by npm when an installation is complete.
  if (existsSync(new URL("./node_modules/.package-lock.json", import.meta.url))) return;
  process.stderr.write("installing the packages to compare with; one of them is compiled, which takes a minute\n");
  // npm is a shell script on Windows.
  const { status } = spawnSync("npm", ["ci"], {
    cwd: fileURLToPath(new URL(".", import.meta.url)),
    stdio: ["ignore", 2, 2],
    shell: process.platform === "win32",
  });
  if (status !== 0) throw new Error("the packages to compare with could not be installed");
}

/** @param {(name: string, reason: string) => void} skip is told of each program that is not there */
function installPrograms(skip) {
  const missing = Object.keys(PROGRAMS).filter((name) => versionOf(name, PROGRAMS[name]) === undefined);
  if (missing.length === 0) return;
  let reason = "it is not installed, and this is not root on a Debian system";
  if (process.getuid?.() === 0 && existsSync("/usr/bin/apt-get")) {
    process.stderr.write(`installing ${missing.join(", ")}\n`);
    const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
    const apt = (...args) => spawnSync("apt-get", ["-q", ...args], { env, stdio: ["ignore", 2, 2] }).status === 0;
    // The lists may be missing or old.
    const install = () => apt("install", "-y", "--no-install-recommends", ...missing);
    if (!install()) void (apt("update") && install());
    reason = "apt-get could not install it";
  }
  for (const name of missing) if (versionOf(name, PROGRAMS[name]) === undefined) skip(name, reason);
}

/** @returns {Record<string, string>} versions of what is there */
export function install(skip) {
  installPackages();
  installPrograms(skip);
  const programs = Object.entries(PROGRAMS).map(([name, option]) => [name, versionOf(name, option)]);
  return Object.fromEntries(programs.filter(([, version]) => version !== undefined));
}
