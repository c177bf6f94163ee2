/**
 * Plain gets of one turn of the event loop, over whatever connections: those of one queue remove their items by one call, in the
 * order in which they came.
 */

import type { MessageQueue } from "../api/contract.js";
import { turnEndOf } from "../net/turn-end.js";
import type { OpenedQueue, Taken } from "./queues.js";

/** Gets in a row of one connection. What it is told it must take without throwing: others are told behind it. */
export interface Taker {
  readonly requests: number;
  /** As many items as it has asked for, or fewer where there are no more, or an error keeps back those behind them. */
  taken(taken: Taken): void;
  /** Nothing has been removed for it. */
  failed(error: unknown): void;
}

export class Takes {
  readonly #atTurnEnd: (callback: () => void) => void;
  readonly #carryOut = () => this.#takeAll();
  #queues: OpenedQueue[] = [];

  constructor(mq: MessageQueue) {
    this.#atTurnEnd = turnEndOf(mq);
  }

  add(queue: OpenedQueue, taker: Taker): void {
    if (queue.takers === undefined) {
      queue.takers = [taker];
      if (this.#queues.length === 0) this.#atTurnEnd(this.#carryOut);
      this.#queues.push(queue);
    } else {
      queue.takers.push(taker);
    }
  }

  #takeAll(): void {
    const queues = this.#queues;
    this.#queues = [];
    for (const queue of queues) {
      const takers = queue.takers!;
      queue.takers = undefined;
      for (let from = 0; from < takers.length; ) from = takeFor(queue, takers, from);
    }
  }
}

/** Takes for those from an index on, as many items as may stand in memory; returns the index behind them. */
function takeFor(queue: OpenedQueue, takers: readonly Taker[], from: number): number {
  const max = queue.takenAtOnceMax;
  let count = takers[from]!.requests;
  let to = from + 1;
  while (to < takers.length && count + takers[to]!.requests <= max) count += takers[to++]!.requests;
  // An error is told to one of them, as if each had asked by itself: those behind it get what stands behind it.
  const takeForRest = (index: number) => {
    if (index < to) takeFor(queue, takers.slice(index, to), 0);
  };
  queue.takeAll(count).then(
    ({ tasks, error }) => {
      let at = 0;
      for (let index = from; index < to; index++) {
        const taker = takers[index]!;
        const own = tasks.slice(at, at + taker.requests);
        at += own.length;
        const isTold = error !== undefined && own.length < taker.requests;
        taker.taken({ tasks: own, error: isTold ? error : undefined });
        if (!isTold) continue;
        takeForRest(index + 1);
        return;
      }
    },
    (error: unknown) => {
      takers[from]!.failed(error);
      takeForRest(from + 1);
    },
  );
  return to;
}
