import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "../../test/support/manual-clock.js";
import type {
  CommitOptions,
  DequeueOptions,
  Handler,
  NackOptions,
  Task,
  TaskRef,
  WorkContext,
  Worker,
  WorkOptions,
} from "../api/contract.js";
import { type ErrorCode, isVarveError, VarveError } from "../api/errors.js";
import { Discard, Retry } from "./outcome.js";
import type { WorkSource } from "./source.js";
import { work } from "./worker.js";

const LEASE_MS = 3000;

/** A source whose tasks, answers and refusals a test decides, and that notes every call. */
class FakeSource implements WorkSource<string> {
  readonly name = "jobs";
  readonly calls: string[] = [];
  /** Errors that the next calls of a kind meet, in order. */
  readonly refusals: Record<string, (Error | undefined)[]> = {};
  /** Calls that have not been answered yet, by kind, where a test wants to answer itself. */
  readonly held: Record<string, (() => void)[]> = {};
  readonly #ready: Task<string>[] = [];
  #waiting: (() => void) | undefined;
  #tokens = 0;
  asked: number[] = [];
  dequeues = 0;
  deadAfter = 2;

  add(...payloads: string[]): void {
    for (const payload of payloads) this.#push(payload, 1);
    this.#waiting?.();
  }

  #push(payload: string, attempt: number): void {
    const id = String(this.#tokens++);
    this.#ready.push({
      id,
      attempt,
      token: payload,
      timestamp: 0,
      priority: 0,
      orderKey: undefined,
      expiresAt: undefined,
      key: undefined,
      headers: {},
      payload,
    });
  }

  /** Makes the next calls of a kind, or those about one task, meet these errors. */
  refuse(kind: string, ...codes: (ErrorCode | undefined)[]): void {
    const errors = codes.map((code) => (code === undefined ? undefined : new VarveError(code, `refused: ${code}`)));
    this.refusals[kind] = [...(this.refusals[kind] ?? []), ...errors];
  }

  /** Leaves calls of a kind unanswered until `answer`. */
  hold(kind: string): void {
    this.held[kind] ??= [];
  }

  answer(kind: string): void {
    const held = this.held[kind] ?? [];
    delete this.held[kind];
    for (const answer of held) answer();
  }

  async dequeueBatch({ max, signal }: DequeueOptions & { max: number }): Promise<Task<string>[]> {
    assert.equal(this.dequeues, 0, "one dequeue at a time");
    this.asked.push(max);
    this.dequeues++;
    try {
      await this.#answer("dequeue");
      while (this.#ready.length === 0 && signal?.aborted !== true) {
        await new Promise<void>((resolve) => {
          this.#waiting = resolve;
          signal?.addEventListener("abort", () => resolve(), { once: true });
        });
      }
      return this.#ready.splice(0, max);
    } finally {
      this.dequeues--;
    }
  }

  ack(task: TaskRef, options?: CommitOptions & { result?: unknown }): Promise<void> {
    const result = options?.result === undefined ? "" : `=${JSON.stringify(options.result)}`;
    return this.#call("ack", `${nameOf(task)}${result}`);
  }

  ackBatch(tasks: readonly TaskRef[]): Promise<void> {
    return this.#call("ackBatch", tasks.map(nameOf).join("+"));
  }

  async nack(task: TaskRef, options: NackOptions = {}): Promise<{ dead: boolean }> {
    const { delay, error, dead = false } = options;
    await this.#call(
      "nack",
      `${nameOf(task)} ${String(error)}${dead ? " dead" : ""}${delay === undefined ? "" : ` ${delay}`}`,
    );
    return { dead: dead || (task as Task).attempt >= this.deadAfter };
  }

  extend(task: TaskRef, lease?: unknown): Promise<void> {
    return this.#call("extend", `${nameOf(task)} ${String(lease)}`);
  }

  release(tasks: TaskRef | readonly TaskRef[]): Promise<void> {
    return this.#call("release", nameOf(tasks as TaskRef));
  }

  progress(task: TaskRef, value: unknown): Promise<void> {
    return this.#call("progress", `${nameOf(task)} ${JSON.stringify(value)}`);
  }

  async #call(kind: string, what: string): Promise<void> {
    this.calls.push(`${kind} ${what}`);
    await this.#answer(kind, `${kind} ${what}`);
  }

  async #answer(kind: string, call = kind): Promise<void> {
    const refusal = (this.refusals[call] ?? this.refusals[kind])?.shift();
    const held = this.held[kind];
    if (held !== undefined) await new Promise<void>((resolve) => held.push(resolve));
    if (refusal !== undefined) throw refusal;
  }
}

