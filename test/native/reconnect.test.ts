/** Connections that are lost, and daemons that come back: what a client goes on with, and what it tells of the rest. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { test } from "node:test";
import {
  type DialOptions,
  dial,
  type LogQueue,
  type MessageQueue,
  type OpenOptions,
  open,
  type Task,
  type VarveError,
} from "../../src/index.js";
import { parseTarget } from "../../src/wire/target.js";
import { withDirectory } from "../support/directories.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { freeTarget, type Listening, listen } from "../support/listening.js";

/** A client, a daemon, and what stands between them. */
class Scene {
  readonly directory: string;
  readonly #options: OpenOptions;
  #listening: Listening | undefined;
  #proxy: Server | undefined;
  readonly #pairs = new Set<Socket>();
  /** What the daemon sends does not arrive. */
  deaf = false;
  #port = 0;
  #isClosed = false;

  constructor(directory: string, options: OpenOptions) {
    this.directory = directory;
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#listening = await listen(
      await open(this.directory, { durability: "async", ...this.#options }),
      this.#listening === undefined ? freeTarget("tcp") : parseTarget(this.#listening.target),
      { sessionMs: 2000, memberMs: 500 },
    );
    if (this.#proxy !== undefined) return;
    this.#proxy = createServer((client) => this.#connected(client));
    this.#proxy.listen(0, "127.0.0.1");
    await once(this.#proxy, "listening");
    this.#port = (this.#proxy.address() as { port: number }).port;
  }

  #connected(client: Socket): void {
    if (this.#isClosed) {
      client.destroy();
      return;
    }
    const { port } = new URL(this.#listening!.target.replace("tcp:", "http:"));
    const server = connect(Number(port), "127.0.0.1");
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#pairs.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        this.#pairs.delete(socket);
        other.destroy();
      });
    }
    client.on("data", (piece: Buffer) => server.write(piece));
    server.on("data", (piece: Buffer) => {
      if (!this.deaf) client.write(piece);
    });
  }

  dial(options?: DialOptions): Promise<MessageQueue> {
    return dial(`tcp://127.0.0.1:${this.#port}`, options);
  }

