import { deepStrictEqual, ok, strictEqual, throws } from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { LINE_BYTES_MAX, RequestParser } from "./parser.js";
import { Refusal, type Request } from "./request.js";

interface Parsed {
  readonly requests: (Request & { body?: string })[];
  readonly refusal: string | undefined;
}

/** All that a stream of bytes says, cut into packets at the given places. */
function parse(bytes: Buffer, cuts: readonly number[] = [], bodyBytesMax = 1 << 20): Parsed {
  const parser = new RequestParser(bodyBytesMax);
  const requests: (Request & { body?: string })[] = [];
  const ends = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
  let start = 0;
  for (const end of [...ends, bytes.length]) {
    parser.feed(Buffer.from(bytes.subarray(start, end)));
    start = end;
    try {
      for (let request = parser.next(); request !== undefined; request = parser.next()) {
        requests.push(request.command === "set" ? { ...request, body: parser.body.toString("latin1") } : request);
      }
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return { requests, refusal: error.message };
    }
  }
  return { requests, refusal: undefined };
}

function refusal(text: string): string | undefined {
  return parse(Buffer.from(text, "latin1")).refusal;
}

test("a set and what stands behind it", () => {
  const { requests } = parse(Buffer.from("set a+b 7 60 5\r\nEND\r\n\r\nget a/open/t=5\r\nquit\n", "latin1"));
  deepStrictEqual(requests, [
    { command: "set", queues: ["a", "b"], expiry: 60, bytes: 5, body: "END\r\n" },
    { command: "get", queue: "a", cursor: undefined, open: true, close: false, abort: false, peek: false, waitMs: 5 },
    { command: "quit" },
  ]);
});

test("a value of no bytes is a value", () => {
  const { requests } = parse(Buffer.from("set q 0 0 0\r\n\r\nversion\r\n"));
  strictEqual(requests[0]?.body, "");
  strictEqual(requests[1]?.command, "version");
});

test("what is refused, and how", () => {
  const cases: [string, RegExp][] = [
    ["bogus q\r\n", /^ERROR Unknown command$/],
    ["\r\n", /^ERROR Unknown command$/],
    ["get\r\n", /^CLIENT_ERROR/],
    ["delete\r\n", /^CLIENT_ERROR/],
    ["get  q\r\n", /^ERROR queue/],
    ["get q/foo\r\n", /^CLIENT_ERROR Invalid command$/],
    ["get q/open/peek\r\n", /^CLIENT_ERROR/],
    ["get q/t=\r\n", /^CLIENT_ERROR/],
    ["get q/t=-1\r\n", /^CLIENT_ERROR/],
    ["get a+b\r\n", /^ERROR queue/],
    ["get q.a-b\r\n", /^ERROR cgroup/],
    ["get q.c.d\r\n", /^ERROR cgroup/],
    [`get q.${"c".repeat(101)}\r\n`, /^ERROR cgroup: name is too long$/],
    [`get ${"q".repeat(101)}\r\n`, /^ERROR queue: name is too long$/],
    ["set q 0 1\r\n", /^CLIENT_ERROR Invalid command$/],
    ["set q 0 soon 1\r\n", /^CLIENT_ERROR/],
    ["set q 0 0 -1\r\n", /^CLIENT_ERROR Invalid <bytes> number$/],
    ["set q 0 0 9223372036854775808\r\n", /^CLIENT_ERROR Invalid <bytes> number$/],
    ["set q 0 0 99999999999999\r\n", /^SERVER_ERROR/],
    ["set a++b 0 0 1\r\n", /^ERROR queue/],
    ["set q 0 0 5\r\nhelloworld\r\n", /^CLIENT_ERROR bad data chunk$/],
    ["set q 0 0 5\r\nhello\nx", /^CLIENT_ERROR bad data chunk$/],
  ];
  for (const [text, expected] of cases) ok(expected.test(refusal(text) ?? ""), `${text.trim()}: ${refusal(text)}`);
});

test("a line has a longest length, whether it ends or not", () => {
  strictEqual(refusal("x".repeat(LINE_BYTES_MAX + 1)), "CLIENT_ERROR line too long");
  strictEqual(refusal(`${"x".repeat(LINE_BYTES_MAX + 1)}\r\n`), "CLIENT_ERROR line too long");
  strictEqual(refusal("x".repeat(LINE_BYTES_MAX)), undefined);
});

test("memory follows the bytes received, not the size announced", () => {
  const parser = new RequestParser(1 << 30);
  parser.feed(Buffer.from("set q 0 0 1000000000\r\nabc"));
  strictEqual(parser.next(), undefined);
  strictEqual(parser.heldBytes, 3);
  ok(parser.midBody);
});

test("nothing goes on behind a refusal", () => {
  const parser = new RequestParser(10);
  parser.feed(Buffer.from("set q 0 0 11\r\n"));
  throws(() => parser.next(), Refusal);
});

test("the same bytes give the same requests, however they are cut into packets", () => {
  const word = fc.constantFrom(
    "get q\r\n",
    "get q.c/open/t=10\n",
    "set q 0 0 3\r\nabc\r\n",
    "set q+r 0 -1 4\r\n\r\n\r\n\r\n",
    "set q 0 0 0\r\n\r\n",
    "flush_all\r\n",
    "STATS \r\n",
    "get q/close/open\r\n",
    "dump_stats a b\r\n",
    "nonsense\r\n",
    "set q 0 0 2\r\nabc\r\n",
    "get \x00\r\n",
  );
  const bytes = fc.oneof(
    fc.array(word, { maxLength: 12 }).map((words) => Buffer.from(words.join(""), "latin1")),
    fc.uint8Array({ maxLength: 200 }).map((values) => Buffer.from(values)),
  );
  fc.assert(
    fc.property(bytes, fc.array(fc.nat({ max: 400 }), { maxLength: 40 }), (input, cuts) => {
      deepStrictEqual(parse(input, cuts), parse(input));
    }),
    { numRuns: 2000 },
  );
});