function nameOf(task: TaskRef): string {
  return (task as Task<string>).payload;
}

interface Scene {
  readonly source: FakeSource;
  readonly clock: ManualClock;
  readonly worker: Worker<string>;
  /** What the worker told, in order. */
  readonly told: string[];
  readonly logged: unknown[];
  pass(ms?: number): Promise<void>;
}

interface SceneOptions extends WorkOptions {
  readonly keepsResults?: boolean;
  readonly listen?: boolean;
}

function start(
  handler: Handler<string>,
  { keepsResults = false, listen = true, ...options }: SceneOptions = {},
): Scene {
  const source = new FakeSource();
  const clock = new ManualClock();
  const told: string[] = [];
  const logged: unknown[] = [];
  const logger = { debug() {}, info() {}, warn() {}, error: (fields: object) => void logged.push(fields) };
  const worker = work(source, handler, options, { timers: clock, logger, leaseMs: () => LEASE_MS, keepsResults });
  if (listen) {
    worker.on("completed", (task, result) => void told.push(`completed ${task.payload} ${String(result)}`));
    worker.on("failed", (task, error) => void told.push(`failed ${task.payload} ${codeOf(error)}`));
    worker.on("dead", (task, error) => void told.push(`dead ${task.payload} ${codeOf(error)}`));
    worker.on("error", (error, task) => void told.push(`error ${task?.payload ?? "-"} ${codeOf(error)}`));
  }
  return { source, clock, worker, told, logged, pass: (ms = 0) => clock.pass(ms) };
}

function codeOf(error: unknown): string {
  if (isVarveError(error)) return error.code;
  try {
    return error instanceof Error ? error.message : String(error);
  } catch {
    return "illegible";
  }
}

/** Handlers that a test ends by name. */
class Handlers {
  readonly running = new Map<string, { end: (value?: unknown) => void; fail: (error: unknown) => void }>();
  readonly signals = new Map<string, AbortSignal>();
  most = 0;

  readonly handle: Handler<string> = (task, { signal }) => {
    this.signals.set(task.payload, signal);
    return new Promise((resolve, reject) => {
      const ended = (settle: (value: unknown) => void) => (value: unknown) => {
        this.running.delete(task.payload);
        settle(value);
      };
      this.running.set(task.payload, { end: ended(resolve), fail: ended(reject) });
      this.most = Math.max(this.most, this.running.size);
    });
  };

  end(name: string, value?: unknown): void {
    this.running.get(name)?.end(value);
  }

  reason(name: string): string | undefined {
    const signal = this.signals.get(name);
    return signal?.aborted === true ? codeOf(signal.reason) : undefined;
  }
}

