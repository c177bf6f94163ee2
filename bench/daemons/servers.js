/** Starts and stops the servers that are compared, each on a fresh directory and a free port. */

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const VARVE = fileURLToPath(new URL("../../dist/bin/varve.js", import.meta.url));
const FLOOR = fileURLToPath(new URL("./floor.js", import.meta.url));
const START_MS_MAX = 10_000;

/**
 * @typedef {object} Server
 * @property {string} name
 * @property {string} protocol
 * @property {"process kill" | "power loss" | "nothing"} survives what what it acknowledges survives
 * @property {string} host
 * @property {number} port
 * @property {number | undefined} pid
 * @property {() => Promise<void>} stop
 */

/** @type {Record<string, { protocol: string, survives: Server["survives"], command: (port: number, directory: string) => string[] }>} */
export const KINDS = {
  varve: {
    protocol: "kestrel",
    survives: "process kill",
    command: (port, directory) => varve(port, directory, "async"),
  },
  "varve sync": {
    protocol: "kestrel",
    survives: "power loss",
    command: (port, directory) => varve(port, directory, "sync"),
  },
  "redis everysec": {
    protocol: "redis",
    survives: "process kill",
    command: (port, directory) => redis(port, directory, "everysec"),
  },
  "redis always": {
    protocol: "redis",
    survives: "power loss",
    command: (port, directory) => redis(port, directory, "always"),
  },
  beanstalkd: {
    protocol: "beanstalk",
    survives: "process kill",
    command: (port, directory) => ["beanstalkd", "-l", "127.0.0.1", "-p", String(port), "-b", directory],
  },
  floor: {
    protocol: "kestrel",
    survives: "nothing",
    command: (port) => [process.execPath, FLOOR, String(port)],
  },
};

function varve(port, directory, durability) {
  const address = `127.0.0.1:${port}`;
  return [
    process.execPath,
    VARVE,
    ...["daemon", "--data-dir", join(directory, "data"), "--durability", durability],
    ...["--kestrel", address, "--log-level", "warn"],
  ];
}

function redis(port, directory, fsync) {
  return [
    "redis-server",
    ...["--port", String(port), "--bind", "127.0.0.1", "--dir", directory, "--save", ""],
    ...["--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0", "--daemonize", "no"],
  ];
}

/**
 * @param {string} name one of KINDS
 * @returns {Promise<Server>}
 */
export async function start(name) {
  const { protocol, survives, command } = KINDS[name];
  const directory = mkdtempSync(join(process.env.VARVE_BENCH_DIR ?? tmpdir(), "varve-bench-"));
  const port = await freePort();
  const [program, ...args] = command(port, directory);
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"] });
  const exited = new Promise((resolve) => {
    child.once("exit", resolve);
    child.once("error", resolve);
  });
  const stop = async () => {
    child.kill("SIGTERM");
    await Promise.race([exited, sleep(15_000).then(() => child.kill("SIGKILL"))]);
    rmSync(directory, { recursive: true, force: true });
  };
  process.once("exit", () => child.kill("SIGKILL"));
  const startedMs = performance.now();
  while (!(await answers(port))) {
    if (child.exitCode !== null || child.pid === undefined || performance.now() - startedMs > START_MS_MAX) {
      await stop();
      throw new Error(`${name} did not start: ${program} ${args.join(" ")}`);
    }
    await sleep(50);
  }
  return { name, protocol, survives, host: "127.0.0.1", port, pid: child.pid, stop };
}

/**
 * A server that runs already.
 * @param {string} address host:port
 * @returns {Server}
 */
export function given(address) {
  const parts = /^(.+):(\d+)$/.exec(address);
  if (parts === null) throw new Error(`${address} is not host:port`);
  const [, host = "", port] = parts;
  return {
    name: address,
    protocol: "kestrel",
    survives: "process kill",
    host,
    port: Number(port),
    pid: undefined,
    stop: async () => {},
  };
}

/** Resident memory of a process, in bytes. */
export function residentBytes(pid) {
  const line = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(line?.[1] ?? Number.NaN) * 1024;
}

/** Processor time that a process has used, in microseconds; NaN for a server on another machine, or without /proc. */
export function processorMicros(pid) {
  try {
    // Behind the name, which may hold spaces: fields 14 and 15, in clock ticks, of which Linux shows 100 a second.
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
    return (Number(fields[11]) + Number(fields[12])) * 10_000;
  } catch {
    return Number.NaN;
  }
}

function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

function answers(port) {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port });
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
