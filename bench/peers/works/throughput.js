/** Messages put and taken, by connections and pipelining: task queues, and logs with a group of readers. */

import { inRounds, nameOfGiven, startAll, stopAll, warmUp } from "../contestants.js";
import { rowsOf } from "../sections.js";

const VALUE_BYTES = 64;
export const QUEUES = 10;

/** @type {Record<string, import("../contestants.js").Spec>} */
const KESTREL = { name: "varve Kestrel", kind: "varve", protocol: "kestrel" };
const TASKS = { name: "varve native", kind: "varve", protocol: "varve tasks", onNative: true };
const LOG = { name: "varve native", kind: "varve", protocol: "varve log", onNative: true };

/** By work and class, who takes part. Of varve's, those that are driven as the peers are come first. */
export const CONTESTANTS = {
  queue: {
    "process kill": [
      { ...KESTREL, server: "varve" },
      { ...TASKS, server: "varve" },
      { name: "varve dialled", kind: "varve", server: "varve", library: "tasks", onNative: true },
      { name: "varve embedded", kind: "varve", library: "tasks", durability: "async" },
      { name: "redis lists", kind: "peer", server: "redis", protocol: "redis lists" },
      { name: "beanstalkd", kind: "peer", server: "beanstalkd", protocol: "beanstalk" },
      { name: "floor Kestrel", kind: "floor", server: "floor kestrel", protocol: "kestrel" },
    ],
    "power loss": [
      { ...KESTREL, server: "varve sync" },
      { ...TASKS, server: "varve sync" },
      { name: "varve embedded", kind: "varve", library: "tasks", durability: "sync" },
      { name: "redis lists", kind: "peer", server: "redis always", protocol: "redis lists" },
      { name: "beanstalkd", kind: "peer", server: "beanstalkd sync", protocol: "beanstalk" },
    ],
  },
  log: {
    "process kill": [
      { ...LOG, server: "varve" },
      { name: "varve dialled", kind: "varve", server: "varve", library: "log", onNative: true },
      { name: "varve embedded", kind: "varve", library: "log", durability: "async" },
      { name: "redis streams", kind: "peer", server: "redis", protocol: "redis streams" },
      { name: "nats jetstream", kind: "peer", server: "nats", protocol: "nats" },
      { name: "floor native", kind: "floor", server: "floor native", protocol: "varve log" },
    ],
    "power loss": [
      { ...LOG, server: "varve sync" },
      { name: "varve embedded", kind: "varve", library: "log", durability: "sync" },
      { name: "redis streams", kind: "peer", server: "redis always", protocol: "redis streams" },
      { name: "nats jetstream", kind: "peer", server: "nats sync", protocol: "nats" },
    ],
  },
};

const TITLES = {
  queue: "task queues: 64 B put into 10 queues, and taken",
  log: "logs: 64 B appended to 10 logs, and taken by a group of readers",
};

/** Servers that were given by their address join those that nothing is known of but that they survive a kill. */
export function contestantsOf(work, survives, { kestrel, wants }) {
  const given =
    work === "queue" && survives === "process kill"
      ? kestrel.map((given) => ({ name: nameOfGiven(given), kind: "peer", address: given, protocol: "kestrel" }))
      : [];
  return [...CONTESTANTS[work][survives], ...given].filter(wants);
}

export function throughput(work) {
  return async (survives, context) => {
    const { rounds, seconds, shapes, scratch, skip, progress } = context;
    // Fewer where the disk sets the pace: what lies between looks the same.
    const all =
      survives === "power loss"
        ? shapes.filter(({ connections }) => connections !== 10 && connections !== 100)
        : shapes;
    const contestants = await startAll(contestantsOf(work, survives, context), scratch, skip);
    const rows = [];
    try {
      await warmUp(contestants, { queues: QUEUES, valueBytes: VALUE_BYTES, seconds }, progress);
      for (const [index, { connections, pipeline }] of all.entries()) {
        const turn = { connections, pipeline, queues: Math.min(QUEUES, connections), valueBytes: VALUE_BYTES };
        const taken = await inRounds(
          contestants,
          rounds,
          async (contestant) => {
            // What is put in the time is taken as well, however long that takes.
            const put = await contestant.take({ ...turn, operation: "put", seconds });
            const take = await contestant.take({ ...turn, operation: "take", counts: put.counts });
            return { put, take };
          },
          ({ name }, round) =>
            progress((index + round / (rounds + 1)) / all.length, `${connections} x ${pipeline}: ${name}`),
        );
        for (const operation of ["put", "take"]) {
          const results = contestants.map((contestant) => ({
            ...contestant.spec,
            taken: taken.get(contestant).map((each) => each[operation]),
          }));
          const where = { operation, connections, pipeline };
          rows.push(...rowsOf(results, { at: `${operation}, ${connections} x ${pipeline}`, where }));
        }
      }
      const varve = contestants.filter(({ spec }) => spec.kind === "varve" && spec.library === undefined);
      return {
        form: "comparison",
        work,
        title: TITLES[work],
        survives,
        measure: "rate",
        varve: varve.map(({ name }) => name),
        rows,
      };
    } finally {
      await stopAll(contestants);
    }
  };
}

/** What it costs the same daemon that an acknowledgement survives a power loss. */
export async function durability(survives, { rounds, seconds, scratch, skip, progress }) {
  const specs = [
    { ...KESTREL, server: "varve sync", name: "varve sync" },
    { ...KESTREL, server: "varve", name: "varve async", kind: "peer" },
  ];
  const contestants = await startAll(specs, scratch, skip);
  try {
    await warmUp(contestants, { queues: QUEUES, valueBytes: VALUE_BYTES, seconds }, progress);
    const turn = { connections: 50, pipeline: 1, queues: QUEUES, valueBytes: VALUE_BYTES };
    const taken = await inRounds(
      contestants,
      rounds,
      async (contestant) => {
        const put = await contestant.take({ ...turn, operation: "put", seconds });
        const take = await contestant.take({ ...turn, operation: "take", counts: put.counts });
        const done = put.done + take.done;
        const micros = put.serverCpu * put.done + take.serverCpu * take.done;
        return { done, rate: done / (put.seconds + take.seconds), serverCpu: micros / done };
      },
      ({ name }, round) => progress(round / (rounds + 1), name),
    );
    const results = contestants.map((contestant) => ({ ...contestant.spec, taken: taken.get(contestant) }));
    return {
      form: "comparison",
      work: "durability",
      title: "what surviving a power loss costs: put and take, 64 B, 50 connections, unpipelined, Kestrel",
      survives,
      measure: "rate",
      varve: ["varve sync"],
      rows: rowsOf(results, { at: "50 x 1", where: {} }),
    };
  } finally {
    await stopAll(contestants);
  }
}
