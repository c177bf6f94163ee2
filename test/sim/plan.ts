import type { Durability } from "../../src/index.js";
import type { PaceRules } from "./model-pace.js";
import { type FeatureKind, withFeatures } from "./plan-features.js";
import { type CallKind, CRASH_POLICIES, type CrashPolicy, type HoleFilling } from "./sim-disk.js";
import { SimRandom } from "./sim-random.js";

/** How often each kind of step is drawn. */
const STEP_WEIGHTS = {
  append: 20,
  appendBatch: 8,
  read: 4,
  scan: 3,
  tail: 2,
  trim: 3,
  enqueue: 16,
  enqueueBatch: 6,
  dequeue: 12,
  dequeueBatch: 8,
  ack: 14,
  ackBatch: 4,
  nack: 7,
  extend: 3,
  stale: 2,
  readDead: 1,
  redrive: 2,
  purge: 1,
  transaction: 8,
  stats: 1,
  sync: 2,
  pass: 5,
  stall: 1,
  wall: 0.3,
  release: 5,
  peek: 2,
  delete: 3,
  compact: 1,
  clear: 0.5,
  join: 3,
  leave: 1,
  readGroup: 8,
  commitGroup: 7,
  seekGroup: 1,
  deleteGroup: 0.4,
  cancel: 2,
  reschedule: 2,
  empty: 0.5,
  pause: 1,
  expire: 1,
  deleteQueue: 0.5,
} as const;

const HALTS: readonly Aim[] = [
  { kind: "sync", path: "/wal/" },
  { kind: "syncDirectory", path: "/wal" },
  { kind: "rename", path: "/wal/" },
  { kind: "writeSync", path: "/wal/" },
  { kind: "sync", path: ".seg" },
  { kind: "syncDirectory", path: "/data/" },
  { kind: "sync", path: "/snap/" },
  { kind: "rename", path: "/snap/" },
  { kind: "syncDirectory", path: "/snap" },
  { kind: "unlink", path: "" },
];
const AIMS: readonly Aim[] = [
  { kind: "sync", path: "/wal/" },
  { kind: "sync", path: "/wal/" },
  { kind: "sync", path: ".seg" },
  { kind: "sync", path: "/snap/" },
  { kind: "syncDirectory", path: "" },
  { kind: "writeSync", path: "/wal/" },
  { kind: "write", path: "" },
  { kind: "read", path: "" },
];
const ASTRAY_BYTES = [0, 0, 0, -512, 512, 4096, 8, -64];

type FirstKind = keyof typeof STEP_WEIGHTS;
const STEP_KINDS = Object.keys(STEP_WEIGHTS) as FirstKind[];
export type StepKind = FirstKind | FeatureKind;

/** One thing that a client does. Every kind reads the fields that it needs. */
export interface Step {
  readonly kind: StepKind;
  /** Which queue, task or offset, modulo how many there are. */
  readonly queue: number;
  readonly pick: number;
  readonly count: number;
  readonly size: number;
  readonly mode: Durability | undefined;
  /** A delay, lease or wait in milliseconds; 0 for none. */
  readonly ms: number;
  /** What happens next: 0 goes on in the same turn, above 0 lets so many milliseconds pass, below 0 awaits all answers. */
  readonly next: number;
}

/** Calls of one kind, on files or folders whose path holds this. */
export interface Aim {
  readonly kind: CallKind;
  readonly path: string;
}

export interface Fault {
  /** Disk call from the beginning of the round ... */
  readonly call: number;
  /** ... counting only these. */
  readonly on?: Aim;
  readonly errno: string;
  readonly sticky: boolean;
  /** Bytes that a failing write still takes. */
  readonly written: number;
  readonly reverted: boolean;
  /** Takes only `written` bytes of a write, without an error. */
  readonly short: boolean;
}

/** A write that seems to succeed: the platter gets it nowhere, or in the wrong place. */
export interface Astray {
  /** Which write from when the directory is open. */
  readonly write: number;
  /** How far from where it should be; 0: nowhere. */
  readonly byBytes: number;
}

export type End = CrashPolicy | "kill";
export const EVERY_END: readonly End[] = ["kill", ...CRASH_POLICIES];