test("it asks for as many tasks as handlers are free, and no more", async () => {
  const handlers = new Handlers();
  const { source, worker, pass } = start(handlers.handle, { concurrency: 3 });
  source.add("a", "b", "c", "d", "e");
  await pass();
  assert.deepEqual([...handlers.running.keys()], ["a", "b", "c"]);
  assert.deepEqual(source.asked, [3]);
  assert.equal(worker.running, 3);
  handlers.end("a");
  handlers.end("b");
  await pass();
  assert.deepEqual([...handlers.running.keys()], ["c", "d", "e"]);
  assert.deepEqual(source.asked, [3, 2]);
  for (const name of ["c", "d", "e"]) handlers.end(name);
  await pass();
  assert.equal(handlers.most, 3);
  assert.equal(worker.running, 0);
  assert.equal(source.dequeues, 1, "it waits for more");
  await worker.close();
  assert.equal(source.dequeues, 0);
});

test("outcomes of one turn are one batch", async () => {
  const { source, worker, told, pass } = start(async ({ payload }) => void payload, { concurrency: 8 });
  source.add("a", "b", "c");
  await pass();
  assert.deepEqual(source.calls, ["ackBatch a+b+c"]);
  assert.deepEqual(told, ["completed a undefined", "completed b undefined", "completed c undefined"]);
  source.add("d");
  await pass();
  assert.deepEqual(source.calls.slice(1), ["ack d"]);
  await worker.close();
});

test("one stale lease in a batch spoils it for no other", async () => {
  const { source, worker, told, pass } = start(() => {}, { concurrency: 8 });
  source.refuse("ackBatch", "ERR_STALE_LEASE");
  source.refuse("ack", undefined, "ERR_STALE_LEASE");
  source.add("a", "b", "c");
  await pass();
  assert.deepEqual(source.calls, ["ackBatch a+b+c", "ack a", "ack b", "ack c"]);
  assert.deepEqual(told.sort(), ["completed a undefined", "completed c undefined", "failed b ERR_STALE_LEASE"]);
  await worker.close();
});

test("what a handler returns goes with the ack, where results are kept", async () => {
  const { source, worker, told, pass } = start(({ payload }) => (payload === "a" ? { sum: 3 } : undefined), {
    concurrency: 8,
    keepsResults: true,
  });
  source.add("a", "b", "c");
  await pass();
  assert.deepEqual(source.calls.sort(), ['ack a={"sum":3}', "ackBatch b+c"]);
  source.refuse("ack", "ERR_TOO_LARGE");
  source.add("a");
  await pass();
  assert.deepEqual(source.calls.slice(2), ['ack a={"sum":3}', "ack a"], "the work is done, whatever its result");
  assert.deepEqual(told.slice(3), ["error a ERR_TOO_LARGE", "completed a [object Object]"]);
  await worker.close();
});

test("a throw is a nack; Retry and Discard say more; the last attempt is told as dead", async () => {
  const thrown: Record<string, unknown> = {
    error: new TypeError("bad"),
    text: "just text",
    nothing: undefined,
    symbol: Symbol("s"),
    bare: Object.create(null),
    illegible: Object.defineProperty(new Error(), "message", {
      get() {
        throw new Error("no");
      },
    }),
    later: new Retry("busy", { delay: "5s" }),
    never: new Discard("no such user"),
  };
  const { source, worker, told, pass } = start(
    ({ payload }) => {
      throw thrown[payload];
    },
    { concurrency: 10 },
  );
  source.add(...Object.keys(thrown));
  await pass();
  assert.deepEqual(source.calls, [
    "nack error TypeError: bad",
    "nack text just text",
    "nack nothing undefined",
    "nack symbol a symbol",
    "nack bare an object",
    "nack illegible an error without a legible message",
    "nack later busy 5000",
    "nack never no such user dead",
  ]);
  assert.equal(told.filter((line) => line.startsWith("failed")).length, 7);
  assert.equal(told.at(-1), "dead never no such user");
  source.deadAfter = 1;
  source.add("text");
  await pass();
  assert.equal(told.at(-1), "dead text just text");
  await worker.close();
});

test("a Retry with a delay that is none is an error of its handler", () => {
  for (const delay of ["soon", -1, Number.NaN, "4000d"]) {
    assert.throws(
      () => new Retry("x", { delay: delay as never }),
      (error) => isVarveError(error, "ERR_OPTION"),
    );
  }
  assert.equal(new Retry("x").delayMs, undefined);
});

