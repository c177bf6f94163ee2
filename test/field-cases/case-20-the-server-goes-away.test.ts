import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type DialOptions,
  dial,
  isVarveError,
  type LogQueue,
  type MessageQueue,
  type TaskQueue,
} from "../../src/index.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { positive } from "../support/scale.js";
import { seedOr, withSeed } from "../support/seeded.js";
import { recordsOf } from "../support/state.js";
import { WITH_SIGNALS, withDaemon } from "./served.js";

const ROUNDS = Math.ceil(positive("VARVE_CRASH_ROUNDS", 9));
const FAULTS = ["killed", "standing still", "cut off"] as const;
const WORKERS = 4;

/** A wire that can be cut while both ends live on. */
class Wire implements Disposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(target: string) {
    const { hostname, port } = new URL(target.replace("tcp:", "http:"));
    this.#server = createServer((client) => {
      const daemon = connect(Number(port), hostname);
      for (const [socket, other] of [
        [client, daemon],
        [daemon, client],
      ] as const) {
        this.#sockets.add(socket);
        socket
          .on("error", () => {})
          .on("close", () => {
            this.#sockets.delete(socket);
            other.destroy();
          });
        socket.pipe(other);
      }
    });
  }

  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `tcp://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  [Symbol.dispose](): void {
    this.#server.close();
    this.cut();
  }
}

/** A client that numbers what it sends, and goes on after whatever becomes of a call. */
class Producer {
  readonly acknowledged: string[] = [];
  readonly codes = new Set<string>();
  #stopped = false;
  readonly #running: Promise<void>;

  private constructor(events: LogQueue, jobs: TaskQueue) {
    this.#running = this.#run(events, jobs);
  }

  static async start(mq: MessageQueue): Promise<Producer> {
    return new Producer(await mq.openLog("events"), await mq.openTask("jobs"));
  }

  async #run(events: LogQueue, jobs: TaskQueue): Promise<void> {
    for (let number = 0; !this.#stopped; number++) {
      const text = `${number}`;
      try {
        await Promise.all([events.append(text), jobs.enqueue(text)]);
        this.acknowledged.push(text);
      } catch (error) {
        if (!isVarveError(error)) throw error;
        this.codes.add(error.code);
      }
      await sleep(1);
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }
}

void test(
  "case 20: workers and tails go on, and no append is lost or doubled, while the server comes and goes",
  WITH_SIGNALS,
  () =>
    withSeed(seedOr(2020), (random) =>
      withDaemon(async (daemon) => {
        using wire = new Wire(daemon.target);
        const target = await wire.listen();
        const clients: MessageQueue[] = [];
        const client = async (options: DialOptions = {}): Promise<MessageQueue> => {
          const mq = await dial(target, options);
          clients.push(mq);
          return mq;
        };
        const setup = await client();
        const events = await setup.openLog("events");
        const jobs = await setup.openTask("jobs", { lease: "2s", maxAttempts: Number.POSITIVE_INFINITY });
        const done = new Set<string>();
        const workers = [];
        for (let index = 0; index < WORKERS; index++) {
          const queue = await (await client()).openTask("jobs");
          workers.push(queue.work(({ payload }) => void done.add(payload.toString())).on("error", () => {}));
        }
        const stop = new AbortController();
        const tails: string[][] = [[], []];
        const tailing = tails.map(async (seen) => {
          const log = await (await client()).openLog("events");
          for await (const { payload } of log.tail({ from: "start", signal: stop.signal }))
            seen.push(payload.toString());
        });
        const producer = await Producer.start(
          await client({ offlineTimeout: 500, requestTimeout: 500, connectTimeout: 500 }),
        );

        for (let round = 0; round < ROUNDS; round++) {
          const fault = FAULTS[round % FAULTS.length]!;
          const before = producer.acknowledged.length;
          if (fault === "killed") {
            await daemon.kill();
            await sleep(random.below(1500));
            await daemon.start();
          } else if (fault === "standing still") {
            daemon.signal("SIGSTOP");
            await sleep(random.below(1500));
            daemon.signal("SIGCONT");
          } else {
            wire.cut();
          }
          await eventually(`${fault}: the producer goes on`, () => producer.acknowledged.length > before + 20);
        }
        await producer.stop();
        for (const code of producer.codes) {
          assert.match(code, /^ERR_(DISCONNECTED|TIMEOUT|OUTCOME_UNKNOWN)$/, "what a call comes to that found nobody");
        }

        const stored = (await recordsOf(events)).map(({ payload }) => payload.toString());
        assert.equal(new Set(stored).size, stored.length, "each append is there once");
        for (const text of producer.acknowledged) assert.ok(stored.includes(text), `${text} was acknowledged`);
        await eventually("all tails have come to the end", () => tails.every((seen) => seen.length >= stored.length));
        for (const seen of tails) assert.deepEqual(seen, stored, "a tail gives each record once, in order");
        await eventually("all acknowledged tasks are done", () =>
          producer.acknowledged.every((text) => done.has(text)),
        );
        await eventually("nothing is left to do", async () => {
          const { ready, leased, scheduled, waiters } = await jobs.stats();
          return ready + leased + scheduled === 0 && waiters === WORKERS;
        });

        stop.abort();
        await Promise.all(tailing);
        await daemon.kill();
        // Whoever closes has no need of a server.
        await Promise.all(workers.map((worker) => worker.close({ timeout: 100 })));
        await Promise.all(clients.map((each) => each.close()));
      }),
    ),
);

void test(
  "case 20: a call during an outage comes to its end by its own deadline, before the server is back",
  WITH_SIGNALS,
  () =>
    withDaemon(async (daemon) => {
      const options = { offlineTimeout: 300, requestTimeout: 300, connectTimeout: 300 };
      const [hasty, patient] = [await dial(daemon.target, options), await dial(daemon.target)];
      const [log, same] = [await hasty.openLog("events"), await patient.openLog("events")];
      await log.append("before");

      await daemon.kill();
      const waiting = same.append("while it was away");
      await rejectsWith("ERR_DISCONNECTED", log.append("refused"));
      await rejectsWith("ERR_DISCONNECTED", log.read(0));
      await daemon.start();
      assert.equal(await waiting, 1, "whoever had time was served");

      // It takes connections, or rather its system does, and answers nothing.
      await eventually("the hasty one is back", async () => (await log.read(0).catch(() => {})) !== undefined);
      daemon.signal("SIGSTOP");
      await rejectsWith("ERR_TIMEOUT", log.read(0));
      await rejectsWith("ERR_OUTCOME_UNKNOWN", log.append("perhaps"));
      await hasty.close();
      daemon.signal("SIGCONT");
      assert.ok((await same.append("after")) >= 2);
      await patient.close();
      await daemon.stop();
    }),
);
