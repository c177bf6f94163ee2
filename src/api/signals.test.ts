import assert from "node:assert/strict";
import test from "node:test";
import { onAbort } from "./signals.js";

test("callbacks of one signal share a listener, and each is called once or taken back", () => {
  const controller = new AbortController();
  const called: number[] = [];
  const stops = Array.from({ length: 20 }, (_, index) => onAbort(controller.signal, () => called.push(index)));
  stops[3]!();
  stops[3]!();
  controller.abort();
  controller.abort();
  assert.deepEqual(
    called,
    [...Array(20).keys()].filter((index) => index !== 3),
  );
});

test("a signal that everybody has turned away from can be watched again", () => {
  const controller = new AbortController();
  onAbort(controller.signal, () => assert.fail("taken back"))();
  let called = 0;
  onAbort(controller.signal, () => called++);
  controller.abort();
  assert.equal(called, 1);
});
