import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import { Decoder, Encoder, MalformedError } from "../storage/bytes.js";
import {
  ANSWER_BYTES_MAX,
  ANSWERS_MAX,
  decodeRequests,
  encodeRequests,
  type Group,
  type IdentifiedCommit,
  type NameRun,
  PRODUCER_MS_MAX,
  PRODUCERS_MAX,
  type RequestName,
  RequestsUnderWay,
  RequestTable,
  runsOf,
} from "./requests.js";

const A = "a".repeat(16);
const B = "b".repeat(16);

function encoded(table: RequestTable): Buffer {
  const output = new Encoder(64);
  table.encode(output);
  return Buffer.from(output.view());
}

function nameOf(producer: string, sequence: number, settled = 0): RequestName {
  return { from: { text: producer }, sequence, settled };
}

function runOf(producer: string, sequence: number, count = 1, settled = 0): NameRun {
  return { ...nameOf(producer, sequence, settled), count };
}

/** What the table says of a request: its answer, "forgotten", or "new". */
function ask(table: RequestTable, producer: string, sequence: number): string {
  const known = table.find(nameOf(producer, sequence));
  if (known === undefined) return "new";
  return known.state === "answered" ? known.answer.toString("latin1") : "forgotten";
}

function commit(
  table: RequestTable,
  producer: string,
  sequence: number,
  answer = `${sequence}`,
  atMs = 0,
  settled = 0,
) {
  table.committed(runOf(producer, sequence, 1, settled), [answer], 0, atMs, 1);
}

describe("requests", () => {
  test("answers are kept by producer and sequence, as bytes", () => {
    const table = new RequestTable();
    commit(table, A, 1, "\u0000\u00ff");
    commit(table, A, 3, "three");
    assert.equal(ask(table, A, 1), "\u0000\u00ff");
    assert.equal(ask(table, A, 3), "three");
    assert.equal(ask(table, A, 2), "new", "one that was overtaken is still to come");
    assert.equal(ask(table, B, 1), "new");
  });

  test("of each producer the last answers are kept, and nothing older is taken for new", () => {
    const table = new RequestTable();
    for (let sequence = 1; sequence <= ANSWERS_MAX + 3; sequence++) commit(table, A, sequence);
    assert.deepEqual(
      [1, 3, 4, ANSWERS_MAX + 3, ANSWERS_MAX + 4].map((sequence) => ask(table, A, sequence)),
      ["forgotten", "forgotten", "4", `${ANSWERS_MAX + 3}`, "new"],
    );
    assert.deepEqual(table.size, { producers: 1, answers: ANSWERS_MAX });
  });

  test("what is settled makes room at once", () => {
    const table = new RequestTable();
    for (let sequence = 1; sequence <= 10; sequence++) commit(table, A, sequence);
    commit(table, A, 11, "11", 0, 9);
    assert.equal(table.size.answers, 2);
    assert.deepEqual(
      [9, 10, 11].map((sequence) => ask(table, A, sequence)),
      ["forgotten", "10", "11"],
    );
  });

  test("a late settled mark does not take back an earlier one", () => {
    const table = new RequestTable();
    commit(table, A, 5, "5", 0, 4);
    commit(table, A, 6, "6", 0, 0);
    assert.equal(ask(table, A, 4), "forgotten");
  });

  test("producers are bounded: those that were not heard of for longest go", () => {
    const table = new RequestTable();
    const name = (index: number) => String(index).padStart(16, "0");
    for (let index = 0; index < PRODUCERS_MAX; index++) commit(table, name(index), 1);
    commit(table, name(0), 2);
    commit(table, A, 1);
    assert.equal(table.size.producers, PRODUCERS_MAX);
    assert.deepEqual([ask(table, name(0), 1), ask(table, name(1), 1), ask(table, name(2), 1)], ["1", "new", "1"]);
  });

  test("a producer that makes no change for a day is forgotten, when another one does", () => {
    const table = new RequestTable();
    commit(table, A, 1, "1", 0);
    commit(table, B, 1, "1", 10);
    commit(table, B, 2, "2", PRODUCER_MS_MAX - 1);
    assert.equal(ask(table, A, 1), "1");
    commit(table, B, 3, "3", PRODUCER_MS_MAX);
    assert.equal(ask(table, A, 1), "new");
    assert.equal(ask(table, B, 1), "1");
  });

  test("bytes are bounded over all producers, the newest answer stays, and no request is taken for new", () => {
    const table = new RequestTable();
    const large = "x".repeat(64 * 1024);
    const fit = ANSWER_BYTES_MAX / large.length;
    for (let sequence = 1; sequence <= 3; sequence++) commit(table, A, sequence, large);
    for (let sequence = 1; sequence <= 2 * fit; sequence++) commit(table, B, sequence, large);
    assert.equal(ask(table, A, 3), "forgotten");
    assert.equal(ask(table, B, 1), "forgotten");
    assert.equal(ask(table, B, 2 * fit), large);
    assert.ok(encoded(table).length <= ANSWER_BYTES_MAX);
    commit(table, A, 4, "y".repeat(2 * ANSWER_BYTES_MAX));
    assert.equal(table.size.answers, 1, "one that is larger than all is kept alone");
  });

  test("a snapshot brings back the same, its order and bounds included", () => {
    const table = new RequestTable();
    for (let sequence = 1; sequence <= ANSWERS_MAX + 3; sequence++) commit(table, A, sequence, `${sequence}`, sequence);
    commit(table, B, 7, "seven", 5000, 6);
    const bytes = encoded(table);
    const copy = RequestTable.decode(new Decoder(bytes));
    assert.deepEqual(encoded(copy), bytes);
    for (const each of [table, copy]) {
      commit(each, A, 5000, "x", PRODUCER_MS_MAX + 5000);
    }
    assert.deepEqual(encoded(copy), encoded(table));
    assert.equal(ask(copy, B, 7), "new");
  });

  test("a snapshot from before there were requests has none, and one that makes no sense is refused", () => {
    assert.equal(RequestTable.decode(new Decoder(Buffer.alloc(0))).isEmpty, true);
    const table = new RequestTable();
    commit(table, A, 1);
    const twice = Buffer.concat([Buffer.of(2), encoded(table).subarray(1), encoded(table).subarray(1)]);
    assert.throws(() => RequestTable.decode(new Decoder(twice)), MalformedError);
    assert.throws(() => RequestTable.decode(new Decoder(encoded(table).subarray(0, 20))), MalformedError);
  });
});