  /** The wire is cut; whoever connects again finds it whole. */
  cut(): void {
    this.deaf = false;
    for (const socket of this.#pairs) socket.destroy();
  }

  get connections(): number {
    return this.#pairs.size;
  }

  /** A log as the daemon's own process sees it. */
  async served(log: string): Promise<LogQueue> {
    return await this.#listening!.mq.openLog(log);
  }

  async stop(): Promise<void> {
    await this.#listening?.close();
  }

  /** The wire is cut, and nobody gets through any more. */
  close(): void {
    this.#isClosed = true;
    this.cut();
  }

  /** The daemon is another one: it knows nothing of its clients. */
  async restart(): Promise<void> {
    this.close();
    await this.stop();
    await this.start();
    this.open();
  }

  open(): void {
    this.#isClosed = false;
  }

  async end(): Promise<void> {
    this.cut();
    this.#proxy?.close();
    await this.stop();
  }
}

function scene(body: (on: Scene) => Promise<void>, options: OpenOptions = {}): () => Promise<void> {
  return () =>
    withDirectory(async (directory) => {
      const on = new Scene(directory, options);
      await on.start();
      try {
        await body(on);
      } finally {
        await on.end();
      }
    });
}

test(
  "a client goes on after a lost connection, with what it had open",
  scene(async (on) => {
    const mq = await on.dial();
    const log = await mq.openLog("events");
    const jobs = await mq.openTask("jobs");
    const cursor = await jobs.cursor("c");
    const group = await log.sharedGroup("g");
    for (let round = 0; round < 3; round++) {
      assert.equal(await log.append(`${round}`), round);
      await jobs.enqueue(`${round}`);
      on.cut();
      assert.equal((await log.read(round))?.payload.toString(), `${round}`);
      assert.equal((await cursor.dequeue({ autoAck: true }))?.payload.toString(), `${round}`);
      const [task] = await group.dequeueBatch({ max: 1, wait: "10s" });
      await group.ack(task as Task);
    }
    await mq.close();
  }),
);

test(
  "a lease survives the reconnect of its holder, and one for the session does too",
  scene(async (on) => {
    const mq = await on.dial();
    const jobs = await mq.openTask("jobs", { lease: "1h" });
    await jobs.enqueueBatch(["1", "2"]);
    const timed = (await jobs.dequeue()) as Task;
    const held = (await jobs.dequeue({ lease: "session" })) as Task;
    on.cut();
    await jobs.ack(timed);
    on.cut();
    assert.equal((await jobs.stats()).leased, 1);
    await jobs.ack(held);
    assert.deepEqual(await jobs.dequeueBatch({ max: 10 }), []);
    await mq.close();
  }),
);

test(
  "what a client holds for the session goes back when it does not come back",
  scene(async (on) => {
    const gone = await on.dial();
    const jobs = await gone.openTask("jobs", { lease: "1h" });
    await jobs.enqueueBatch(["1", "2", "3"]);
    await jobs.dequeueBatch({ max: 2, lease: "session" });
    const other = await on.dial();
    const again = await other.openTask("jobs");
    await gone.close();
    const tasks = await again.dequeueBatch({ max: 3, wait: "10s" });
    assert.deepEqual(
      tasks.map(({ payload }) => payload.toString()),
      ["1", "2", "3"],
    );
    await other.close();
  }),
);

test(
  "tasks whose delivery was lost on the way are given out again, at once and uncounted",
  scene(async (on) => {
    const mq = await on.dial();
    const jobs = await mq.openTask("jobs", { lease: "1h" });
    const other = await on.dial();
    const producer = await other.openTask("jobs");
    const waiting = jobs.dequeueBatch({ max: 10, wait: "1h" });
    await eventually("it waits", async () => (await producer.stats()).waiters === 1);
    on.deaf = true;
    producer.enqueueBatch(["1", "2"]).catch(() => {}); // its answer is lost, too
    const aside = await open(on.directory).catch((error: unknown) => error);
    assert.ok(aside instanceof Error, "the directory is in use");
    await new Promise((resolve) => setTimeout(resolve, 300));
    on.cut();
    const tasks = await waiting;
    assert.deepEqual(
      tasks.map(({ payload, attempt }) => [payload.toString(), attempt]),
      [
        ["1", 1],
        ["2", 1],
      ],
    );
    await jobs.ackBatch(tasks);
    await Promise.all([mq.close(), other.close()]);
  }),
);

test(
  "a tail neither misses nor repeats a record, however often the connection is lost",
  scene(async (on) => {
    const mq = await on.dial();
    const log = await mq.openLog("events");
    await log.append("before");
    const seen: string[] = [];
    const tail = (async () => {
      for await (const { payload } of log.tail()) if (seen.push(payload.toString()) === 60) return;
    })();
    const other = await on.dial();
    const writer = await other.openLog("events");
    for (let index = 0; index < 60; index++) {
      const appending = writer.append(`${index}`);
      if (index % 9 === 0) on.cut();
      assert.equal(await appending, index + 1);
    }
    await tail;
    assert.deepEqual(
      seen,
      Array.from({ length: 60 }, (_, index) => `${index}`),
    );
    await Promise.all([mq.close(), other.close()]);
  }),
);

test(
  "a change whose answer was lost is carried out once, also over a restart; one that was not sent, later",
  scene(async (on) => {
    const mq = await on.dial();
    const log = await mq.openLog("events");
    const jobs = await mq.openTask("jobs");
    await jobs.enqueue("leased");
    const task = (await jobs.dequeue()) as Task;
    on.deaf = true;
    const lost = [log.append("a"), log.appendBatch(["b", "c"]), jobs.enqueue("1"), jobs.ack(task)];
    await new Promise((resolve) => setTimeout(resolve, 200));
    on.cut();
    assert.deepEqual((await Promise.all(lost)).slice(0, 2), [0, [1, 2]]);
    on.deaf = true;
    const again = [log.append("d"), jobs.purge(), log.purge()];
    await new Promise((resolve) => setTimeout(resolve, 200));
    await on.stop();
    on.deaf = false;
    const later = log.append("e");
    await on.start();
    assert.deepEqual(await Promise.all(again), [3, 1, 4]);
    assert.equal(await later, 4);
    assert.equal((await log.stats()).count, 1);
    await mq.close();
  }),
);

test(
  "dead letters are redriven and purged once, and all of them are counted, when the answer was lost",
  scene(async (on) => {
    const mq = await on.dial();
    const jobs = await mq.openTask("jobs", { maxAttempts: 1 });
    const die = async () => {
      const tasks = await jobs.dequeueBatch({ max: 400 });
      await Promise.all(tasks.map((task) => jobs.nack(task)));
      return tasks.length;
    };
    await jobs.enqueueBatch(Array.from({ length: 400 }, (_, index) => `${index}`));
    assert.equal(await die(), 400);
    for (const call of ["redrive", "purge"] as const) {
      on.deaf = true;
      const lost = jobs.dead[call]({ limit: 300 });
      await new Promise((resolve) => setTimeout(resolve, 200));
      if (call === "redrive") on.cut();
      else await on.stop();
      on.deaf = false;
      if (call === "purge") await on.start();
      assert.equal(await lost, 300);
      const { ready, dead } = await jobs.stats();
      assert.deepEqual({ ready, dead }, call === "redrive" ? { ready: 300, dead: 100 } : { ready: 0, dead: 100 });
      if (call === "redrive") assert.equal(await die(), 300);
    }
    await mq.close();
  }),
);

test(
  "over a restart of the daemon, waits go on, workers work on, and leases hold",
  scene(async (on) => {
    const mq = await on.dial();
    const jobs = await mq.openTask("jobs", { lease: "1h" });
    const others = await mq.openTask("others");
    await jobs.enqueue("held");
    const held = (await jobs.dequeue()) as Task;
    const done: string[] = [];
    const worker = others.work((task) => {
      done.push(task.payload.toString());
    });
    await others.enqueue("1");
    await eventually("the first is done", () => done.length === 1);
    const waiting = jobs.dequeue({ wait: "1h" });
    await on.stop();
    await on.start();
    await jobs.ack(held);
    await jobs.enqueue("new");
    assert.equal((await waiting)?.payload.toString(), "new");
    await others.enqueue("2");
    await eventually("so is the second", () => done.length === 2);
    await worker.close();
    await mq.close();
  }),
);

test(
  "a member of a group goes on after a lost connection with what it has read, and is given again what did not arrive",
  scene(async (on) => {
    const mq = await on.dial();
    const log = await mq.openLog("events");
    await log.appendBatch(["0", "1", "2", "3", "4", "5"]);
    const member = await log.group("g");
    const other = await log.group("g");
    const lost = async (max: number): Promise<number[]> => {
      on.deaf = true;
      const read = member.read({ max });
      await new Promise((resolve) => setTimeout(resolve, 100));
      on.cut();
      return (await read).map(({ offset }) => offset);
    };
    assert.deepEqual(await lost(2), [0, 1]);
    on.cut();
    assert.deepEqual(await lost(1), [2]);
    on.cut();
    await member.commit(1);
    assert.deepEqual((await member.read({ max: 2 })).length, 2);
    on.cut();
    assert.deepEqual(await member.position(), { committed: 2, next: 5, lag: 4, active: true });
    await member.commit(4);
    assert.deepEqual(await other.read(), [], "it stands by");
    assert.equal(await member.seek(0), 0);
    assert.deepEqual(await lost(1), [0]);
    await mq.close();
  }),
);

test(
  "a member that comes back late joins again if it has nothing open, and else learns that its turn is over",
  scene(async (on) => {
    const mq = await on.dial();
    const log = await mq.openLog("events");
    await log.appendBatch(["0", "1", "2"]);
    const member = await log.group("g");
    const [first] = await member.read({ max: 1 });
    await member.commit(first!);
    await on.restart();
    const [second] = await member.read({ max: 1 });
    assert.equal(second?.offset, 1);
    on.close();
    await eventually("nobody is in the group", async () => {
      const [group] = await (await on.served("events")).groups();
      return group?.members === 0;
    });
    on.open();
    await rejectsWith("ERR_FENCED", member.commit(second!));
    const again = await log.group("g");
    assert.equal((await again.read({ max: 1 }))[0]?.offset, 1);
    await mq.close();
  }),
);

test(
  "a queue that was deleted meanwhile is not made again by a reconnect",
  scene(async (on) => {
    const mq = await on.dial();
    const jobs = await mq.openTask("jobs");
    await mq.deleteQueue("task", "jobs");
    await on.stop();
    await on.start();
    await rejectsWith("ERR_NOT_FOUND", jobs.enqueue("x"));
    assert.deepEqual(await mq.queues(), []);
    await mq.close();
  }),
);

test(
  "without a connection, calls wait for so long and no more, and only so many of them",
  scene(async (on) => {
    const mq = await on.dial({ offlineTimeout: 1000, maxPendingBytes: "64KiB" });
    const log = await mq.openLog("events");
    await on.stop();
    await eventually("it has noticed", async () => {
      const outcome = await Promise.race([
        log.stats().then(
          () => "answered",
          () => "refused",
        ),
        later("waits"),
      ]);
      return outcome === "waits";
    });
    const waiting = rejectsWith("ERR_DISCONNECTED", log.append(Buffer.alloc(60 * 1024)));
    const more = Array.from({ length: 8 }, () => log.append(Buffer.alloc(1024)));
    const outcomes = await Promise.allSettled(more);
    const codes = outcomes.map((outcome) => (outcome.status === "rejected" ? outcome.reason.code : "carried out"));
    assert.deepEqual([codes.at(0), codes.at(-1)], ["ERR_DISCONNECTED", "ERR_OVERLOADED"]);
    await waiting;
    await mq.close();
    await on.start();
  }),
);

test("nobody there: the system's error is the cause; targets that are none are refused", async () => {
  const { cause } = await rejectsWith("ERR_DISCONNECTED", dial("unix:///nowhere/varve.sock"));
  assert.equal((cause as { code?: string }).code, "ENOENT");
  for (const target of ["", "http://a:1", "tcp://a", "tcp://a:99999", "unix://relative", "pipe://a/b"]) {
    await rejectsWith("ERR_OPTION", dial(target));
  }
});

async function later(value: string): Promise<string> {
  await new Promise((resolve) => setTimeout(resolve, 100));
  return value;
}

test(
  "a member's commit of which nobody knows any more has an unknown outcome, and is not refused as if nothing had come of it",
  scene(async (on) => {
    const mq = await on.dial();
    const log = await mq.openLog("events");
    await log.appendBatch(["1", "2"]);
    const member = await log.group("g");
    await member.read({ max: 2 });
    on.deaf = true;
    const commit = member.commit(1);
    const seek = member.seek("end");
    await eventually("it has been carried out", async () => {
      const [group] = await (await on.served("events")).groups();
      return group?.committed === 2;
    });
    const settled = Promise.allSettled([commit, seek]);
    await on.restart();
    for (const each of await settled) {
      assert.equal(each.status === "rejected" && (each.reason as VarveError).code, "ERR_OUTCOME_UNKNOWN");
    }
    await rejectsWith("ERR_FENCED", member.commit(1));
    await mq.close();
  }),
);

test(
  "a dequeue that does not wait is given up offline, and does not wait when it is made again",
  scene(async (on) => {
    const mq = await on.dial();
    const jobs = await mq.openTask("jobs");
    on.deaf = true;
    const lost = jobs.dequeue();
    const givenUp = new AbortController();
    const givenUpEarly = jobs.dequeue({ signal: givenUp.signal });
    on.close();
    await eventually("the client has noticed", () => on.connections === 0);
    const aborted = new AbortController();
    const offline = jobs.dequeue({ signal: aborted.signal });
    aborted.abort();
    givenUp.abort();
    assert.deepEqual(await Promise.all([offline, givenUpEarly]), [undefined, undefined]);
    await on.restart();
    assert.equal(await lost, undefined);
    await mq.close();
  }),
);