/** One life of the process. */
export interface Round {
  /** The process ends at this disk call, counted from before opening; 0 for after the last step. */
  readonly haltAtCall: number;
  /** Which calls are counted for that; all of them when not given. */
  readonly haltOn?: Aim;
  /** Bytes of that call that are still written. */
  readonly haltWritten: number;
  readonly faults: readonly Fault[];
  /** Counted from when the directory is open, rather than from before. */
  readonly fromOpen: boolean;
  readonly steps: readonly Step[];
  /** Closed in order before the end. */
  readonly close: boolean;
  readonly end: End;
  readonly holes: HoleFilling;
  readonly downMs: number;
  /** Space on the disk; 0 for no limit. */
  readonly capacityBytes: number;
  /**
   * The power is cut at the end of this round, and only what a lying disk must not do either is asked of what is left:
   * nothing is wrong, and nothing is missing in between in silence. It is the last round.
   */
  readonly astray?: Astray;
}

export interface ConsumerRules {
  readonly leaseMs: number;
  readonly maxAttempts: number;
  readonly backoffMs: number;
}

export interface TaskRules extends ConsumerRules {
  /** Of the tasks, some of them, that are enqueued with one; 0 for none. */
  readonly ttlMs: number;
  readonly onExpire: "discard" | "dead";
  readonly dedupe: { readonly window: number; readonly maxKeys: number };
  readonly limits?: { readonly maxCount: number; readonly whenFull: "refuse" | "wait" | "drop-oldest" };
  /** So many priorities, and keys that tasks are in order under, are in use. */
  readonly priorities: number;
  readonly orderKeys: number;
  /** As long as by default when not given. */
  readonly resultTtl?: number;
  readonly pace?: PaceRules;
}

/** What a log does by itself. */
export interface LogRules {
  readonly retention?: { readonly maxCount?: number; readonly maxBytes?: number; readonly maxAge?: number };
  readonly limits?: { readonly maxCount: number; readonly whenFull: "refuse" | "wait" | "drop-oldest" };
  readonly compaction?: { readonly grace: number; readonly minDirty: number };
}

export interface GroupRules extends ConsumerRules {
  /** Which log, modulo how many there are. */
  readonly log: number;
  readonly shared: boolean;
  /** Of a member of an exclusive one. */
  readonly sessionMs: number;
}

/** All that a run does: what a seed draws, or a schedule file holds. */
export interface Plan {
  readonly seed: number;
  readonly durability: Durability;
  readonly syncIntervalMs: number;
  readonly cacheBytes: number;
  readonly logs: readonly LogRules[];
  readonly groups: readonly GroupRules[];
  readonly tasks: readonly TaskRules[];
  /** Calls have names, and are made again: some that were answered, and those whose answer was lost. */
  readonly repeats?: boolean;
  readonly rounds: readonly Round[];
}

export interface PlanLimits {
  readonly rounds?: number;
  readonly steps?: number;
}

export function drawPlan(seed: number, limits: PlanLimits = {}): Plan {
  return withFeatures(drawFirst(seed, limits), new SimRandom(seed ^ 0xfea7));
}

function drawFirst(seed: number, limits: PlanLimits): Plan {
  const random = new SimRandom(seed);
  const many = random.chance(0.15);
  const logs = Array.from({ length: many ? random.between(9, 12) : random.between(1, 3) }, () => drawLogRules(random));
  const tasks = Array.from({ length: many ? random.between(5, 8) : random.between(1, 3) }, () => drawTaskRules(random));
  const groups = Array.from({ length: random.below(4) }, () => {
    const sessionMs = random.pick([100, 2000, 30_000]);
    return { ...drawConsumerRules(random), log: random.below(logs.length), shared: random.chance(0.5), sessionMs };
  });
  const profile = {
    faults: random.chance(0.3),
    full: random.chance(0.1),
    big: random.pick([0.05, 0.3, 0.6]),
    overrides: random.chance(0.3),
    pipelined: random.pick([0.2, 0.5, 0.8]),
    kills: random.pick([0.1, 0.4, 0.9]),
  };
  const weights = STEP_KINDS.map((kind) => STEP_WEIGHTS[kind] * random.pick([0.2, 1, 1, 2]));
  const rounds = Array.from({ length: limits.rounds ?? random.between(3, 10) }, () => {
    return drawRound(random, profile, weights, limits.steps ?? random.pick([5, 20, 40, 80]));
  });
  const plan = {
    seed,
    durability: random.pick(["sync", "async"] as const),
    syncIntervalMs: random.pick([1, 50, 500]),
    cacheBytes: random.pick([512, 1024, 4096]) * 1024,
    logs,
    tasks,
    groups,
    // Drawn apart, so that other seeds go on meaning what they meant.
    repeats: new SimRandom(seed ^ 0x9e9).chance(0.25),
    rounds,
  };
  // What has been added since comes last, so that seeds go on meaning what they meant, as far as that can be.
  if (random.chance(0.1)) return goAstray(plan, random);
  if (random.chance(0.1)) return relax(plan, random);
  if (random.chance(0.15)) return aim(plan, random);
  if (random.chance(0.15)) return churn(plan, random);
  return random.chance(0.2) ? haltPrecisely(plan, random) : plan;
}

