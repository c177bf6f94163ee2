/** Latency: under half of the load that each can bear, of a single request at rest, and beside connections that wait. */

import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { inRounds, startAll, stopAll, warmUp } from "../contestants.js";
import { spread, whole } from "../entry.js";
import { rowsOf } from "../sections.js";
import { contestantsOf, QUEUES } from "./throughput.js";

const ECHO = { name: "echo", kind: "floor", server: "echo", protocol: "echo" };
const CONNECTIONS = 50;
const VALUE_BYTES = 64;

/** Those that the generator drives, of both works. The names say which is meant. */
function driven(survives, context) {
  const of = (work, rename) =>
    contestantsOf(work, survives, context)
      .filter(({ protocol, kind }) => protocol !== undefined && kind !== "floor")
      .map((spec) => ({ ...spec, name: rename[spec.name] ?? spec.name }));
  return [
    ...of("log", { "varve native": "varve append" }),
    ...of("queue", { "varve native": "varve enqueue", "varve Kestrel": "varve Kestrel set" }),
  ];
}

export async function load(survives, context) {
  const { rounds, seconds, scratch, skip, progress } = context;
  const contestants = await startAll(driven(survives, context), scratch, skip);
  const turn = { operation: "put", connections: CONNECTIONS, pipeline: 1, queues: QUEUES, valueBytes: VALUE_BYTES };
  try {
    await warmUp(contestants, { queues: QUEUES, valueBytes: VALUE_BYTES, seconds }, progress);
    const taken = await inRounds(
      contestants,
      rounds,
      async (contestant) => {
        const { rate } = await contestant.take({ ...turn, seconds });
        return { ...(await contestant.take({ ...turn, seconds, rate: rate / 2 })), offered: rate / 2 };
      },
      ({ name }, round) => progress(round / (rounds + 1), name),
    );
    const results = contestants.map((contestant) => ({ ...contestant.spec, taken: taken.get(contestant) }));
    return {
      form: "comparison",
      work: "load",
      varve: results.filter(({ kind }) => kind === "varve").map(({ name }) => name),
      title: "latency of a put at half the rate that each reaches: 64 B, 50 connections, us from when it was due",
      survives,
      measure: "p99",
      rows: rowsOf(results, { at: "put", where: {}, measure: "p99" }),
      notes: [
        `requests a second: ${results.map(({ name, taken: each }) => `${name} ${whole(spread(each.map(({ offered }) => offered)).median)}`).join("; ")}`,
        "the generator looks at the clock all the time here, so it always uses a whole core",
      ],
    };
  } finally {
    await stopAll(contestants);
  }
}

export async function roundtrip(survives, context) {
  const { rounds, seconds, scratch, skip, progress } = context;
  const contestants = await startAll([...driven(survives, context), ECHO], scratch, skip);
  const turn = { operation: "put", connections: 1, pipeline: 1, queues: 1, valueBytes: VALUE_BYTES, seconds };
  try {
    await warmUp(contestants, { queues: QUEUES, valueBytes: VALUE_BYTES, seconds }, progress);
    const taken = await inRounds(
      contestants,
      // Tails need more rounds than rates.
      2 * rounds,
      (contestant) => contestant.take(turn),
      ({ name }, round) => progress(round / (2 * rounds + 1), name),
    );
    const results = contestants.map((contestant) => ({ ...contestant.spec, taken: taken.get(contestant) }));
    return {
      form: "comparison",
      work: "roundtrip",
      varve: results.filter(({ kind }) => kind === "varve").map(({ name }) => name),
      title: "latency of one request after another on a server at rest: 64 B put over one connection, us",
      survives,
      measure: "p99",
      rows: rowsOf(results, { at: "put", where: {}, measure: "p99" }),
      notes: ["echo: a Node server that sends back the bytes of a varve append"],
    };
  } finally {
    await stopAll(contestants);
  }
}

/** Connections that wait in a blocking read beside those that work. */
export async function waiting(survives, { rounds, seconds, quick, scratch, skip, progress }) {
  const count = quick ? 100 : 1000;
  const spec = { name: "varve Kestrel", kind: "varve", server: "varve", protocol: "kestrel" };
  const [contestant] = await startAll([spec], scratch, skip);
  const turn = { connections: 10, pipeline: 1, queues: QUEUES, valueBytes: VALUE_BYTES };
  const sockets = [];
  try {
    await warmUp([contestant], { queues: QUEUES, valueBytes: VALUE_BYTES, seconds }, progress);
    const results = new Map([
      [count, []],
      [0, []],
    ]);
    for (let round = 0; round <= rounds; round++) {
      for (const [waits, taken] of results) {
        progress(round / (rounds + 1), `beside ${waits} that wait`);
        for (let index = 0; index < waits; index++) {
          const socket = connect(contestant.server.port, contestant.server.host);
          socket.on("error", () => {});
          socket.write(`get idle${index}/t=600000\r\n`);
          sockets.push(socket);
        }
        await sleep(500);
        const put = await contestant.take({ ...turn, operation: "put", seconds });
        const take = await contestant.take({ ...turn, operation: "take", counts: put.counts });
        if (round > 0) taken.push({ ...put, p99: Math.max(put.p99, take.p99) });
        for (const socket of sockets.splice(0)) socket.destroy();
      }
    }
    return {
      form: "comparison",
      work: "waiting",
      varve: [`beside ${count} that wait`],
      title: "p99 of 10 connections that set and get, beside others that wait in get /t=, us",
      survives,
      measure: "p99",
      rows: rowsOf(
        [...results].map(([waits, taken], index) => ({
          name: `beside ${waits} that wait`,
          kind: index === 0 ? "varve" : "peer",
          taken,
        })),
        { at: "set and get", where: {}, measure: "p99" },
      ),
    };
  } finally {
    for (const socket of sockets) socket.destroy();
    await contestant.stop();
  }
}