test("leases are renewed after a third, for as long as the handler runs", async () => {
  const handlers = new Handlers();
  const { source, worker, told, pass } = start(handlers.handle, { concurrency: 2 });
  source.add("a", "b");
  await pass(LEASE_MS / 3 - 300);
  assert.deepEqual(source.calls, []);
  await pass(300);
  assert.deepEqual(source.calls, [`extend a ${LEASE_MS}`, `extend b ${LEASE_MS}`]);
  await pass(20 * LEASE_MS);
  assert.ok(source.calls.length > 2 * 50 && source.calls.length < 2 * 80, `${source.calls.length} renewals`);
  assert.equal(handlers.reason("a"), undefined);
  handlers.end("a");
  await pass();
  assert.deepEqual(told, ["completed a undefined"]);
  const before = source.calls.length;
  await pass(LEASE_MS);
  assert.deepEqual([...new Set(source.calls.slice(before))], [`extend b ${LEASE_MS}`], "only what still runs");
  handlers.end("b");
  await worker.close();
});

test("a lease that is lost aborts the signal, drops the result and frees the slot", async () => {
  const handlers = new Handlers();
  const { source, worker, told, pass } = start(handlers.handle);
  source.refuse("extend", "ERR_STALE_LEASE");
  source.add("a", "b");
  await pass(LEASE_MS / 3);
  assert.equal(handlers.reason("a"), "ERR_STALE_LEASE");
  assert.deepEqual(told, ["failed a ERR_STALE_LEASE"]);
  assert.deepEqual([...handlers.running.keys()], ["a", "b"]);
  assert.deepEqual([worker.running, worker.abandoned], [1, 1]);
  handlers.end("a", "late");
  await pass();
  assert.deepEqual([worker.running, worker.abandoned], [1, 0]);
  handlers.end("b");
  await worker.close();
  assert.deepEqual(
    source.calls.filter((call) => !call.startsWith("extend")),
    ["ack b"],
  );
});

test("renewals that fail are tried again, until the lease must have ended", async () => {
  const handlers = new Handlers();
  const { source, worker, told, pass } = start(handlers.handle);
  source.refuse("extend", "ERR_OVERLOADED");
  source.add("a");
  await pass(LEASE_MS);
  assert.deepEqual(told, ["error a ERR_OVERLOADED"]);
  assert.equal(handlers.reason("a"), undefined);
  source.refuse("extend", ...Array.from({ length: 50 }, (): ErrorCode => "ERR_OVERLOADED"));
  await pass(2 * LEASE_MS);
  assert.equal(handlers.reason("a"), "ERR_STALE_LEASE");
  assert.equal(told.at(-1), "failed a ERR_STALE_LEASE");
  assert.ok(told.length < 12, `${told.length} lines: no busy loop`);
  handlers.end("a");
  await worker.close();
});

test("an ack waits for a renewal under way", async () => {
  const handlers = new Handlers();
  const { source, worker, told, pass } = start(handlers.handle);
  source.hold("extend");
  source.add("a");
  await pass(LEASE_MS / 3);
  handlers.end("a");
  await pass();
  assert.deepEqual(source.calls, [`extend a ${LEASE_MS}`]);
  source.answer("extend");
  await pass();
  assert.deepEqual(source.calls.slice(1), ["ack a"]);
  assert.deepEqual(told, ["completed a undefined"]);
  await worker.close();
});