function drawTaskRules(random: SimRandom): TaskRules {
  const limited = random.chance(0.25);
  const whenFull = random.pick(["refuse", "wait", "drop-oldest"] as const);
  return {
    ...drawConsumerRules(random),
    ttlMs: random.pick([0, 0, 50, 3000]),
    onExpire: random.pick(["discard", "dead"]),
    dedupe: { window: random.pick([300, 10_000, 100_000_000]), maxKeys: random.pick([3, 1000]) },
    ...(limited ? { limits: { maxCount: random.pick([10, 40]), whenFull } } : {}),
    priorities: random.pick([1, 1, 2, 10]),
    orderKeys: random.pick([0, 0, 1, 3]),
  };
}

function drawConsumerRules(random: SimRandom): ConsumerRules {
  return {
    leaseMs: random.pick([200, 2000, 30_000]),
    maxAttempts: random.pick([1, 2, 3, 5]),
    backoffMs: random.pick([1, 50, 1000]),
  };
}

/** Little enough that what a log does by itself happens all the time. */
function drawLogRules(random: SimRandom): LogRules {
  const retention = random.pick([
    undefined,
    undefined,
    { maxCount: 8 },
    { maxCount: 40 },
    { maxBytes: 40_000 },
    { maxAge: 2000 },
  ]);
  const limited = random.chance(0.25);
  const whenFull = random.pick(["refuse", "wait", "drop-oldest"] as const);
  const maxCount = random.pick([30, 60]);
  const compacted = random.chance(0.4);
  const compaction = { grace: random.pick([1, 86_400_000]), minDirty: random.pick([0, 0.5]) };
  return {
    ...(retention === undefined ? {} : { retention }),
    ...(limited ? { limits: { maxCount, whenFull } } : {}),
    ...(compacted ? { compaction } : {}),
  };
}

/** Ends the process at the calls on which an order of things depends. */
function haltPrecisely(plan: Plan, random: SimRandom): Plan {
  const rounds = plan.rounds.map((round): Round => {
    const end = random.chance(0.3) ? round.end : random.pick(CRASH_POLICIES);
    return { ...round, close: random.chance(0.1), end, ...drawHalt(random), fromOpen: random.chance(0.8) };
  });
  return { ...plan, rounds };
}

function drawHalt(random: SimRandom): Pick<Round, "haltAtCall" | "haltOn"> {
  return { haltOn: random.pick(HALTS), haltAtCall: random.between(1, random.pick([2, 4, 8])) };
}

/** A directory in sync mode most of whose clients do not wait, and whose power fails. */
function relax(plan: Plan, random: SimRandom): Plan {
  const rounds = plan.rounds.map((round): Round => {
    const steps = round.steps.map((step): Step => ({ ...step, mode: random.chance(0.9) ? "async" : "sync" }));
    return { ...round, steps, close: false, end: random.pick(CRASH_POLICIES) };
  });
  return { ...plan, durability: "sync", syncIntervalMs: random.pick([50, 500]), rounds };
}

/**
 * Work that is done as soon as it has come, in bulk: log files fill up and are given back while what they held is being
 * settled by changes that are not durable yet.
 */
function churn(plan: Plan, random: SimRandom): Plan {
  const rounds = plan.rounds.map((round): Round => {
    const queue = random.below(1000);
    const steps = round.steps.flatMap((step): Step[] => {
      const next = random.pick([0, 0.01, 0.5]);
      const all = { ...step, queue, mode: undefined, ms: 0, pick: 1, next };
      const enqueue: Step = { ...all, kind: "enqueueBatch", count: 3, size: random.pick([8000, 30_000]), next: 0 };
      return [
        ...Array.from({ length: random.between(1, 3) }, () => enqueue),
        { ...all, kind: "dequeueBatch", count: 8, next: random.pick([0.5, 3]) },
        { ...all, kind: "ackBatch", count: 8 },
      ];
    });
    const halt = random.chance(0.8) ? drawHalt(random) : { haltAtCall: 0 };
    return { ...round, ...halt, steps, close: false, fromOpen: true, end: random.pick(CRASH_POLICIES) };
  });
  const dedupe = { window: 10_000, maxKeys: 1000 };
  const consumer = { leaseMs: 30_000, maxAttempts: 5, backoffMs: 50 };
  const tasks: TaskRules[] = [{ ...consumer, ttlMs: 0, onExpire: "discard", dedupe, priorities: 1, orderKeys: 0 }];
  return { ...plan, tasks, syncIntervalMs: 500, rounds };
}

