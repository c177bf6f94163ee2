/**
 * A daemon is killed under load, again and again, while its clients write down what they were told; what is there
 * afterwards is judged by that alone.
 *
 *   open0, open1   read with /open and /close: what was open comes back, in order
 *   abort          the same, but some reads are given back
 *   plain          read with plain gets, pipelined
 *   log            read through two cursors
 *   both0, both1   stored by fan-out: both have an item, or neither
 */

import { setTimeout as sleep } from "node:timers/promises";
import { type Running, startVarve } from "../cli/program.js";
import type { Seeded } from "../support/seeded.js";
import { Book } from "./book.js";
import { Speaker } from "./speaker.js";

const CURSORS = ["one", "two"];
const BOTH = ["both0", "both1"];
const PIPELINE_MAX = 8;
const PRODUCERS = 2;
const READERS = 3;
/** Of rounds after which everything is taken out and judged. */
const JUDGED = 0.4;

export interface KillResult {
  readonly kills: number;
  readonly stored: number;
  readonly confirmed: number;
  /** Open reads at the kills. */
  readonly open: number;
}

/**
 * Kills a daemon in so many rounds.
 * @param isTimeUp whether to end with the next one
 * @throws Error when what it holds then is not what its clients were told
 */
export async function killDaemons(
  directory: string,
  rounds: number,
  random: Seeded,
  isTimeUp = () => false,
): Promise<KillResult> {
  return await new Kills(directory, random).run(rounds, isTimeUp);
}

export async function startDaemon(directory: string, options: readonly string[]): Promise<[Running, number]> {
  const running = startVarve([
    ...["daemon", "--data-dir", directory, "--kestrel", "127.0.0.1:0", "--log-level", "warn"],
    ...options,
  ]);
  const printed = await running.printed(/kestrel on 127\.0\.0\.1:\d+/);
  return [running, Number(/kestrel on 127\.0\.0\.1:(\d+)/.exec(printed)?.[1])];
}

/** Everything that a `get` gives, one after another. */
export async function drain(port: number, target: string): Promise<string[]> {
  const speaker = new Speaker(port);
  const items: string[] = [];
  for (;;) {
    const said = await speaker.ask(`get ${target}\r\n`);
    if (said?.line !== "END") throw new Error(`get ${target} was answered by ${said?.line ?? "nothing"}`);
    if (said.value === undefined) break;
    items.push(said.value);
  }
  speaker.destroy();
  return items;
}

class Kills {
  readonly #directory: string;
  readonly #random: Seeded;
  readonly #books = new Map<string, Book>();
  #failure: unknown;
  #life = 0;
  #open = 0;

  constructor(directory: string, random: Seeded) {
    this.#directory = directory;
    this.#random = random;
    for (const queue of ["open0", "open1", "plain", "log", ...BOTH]) this.#books.set(queue, new Book(queue, true));
    // What is given back goes to the head, and a cursor's failed reads behind one another.
    for (const queue of ["abort", ...CURSORS.map((cursor) => `log.${cursor}`)]) {
      this.#books.set(queue, new Book(queue, false));
    }
  }

