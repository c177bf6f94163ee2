import assert from "node:assert/strict";
import { randomFillSync } from "node:crypto";
import { test } from "node:test";
import { crc32 as nativeCrc32 } from "node:zlib";
import { crc32, crc32InScript } from "./crc32.js";

test("the check value of CRC-32/ISO-HDLC", () => {
  const digits = Buffer.from("123456789");
  assert.equal(crc32(digits, 0, 9), 0xcbf43926);
  assert.equal(crc32(digits, 4, 4), 0);
  assert.equal(crc32(digits, 4, 4, 0xdeadbeef), 0xdeadbeef);
});

test("script and zlib agree at every length, alignment and seed", () => {
  const bytes = randomFillSync(Buffer.alloc(1024));
  for (let length = 0; length < 600; length++) {
    const start = length % 9;
    const seed = (length * 0x9e3779b1) >>> 0;
    const expected = nativeCrc32(bytes.subarray(start, start + length), seed);
    assert.equal(crc32InScript(bytes, start, start + length, seed), expected, `script, ${length} bytes`);
    assert.equal(crc32(bytes, start, start + length, seed), expected, `crc32, ${length} bytes`);
  }
});

test("a chain of parts gives the sum of the whole", () => {
  const bytes = randomFillSync(Buffer.alloc(4096));
  const whole = nativeCrc32(bytes);
  for (const cut of [0, 1, 7, 8, 255, 256, 257, 2000, 4095, 4096]) {
    assert.equal(crc32(bytes, cut, 4096, crc32(bytes, 0, cut)), whole, `cut at ${cut}`);
  }
});
