import assert from "node:assert/strict";
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { Worker } from "node:worker_threads";
import { isVarveError, type VarveError } from "../api/errors.js";
import { LOCK_FILE, lockDirectory, OWNER_FILE } from "./lock.js";

const windows = process.platform === "win32";
const linux = process.platform === "linux";
const base = fs.mkdtempSync(path.join(os.tmpdir(), "varve-lock-"));
after(() => fs.rmSync(base, { recursive: true, force: true }));

function freshDirectory(name: string): string {
  const directory = path.join(base, name);
  fs.mkdirSync(directory);
  return directory;
}

/** Prints one line, the outcome; then holds the lock until standard input ends, or "release" comes. */
const CHILD = `
  import { lockDirectory } from ${JSON.stringify(new URL("./lock.js", import.meta.url).href)};
  let lock;
  try {
    lock = await lockDirectory(process.argv[1]);
    console.log("locked");
  } catch (error) {
    console.log(JSON.stringify({ code: error.code, message: error.message, details: error.details }));
    process.exit();
  }
  process.stdin.on("data", () => { lock.release(); console.log("released"); }).on("end", () => process.exit());
`;

interface Contender {
  readonly child: ChildProcessWithoutNullStreams;
  readonly outcome: string;
  line(): Promise<string>;
}

async function contend(directory: string, env: NodeJS.ProcessEnv = process.env): Promise<Contender> {
  const child = spawn(process.execPath, ["--input-type=module", "-e", CHILD, directory], { env });
  // Not piped: each pipe would add its listeners to this process's stderr.
  child.stderr.on("data", (chunk: Buffer) => process.stderr.write(chunk));
  after(() => child.kill("SIGKILL"));
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  const line = async () => {
    while (!text.includes("\n")) {
      assert.equal(child.exitCode, null, "the child ended without an outcome");
      await Promise.race([once(child.stdout, "data"), once(child, "close")]);
    }
    const [first, ...rest] = text.split("\n");
    text = rest.join("\n");
    return first!;
  };
  return { child, outcome: await line(), line };
}

async function refusal(directory: string): Promise<VarveError> {
  try {
    (await lockDirectory(directory)).release();
  } catch (error) {
    assert.ok(isVarveError(error, "ERR_DIR_LOCKED"), String(error));
    return error;
  }
  assert.fail("a second owner got the lock");
}

async function kill(contender: Contender, signal: NodeJS.Signals): Promise<void> {
  const ended = once(contender.child, "exit");
  contender.child.kill(signal);
  await ended;
}

test("a second open in the same process is refused, and says so", async () => {
  const directory = freshDirectory("same-process");
  const lock = await lockDirectory(directory);
  const error = await refusal(directory);
  assert.match(error.message, /this process/);
  assert.equal(error.details.pid, process.pid);
  lock.release();
  lock.release();
  (await lockDirectory(directory)).release();
  assert.ok(fs.existsSync(path.join(directory, LOCK_FILE)), "LOCK stays");
});

