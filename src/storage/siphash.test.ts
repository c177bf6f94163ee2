import assert from "node:assert/strict";
import { test } from "node:test";
import { sipHash128 } from "./siphash.js";

/** The reference implementation's results for 0, 1, ... bytes 00 01 02 ... under the key 00 01 .. 0f. */
const VECTORS = [
  "a3817f04ba25a8e66df67214c7550293",
  "da87c1d86b99af44347659119b22fc45",
  "8177228da4a45dc7fca38bdef60affe4",
  "9c70b60c5267a94e5f33b6b02985ed51",
];

test("SipHash-2-4-128 gives what its specification says", () => {
  const key = new Uint32Array(Uint8Array.from({ length: 16 }, (_, index) => index).buffer);
  const out = new Uint32Array(4);
  for (const [length, expected] of VECTORS.entries()) {
    sipHash128(
      key,
      Uint8Array.from({ length }, (_, index) => index),
      out,
    );
    assert.equal(Buffer.from(out.buffer).toString("hex"), expected);
  }
});

test("keys that differ in one byte, at any place and length, hash differently", () => {
  const key = Uint32Array.of(1, 2, 3, 4);
  const out = new Uint32Array(4);
  const seen = new Set<string>();
  let count = 0;
  for (let length = 0; length < 40; length++) {
    for (let at = -1; at < length; at++) {
      const bytes = Buffer.alloc(length);
      if (at >= 0) bytes[at] = 1;
      sipHash128(key, bytes, out);
      seen.add(out.join());
      count++;
    }
  }
  assert.equal(seen.size, count);
});