test("a handler that never settles is given up after its timeout", async () => {
  const handlers = new Handlers();
  const { source, worker, told, pass } = start(handlers.handle, { timeout: "10s" });
  source.add("stuck", "next");
  await pass(9_999);
  assert.equal(handlers.reason("stuck"), undefined);
  await pass(1);
  assert.equal(handlers.reason("stuck"), "ERR_TIMEOUT");
  assert.deepEqual(told, ["failed stuck ERR_TIMEOUT"]);
  assert.match(source.calls.at(-1) ?? "", /^nack stuck VarveError: the handler did not end within its timeout of 10s$/);
  assert.ok(handlers.running.has("next"), "its slot is free");
  assert.deepEqual([worker.running, worker.abandoned], [1, 1]);
  handlers.end("next");
  await worker.close();
  assert.deepEqual(told, ["failed stuck ERR_TIMEOUT", "completed next undefined"], "nobody waits for it");
});

test("outcomes that are refused for now are tried again, hold their slot and keep their lease", async () => {
  const { source, worker, told, pass } = start(() => {});
  source.refuse("ack a", ...Array.from({ length: 6 }, (): ErrorCode => "ERR_OVERLOADED"));
  source.add("a", "b", "c");
  await pass();
  await pass(6_299);
  assert.deepEqual(
    told.filter((line) => !line.startsWith("error")),
    ["completed b undefined"],
    "b was on its way",
  );
  assert.deepEqual(source.asked, [1, 1]);
  assert.ok(source.calls.includes(`extend a ${LEASE_MS}`));
  await pass(1);
  await pass();
  assert.deepEqual(told, [
    "error a ERR_OVERLOADED",
    "completed b undefined",
    ...Array.from({ length: 5 }, () => "error a ERR_OVERLOADED"),
    "completed a undefined",
    "completed c undefined",
  ]);
  assert.equal(worker.running, 0);
  await worker.close();
});

test("an outcome that may have been recorded is not recorded twice", async () => {
  const { source, worker, told, pass } = start(() => {});
  source.refuse("ack", "ERR_OUTCOME_UNKNOWN");
  source.add("a");
  await pass(60_000);
  assert.deepEqual(source.calls, ["ack a"]);
  assert.deepEqual(told, ["error a ERR_OUTCOME_UNKNOWN"]);
  await worker.close();
});

test("errors of dequeue are told, and the pauses between them grow", async () => {
  const { source, worker, told, pass } = start(() => {});
  source.refuse("dequeue", "ERR_CORRUPT");
  source.add("a");
  await pass();
  assert.deepEqual(told, ["error - ERR_CORRUPT"]);
  await pass(100);
  assert.deepEqual(told, ["error - ERR_CORRUPT", "completed a undefined"]);
  source.refuse("dequeue", ...Array.from({ length: 1000 }, (): ErrorCode => "ERR_IO"));
  source.add("b");
  await pass(600_000);
  assert.ok(told.length > 20 && told.length < 40, `${told.length} errors in ten minutes`);
  const closing = worker.close();
  await pass();
  await closing;
});

test("the worker ends with its queue: quietly when that is closed, with an error when it takes no more changes", async () => {
  for (const code of ["ERR_CLOSED", "ERR_READ_ONLY", "ERR_NOT_FOUND"] as const) {
    const handlers = new Handlers();
    const { source, worker, told, pass } = start(handlers.handle, { concurrency: 2 });
    source.add("a");
    source.refuse("dequeue", undefined, code);
    await pass();
    await worker.closed;
    assert.equal(handlers.reason("a"), code);
    assert.deepEqual(told, code === "ERR_CLOSED" ? [] : [`error - ${code}`]);
    assert.equal(worker.running, 0);
    handlers.end("a");
    await worker.close();
    assert.deepEqual(source.calls, []);
  }
});

