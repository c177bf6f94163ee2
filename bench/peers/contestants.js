/**
 * Those that are compared: a server with a load generator of its own, or a process that uses varve's library. All of them take the
 * same turns (load/turn.js).
 */

import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freshDirectory, startServer } from "./servers.js";
import { Worker } from "./worker.js";

const GENERATOR = fileURLToPath(new URL("./load/generator.js", import.meta.url));
const LIBRARY = fileURLToPath(new URL("./load/library.js", import.meta.url));

/**
 * @typedef {object} Spec
 * @property {string} name
 * @property {"varve" | "peer" | "floor"} kind varve's are compared with all others
 * @property {string} [server] of servers.js
 * @property {string} [address] host:port of a server that runs already
 * @property {string} [protocol] of load/protocols.js
 * @property {boolean} [onNative] the protocol is spoken on the port of varve's own
 * @property {"log" | "tasks"} [library] varve's library takes the turns
 * @property {"async" | "sync"} [durability] of a directory that the library opens
 */

export class Contestant {
  spec;
  server;
  #worker;

  /** @param {Spec} spec */
  static async start(spec, scratch) {
    const directory = freshDirectory(scratch);
    const server = spec.server === undefined ? undefined : await startServer(spec.server, directory);
    const worker = new Worker(...workerOf(spec, server, directory));
    return new Contestant(spec, server, worker);
  }

  constructor(spec, server, worker) {
    this.spec = spec;
    this.server = server ?? addressOf(spec.address);
    this.#worker = worker;
  }

  get name() {
    return this.spec.name;
  }

  /** The process that does the work; undefined for one that runs elsewhere. */
  get pid() {
    return this.server === undefined ? this.#worker.pid : this.server.pid;
  }

  /** @returns {Promise<import("./load/turn.js").Taken>} */
  async take(turn) {
    const { host, port } = this.server ?? {};
    const where = { host, port: this.spec.onNative ? port + 1 : port, pid: this.pid };
    try {
      return await this.#worker.ask({ ...where, ...turn });
    } catch (error) {
      throw new Error(`${this.name}, ${turn.operation}, ${turn.connections} x ${turn.pipeline}: ${error.message}`);
    }
  }

  async stop() {
    await this.#worker.stop();
    await this.server?.stop?.();
  }
}

function workerOf({ protocol, library, durability }, server, directory) {
  if (library === undefined) return [GENERATOR, [protocol]];
  return [LIBRARY, server === undefined ? [library, join(directory, "data"), durability] : [library]];
}

function addressOf(address) {
  if (address === undefined) return undefined;
  const [, host, port] = /^(?:[^=]*=)?(.+):(\d+)$/.exec(address) ?? [];
  if (host === undefined) throw new Error(`--kestrel takes host:port, or name=host:port; got ${address}`);
  return { host, port: Number(port) };
}

/** How a server given by `--kestrel` is called: by the name before its address, if it has one. */
export function nameOfGiven(given) {
  const equals = given.indexOf("=");
  return equals > 0 ? given.slice(0, equals) : given;
}

/**
 * Starts all that can be; the others are reported with the reason.
 * @param {Spec[]} specs
 * @param {(name: string, reason: string) => void} onSkipped
 */
export async function startAll(specs, scratch, onSkipped) {
  const started = [];
  for (const spec of specs) {
    try {
      started.push(await Contestant.start(spec, scratch));
    } catch (error) {
      if (spec.kind !== "peer") {
        await stopAll(started);
        throw error;
      }
      onSkipped(spec.name, error.message);
    }
  }
  return started;
}

export async function stopAll(contestants) {
  await Promise.all(contestants.map((contestant) => contestant.stop()));
}

const WARM_UP_TURNS = 6;

/**
 * A while of everything, so that no measurement begins with files that are not there yet, or with code that has hardly run: what is
 * compiled as it runs, as JavaScript is, gets faster for seconds, and takes a part of the machine for that.
 * @param {{ queues: number, valueBytes: number, seconds: number }} turn `seconds` are those of one turn
 */
export async function warmUp(contestants, { queues, valueBytes, seconds }, progress) {
  for (const contestant of contestants) {
    progress(0, `warming up ${contestant.name}`);
    const turn = { connections: 50, pipeline: 16, queues, valueBytes };
    const { counts } = await contestant.take({ ...turn, operation: "put", seconds: WARM_UP_TURNS * seconds });
    if (contestant.spec.protocol !== "echo") await contestant.take({ ...turn, operation: "take", counts });
  }
}

/** All twice to warm up, then round by round; every other round goes backwards, so that none always follows the same one. */
export async function inRounds(contestants, rounds, takeTurn, onRound) {
  const taken = new Map(contestants.map((contestant) => [contestant, []]));
  for (let round = 0; round <= rounds; round++) {
    for (const contestant of round % 2 === 0 ? contestants : [...contestants].reverse()) {
      onRound(contestant, round);
      const result = await takeTurn(contestant);
      if (round > 0) taken.get(contestant).push(result);
      // After a change of shape other parts of the code are used, which are compiled by and by: one turn is not enough.
      else await takeTurn(contestant);
    }
  }
  return taken;
}