/** Fails calls of the kinds that matter most. */
function aim(plan: Plan, random: SimRandom): Plan {
  const rounds = plan.rounds.map((round): Round => {
    if (random.chance(0.5)) return round;
    const on = random.pick(AIMS);
    const call = random.between(1, random.pick([3, 10, 30]));
    const fault = { ...drawFault(random), errno: random.pick(["EIO", "EIO", "ENOSPC"]), on, call, short: false };
    return { ...round, haltAtCall: random.chance(0.5) ? 0 : round.haltAtCall, faults: [fault] };
  });
  return { ...plan, rounds };
}

/** Ends a plan with a round whose disk lies about one write. */
function goAstray(plan: Plan, random: SimRandom): Plan {
  const last = plan.rounds[plan.rounds.length - 1]!;
  const astray = { write: random.between(1, random.pick([3, 10, 30])), byBytes: random.pick(ASTRAY_BYTES) };
  const quiet = { haltAtCall: 0, faults: [], close: random.chance(0.3), capacityBytes: 0 };
  const end = last.end === "kill" ? "none" : last.end;
  return { ...plan, rounds: [...plan.rounds.slice(0, -1), { ...last, ...quiet, end, astray }] };
}

type Profile = { faults: boolean; full: boolean; big: number; overrides: boolean; pipelined: number; kills: number };

function drawRound(random: SimRandom, profile: Profile, weights: readonly number[], stepsMax: number): Round {
  const steps = Array.from({ length: random.below(stepsMax) + 1 }, () => drawStep(random, profile, weights));
  const fromOpen = random.chance(0.75);
  return {
    haltAtCall: random.chance(0.8) ? random.between(1, fromOpen ? random.pick([10, 60, 300]) : 40) : 0,
    haltWritten: random.pick([0, 0, 512, random.below(70_000), 1_000_000]),
    faults: profile.faults && random.chance(0.5) ? [drawFault(random)] : [],
    fromOpen,
    steps,
    close: random.chance(0.2),
    end: random.chance(profile.kills) ? "kill" : random.pick(CRASH_POLICIES),
    holes: random.pick(["zero", "old", "garbage", "mixed"]),
    downMs: random.pick([10, 1000, 60_000]),
    capacityBytes: profile.full && random.chance(0.5) ? random.between(512, 4096) * 1024 : 0,
  };
}

function drawFault(random: SimRandom): Fault {
  return {
    call: random.between(1, random.pick([20, 100, 400])),
    errno: random.pick(["EIO", "EIO", "EIO", "ENOSPC", "EROFS", "EMFILE"]),
    sticky: random.chance(0.2),
    written: random.pick([0, 0, 8, random.below(5000), 1_000_000]),
    reverted: random.chance(0.5),
    short: random.chance(0.2),
  };
}

function drawStep(random: SimRandom, profile: Profile, weights: readonly number[]): Step {
  const big = random.chance(profile.big);
  return {
    kind: weighted(random, weights),
    queue: random.below(1000),
    pick: random.below(1_000_000),
    count: random.pick([1, 2, 3, 8, 30]),
    size: random.pick(big ? [4000, 8000, 30_000, 60_000] : [0, 1, 20, 100, 1000]),
    mode: profile.overrides && random.chance(0.4) ? random.pick(["sync", "async"]) : undefined,
    ms: random.chance(0.5) ? 0 : random.pick([1, 100, 1000, 10_000]),
    next: random.chance(profile.pipelined) ? 0 : random.chance(0.5) ? -1 : random.pick([0.01, 1, 20, 300, 3000]),
  };
}

function weighted(random: SimRandom, weights: readonly number[]): FirstKind {
  let left = random.fraction() * weights.reduce((sum, weight) => sum + weight, 0);
  for (const [index, weight] of weights.entries()) {
    left -= weight;
    if (left < 0) return STEP_KINDS[index]!;
  }
  return STEP_KINDS[0]!;
}