test("close stops taking tasks, keeps leases alive and waits for the handlers", async () => {
  const handlers = new Handlers();
  const { source, clock, worker, told, pass } = start(handlers.handle, { concurrency: 3 });
  source.add("a", "b");
  await pass();
  let closed = 0;
  const first = worker.close().then(() => closed++);
  const second = worker.close({ timeout: "1h" }).then(() => closed++);
  source.add("c");
  await pass(2 * LEASE_MS);
  assert.deepEqual([...handlers.running.keys()], ["a", "b"]);
  assert.equal(source.dequeues, 0);
  assert.ok(source.calls.includes(`extend a ${LEASE_MS}`));
  handlers.end("a");
  handlers.running.get("b")?.fail(new Error("no"));
  await pass();
  await Promise.all([first, second]);
  assert.equal(closed, 2);
  assert.deepEqual(told, ["completed a undefined", "failed b no"]);
  await worker.close();
  const { timersFired } = clock;
  await pass(86_400_000);
  assert.equal(clock.timersFired, timersFired, "nothing is armed any more");
});

test("close with a timeout aborts the rest and gives those tasks back, the last one first", async () => {
  const handlers = new Handlers();
  const { source, worker, told, pass } = start(handlers.handle, { concurrency: 4 });
  source.add("b", "a", "c", "d");
  await pass();
  const closing = worker.close({ timeout: 500 });
  handlers.end("b");
  await pass(499);
  assert.equal(handlers.reason("a"), undefined);
  await pass(1);
  await closing;
  assert.equal(handlers.reason("a"), "ERR_CLOSED");
  assert.deepEqual(source.calls, ["ack b", "release d", "release c", "release a"]);
  assert.deepEqual(told, ["completed b undefined"]);
  assert.equal(worker.abandoned, 3);
  handlers.end("a");
  handlers.end("d");
  handlers.running.get("c")?.fail(new Error("aborted"));
  await pass();
  assert.equal(worker.abandoned, 0);
  assert.equal(source.calls.length, 4);
});

test("a second close can come to an end earlier", async () => {
  const handlers = new Handlers();
  const { source, worker, pass } = start(handlers.handle);
  source.add("a");
  await pass();
  const first = worker.close();
  const second = worker.close({ timeout: 0 });
  await pass();
  await Promise.all([first, second]);
  assert.deepEqual(source.calls, ["release a"]);
  await assert.rejects(worker.close({ timeout: "soon" }), (error) => isVarveError(error, "ERR_OPTION"));
});

test("tasks that arrive when none are wanted any more go back untouched", async () => {
  for (const stop of ["close", "pause"] as const) {
    const handlers = new Handlers();
    const { source, worker, told, pass } = start(handlers.handle, { concurrency: 2 });
    source.hold("dequeue");
    source.add("a", "b");
    await pass();
    const stopped = worker[stop]();
    source.answer("dequeue");
    await pass();
    await stopped;
    assert.deepEqual(source.calls, ["release b", "release a"]);
    assert.equal(handlers.signals.size, 0);
    assert.deepEqual(told, []);
    await worker.close();
  }
});

test("a paused worker takes nothing, and goes on when resumed", async () => {
  const handlers = new Handlers();
  const { source, worker, pass } = start(handlers.handle, { concurrency: 2 });
  source.add("a");
  await pass();
  worker.pause();
  await pass();
  assert.equal(worker.paused, true);
  assert.equal(source.dequeues, 0);
  source.add("b");
  handlers.end("a");
  await pass(1000);
  assert.deepEqual(source.calls, ["ack a"]);
  assert.equal(handlers.running.size, 0);
  worker.resume();
  await pass();
  assert.deepEqual([...handlers.running.keys()], ["b"]);
  handlers.end("b");
  await worker.close();
});

test("a listener that throws harms nobody; errors without a listener go to the logger", async () => {
  const { source, worker, logged, pass } = start(() => {}, { listen: false });
  const seen: string[] = [];
  const throws = () => {
    throw new Error("from a listener");
  };
  worker.on("completed", throws);
  worker.on("completed", async () => {
    await null;
    throw new Error("from an async listener");
  });
  worker.on("completed", (task) => void seen.push(task.payload));
  source.add("a");
  await pass();
  assert.deepEqual(seen, ["a"]);
  assert.equal(logged.length, 2);
  worker.off("completed", throws);
  source.refuse("dequeue", "ERR_IO");
  source.add("b");
  await pass(200);
  assert.deepEqual(seen, ["a", "b"]);
  assert.equal(logged.length, 2 + 1 + 1, "the listener that is left, and the error nobody listened for");
  await worker.close();
});

