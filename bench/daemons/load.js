/**
 * One load generator, in a process of its own: N connections, each with up to P requests under way.
 *
 *   node load.js '{"protocol":"kestrel","operation":"set","host":"127.0.0.1","port":22133,
 *                  "connections":50,"pipeline":1,"queues":10,"requests":100000}'
 *
 * Prints one JSON object: requests, seconds, latencies in microseconds, and the share of one core that the generator itself
 * used, which says whether it was what limited the run.
 */

import { connect } from "node:net";
import { operationOf, VALUE_BYTES } from "./protocols.js";

const LF = 10;
const settings = JSON.parse(process.argv[2] ?? "{}");
const { protocol, operation, host, port, connections, pipeline, queues, requests } = settings;
const { valueBytes = VALUE_BYTES, timeoutSeconds = 120 } = settings;
/** In a cycle, each connection stores and takes in turn. */
const steps = (operation === "cycle" ? ["set", "get"] : [operation]).map((step) =>
  operationOf(protocol, step, valueBytes),
);
const { greeting, greetingLines = 0 } = steps[0];
const reserves = protocol === "beanstalk" && operation === "get";

/** Each connection makes as many: a queue is asked for exactly as much as it was given. */
const share = Math.ceil(requests / connections);
let done = 0;
let misses = 0;
const latencies = new Float64Array(Math.min(requests, 1_000_000));
let sampled = 0;

const sockets = await Promise.all(Array.from({ length: connections }, (_, index) => open(`q${index % queues}`)));
const startedMs = performance.now();
const startedCpu = process.cpuUsage();
await Promise.race([
  Promise.all(sockets.map(({ socket, queue }) => drive(socket, queue))),
  new Promise((_, reject) => {
    setTimeout(
      () => reject(new Error(`not done after ${timeoutSeconds} s: ${done} of ${requests}`)),
      timeoutSeconds * 1000,
    ).unref();
  }),
]);
const seconds = (performance.now() - startedMs) / 1000;
const { user, system } = process.cpuUsage(startedCpu);
for (const { socket } of sockets) socket.destroy();
const sorted = latencies.subarray(0, sampled).sort();
const quantile = (part) => sorted[Math.min(sampled - 1, Math.floor(sampled * part))] ?? 0;
process.stdout.write(
  `${JSON.stringify({
    requests: done,
    misses,
    seconds,
    rate: done / seconds,
    p50: quantile(0.5),
    p99: quantile(0.99),
    generatorCpu: (user + system) / 1e6 / seconds,
  })}\n`,
);

/** @returns {Promise<{ socket: import("node:net").Socket, queue: string }>} */
function open(queue) {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true });
    socket.once("error", reject);
    socket.once("connect", () => {
      if (greeting === undefined) {
        resolve({ socket, queue });
        return;
      }
      let lines = 0;
      const onData = (data) => {
        lines += countLines(data);
        if (lines < greetingLines) return;
        socket.off("data", onData);
        resolve({ socket, queue });
      };
      socket.on("data", onData);
      socket.write(greeting(queue));
    });
  });
}

/** Keeps a connection busy until its share is done. */
function drive(socket, queue) {
  const prepared = steps.map(({ request }) => ({ one: request(queue), batches: new Map() }));
  let step = 0;
  const batch = (count) => {
    const { one, batches } = prepared[step];
    let bytes = batches.get(count);
    if (bytes === undefined) {
      bytes = count === 1 ? one : Buffer.concat(Array(count).fill(one));
      batches.set(count, bytes);
    }
    return bytes;
  };
  return new Promise((resolve, reject) => {
    let left = share;
    let pending = 0;
    let partial = 0;
    let sentMs = 0;
    const send = () => {
      const count = Math.min(pipeline, left);
      if (count === 0) {
        resolve();
        return;
      }
      left -= count;
      pending = count;
      sentMs = performance.now();
      socket.write(batch(count));
    };
    const answered = (count) => {
      done += count;
      pending -= count;
      if (pending > 0) return;
      if (sampled < latencies.length) latencies[sampled++] = (performance.now() - sentMs) * 1000;
      step = (step + 1) % steps.length;
      send();
    };
    socket.on("error", reject);
    socket.on("close", () => reject(new Error(`the server ended a connection after ${done} requests`)));
    if (reserves) socket.on("data", reserve(socket, answered));
    else {
      socket.on("data", (data) => {
        const { replyBytes } = steps[step];
        if (replyBytes === "lines") {
          answered(countLines(data));
          return;
        }
        partial += data.length;
        const count = Math.floor(partial / replyBytes);
        partial -= count * replyBytes;
        if (count > 0) answered(count);
      });
    }
    send();
  });
}

/** Reserved jobs are deleted, and count when that is answered. */
function reserve(socket, answered) {
  let text = "";
  return (data) => {
    text += data.toString("latin1");
    let deleted = 0;
    let deletes = "";
    for (let end = text.indexOf("\r\n"); end >= 0; end = text.indexOf("\r\n")) {
      const line = text.slice(0, end);
      const job = /^RESERVED (\d+) (\d+)$/.exec(line);
      if (job === null) {
        if (line === "TIMED_OUT") misses++;
        deleted++;
        text = text.slice(end + 2);
        continue;
      }
      const size = end + 2 + Number(job[2]) + 2;
      if (text.length < size) break;
      text = text.slice(size);
      deletes += `delete ${job[1]}\r\n`;
    }
    if (deletes !== "") socket.write(deletes, "latin1");
    if (deleted > 0) answered(deleted);
  };
}

function countLines(data) {
  let lines = 0;
  for (let at = data.indexOf(LF); at >= 0; at = data.indexOf(LF, at + 1)) lines++;
  return lines;
}
