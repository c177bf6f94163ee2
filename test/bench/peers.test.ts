/** The parts of bench/peers that compute, without the peers: what it sends, how it counts answers, what it makes of figures. */

import { deepStrictEqual, doesNotMatch, equal, match, ok, throws } from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Seeded, seedOr } from "../support/seeded.js";

const ROOT = new URL("../../../", import.meta.url);
const load = (path: string) => import(new URL(`bench/peers/${path}`, ROOT).href);

const frames = await load("load/frames.js");
const counters = await load("load/counters.js");
const { shareOf } = await load("load/turn.js");
const { rowsOf, rowIn } = await load("sections.js");
const { figure, ticksOf } = await load("svg.js");
const { aheadOf, targetsOf } = await load("targets.js");

const VECTORS = JSON.parse(readFileSync(new URL("test/wire/vectors.json", ROOT), "utf8"));
const golden = (name: string): string => VECTORS.frames.find((each: { name: string }) => each.name === name).hex;
const CLIENT = Buffer.from("000102030405060708090a0b0c0d0e0f", "hex");

test("the generator's frames are those of the protocol", () => {
  equal(frames.PREAMBLE.toString("hex"), VECTORS.preamble);
  const hello = frames.hello({ clientId: CLIENT, name: "worker-7", token: "secret" });
  equal(hello.toString("hex"), golden("hello"));
  equal(frames.openLog(1, 1, "events", { create: false }).toString("hex"), golden("openLog"));
  equal(frames.append(2, 1, 1, "hello").toString("hex"), golden("append, a plain payload"));
});

test("numbers are written into the copies of a frame, and only into as many as are sent", () => {
  const identity = new frames.Identity(CLIENT);
  const several = new frames.Frames(frames.append(0, 1, 0, "hello"), 3);
  equal(several.named(1, identity).toString("hex"), frames.append(1, 1, 1, "hello").toString("hex"));
  const bytes: Buffer = several.named(2, identity);
  const size = frames.append(0, 1, 0, "hello").length;
  equal(bytes.length, 2 * size);
  for (const [index, id] of [2, 3].entries()) {
    const one = bytes.subarray(index * size, (index + 1) * size);
    equal(one.readUInt32LE(5), id, "request id");
    equal(one.readBigUInt64LE(14), BigInt(id), "sequence");
    equal(one.readBigUInt64LE(22), 1n, "settled: all that came before");
  }
});

interface Counter {
  count(bytes: Buffer, reply: (text: string) => void): number;
}

/** Counts the same answers whole, and cut anywhere; returns what was replied meanwhile. */
function counts(make: () => Counter, answers: Buffer, expected: number): string {
  const random = new Seeded(seedOr(1));
  const replied = Array.from({ length: 50 }, (_, round) => {
    const counter = make();
    let counted = 0;
    let replies = "";
    for (let at = 0; at < answers.length; ) {
      const next = round === 0 ? answers.length : Math.min(answers.length, at + random.between(1, 40));
      counted += counter.count(answers.subarray(at, next), (text) => {
        replies += text;
      });
      at = next;
    }
    equal(counted, expected);
    return replies;
  });
  equal(new Set(replied).size, 1);
  return replied[0]!;
}

test("answers are counted wherever they are cut", () => {
  const text = (answer: string, times: number) => Buffer.from(answer.repeat(times));
  const offsets = Buffer.from(golden("answer: offsets"), "hex");
  counts(() => new counters.Lines(2, "$"), text("$3\r\n1-0\r\n", 20), 20);
  counts(() => new counters.Sized(8, "S"), text("STORED\r\n", 20), 20);
  counts(() => new counters.FrameAnswers(), Buffer.concat(Array(20).fill(offsets)), 20);
  const message = 'MSG _INBOX.q0-1.ok 1 28\r\n{"stream":"q0", "seq":12345}\r\nPING\r\n';
  equal(
    counts(() => new counters.NatsMessages(), text(message, 10), 10),
    "PONG\r\n".repeat(10),
  );
  const job = "RESERVED 17 4\r\nvv\r\n\r\nDELETED\r\n";
  equal(
    counts(() => new counters.BeanstalkJobs(), text(job, 10), 10),
    "delete 17\r\n".repeat(10),
  );
});

test("a refusal, and a queue that is empty, are no answers", () => {
  const refused = (counter: { count(bytes: Buffer): number }, answer: string | Buffer) =>
    throws(() => counter.count(Buffer.from(answer as string)));
  refused(new counters.Lines(1, ":"), "-OOM command not allowed\r\n");
  refused(new counters.Sized(8, "V"), "END\r\n");
  refused(new counters.FrameAnswers(), Buffer.from(golden("failed"), "hex"));
  refused(new counters.FrameAnswers(14), Buffer.from(golden("answer: no tasks"), "hex"));
  refused(new counters.NatsMessages(), "-ERR 'Authorization Violation'\r\n");
  refused(new counters.NatsMessages(), 'MSG i.ok 1 24\r\n{"error":{"code":500000}}\r\n');
  refused(new counters.BeanstalkJobs(), "TIMED_OUT\r\n");
});

