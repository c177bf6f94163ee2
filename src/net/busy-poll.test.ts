import assert from "node:assert/strict";
import { test } from "node:test";
import { BusyPoll, type Loop } from "./busy-poll.js";

/** An event loop whose turns take 1 ms each. */
class TestLoop implements Loop {
  #ms = 1000;
  #next: (() => void)[] = [];

  nowMs(): number {
    return this.#ms;
  }

  nextTurn(callback: () => void): void {
    this.#next.push(callback);
  }

  /** It would not sleep. */
  get isAwake(): boolean {
    return this.#next.length > 0;
  }

  /** @returns turns until it sleeps */
  turns(most = 1000): number {
    let count = 0;
    for (; this.isAwake && count < most; count++) {
      this.#ms++;
      const due = this.#next;
      this.#next = [];
      for (const callback of due) callback();
    }
    return count;
  }
}

const FOR_MS = 10;
/** That of the read, that in which the time begins, and the time. */
const TURNS = 2 + FOR_MS;

/** Reads behind each of which nothing comes, and how many of the sleeps behind them were put off. */
function loneReads(poll: BusyPoll, loop: TestLoop, count: number): number {
  let putOff = 0;
  for (let read = 0; read < count; read++) {
    poll.arrived();
    if (loop.turns() > 0) putOff++;
  }
  return putOff;
}

/** Reads that come in time, one after the other. */
function timelyReads(poll: BusyPoll, loop: TestLoop, count: number): void {
  for (let read = 0; read < count; read++) {
    poll.arrived();
    assert.equal(loop.turns(FOR_MS), FOR_MS, "awake");
  }
}

test("the loop is kept awake for the time given after the turn of a read, and sleeps then", () => {
  const loop = new TestLoop();
  const poll = new BusyPoll(FOR_MS, loop);
  assert.equal(loop.isAwake, false);
  poll.arrived();
  assert.equal(loop.turns(), TURNS);
  assert.equal(loop.isAwake, false);
});

test("a further read begins the time anew", () => {
  const loop = new TestLoop();
  const poll = new BusyPoll(FOR_MS, loop);
  poll.arrived();
  loop.turns(FOR_MS);
  poll.arrived();
  assert.equal(loop.turns(), TURNS);
});

test("where nothing comes in time it is given up, but for one read of 64", () => {
  const loop = new TestLoop();
  const poll = new BusyPoll(FOR_MS, loop);
  assert.equal(loneReads(poll, loop, 4), 4);
  assert.equal(loneReads(poll, loop, 63), 0);
  assert.equal(loneReads(poll, loop, 1), 1);
  assert.equal(loneReads(poll, loop, 640), 10);
});

test("it is taken up again where requests come in time", () => {
  const loop = new TestLoop();
  const poll = new BusyPoll(FOR_MS, loop);
  loneReads(poll, loop, 4 + 63);
  timelyReads(poll, loop, 30);
  assert.equal(loop.turns(), TURNS - FOR_MS);
  // They count as sixteen, of which the last sleep took four.
  assert.equal(loneReads(poll, loop, 3 + 63), 3);
});

test("requests that come in pieces, and then none in time, do not keep it up", () => {
  const loop = new TestLoop();
  const poll = new BusyPoll(FOR_MS, loop);
  let putOff = 0;
  for (let request = 0; request < 500; request++) {
    poll.arrived();
    loop.turns(3);
    poll.arrived();
    if (loop.turns() > 0) putOff++;
  }
  assert.ok(putOff < 50, `${putOff} of 500`);
});

test("what arrives in one turn, or in the turn behind it, is one request", () => {
  const loop = new TestLoop();
  const poll = new BusyPoll(FOR_MS, loop);
  loneReads(poll, loop, 4 + 63);
  for (let burst = 0; burst < 8; burst++) {
    poll.arrived();
    poll.arrived();
    loop.turns(1);
    poll.arrived();
  }
  loop.turns();
  assert.equal(loneReads(poll, loop, 63), 0, "none of them was worth waiting for");
});
