/**
 * npm run kestrel -- [--dist DIR] [--only TEXT]
 *
 * Plays the transcripts of test/kestrel/transcripts against a daemon of its own, byte by byte, with restarts and kills.
 * Fails unless every case of the target behaviour passes.
 *
 *   --dist DIR    uses a build that is there already
 *   --only TEXT   cases whose title contains TEXT
 */

import { spawn } from "node:child_process";
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { build, checkNode, fail, install, ROOT } from "./setup.mjs";

const SELF = fileURLToPath(import.meta.url);
const PATIENCE_MS = 15_000;

/** The queues that the cases about settings need. */
const CONFIG = {
  queues: {
    cfg_max3: { limits: { maxCount: 3 } },
    cfg_drop3: { limits: { maxCount: 3, whenFull: "drop-oldest" } },
    cfg_bytes10: { limits: { maxBytes: 10 } },
    cfg_item8: { limits: { maxMessageBytes: 8 } },
    cfg_age1: { ttl: "1s" },
    cfg_exp: { onExpire: { moveTo: "cfg_expdst" } },
    cfg_expdst: {},
  },
};

const { values: options } = parseArgs({
  options: { dist: { type: "string" }, only: { type: "string" }, hook: { type: "string" }, state: { type: "string" } },
});
if (options.hook !== undefined) await restart(options.hook, options.state);
else await main();

async function main() {
  checkNode();
  if (options.dist === undefined) {
    install();
    await build();
  }
  const directory = mkdtempSync(join(tmpdir(), "varve-kestrel-"));
  const state = join(directory, "state.json");
  const port = await freePort();
  const config = join(directory, "config.json");
  writeFileSync(config, JSON.stringify(CONFIG));
  const log = join(directory, "daemon.log");
  const command = [
    resolve(ROOT, options.dist ?? "dist", "bin/varve.js"),
    ...["daemon", "--data-dir", join(directory, "data"), "--config", config, "--log-level", "info"],
    ...["--kestrel", `127.0.0.1:${port}`],
  ];
  writeFileSync(state, JSON.stringify({ command, log, port, pid: await startDaemon(command, log, port) }));
  const hook = (signal) => `"${process.execPath}" "${SELF}" --hook ${signal} --state "${state}"`;
  const runner = join(ROOT, "test/kestrel/transcripts/run.mjs");
  const only = options.only === undefined ? [] : [`--only=${options.only}`];
  const player = spawn(
    process.execPath,
    [runner, `127.0.0.1:${port}`, "--profile=target", "--have=config", "--no-skip", ...only],
    { stdio: "inherit", env: { ...process.env, RESTART_CMD: hook("SIGTERM"), CRASH_CMD: hook("SIGKILL") } },
  );
  const status = await new Promise((resolve) => player.once("exit", resolve));
  const { pid } = JSON.parse(readFileSync(state, "utf8"));
  const leftInOrder = await stop(pid, "SIGTERM");
  if (status === 0 && leftInOrder) {
    rmSync(directory, { recursive: true, force: true });
    return;
  }
  process.stderr.write(readFileSync(log, "utf8").slice(-4000));
  fail(status === 0 ? "the daemon did not end in time" : "transcripts failed", status === 0 ? 1 : (status ?? 1));
}

/** Run by the transcripts: stops the daemon with a signal and starts it again. */
async function restart(signal, state) {
  const { command, log, port, pid } = JSON.parse(readFileSync(state, "utf8"));
  if (!(await stop(pid, signal))) fail(`the daemon did not end by ${signal}`);
  writeFileSync(state, JSON.stringify({ command, log, port, pid: await startDaemon(command, log, port) }));
}

async function startDaemon(command, log, port) {
  const output = openSync(log, "a");
  const child = spawn(process.execPath, command, { detached: true, stdio: ["ignore", output, output] });
  child.unref();
  const startedMs = performance.now();
  while (!(await answers(port))) {
    if (child.exitCode !== null || performance.now() - startedMs > PATIENCE_MS) {
      process.stderr.write(readFileSync(log, "utf8").slice(-4000));
      fail("the daemon did not start");
    }
    await sleep(20);
  }
  return child.pid;
}

async function stop(pid, signal) {
  process.kill(pid, signal);
  const startedMs = performance.now();
  while (performance.now() - startedMs < PATIENCE_MS) {
    try {
      process.kill(pid, 0);
    } catch {
      return true;
    }
    await sleep(20);
  }
  process.kill(pid, "SIGKILL");
  return false;
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
