import type { Durability } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import type { Engine } from "../engine/engine.js";
import { type IdentifiedCommit, requestBytes } from "../engine/requests.js";

/** One change of a commit, in three steps, so that several can be made one. */
export interface Change {
  /** Upper bounds for what `stage` writes. */
  readonly bulkBytes: number;
  readonly records: number;
  readonly metaBytes: number;
  /** Frees space rather than needing it. */
  readonly settles: boolean;
  /** Checks that the change can be made and keeps others from what it touches. Throws if it cannot. */
  reserve(): void;
  /** Gives back what was reserved. */
  release(): void;
  /** Copies what the caller may use again: the change is not made within the call that asks for it. */
  own?(): void;
  stage(): void;
  apply(): void;
}

/** Before a call is answered that may have found all as it wants it: what made it so may not be as durable yet as it asks. */
export async function asItStands(engine: Engine, durability: Durability): Promise<void> {
  engine.flush();
  if (durability === "sync" && engine.durableLsn < engine.lsn) await engine.sync();
}

/**
 * Makes changes as one commit, or none of them.
 * @param settle called when the commit is done, in the directory's or the given mode
 * @param request that the commit carries out
 * @param told what is thrown when the change with this index cannot be made
 */
export function commit(
  engine: Engine,
  changes: readonly Change[],
  durability: Durability,
  settle: () => void,
  reject: (error: Error) => void,
  request?: IdentifiedCommit,
  told: (index: number, error: unknown) => unknown = (_, error) => error,
): void {
  let reserved = 0;
  try {
    for (const change of changes) {
      try {
        change.reserve();
      } catch (error) {
        throw told(reserved, error);
      }
      reserved++;
    }
    let bulkBytes = 0;
    let records = 0;
    let metaBytes = requestBytes(request);
    let settles = true;
    for (const change of changes) {
      bulkBytes += change.bulkBytes;
      records += change.records;
      metaBytes += change.metaBytes;
      settles &&= change.settles;
    }
    engine.begin(bulkBytes, records, metaBytes, settles);
  } catch (error) {
    for (const change of changes.slice(0, reserved)) change.release();
    throw error;
  }
  for (const change of changes) change.stage();
  const operation = {
    durability,
    apply: () => {
      for (const change of changes) change.apply();
    },
    settle,
    fail: (error: Error) => {
      for (const change of changes) change.release();
      reject(error);
    },
  };
  engine.add(operation, request);
}

export function foreignQueue(name: string): VarveError {
  return new VarveError("ERR_ARGUMENT", `${name} belongs to another directory; a transaction stays within one`);
}
