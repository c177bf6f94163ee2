import { deepStrictEqual, ok, strictEqual, throws } from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { bytes, type Codec, json, text } from "./codec.js";
import { isVarveError } from "./errors.js";

function roundTrip<I, O>(codec: Codec<I, O>, value: I): O {
  return codec.decode(Buffer.from(codec.encode(value) as string));
}

function refusesAt(path: string, value: unknown, what: RegExp): void {
  throws(
    () => json().encode(value),
    (error) => {
      ok(isVarveError(error, "ERR_ENCODE"), String(error));
      strictEqual(error.details.path, path);
      ok(error.message.includes(path), error.message);
      ok(what.test(error.message), error.message);
      return true;
    },
  );
}

test("bytes: strings and bytes go in, bytes come out", () => {
  deepStrictEqual(roundTrip(bytes(), "grüße 😀"), Buffer.from("grüße 😀"));
  deepStrictEqual(roundTrip(bytes(), ""), Buffer.alloc(0));
  const binary = Uint8Array.of(0, 255, 128);
  strictEqual(bytes().encode(binary), binary, "no copy");
  const foreign: Uint8Array = runInNewContext("Uint8Array.of(1, 2)");
  strictEqual(bytes().encode(foreign), foreign);
});

test("bytes: anything else is refused", () => {
  const bad = [undefined, null, 5, {}, [1], new Uint16Array(2), new DataView(new ArrayBuffer(2)), new ArrayBuffer(2)];
  for (const value of bad) throws(() => bytes().encode(value as unknown as string), { code: "ERR_ENCODE" });
  throws(() => bytes().encode("half \ud800"), { code: "ERR_ENCODE", message: /lone surrogate/ });
});

test("text: strings go in and come out", () => {
  fc.assert(fc.property(fc.string({ unit: "binary" }), (value) => strictEqual(roundTrip(text(), value), value)));
});

test("text: what UTF-8 cannot store is refused", () => {
  for (const value of ["\ud800", "a\udc00", "\udc00\ud800"]) throws(() => text().encode(value), { code: "ERR_ENCODE" });
  for (const value of [undefined, null, 5, {}, Buffer.from("a")]) {
    throws(() => text().encode(value as string), { code: "ERR_ENCODE" });
  }
});

test("bytes that are not UTF-8 or not JSON are refused, and remain reachable", () => {
  const latin = Buffer.from([0x67, 0xfc]);
  const cut = Buffer.from("[1,");
  const cases: [Codec<never, unknown>, Buffer][] = [
    [text(), latin],
    [json(), latin],
    [json(), cut],
    [json(), Buffer.alloc(0)],
  ];
  for (const [codec, raw] of cases) {
    throws(
      () => codec.decode(raw),
      (error) => isVarveError(error, "ERR_DECODE") && error.details.raw === raw,
    );
  }
});

test("json: what comes back is equal, or it was refused with its path", () => {
  const anything = fc.anything({
    withBigInt: true,
    withBoxedValues: true,
    withDate: true,
    withMap: true,
    withNullPrototype: true,
    withSet: true,
    withSparseArray: true,
    withTypedArray: true,
    withUnicodeString: true,
  });
  let equal = 0;
  let refused = 0;
  fc.assert(
    fc.property(fc.oneof(anything, fc.jsonValue()), (value) => {
      let encoded: string;
      try {
        encoded = json().encode(value) as string;
      } catch (error) {
        ok(isVarveError(error, "ERR_ENCODE"), String(error));
        ok(String(error.details.path).startsWith("$"));
        refused++;
        return;
      }
      deepStrictEqual(json().decode(Buffer.from(encoded)), value);
      equal++;
    }),
    { numRuns: 3000 },
  );
  ok(equal > 500 && refused > 500, `${equal} equal, ${refused} refused: both must be tried`);
});

test("json: every JSON value is taken", () => {
  fc.assert(
    fc.property(fc.jsonValue({ noUnicodeString: false }), (given) => {
      // The generator makes -0; JSON text can say it, JSON.stringify cannot.
      const value: unknown = JSON.parse(JSON.stringify(given));
      deepStrictEqual(roundTrip(json(), value), value);
    }),
    { numRuns: 1000 },
  );
});

