/** `stats` and `dump_stats`: Siberite's names first and in its order, then Kestrel's. */

import type { TaskStats } from "../api/contract.js";
import type { OpenedQueue } from "./queues.js";
import type { KestrelServer } from "./server.js";

/** Since the front began. */
export class Counters {
  connections = 0;
  gets = 0;
  sets = 0;
  peeks = 0;
  hits = 0;
  misses = 0;
  bytesRead = 0;
  bytesWritten = 0;
}

type Lines = [name: string, value: number | string][];

export async function stats(server: KestrelServer): Promise<string> {
  const queues = await reports(server);
  const { counters, options } = server;
  const total = { items: 0, stored: 0, bytes: 0, expired: 0 };
  for (const { stats } of queues) {
    total.items += itemsOf(stats);
    total.stored += stats.enqueued;
    total.bytes += stats.bytesReady;
    total.expired += stats.expired;
  }
  const lines: Lines = [
    ["uptime", Math.floor(server.uptimeMs / 1000)],
    ["time", Math.floor(server.wallMs() / 1000)],
    ["version", options.version],
    ["curr_connections", server.connections],
    ["total_connections", counters.connections],
    ["cmd_get", counters.gets],
    ["cmd_set", counters.sets],
    ["curr_items", total.items],
    ["total_items", total.stored],
    ["bytes", total.bytes],
    ["reserved_memory_ratio", "0.000"],
    ["cmd_peek", counters.peeks],
    ["get_hits", counters.hits],
    ["get_misses", counters.misses],
    ["bytes_read", counters.bytesRead],
    ["bytes_written", counters.bytesWritten],
    ["queue_creates", server.queues.created],
    ["queue_deletes", server.queues.deleted],
    ["queue_expires", total.expired],
  ];
  const parts = lines.map(statLine);
  for (const { queue, lines, cursors } of queues) {
    for (const [name, value] of lines) parts.push(statLine([`queue_${queue}_${name}`, value]));
    for (const { cursor, items, open } of cursors) {
      parts.push(statLine([`queue_${queue}.${cursor}_items`, items]));
      parts.push(statLine([`queue_${queue}.${cursor}_open_transactions`, open]));
    }
  }
  return `${parts.join("")}END\r\n`;
}

export async function dumpStats(server: KestrelServer, names: readonly string[]): Promise<string> {
  const known = new Map((await reports(server)).map((report) => [report.queue, report]));
  let text = "";
  for (const name of names.length === 0 ? known.keys() : names) {
    const lines = known.get(name)?.lines.map(([stat, value]) => `  ${stat}=${value}\r\n`) ?? ["  \r\n"];
    text += `queue '${name}' {\r\n${lines.join("")}}\r\n`;
  }
  return `${text}END\r\n`;
}

function statLine([name, value]: readonly [string, number | string]): string {
  return `STAT ${name} ${value}\r\n`;
}

interface Report {
  readonly queue: string;
  readonly stats: TaskStats;
  readonly lines: Lines;
  readonly cursors: readonly { readonly cursor: string; readonly items: number; readonly open: number }[];
}

async function reports(server: KestrelServer): Promise<Report[]> {
  const found: Report[] = [];
  for (const name of await server.queues.names()) {
    const queue = await server.queues.find(name);
    if (queue === undefined) continue; // deleted meanwhile
    found.push(await report(queue, server.wallMs()));
  }
  return found;
}

async function report(queue: OpenedQueue, nowMs: number): Promise<Report> {
  const stats = await queue.tasks.stats();
  const cursors = [];
  for (const name of await queue.tasks.cursors()) {
    const { items, open } = await (await queue.tasks.cursor(name)).stats();
    cursors.push({ cursor: name, items, open });
  }
  const age = stats.bytesReady === 0 || queue.lastStoredMs === 0 ? 0 : Math.max(0, nowMs - queue.lastStoredMs);
  const lines: Lines = [
    ["items", itemsOf(stats)],
    ["bytes", stats.bytesReady],
    ["total_items", stats.enqueued],
    ["logsize", stats.bytes],
    ["expired_items", stats.expired],
    ["mem_items", 0],
    ["mem_bytes", 0],
    ["age", age],
    ["discarded", stats.discarded],
    ["waiters", stats.waiters],
    ["open_transactions", stats.leased],
    ["transactions", queue.openings],
    ["canceled_transactions", queue.givenBack],
    ["total_flushes", queue.flushes],
    ["journal_rewrites", 0],
    ["journal_rotations", 0],
  ];
  return { queue: queue.name, stats, lines, cursors };
}

/** What waits, now or for its time; what is open does not count. */
function itemsOf(stats: TaskStats): number {
  return stats.ready + stats.scheduled;
}