test("a handler can note progress and make its lease longer", async () => {
  const handlers = new Handlers();
  const { source, worker, pass } = start(async (task, context) => {
    const { progress, extend } = context;
    await progress({ done: 1 });
    await extend("1m");
    await handlers.handle(task, context);
  });
  source.add("a");
  await pass(60_000 - LEASE_MS);
  assert.deepEqual(source.calls, ['progress a {"done":1}', "extend a 60000"], "no renewal made it shorter");
  await pass(LEASE_MS);
  assert.equal(source.calls[2], `extend a ${LEASE_MS}`);
  handlers.end("a");
  await worker.close();
});

test("calls of a handler that has ended are refused, and harm nobody when they are not waited for", async () => {
  let kept: WorkContext | undefined;
  const { source, worker, pass } = start((_task, context) => {
    kept = context;
  });
  source.add("a");
  await pass();
  void kept?.progress(1);
  await assert.rejects(kept?.extend("1m") as Promise<void>, (error) => isVarveError(error, "ERR_STALE_LEASE"));
  await pass();
  assert.deepEqual(source.calls, ["ack a"]);
  await worker.close();
});

test("a handler can settle its task itself, undisturbed by renewals", async () => {
  let committed = () => {};
  const { source, worker, told, pass } = start(async (_task, { settle }) => {
    await settle(() => new Promise<void>((resolve) => (committed = resolve)));
    return "mine";
  });
  source.add("a");
  await pass(LEASE_MS * 0.9);
  assert.deepEqual(source.calls, []);
  committed();
  await pass();
  assert.deepEqual(source.calls, []);
  assert.deepEqual(told, ["completed a mine"]);
  await worker.close();
});

test("a settling that fails is a failure, whether the handler waited for it or not", async () => {
  const { source, worker, told, pass } = start(async ({ payload }, { settle }) => {
    const settling = settle(() => Promise.reject(new Error("no commit")));
    if (payload === "careless") return;
    await settling.catch(() => {});
    if (payload === "persistent") await settle(async () => {});
    if (payload === "says why") throw new Error("could not");
  });
  source.add("careless", "persistent", "says why");
  await pass();
  await pass();
  assert.deepEqual(source.calls, ["nack careless Error: no commit", "nack says why Error: could not"]);
  assert.deepEqual(told, ["failed careless no commit", "completed persistent undefined", "failed says why could not"]);
  await worker.close();
});

test("a settling that never ends holds neither the slot for ever nor the close", async () => {
  const hang: Handler<string> = (_task, { settle }) => settle(() => new Promise(() => {}));
  const lost = start(hang);
  lost.source.add("a", "b");
  await lost.pass(2 * LEASE_MS + 1);
  assert.deepEqual(lost.told, ["failed a ERR_STALE_LEASE"]);
  assert.equal(lost.worker.running, 1);
  const closing = lost.worker.close({ timeout: 10 });
  await lost.pass(10);
  await closing;
  assert.deepEqual(lost.source.calls, []);
});

test("what is passed in is checked", () => {
  for (const options of [{ concurrency: 0 }, { concurrency: 1.5 }, { timeout: 0 }, { lease: "never" }, { conc: 1 }]) {
    assert.throws(
      () => start(() => {}, options as WorkOptions),
      (error) => isVarveError(error, "ERR_OPTION"),
      JSON.stringify(options),
    );
  }
  assert.throws(
    () => start("handler" as never),
    (error) => isVarveError(error, "ERR_ARGUMENT"),
  );
});