  async run(rounds: number, isTimeUp: () => boolean): Promise<KillResult> {
    for (let round = 0, isLast = false; !isLast; round++) {
      isLast = round === rounds - 1 || isTimeUp();
      try {
        await this.#round(isLast || this.#random.chance(JUDGED));
      } catch (error) {
        throw new Error(`round ${round}: ${error instanceof Error ? error.message : error}`, { cause: error });
      }
    }
    const sum = (of: (book: Book) => number) => [...this.#books.values()].reduce((total, book) => total + of(book), 0);
    return {
      kills: this.#life,
      stored: sum(({ stored }) => stored),
      confirmed: sum(({ confirmed }) => confirmed),
      open: this.#open,
    };
  }

  async #round(judged: boolean): Promise<void> {
    const random = this.#random;
    const [daemon, port] = await startDaemon(this.#directory, ["--durability", random.pick(["sync", "async"])]);
    const life = this.#life++;
    const speakers: Speaker[] = [];
    const work = [...this.#work(life)].map(async (each) => {
      const speaker = new Speaker(port);
      speakers.push(speaker);
      try {
        await each(speaker);
      } catch (error) {
        this.#failure ??= error;
      }
    });
    await sleep(random.between(20, 400));
    this.#open += [...this.#books.values()].reduce((total, { open }) => total + open, 0);
    daemon.child.kill("SIGKILL");
    const { stderr } = await daemon.ended;
    if (daemon.child.signalCode !== "SIGKILL") throw new Error(`the daemon ended by itself: ${stderr}`);
    await Promise.all(work);
    for (const book of this.#books.values()) book.lifeEnded();
    if (this.#failure !== undefined) throw this.#failure;
    // Sometimes the one who is to recover is killed as well, perhaps in the midst of it.
    if (random.chance(0.25)) {
      const another = startVarve(["daemon", "--data-dir", this.#directory, "--kestrel", "127.0.0.1:0"]);
      await sleep(random.between(50, 400));
      another.child.kill("SIGKILL");
      await another.ended;
    }
    if (judged) await this.#judge();
  }

  *#work(life: number): Generator<(speaker: Speaker) => Promise<void>> {
    for (let index = 0; index < PRODUCERS; index++) {
      for (const queue of ["open0", "open1", "abort", "plain"]) {
        yield (speaker) => this.#produce(speaker, [queue], [queue], `${life}.${index}`);
      }
      yield (speaker) => this.#produce(speaker, BOTH, BOTH, `${life}.${index}`);
    }
    const ofLog = ["log", ...CURSORS.map((cursor) => `log.${cursor}`)];
    yield async (speaker) => {
      // A cursor begins with what is stored after its first mention.
      for (const cursor of CURSORS) if (life === 0) await speaker.ask(`get log.${cursor}\r\n`);
      await this.#produce(speaker, ["log"], ofLog, `${life}.0`);
    };
    for (let index = 0; index < READERS; index++) {
      for (const queue of ["open0", "open1", "abort"]) yield (speaker) => this.#read(speaker, queue);
      yield (speaker) => this.#take(speaker, "plain");
    }
    if (life > 0) for (const cursor of CURSORS) yield (speaker) => this.#read(speaker, `log.${cursor}`);
  }

  async #produce(speaker: Speaker, queues: readonly string[], books: readonly string[], name: string): Promise<void> {
    const random = this.#random;
    const to = books.map((book) => this.#books.get(book)!);
    for (let number = 0; ; ) {
      const asked = Array.from({ length: random.between(1, PIPELINE_MAX) }, async () => {
        const value = `${name}-${number++}`;
        for (const book of to) book.asks(value);
        const said = await speaker.ask(`set ${queues.join("+")} 0 0 ${value.length}\r\n${value}\r\n`);
        if (said === undefined) return false;
        if (said.line !== "STORED") throw new Error(`a set was answered by ${said.line}`);
        for (const book of to) book.isStored(value);
        return true;
      });
      if ((await Promise.all(asked)).includes(false)) return;
      if (random.chance(0.3)) await sleep(random.between(0, 5));
    }
  }

  async #read(speaker: Speaker, target: string): Promise<void> {
    const random = this.#random;
    const book = this.#books.get(target)!;
    let said = await speaker.ask(`get ${target}/open/t=20\r\n`);
    while (said !== undefined) {
      if (said.line !== "END") throw new Error(`an open was answered by ${said.line}`);
      const { value } = said;
      if (value === undefined) {
        said = await speaker.ask(`get ${target}/open/t=20\r\n`);
        continue;
      }
      book.opened(value);
      if (random.chance(0.5)) await sleep(random.between(0, 10));
      if (target === "abort" && random.chance(0.2)) {
        book.givesBack(value);
        if ((await speaker.ask(`get ${target}/abort\r\n`)) === undefined) return;
        said = await speaker.ask(`get ${target}/open/t=20\r\n`);
        continue;
      }
      book.closes(value);
      said = await speaker.ask(`get ${target}/close/open/t=20\r\n`);
      if (said !== undefined) book.isClosed(value);
    }
  }

  async #take(speaker: Speaker, target: string): Promise<void> {
    const random = this.#random;
    const book = this.#books.get(target)!;
    for (;;) {
      const asked = Array.from({ length: random.between(1, PIPELINE_MAX) }, async () => {
        book.getSent();
        const said = await speaker.ask(`get ${target}\r\n`);
        if (said === undefined) return false;
        if (said.line !== "END") throw new Error(`a get was answered by ${said.line}`);
        book.took(said.value);
        return true;
      });
      if ((await Promise.all(asked)).includes(false)) return;
      await sleep(random.between(0, 5));
    }
  }

  /** Takes everything out, and judges it. */
  async #judge(): Promise<void> {
    const [daemon, port] = await startDaemon(this.#directory, ["--durability", "async"]);
    try {
      const held = new Map<string, string[]>();
      // Cursors first: what the queue no longer has, they do not see.
      const names = [...this.#books.keys()].sort((a, b) => Number(b.includes(".")) - Number(a.includes(".")));
      for (const name of names) held.set(name, await drain(port, name));
      const [first, second] = BOTH.map((queue) => held.get(queue)!.join(" "));
      if (first !== second) throw new Error("a fan-out has reached one queue and not the other");
      for (const [name, book] of this.#books) book.judge(held.get(name)!);
    } finally {
      daemon.child.kill("SIGTERM");
    }
    const { code, stderr } = await daemon.ended;
    if (code !== 0) throw new Error(`the daemon ended with ${code}: ${stderr}`);
  }
}