test("json: special but fine", () => {
  const shared = { a: 1 };
  const values = [
    null,
    "",
    "half \ud800",
    "\u2028\u0000",
    { "half \ud800": 1 },
    JSON.parse('{"__proto__":{"a":1},"constructor":1,"toJSON":1}'),
    [shared, shared],
    Object.freeze({ a: [] }),
    "x".repeat(1_000_000),
    Number.MAX_VALUE,
    5e-324,
  ];
  for (const value of values) deepStrictEqual(roundTrip(json(), value), value);
  const foreign: unknown = runInNewContext("({ list: [1, { a: 'b' }] })");
  deepStrictEqual(roundTrip(json(), foreign), { list: [1, { a: "b" }] }, "plain objects of another realm are plain");
});

test("json: what JSON cannot bring back is refused, with its path", () => {
  class Point {
    x = 1;
  }
  class List extends Array {}
  refusesAt("$", undefined, /undefined/);
  refusesAt("$", Number.NaN, /NaN/);
  refusesAt("$", -0, /-0/);
  refusesAt("$", new Date(0), /a Date/);
  refusesAt("$.items[3].at", { items: [1, 2, 3, { at: new Date(0) }] }, /a Date/);
  refusesAt("$.m", { m: new Map() }, /a Map/);
  refusesAt("$.s", { s: new Set([1]) }, /a Set/);
  refusesAt("$.n", { n: 5n }, /a BigInt/);
  refusesAt("$.u", { u: undefined }, /undefined/);
  refusesAt("$[1]", [1, undefined], /undefined/);
  // biome-ignore lint/suspicious/noSparseArray: a hole is the case
  refusesAt("$[1]", [1, , 3], /undefined/);
  refusesAt("$.deep.n", { deep: { n: Number.POSITIVE_INFINITY } }, /Infinity/);
  refusesAt("$.f", { f: () => 1 }, /a function/);
  refusesAt("$.y", { y: Symbol("y") }, /a symbol/);
  refusesAt("$.p", { p: new Point() }, /a Point/);
  refusesAt("$.b", { b: Buffer.from("x") }, /a Buffer/);
  refusesAt("$.r", { r: /x/ }, /a RegExp/);
  refusesAt("$.e", { e: new Error("x") }, /an Error/);
  refusesAt("$.o", { o: Object(1) }, /a Number/);
  refusesAt("$.l", { l: List.of(1) }, /subclass of Array/);
  refusesAt("$.o", { o: Object.create(null) }, /without a prototype/);
  refusesAt("$.o", { o: Object.create({ inherited: 1 }) }, /an object/);
  refusesAt("$.match", { match: /a/.exec("a") }, /named properties/);
  refusesAt("$", { [Symbol("k")]: 1 }, /symbol keys/);
  refusesAt("$", { toJSON: () => 1 }, /a toJSON method/);
  refusesAt("$", Object.defineProperty({}, "toJSON", { value: () => 1 }), /toJSON/);
  refusesAt("$", Object.defineProperty([], "toJSON", { value: () => 1 }), /toJSON/);
  refusesAt('$["a b"]["\\n"].c', { "a b": { "\n": { c: undefined } } }, /undefined/);
});

test("json: cycles and bottomless nests are refused", () => {
  const self: Record<string, unknown> = { name: "self" };
  self.self = self;
  refusesAt("$.self", self, /contains itself/);
  const parent: { children: unknown[] } = { children: [] };
  parent.children.push({ parent });
  refusesAt("$.tree.children[0].parent", { tree: parent }, /contains itself/);
  let nest: unknown = [];
  for (let depth = 0; depth < 200_000; depth++) nest = [nest, nest];
  throws(() => json().encode(nest), { code: "ERR_ENCODE", message: /levels deep/ });
  let deep: unknown = 1;
  for (let depth = 0; depth < 1000; depth++) deep = { a: deep };
  deepStrictEqual(roundTrip(json(), deep), deep);
  throws(() => json().encode({ a: deep }), { code: "ERR_ENCODE", message: /levels deep/ });
});

test("json: an accessor that throws is an encoding error with its cause", () => {
  const cause = new Error("not now");
  const value = {
    get at(): never {
      throw cause;
    },
  };
  throws(
    () => json().encode(value),
    (error) => isVarveError(error, "ERR_ENCODE") && error.cause === cause,
  );
});
