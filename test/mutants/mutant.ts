/** A deliberate fault in one of the steps that a promise hangs on, which the tests must notice. */
export interface Mutant {
  readonly name: string;
  /** The source file that is changed, from the root of the repository. */
  readonly file: string;
  /** Stands there exactly once. */
  readonly search: string;
  readonly replacement: string;
  /** What is promised, and no longer kept. */
  readonly breaks: string;
  readonly killer: Killer;
}

/** What finds the fault soonest. */
export type Killer =
  /** Seeds of the simulator: the one in seeds.json at once, any other within SEARCHED_SEEDS. */
  | { readonly by: "simulator" }
  /** Every end, or every fault, at every call of the small workload with this seed. */
  | { readonly by: "ends" | "faults"; readonly seed: number }
  /** Flipped bits, in the directory that the plan with this seed leaves. */
  | { readonly by: "flips"; readonly seed: number }
  /** A test file, from the root of the repository, and which of its tests. */
  | { readonly by: "test"; readonly file: string; readonly only?: string };

/** Seeds that a search for one that finds a fault goes through. */
export const SEARCHED_SEEDS = 400;

export const simulator: Killer = { by: "simulator" };

export function ends(seed: number): Killer {
  return { by: "ends", seed };
}

export function faults(seed: number): Killer {
  return { by: "faults", seed };
}

export function flips(seed: number): Killer {
  return { by: "flips", seed };
}

export function testFile(file: string, only?: string): Killer {
  return only === undefined ? { by: "test", file } : { by: "test", file, only };
}

/** A story on the simulated machine that plans come upon too seldom. */
export function directed(only: string): Killer {
  return testFile("test/sim/directed.test.ts", only);
}

/** Directories that someone has tampered with. */
export function tampered(only: string): Killer {
  return testFile("test/sim/tampered.test.ts", only);
}
