/**
 * The daemon beside other queue servers, under one load generator: `npm run bench:daemons -- [options]`.
 *
 *   --kestrel HOST:PORT   another server of the Kestrel protocol to compare with (Siberite, Kestrel, Darner); repeatable
 *   --only WORK           compare, durability, memory, depth, idle; repeatable
 *   --rounds N            interleaved rounds; the median counts (5)
 *   --requests N          requests of one turn (200,000)
 *   --smoke               everything once, small: shows that it runs
 *   --json FILE           writes the results there
 *
 * redis-server and beanstalkd take part when they are installed. All turns of one round follow each other, so that what the
 * machine does meanwhile meets all alike; figures are only ever compared within one run.
 */

import { spawn, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { given, KINDS, processorMicros, residentBytes, start } from "./servers.js";

const LOAD = fileURLToPath(new URL("./load.js", import.meta.url));
const MIB = 1024 * 1024;

const { values: options } = parseArgs({
  options: {
    kestrel: { type: "string", multiple: true, default: [] },
    only: { type: "string", multiple: true, default: [] },
    rounds: { type: "string", default: "5" },
    requests: { type: "string", default: "200000" },
    "memory-items": { type: "string", default: "8388608" },
    "depth-items": { type: "string", default: "10000000" },
    smoke: { type: "boolean", default: false },
    json: { type: "string" },
  },
});
const rounds = options.smoke ? 1 : Number(options.rounds);
const requests = options.smoke ? 2000 : Number(options.requests);
const results = {};
const works = { compare, durability, memory, depth, idle };
for (const name of options.only) {
  if (works[name] === undefined) throw new Error(`--only takes ${Object.keys(works).join(", ")}; got ${name}`);
}
for (const [name, work] of Object.entries(works)) {
  if (options.only.length === 0 || options.only.includes(name)) results[name] = await work();
}
if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(results, undefined, 2)}\n`);

/** Set and get, by connections and pipelining, of all servers. */
function compare() {
  return sideBySide("set and get, 64 B values, 10 queues; what is acknowledged survives a kill of the process", {
    names: ["varve", "redis everysec", "beanstalkd", "floor"],
    givenToo: options.kestrel,
    operations: ["set", "get"],
    shapes: [
      { connections: 10, pipeline: 1 },
      { connections: 50, pipeline: 1 },
      { connections: 100, pipeline: 1 },
      { connections: 50, pipeline: 16 },
    ],
  });
}

/** Every operation on every server in turn, for each shape of load. The first server is the one that is compared. */
async function sideBySide(title, { names, givenToo, operations, shapes }) {
  const servers = [...(await Promise.all(names.filter(installed).map(start))), ...givenToo.map(given)];
  try {
    const rows = [];
    for (const { connections, pipeline } of shapes) {
      const turns = new Map(servers.map((server) => [server, new Map(operations.map((each) => [each, []]))]));
      const count = Math.ceil(connections === 1 ? requests / 10 : requests);
      for (let round = 0; round <= rounds; round++) {
        for (const server of servers) {
          for (const operation of operations) {
            const turn = await load(server, { operation, connections, pipeline, requests: count });
            if (round > 0) turns.get(server).get(operation).push(turn); // the first warms up
          }
        }
        progress(`${operations.join(", ")}: ${connections} connections x ${pipeline}, round ${round} of ${rounds}`);
      }
      for (const operation of operations) {
        const own = turns.get(servers[0]).get(operation);
        for (const server of servers) {
          const each = turns.get(server).get(operation);
          const ratios = own.map(({ rate }, round) => rate / each[round].rate).sort((x, y) => x - y);
          rows.push({
            operation,
            connections,
            pipeline,
            server: server.name,
            rate: Math.round(median(each.map(({ rate }) => rate))),
            "varve / it": `${ratio(median(ratios))} (${ratio(ratios[0])} - ${ratio(ratios.at(-1))})`,
            // Says more than the rate where other programs share the machine.
            "CPU µs each": (each.reduce((sum, turn) => sum + turn.processorMicros, 0) / each.length).toFixed(1),
            "p99 µs": Math.round(median(each.map(({ p99 }) => p99))),
            generator: `${Math.round(100 * median(each.map(({ generatorCpu }) => generatorCpu)))} %`,
          });
        }
      }
    }
    return show(title, rows);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

/** Set and get in turn: what surviving a power loss costs. */
async function durability() {
  const names = ["varve", "varve sync", "redis always"].filter(installed);
  const servers = await Promise.all(names.map(start));
  try {
    const rates = new Map(servers.map((server) => [server, []]));
    for (let round = 0; round <= rounds; round++) {
      for (const server of servers) {
        const count = server.survives === "power loss" ? Math.ceil(requests / 4) : requests;
        const { rate } = await load(server, { operation: "cycle", connections: 50, pipeline: 1, requests: count });
        if (round > 0) rates.get(server).push(rate);
      }
      progress(`durability: round ${round} of ${rounds}`);
    }
    const base = median(rates.get(servers[0]));
    const rows = servers.map((server) => ({
      server: server.name,
      survives: server.survives,
      rate: Math.round(median(rates.get(server))),
      "of varve async": ratio(median(rates.get(server)) / base),
    }));
    return show("set and get in turn, 50 connections, 64 B values", rows);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

/** Resident memory of the daemon while ever more items of 1 KiB wait. */
async function memory() {
  const last = options.smoke ? 4096 : Number(options["memory-items"]);
  const servers = [await start("varve"), ...options.kestrel.map(given)].filter(({ pid }) => pid !== undefined);
  const rows = [];
  try {
    for (const server of servers) {
      const turn = (operation, count) => {
        return load(server, { operation, connections: 10, pipeline: 1, requests: count, valueBytes: 1024 });
      };
      const warm = Math.min(last, 50_000);
      for (const operation of ["set", "get"]) await turn(operation, warm);
      await quiet();
      const empty = residentBytes(server.pid);
      let waiting = 0;
      for (let items = 1024; items <= last; items *= 2) {
        const { rate } = await turn("set", items - waiting);
        waiting = items;
        await quiet();
        const resident = residentBytes(server.pid);
        rows.push({
          server: server.name,
          waiting,
          "MiB in all": Math.round(resident / MIB),
          "MiB above empty": Math.round((resident - empty) / MIB),
          "sets/s": Math.round(rate),
        });
        progress(`memory: ${waiting} of ${last} items`);
      }
    }
    return show("resident memory by items of 1 KiB that wait", rows);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

/** Packs and unpacks one daemon: the rate at every depth beside that at depth 0. */
async function depth() {
  const last = options.smoke ? 10_000 : Number(options["depth-items"]);
  const server = await start("varve");
  const steps = 10;
  const turn = async (operation) =>
    (await load(server, { operation, connections: 50, pipeline: 16, requests: last / steps })).rate;
  const rows = [];
  try {
    // Twice at depth 0, of which the first warms up.
    let base = { set: 0, get: 0 };
    for (let round = 0; round < 2; round++) base = { set: await turn("set"), get: await turn("get") };
    for (let step = 1; step <= steps; step++) {
      rows.push({
        operation: "set",
        depth: (last / steps) * step,
        "of depth 0": ratio((await turn("set")) / base.set),
      });
      progress(`depth: packed ${step} of ${steps}`);
    }
    for (let step = steps; step >= 1; step--) {
      rows.push({
        operation: "get",
        depth: (last / steps) * step,
        "of depth 0": ratio((await turn("get")) / base.get),
      });
      progress(`depth: ${step - 1} of ${steps} left to unpack`);
    }
    return show(`${last} items of 64 B packed and unpacked, 50 connections x 16`, rows);
  } finally {
    await server.stop();
  }
}

/** Connections that wait in a blocking read beside those that work. */
async function idle() {
  const waiting = options.smoke ? 50 : 1000;
  const server = await start("varve");
  const sockets = [];
  try {
    const turn = () => load(server, { operation: "cycle", connections: 10, pipeline: 1, requests });
    await turn();
    const alone = [];
    const beside = [];
    for (let round = 0; round < rounds; round++) {
      alone.push((await turn()).p99);
      for (let index = 0; index < waiting; index++) {
        const socket = connect(server.port, server.host);
        socket.on("error", () => {});
        socket.write(`get idle${index}/t=600000\r\n`);
        sockets.push(socket);
      }
      await quiet();
      beside.push((await turn()).p99);
      for (const socket of sockets.splice(0)) socket.destroy();
      await quiet();
      progress(`idle: round ${round + 1} of ${rounds}`);
    }
    const rows = [
      {
        "waiting connections": waiting,
        "p99 µs without": Math.round(median(alone)),
        "p99 µs beside them": Math.round(median(beside)),
        ratio: ratio(median(beside) / median(alone)),
      },
    ];
    return show("latency of 10 connections that set and get, beside connections that wait", rows);
  } finally {
    for (const socket of sockets) socket.destroy();
    await server.stop();
  }
}

/** One turn of the load generator. */
function load({ protocol, host, port, name, pid }, { operation, connections, pipeline, requests, valueBytes }) {
  const queues = Math.min(10, connections);
  // Each queue gets as much as will be taken from it: the same connections do both.
  const settings = {
    protocol,
    operation,
    host,
    port,
    connections,
    pipeline,
    queues,
    requests,
    valueBytes,
    timeoutSeconds: 600,
  };
  const before = processorMicros(pid);
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [LOAD, JSON.stringify(settings)], { stdio: ["ignore", "pipe", "inherit"] });
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (text) => {
      output += text;
    });
    child.once("error", reject);
    child.once("close", (code) => {
      if (code === 0) resolve({ ...JSON.parse(output), processorMicros: (processorMicros(pid) - before) / requests });
      else reject(new Error(`the load on ${name} failed (${operation}, ${connections} connections)`));
    });
  });
}

function installed(name) {
  const [program] = KINDS[name].command(0, "");
  if (program === process.execPath) return true;
  const found = spawnSync(program, ["--version"], { stdio: "ignore" }).error === undefined;
  if (!found) process.stderr.write(`${program} is not installed; ${name} is left out\n`);
  return found;
}

function quiet() {
  return new Promise((resolve) => setTimeout(resolve, 1500));
}

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function ratio(value) {
  return value.toFixed(2);
}

function progress(text) {
  if (process.stderr.isTTY) process.stderr.write(`\r${text}\x1b[K`);
}

function show(title, rows) {
  if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
  console.log(`\n${title}`);
  console.table(rows);
  return rows;
}
