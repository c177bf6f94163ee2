import type { MessageQueue, OpenOptions } from "../../src/index.js";
import { openEmbedded } from "../../src/queues/open.js";
import { SimClock } from "../sim/sim-clock.js";
import { type CrashPolicy, SimDisk } from "../sim/sim-disk.js";
import { SimRandom } from "../sim/sim-random.js";
import { labelled } from "./expect.js";

const PARENT = "/srv";
const DIRECTORY = `${PARENT}/data`;

/** Files small enough that a few hundred operations see rotation, checkpoints and recycling. */
export const TINY = {
  walFileBytes: "256KiB",
  segmentBytes: "64KiB",
  cacheBytes: "4MiB",
  maxMessageBytes: "32KiB",
} as const satisfies OpenOptions;

/** There is only one process in a simulated machine. */
async function noLock(): Promise<{ release(): void }> {
  return { release() {} };
}

/** What became of a promise on a machine that may have stopped meanwhile. */
export type Outcome<T> =
  | { readonly kind: "resolved"; readonly value: T }
  | { readonly kind: "rejected"; readonly error: unknown }
  /** No answer: the machine stopped, or there is nothing left that could bring one. */
  | { readonly kind: "unanswered" };

/** One machine of the simulated world, from its start to its end. Its successor has the disk that it left behind. */
export class Simulated {
  readonly random: SimRandom;
  readonly clock: SimClock;
  readonly disk: SimDisk;

  private constructor(random: SimRandom, clock: SimClock, disk: SimDisk) {
    this.random = random;
    this.clock = clock;
    this.disk = disk;
  }

  static boot(seed: number, options: { readonly capacityBytes?: number } = {}): Simulated {
    const random = new SimRandom(seed);
    const clock = new SimClock(random.fork());
    const disk = new SimDisk({ clock, random: random.fork(), ...options });
    disk.mkdir(PARENT);
    disk.settle();
    return new Simulated(random, clock, disk);
  }

  open(options: OpenOptions = TINY, directory = DIRECTORY): Promise<MessageQueue> {
    const { disk, clock } = this;
    return this.settle(openEmbedded(directory, options, { disk, clock, random: this.random.fork(), lock: noLock }));
  }

  /** Runs the machine until the promise settles. */
  settle<T>(promise: Promise<T>): Promise<T> {
    return this.clock.settle(promise);
  }

  /** Runs the machine until the promise settles, or never will. */
  async outcomeOf<T>(promise: Promise<T>): Promise<Outcome<T>> {
    let outcome: Outcome<T> = { kind: "unanswered" };
    promise.then(
      (value) => {
        outcome = { kind: "resolved", value };
      },
      (error: unknown) => {
        outcome = { kind: "rejected", error };
      },
    );
    await this.clock.run(() => outcome.kind !== "unanswered" || this.disk.halted, 3_600_000);
    return this.disk.halted ? { kind: "unanswered" } : outcome;
  }

  pass(ms: number): Promise<void> {
    return this.clock.runFor(ms);
  }

  /** The same machine after a power cut. */
  cutPower(policy: CrashPolicy, downMs = 1000): Simulated {
    const clock = this.clock.restart(downMs);
    return new Simulated(this.random, clock, this.disk.crash(policy, this.random, { clock }));
  }

  /** The next process, after this one was killed. */
  kill(): Simulated {
    const clock = this.clock.restart(10);
    return new Simulated(this.random, clock, this.disk.kill(this.random, { clock }));
  }

  /** Another machine with a copy of this one's disk, which must not be in use. */
  copy(seed: number): Simulated {
    const random = new SimRandom(seed);
    const clock = new SimClock(random.fork(), { wallMs: this.clock.wallMs(), elapsedMs: this.clock.elapsedMs() });
    return new Simulated(random, clock, this.disk.kill(random, { clock }));
  }
}

/** What a trial of `cutAtEveryCall` has to look at. */
export interface Trial {
  readonly mq: MessageQueue;
  readonly machine: Simulated;
  /** True if the operation had been acknowledged when the power failed. */
  readonly acknowledged: boolean;
}

/**
 * Runs an operation on copies of a closed directory, once for each disk call that it makes, and cuts the power at that call
 * in the way of each policy. Then opens what is left and has it checked; what several cuts leave alike is looked at once.
 * Returns the number of cuts.
 * @param beforeOpen looks at what the power cut has left
 */
export async function cutAtEveryCall(
  base: Simulated,
  policies: readonly CrashPolicy[],
  operation: (mq: MessageQueue) => Promise<void>,
  check: (trial: Trial) => Promise<void>,
  options: OpenOptions = TINY,
  beforeOpen: (machine: Simulated) => Promise<void> = async () => {},
): Promise<number> {
  let trials = 0;
  const known = new Set<string>();
  for (let call = 1; ; call++) {
    const machine = base.copy(call);
    const mq = await machine.open(options);
    machine.disk.haltAt(machine.disk.calls + call);
    const outcome = await machine.outcomeOf(operation(mq));
    if (outcome.kind === "rejected") throw outcome.error;
    const reached = machine.disk.halted;
    for (const policy of policies) {
      const next = machine.cutPower(policy);
      trials++;
      const left = `${outcome.kind} ${next.disk.fingerprint()}`;
      if (known.has(left)) continue;
      known.add(left);
      await labelled(
        () => `power cut at call ${call}, keeping ${policy}`,
        async () => {
          await beforeOpen(next);
          const again = await next.open(options);
          await check({ mq: again, machine: next, acknowledged: outcome.kind === "resolved" });
          await next.settle(again.close());
        },
      );
    }
    if (!reached) return trials;
  }
}
