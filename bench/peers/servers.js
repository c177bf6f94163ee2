/** Starts and stops the servers that are compared, each on a directory of its own and a free port. */

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { PROGRAM } from "./entry.js";

const FLOOR = fileURLToPath(new URL("./load/floor.js", import.meta.url));
const START_MS_MAX = 120_000;
const STOP_MS_MAX = 20_000;

/** Each: the command for a port and a directory. */
const COMMANDS = {
  varve: varve("async"),
  "varve sync": varve("sync"),
  redis: redis("everysec"),
  "redis always": redis("always"),
  beanstalkd: (port, directory) => ["beanstalkd", "-l", "127.0.0.1", "-p", `${port}`, "-b", directory],
  "beanstalkd sync": (port, directory) => [
    "beanstalkd",
    "-l",
    "127.0.0.1",
    "-p",
    `${port}`,
    "-b",
    directory,
    "-f",
    "0",
  ],
  nats: nats(""),
  "nats sync": nats("sync_interval: always"),
  "floor kestrel": (port) => [process.execPath, FLOOR, "kestrel", `${port}`],
  "floor native": (port) => [process.execPath, FLOOR, "native", `${port}`],
  echo: (port) => [process.execPath, FLOOR, "echo", `${port}`],
};

/** Kestrel's protocol on the port, the native one on the port after it and on a Unix socket. */
function varve(durability) {
  return (port, directory) => [
    process.execPath,
    ...[PROGRAM, "daemon", "--data-dir", join(directory, "data"), "--durability", durability],
    ...["--kestrel", `127.0.0.1:${port}`, "--target", `tcp://127.0.0.1:${port + 1}`],
    ...["--target", `unix://${unixPath(port)}`, "--log-level", "warn"],
  ];
}

/** Not in the directory: such a path must be short. */
export const unixPath = (port) => join(tmpdir(), `varve-bench-${port}.sock`);

function redis(fsync) {
  return (port, directory) => [
    "redis-server",
    ...["--port", `${port}`, "--bind", "127.0.0.1", "--dir", directory, "--save", "", "--tcp-backlog", "2048"],
    ...["--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0", "--daemonize", "no"],
  ];
}

function nats(more) {
  return (port, directory) => {
    const file = join(directory, "nats.conf");
    writeFileSync(file, `listen: "127.0.0.1:${port}"\njetstream { store_dir: "${directory}"\n${more} }\n`);
    return ["nats-server", "-c", file];
  };
}

/** Processes that run still, so that none is left when this one ends early. */
const running = new Set();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/**
 * @typedef {object} Server
 * @property {string} host
 * @property {number} port
 * @property {number} pid
 * @property {string} directory
 * @property {(signal?: NodeJS.Signals) => Promise<void>} stop
 */

/** @returns {Promise<Server>} @throws Error what the server said of why it did not start */
export async function startServer(name, directory) {
  mkdirSync(directory, { recursive: true });
  const port = await freePorts();
  const [program, ...args] = COMMANDS[name](port, directory);
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  running.add(child);
  let said = "";
  const listen = (text) => {
    said = `${said}${text}`.slice(-500);
  };
  child.stdout.setEncoding("utf8").on("data", listen);
  child.stderr.setEncoding("utf8").on("data", listen);
  const exited = new Promise((resolve) => {
    child.once("exit", resolve).once("error", resolve);
  }).then(() => running.delete(child));
  const stop = async (signal = "SIGTERM") => {
    child.kill(signal);
    const late = setTimeout(() => child.kill("SIGKILL"), STOP_MS_MAX);
    await exited;
    clearTimeout(late);
  };
  const startedMs = performance.now();
  const isReady = async () => (await answers(port)) && (!args.includes(PROGRAM) || (await answers(port + 1)));
  while (!(await isReady())) {
    if (!running.has(child)) {
      const last = said.trim().split("\n").at(-1).replaceAll(`${directory}/`, "");
      throw new Error(last || `${program} did not start`);
    }
    if (performance.now() - startedMs > START_MS_MAX) {
      await stop();
      throw new Error(`${program} did not answer within ${START_MS_MAX / 1000} s`);
    }
    await sleep(10);
  }
  return { host: "127.0.0.1", port, pid: child.pid, directory, stop };
}

export const freshDirectory = (parent) => mkdtempSync(join(parent, "server-"));

/** What a program tells of its version; undefined when there is no such program. */
export function versionOf(program, option) {
  const { error, stdout, stderr } = spawnSync(program, [option], { encoding: "utf8" });
  return error === undefined ? (/\d+(\.\d+)+/.exec(stdout || stderr)?.[0] ?? "unknown") : undefined;
}

/** Two in a row. */
async function freePorts() {
  for (;;) {
    const first = await listening(0);
    const { port } = first.address();
    const second = await listening(port + 1).catch(() => undefined);
    for (const server of [first, second]) await new Promise((resolve) => server?.close(resolve) ?? resolve());
    if (second !== undefined) return port;
  }
}

function listening(port) {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject).listen(port, "127.0.0.1", () => resolve(server));
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