test("requests under way with one number, of several producers, are told apart", () => {
  const underWay = new RequestsUnderWay(7);
  // The first three have the same place, as numbers that are far apart may have.
  const names = [
    ...["1", "2"].map((last) => nameOf(`${A.slice(1)}${last}`, 7)),
    nameOf(`${A.slice(1)}1`, 7 + 2 ** 30),
    nameOf(B, 7),
  ];
  const found = () => names.map((name) => underWay.find(name)?.kind);
  const groups: Group[] = [];
  for (const [kind, name] of names.entries()) {
    underWay.add({ ...name, count: 1 }, kind, Promise.resolve(), undefined, groups);
  }
  assert.deepEqual(found(), [0, 1, 2, 3]);
  assert.equal(underWay.has(runOf(B, 8)), false);
  underWay.remove(groups[1]!);
  assert.deepEqual(found(), [0, undefined, 2, 3]);
  underWay.remove(groups[2]!);
  assert.deepEqual(found(), [0, undefined, undefined, 3]);
  underWay.remove(groups[0]!);
  underWay.remove(groups[3]!);
  assert.deepEqual(found(), [undefined, undefined, undefined, undefined]);
});

test("requests that one promise answers are found by their numbers, and end together", () => {
  const underWay = new RequestsUnderWay(7);
  const names = Array.from({ length: 50 }, (_, index) => nameOf(A, 10 + index));
  const indexes = names.map((_, index) => index);
  const together = Promise.resolve();
  const groups: Group[] = [];
  underWay.add(runOf(A, 10, 50), 1, together, 0, groups);
  assert.equal(groups.length, 4, "numbers that stand together are one");
  const alone = Promise.resolve();
  const others: Group[] = [];
  underWay.add(runOf(A, 9), 2, alone, undefined, others);
  underWay.add(runOf(B, 10), 1, together, 50, []);
  // Runs that have one in common with it, at either end, and those that do not.
  for (const [sequence, count] of [
    [40, 1],
    [59, 40],
    [1, 9],
    [5, 100],
    [1, 32],
  ] as const) {
    assert.equal(underWay.has(runOf(A, sequence, count)), true, `${sequence}`);
  }
  for (const [sequence, count] of [
    [60, 1],
    [60, 40],
    [1, 8],
    [8, 1],
    [2 ** 53 - 2, 2],
  ] as const) {
    assert.equal(underWay.has(runOf(A, sequence, count)), false, `${sequence}`);
  }
  const found = () => names.map((name) => underWay.find(name)?.index);
  assert.deepEqual(found(), indexes);
  assert.deepEqual(underWay.find(nameOf(A, 9)), { kind: 2, answer: alone, index: undefined });
  assert.deepEqual(underWay.find(nameOf(B, 10)), { kind: 1, answer: together, index: 50 });
  for (const group of others) underWay.remove(group);
  assert.equal(underWay.has(runOf(A, 9)), false);
  assert.deepEqual(found(), indexes);
  for (const group of groups) underWay.remove(group);
  assert.equal(underWay.has(runOf(A, 1, 100)), false);
  assert.equal(underWay.find(nameOf(B, 10))?.index, 50);
});

