/**
 * Task cycles as programs make them: tasks are enqueued one by one, 64 calls at a time, and handled by a worker of the system's
 * own library with 64 handlers at a time, in one process. `fork`ed with the name of a system and where it is.
 *
 * Each system: `start` gives `enqueue`, and calls `onDone` for each task that is done.
 */

import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { dial, open } from "../entry.js";
import { processorMicros } from "../process-info.js";
import { serve } from "../worker.js";

const CONCURRENCY = 64;
const VALUE = "v".repeat(64);
const QUEUE = "jobs";

const SYSTEMS = {
  async "varve dialled"({ host, port }, onDone) {
    return varve(await dial(`tcp://${host}:${port}`), onDone);
  },

  async "varve embedded"({ directory, durability }, onDone) {
    return varve(await open(join(directory, "data"), { durability }), onDone);
  },

  async bullmq(connection, onDone) {
    const { Queue, Worker } = await import("bullmq");
    const queue = new Queue(QUEUE, { connection, defaultJobOptions: { removeOnComplete: true } });
    const worker = new Worker(QUEUE, async () => onDone(), { connection, concurrency: CONCURRENCY });
    await worker.waitUntilReady();
    return { enqueue: () => queue.add("task", VALUE) };
  },

  /** There is no library of its own: one connection for each of the handlers, and for each that enqueues. */
  async beanstalkd(address, onDone) {
    const handlers = await Promise.all(Array.from({ length: CONCURRENCY }, () => beanstalk(address, `watch ${QUEUE}`)));
    for (const ask of handlers) {
      const handle = async () => {
        for (;;) {
          const [, id] = (await ask("reserve")).split(" ");
          const answer = await ask(`delete ${id}`);
          if (answer !== "DELETED") throw new Error(answer);
          onDone();
        }
      };
      void handle();
    }
    const producers = await Promise.all(Array.from({ length: CONCURRENCY }, () => beanstalk(address, `use ${QUEUE}`)));
    const idle = [...producers];
    return {
      async enqueue() {
        const ask = idle.pop();
        await ask(`put 0 0 60 ${VALUE.length}\r\n${VALUE}`);
        idle.push(ask);
      },
    };
  },

  /** SQLite in this process. Its calls block, so concurrency gains it nothing; its worker takes one job after another. */
  async plainjob({ directory, durability }, onDone) {
    const { default: Database } = await import("better-sqlite3");
    const { better, defineQueue, defineWorker } = await import("plainjob");
    const database = new Database(join(directory, "plainjob.db"));
    const silent = { error: console.error, warn: console.error, info() {}, debug() {} };
    const queue = defineQueue({ connection: better(database), logger: silent });
    database.pragma(`synchronous=${durability === "sync" ? "FULL" : "NORMAL"}`);
    const worker = defineWorker(QUEUE, async () => onDone(), { queue, logger: silent, pollIntervall: 1 });
    void worker.start();
    return {
      async enqueue() {
        queue.add(QUEUE, VALUE);
        await turn(); // lets the worker have its share
      },
    };
  },

  /** PostgreSQL as WebAssembly in this process, one connection; taken in batches, which it is quickest with. */
  async "pg-boss"({ directory }, onDone) {
    const { PGlite } = await import("@electric-sql/pglite");
    const { default: Boss } = await import("pg-boss");
    const postgres = await PGlite.create(join(directory, "postgres"));
    const executeSql = async (text, values) =>
      values === undefined || values.length === 0 ? (await postgres.exec(text)).at(-1) : postgres.query(text, values);
    const boss = new Boss({ db: { executeSql }, supervise: false, schedule: false });
    boss.on("error", (error) => console.error(error));
    await boss.start();
    await boss.createQueue(QUEUE);
    const handle = async () => {
      for (;;) {
        const jobs = await boss.fetch(QUEUE, { batchSize: CONCURRENCY });
        const ids = jobs.map(({ id }) => id);
        if (ids.length > 0) await boss.complete(QUEUE, ids);
        for (const _ of ids) onDone();
        await turn();
      }
    };
    void handle();
    return { enqueue: () => boss.send(QUEUE, { v: VALUE }) };
  },
};

async function varve(mq, onDone) {
  const tasks = await mq.openTask(QUEUE);
  tasks.work(() => onDone(), { concurrency: CONCURRENCY });
  const payload = Buffer.from(VALUE);
  return { enqueue: () => tasks.enqueue(payload) };
}

/** A connection that asks one thing after another; an answer's first line is given. */
async function beanstalk({ host, port }, opening) {
  const socket = connect({ host, port, noDelay: true });
  await once(socket, "connect");
  let text = "";
  let answered;
  socket.setEncoding("latin1").on("data", (piece) => {
    text += piece;
    const end = text.indexOf("\r\n");
    if (end < 0) return;
    const line = text.slice(0, end);
    const reserved = /^RESERVED \d+ (\d+)$/.exec(line);
    const size = reserved === null ? end + 2 : end + 2 + Number(reserved[1]) + 2;
    if (text.length < size) return;
    text = text.slice(size);
    answered(line);
  });
  const ask = (request) =>
    new Promise((resolve) => {
      answered = resolve;
      socket.write(`${request}\r\n`, "latin1");
    });
  await ask(opening);
  return ask;
}

const [name, where] = process.argv.slice(2);
let left = 0;
let allDone = () => {};
const system = await SYSTEMS[name](JSON.parse(where), () => {
  left--;
  if (left === 0) allDone();
});

serve(async ({ count, pid = process.pid }) => {
  left = count;
  let toEnqueue = count;
  const finished = new Promise((resolve) => {
    allDone = resolve;
  });
  const micros = processorMicros(pid);
  const cpu = process.cpuUsage();
  const startedMs = performance.now();
  await Promise.all(
    Array.from({ length: CONCURRENCY }, async () => {
      while (toEnqueue > 0) {
        toEnqueue--;
        await system.enqueue();
      }
    }),
  );
  await finished;
  const seconds = (performance.now() - startedMs) / 1000;
  const { user, system: kernel } = process.cpuUsage(cpu);
  return {
    done: count,
    seconds,
    rate: count / seconds,
    serverCpu: (processorMicros(pid) - micros) / count,
    ownCpu: (user + kernel) / 1e6 / seconds,
  };
});