test("what was put into a queue is shared out among those that take from it, to the last", () => {
  for (const [connections, queues] of [
    [1, 1],
    [7, 3],
    [50, 10],
    [1000, 10],
  ] as const) {
    const wanted = Array.from({ length: queues }, (_, queue) => 101 * (queue + 1));
    const taken = Array(queues).fill(0);
    for (let index = 0; index < connections; index++) {
      taken[index % queues] += shareOf({ counts: wanted, connections, queues }, index);
    }
    deepStrictEqual(taken, wanted);
  }
});

const ROWS = rowsOf(
  [
    {
      name: "varve Kestrel",
      kind: "varve",
      taken: [10, 20, 30].map((rate) => ({ rate, done: 1, serverCpu: 2, p99: rate })),
    },
    {
      name: "redis lists",
      kind: "peer",
      taken: [20, 20, 20].map((rate) => ({ rate, done: 1, serverCpu: Number.NaN })),
    },
  ],
  { at: "put, 50 x 1", where: { operation: "put", connections: 50, pipeline: 1 } },
);
const SECTION = {
  ...{ form: "comparison", work: "queue", survives: "process kill", title: "queues", measure: "rate" },
  ...{ varve: ["varve Kestrel"], rows: ROWS },
};

test("ratios are formed round by round, and targets and peers that are ahead are found", () => {
  const redis = rowIn(SECTION, "redis lists", { operation: "put", connections: 50 });
  deepStrictEqual(redis.ratios, { "varve Kestrel": { median: 1, min: 0.5, max: 1.5 } });
  equal(redis.more.serverCpu, undefined);
  deepStrictEqual(rowIn(SECTION, "varve Kestrel", {}).more, { p99: 20, serverCpu: 2 });
  const [target] = targetsOf([SECTION], []);
  deepStrictEqual([target.met, target.share, target.bound], [true, 1, ">= 1"]);
  deepStrictEqual(aheadOf(SECTION), []);
  const behind = ROWS.map((row: object) => ({
    ...row,
    ratios: { "varve Kestrel": { median: 0.4, min: 0.3, max: 0.5 } },
  }));
  match(aheadOf({ ...SECTION, rows: behind }).join(), /^redis lists is ahead in put, 50 x 1 \(0\.40\): /);
});

test("ticks are round and cover what is shown", () => {
  deepStrictEqual(ticksOf(0, 47, "linear"), [0, 10, 20, 30, 40, 50]);
  deepStrictEqual(ticksOf(3, 4000, "log"), [1, 10, 100, 1000, 10_000]);
  deepStrictEqual(ticksOf(30, 90, "log"), [20, 50, 100]);
});

test("a figure is an SVG that holds every name, and no number that is none", () => {
  const lines = {
    ...{
      form: "lines",
      title: "put",
      x: { title: "connections", scale: "log" },
      y: { title: "messages/s", scale: "log" },
    },
    data: [
      { name: "a < b & c", points: [1, 10, 100].map((x) => ({ x, y: 1000 * x, min: 900 * x, max: 1100 * x })) },
      { name: "floor", points: [{ x: 1, y: 5 }] },
    ],
  };
  const bars = {
    ...{ form: "bars", title: "ratios", x: { title: "varve / it", scale: "log", mark: 1 } },
    data: [
      { group: "set", name: "redis", value: 0.5, min: 0.4, max: 0.6 },
      { group: "set", name: "nats", value: 12 },
    ],
  };
  for (const panels of [[lines], [bars, bars], [lines, lines, lines]]) {
    const svg: string = figure({ title: "t", subtitle: "s", panels, faint: ["floor"] });
    doesNotMatch(svg, /NaN|undefined|Infinity/);
    for (const { data } of panels) {
      for (const { name } of data) ok(svg.includes(`>${name.replace("&", "&amp;").replace("<", "&lt;")}<`), name);
    }
    wellFormed(svg);
  }
});

/** Every element is closed, in order. */
function wellFormed(svg: string): void {
  const open: string[] = [];
  for (const [, closing, name, rest] of svg.matchAll(/<(\/?)([a-z]+)([^>]*)>/g)) {
    if (closing === "/") equal(open.pop(), name);
    else if (!rest!.endsWith("/")) open.push(name!);
  }
  deepStrictEqual(open, []);
}