test("requests that follow on each other are one operation, whatever their answers", () => {
  const names = [nameOf(A, 1, 0), nameOf(A, 2, 0), nameOf(A, 3, 0), nameOf(A, 4, 1), nameOf(A, 6, 1), nameOf(B, 7, 1)];
  const answers = names.map((_, index) => `${index}`.repeat([1, 500, 0, 127, 128, 20_000][index]!));
  const request: IdentifiedCommit = {
    runs: runsOf(names),
    bytesMax: 0,
    encode: (output, index) => output.latin1(answers[index]!),
  };
  const told: string[] = [];
  const decoded = request.runs.map((run) => {
    const output = new Encoder(16);
    encodeRequests(output, request, run, told);
    return decodeRequests(new Decoder(output.view()));
  });
  assert.deepEqual(told, answers);
  assert.deepEqual(
    decoded.map(({ run }) => run),
    [runOf(A, 1, 3), runOf(A, 4, 1, 1), runOf(A, 6, 1, 1), runOf(B, 7, 1, 1)],
  );
  assert.deepEqual(
    decoded.flatMap((operation) => operation.answers),
    answers,
  );
});

test("a run of requests is remembered as if they had been carried out one by one", () => {
  const together = new RequestTable();
  const alone = new RequestTable();
  let number = 0;
  for (const [producer, sequence, count, settled] of [
    [A, 1, 20, 0],
    [B, 5, 3, 2],
    [A, 30, 5, 12],
    [A, 25, 8, 12],
    [A, 100, ANSWERS_MAX, 31],
    [B, 8, 2, 7],
  ] as const) {
    const answers = Array.from({ length: count + 2 }, () => `${number++}`);
    const run = runOf(producer, sequence, count, settled);
    assert.equal(together.has(run), sequence === 25, `${sequence}`);
    together.committed(run, answers, 2, number, 1);
    for (let index = 0; index < count; index++) {
      alone.committed(runOf(producer, sequence + index, 1, settled), answers, 2 + index, number, 1);
    }
    assert.deepEqual(encoded(together), encoded(alone));
  }
  assert.equal(together.has(runOf(A, 90, 11)), true);
  assert.equal(together.has(runOf(A, 31)), true, "it has been settled");
  assert.equal(together.has(runOf(A, 100 + ANSWERS_MAX, 100)), false);
});

test("requests of many producers that count in step are found at once", () => {
  const underWay = new RequestsUnderWay(7);
  let looks = 0;
  const names = Array.from({ length: 2000 }, () => {
    const producer = randomBytes(16).toString("latin1");
    return {
      get from() {
        looks++;
        return { text: producer };
      },
      sequence: 1,
      settled: 0,
    };
  });
  const groups: Group[] = [];
  for (const [kind, name] of names.entries()) {
    underWay.add(Object.assign(Object.create(name), { count: 1 }), kind, Promise.resolve(), undefined, groups);
  }
  for (const [kind, name] of names.entries()) assert.equal(underWay.find(name)?.kind, kind);
  for (const group of groups) underWay.remove(group);
  assert.ok(looks < 20 * names.length, `${looks} looks at the names of ${names.length}`);
});