test("a thread of the same process is another owner, and its lock ends with it", async () => {
  const directory = freshDirectory("thread");
  const source = `
    import { parentPort, workerData } from "node:worker_threads";
    const { lockDirectory } = await import(workerData.module);
    await lockDirectory(workerData.directory);
    parentPort.postMessage("locked");
    parentPort.on("message", () => {});
  `;
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(source)}`), {
    workerData: { module: new URL("./lock.js", import.meta.url).href, directory },
  });
  await once(worker, "message");
  await refusal(directory);
  await worker.terminate();
  (await lockDirectory(directory)).release();
});

test("another process is refused with the owner's name, and gets the lock after a release", async () => {
  const directory = freshDirectory("processes");
  const lock = await lockDirectory(directory);
  const refused = JSON.parse((await contend(directory)).outcome) as VarveError;
  assert.equal(refused.code, "ERR_DIR_LOCKED");
  assert.equal(refused.details.pid, process.pid);
  assert.equal(refused.details.host, os.hostname());
  assert.ok(refused.message.includes(`process ${process.pid} on host ${os.hostname()}`), refused.message);
  assert.ok(Date.parse(String(refused.details.since)) <= Date.now());
  lock.release();
  const next = await contend(directory);
  assert.equal(next.outcome, "locked");
  assert.equal((await refusal(directory)).details.pid, next.child.pid);
  next.child.stdin.write("release\n");
  assert.equal(await next.line(), "released");
  (await lockDirectory(directory)).release();
});

test("the lock ends with a killed owner, and its name is not blamed afterwards", async () => {
  const directory = freshDirectory("killed");
  const owner = await contend(directory);
  await refusal(directory);
  await kill(owner, "SIGKILL");
  const lock = await lockDirectory(directory);
  assert.equal((await refusal(directory)).details.pid, process.pid);
  lock.release();
});

test("a stopped owner keeps the lock, and is found out about as fast", { skip: windows && "no SIGSTOP" }, async () => {
  const directory = freshDirectory("stopped");
  const owner = await contend(directory);
  owner.child.kill("SIGSTOP");
  // A refusal that waited for an answer of the owner's would never come.
  assert.equal((await refusal(directory)).details.pid, owner.child.pid);
  owner.child.kill("SIGCONT");
  await kill(owner, "SIGKILL");
  (await lockDirectory(directory)).release();
});

test("the same directory through a link is the same lock", { skip: windows && "links need a privilege" }, async () => {
  const directory = freshDirectory("linked");
  const link = path.join(base, "link");
  fs.symlinkSync(directory, link);
  const lock = await lockDirectory(link);
  assert.ok((await refusal(directory)).message.includes(fs.realpathSync(directory)));
  lock.release();
});

test("of twenty that race, one wins", async () => {
  const directory = freshDirectory("race");
  const racers = await Promise.all(Array.from({ length: 20 }, () => contend(directory)));
  const winners = racers.filter((racer) => racer.outcome === "locked");
  assert.equal(winners.length, 1);
  for (const racer of racers) {
    if (racer === winners[0]) continue;
    const refused = JSON.parse(racer.outcome) as VarveError;
    assert.equal(refused.code, "ERR_DIR_LOCKED");
    assert.equal(refused.details.pid, winners[0]!.child.pid, "the refusal names the winner");
  }
  await kill(winners[0]!, "SIGKILL");
});

test("the lock does not hang on children that the owner starts", {
  skip: windows && "no such inheritance",
}, async () => {
  const directory = freshDirectory("children");
  const lock = await lockDirectory(directory);
  const child = spawn(process.execPath, ["-e", "console.log(1); setInterval(() => {}, 1000)"]);
  after(() => child.kill("SIGKILL"));
  await once(child.stdout, "data");
  lock.release();
  (await lockDirectory(directory)).release();
  child.kill("SIGKILL");
});

test("no means to lock: refused, with what to install", { skip: !linux && "has no utility to miss" }, async (t) => {
  if (await koffiInstalled()) return t.skip("koffi is installed, so there is a means");
  const refused = JSON.parse((await contend(freshDirectory("no-means"), { PATH: "" })).outcome) as VarveError;
  assert.equal(refused.code, "ERR_LOCK_UNSUPPORTED");
  assert.match(refused.message, /flock.*koffi/);
});

test("koffi's lock and the utility's exclude each other", { skip: !linux && "Linux only" }, async (t) => {
  if (!(await koffiInstalled())) return t.skip("the optional package koffi is not installed");
  const directory = freshDirectory("koffi");
  const owner = await contend(directory, { PATH: "" });
  assert.equal(owner.outcome, "locked");
  await refusal(directory);
  await kill(owner, "SIGKILL");
  const lock = await lockDirectory(directory);
  assert.equal(JSON.parse((await contend(directory, { PATH: "" })).outcome).code, "ERR_DIR_LOCKED");
  lock.release();
});

async function koffiInstalled(): Promise<boolean> {
  const name: string = "koffi";
  return import(name).then(
    () => true,
    () => false,
  );
}

test("a planted link in place of LOCK is not followed", { skip: windows && "no O_NOFOLLOW" }, async () => {
  const directory = freshDirectory("planted");
  fs.writeFileSync(path.join(base, "victim"), "keep");
  fs.symlinkSync(path.join(base, "victim"), path.join(directory, LOCK_FILE));
  await assert.rejects(lockDirectory(directory), { code: "ELOOP" });
  assert.equal(fs.readFileSync(path.join(base, "victim"), "utf8"), "keep");
});

test("an unreadable owner's name does not hide that the directory is locked", async () => {
  const directory = freshDirectory("nameless");
  const lock = await lockDirectory(directory);
  fs.writeFileSync(path.join(directory, OWNER_FILE), "\0garbage");
  assert.match((await refusal(directory)).message, /in use/);
  lock.release();
  await assert.rejects(lockDirectory(path.join(base, "nowhere")), { code: "ENOENT" });
});

test("whoever finds the lock held by somebody who is giving it up takes it", { skip: windows }, async () => {
  const directory = freshDirectory("given-up");
  const before = await lockDirectory(directory);
  // As a release leaves it, before the lock itself is gone.
  fs.writeFileSync(path.join(directory, OWNER_FILE), " ".repeat(512));
  const next = lockDirectory(directory);
  await new Promise((resolve) => setTimeout(resolve, 20));
  before.release();
  (await next).release();
});
