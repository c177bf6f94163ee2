/**
 * A turn: one contestant doing one thing for a while. The generator and the processes that use varve's own library take
 * turns in the same words, and report them in the same words.
 *
 * @typedef {object} Turn
 * @property {"put" | "take"} operation
 * @property {number} connections
 * @property {number} pipeline requests of a connection that are under way at once
 * @property {number} queues connections use them in turn
 * @property {number} valueBytes
 * @property {number} [seconds] puts go on so long
 * @property {number[]} [counts] requests for each queue; instead of `seconds`
 * @property {number} [rate] requests a second, however long the answers take; otherwise as many as are answered
 * @property {string} [host]
 * @property {number} [port]
 * @property {string} [path] of a Unix socket
 * @property {number} [pid] the server, whose processor time is taken
 *
 * @typedef {object} Taken
 * @property {number} done
 * @property {number[]} counts of each queue
 * @property {number} seconds
 * @property {number} rate
 * @property {number} p50 microseconds, as are the others
 * @property {number} p99
 * @property {number} p999
 * @property {number} serverCpu microseconds of processor time of the server for each request
 * @property {number} ownCpu share of one processor that the generator itself used
 */

import { processorMicros } from "../process-info.js";

const SAMPLES_MAX = 1_000_000;

/** Latencies of the turn under way, kept in one piece of memory over all turns. */
const latencies = new Float64Array(SAMPLES_MAX);

/** What is measured of a turn, from `begin` to `end`. */
export class Measure {
  done = 0;
  counts;
  #sampled = 0;
  #pid;
  #serverMicros = 0;
  #cpu;
  startedMs = 0;

  constructor({ queues, pid }) {
    this.counts = Array(queues).fill(0);
    this.#pid = pid;
  }

  begin() {
    this.#serverMicros = processorMicros(this.#pid);
    this.#cpu = process.cpuUsage();
    this.startedMs = performance.now();
  }

  latency(ms) {
    if (this.#sampled < SAMPLES_MAX) latencies[this.#sampled++] = ms;
  }

  /** @returns {Taken} */
  end() {
    const seconds = (performance.now() - this.startedMs) / 1000;
    const { user, system } = process.cpuUsage(this.#cpu);
    const serverMicros = processorMicros(this.#pid) - this.#serverMicros;
    const sorted = latencies.subarray(0, this.#sampled).sort();
    const quantile = (part) => (sorted[Math.min(this.#sampled - 1, Math.floor(this.#sampled * part))] ?? 0) * 1000;
    return {
      done: this.done,
      counts: this.counts,
      seconds,
      rate: this.done / seconds,
      p50: quantile(0.5),
      p99: quantile(0.99),
      p999: quantile(0.999),
      serverCpu: serverMicros / this.done,
      ownCpu: (user + system) / 1e6 / seconds,
    };
  }
}

/** How many requests connection `index` makes of those that its queue is to get. */
export function shareOf({ counts, connections, queues }, index) {
  if (counts === undefined) return Number.POSITIVE_INFINITY;
  const queue = index % queues;
  const sharing = Math.floor((connections - queue - 1) / queues) + 1;
  const place = Math.floor(index / queues);
  const count = counts[queue];
  return Math.floor(count / sharing) + (place < count % sharing ? 1 : 0);
}
