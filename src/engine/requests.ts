/**
 * Requests that their callers may repeat: what each was answered, so that it is carried out once.
 *
 * A request is named by a producer, 16 random bytes, and a sequence number. Its name and its answer are in an operation of
 * the commit that carries it out: they become durable with it, or are lost with it. What is remembered follows from these
 * operations and the times of their entries alone, so that the log, repeated, leaves the same behind.
 *
 *   producer   sequence   settled   n { length, answer }
 *   16 bytes   varint     varint      varint  bytes        the requests with the numbers from `sequence` on
 *
 * Invariants
 * - A request that may have been carried out is never taken for a new one while its producer is known: of each producer
 *   the highest sequence number is kept whose answer has been given up, and nothing up to there is carried out again.
 * - What is remembered is bounded: in producers, in answers of each, and in bytes of all answers.
 *
 * Nothing here is put into a Map and taken out of it for every request: a Map that shrinks and grows leaves a new table each time, each of which holds
 * on to the next one and to what that held, until the oldest of the collections of memory.
 */

import { PRODUCER_BYTES } from "../api/call-name.js";
import { LinkedList } from "../api/linked-list.js";
import { type Decoder, type Encoder, latin1Text, MalformedError, VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Operation } from "./operation.js";

/** Answers that are remembered of a producer. */
export const ANSWERS_MAX = 1024;
/** Producers that are remembered: those that were heard of last. */
export const PRODUCERS_MAX = 10_000;
/** A producer that has made no change for so long, in elapsed time, is forgotten. */
export const PRODUCER_MS_MAX = 86_400_000;
/** What all answers take, about; the oldest of the producers that were not heard of for longest go. */
export const ANSWER_BYTES_MAX = 4 * 1024 * 1024;
/** Down to here, so that the search for them is a rare one. */
const ANSWER_BYTES_LEFT = ANSWER_BYTES_MAX - ANSWER_BYTES_MAX / 8;
/** What an answer takes besides its own bytes, about. */
const ANSWER_BYTES = 32;

/** The fields of an operation that names a request, without the answer. */
export const REQUEST_BYTES_MAX = PRODUCER_BYTES + 4 * VARINT_BYTES_MAX;

export interface RequestName {
  /** Its producer: the bytes, as a string of Latin-1. */
  readonly from: { readonly text: string };
  readonly sequence: number;
  /** All of the producer's requests up to this one have had their answers. */
  readonly settled: number;
}

/** Requests of one producer that follow on each other: those with the numbers from `sequence` on. */
export interface NameRun extends RequestName {
  readonly count: number;
}

/** Names in their order, as runs: those of calls that are made together mostly are one, for each producer. */
export function runsOf(names: readonly RequestName[]): NameRun[] {
  const runs: NameRun[] = [];
  for (let first = 0; first < names.length; ) {
    const { from, sequence, settled } = names[first]!;
    let count = 1;
    for (; first + count < names.length; count++) {
      const next = names[first + count]!;
      if (next.from.text !== from.text || next.sequence !== sequence + count || next.settled !== settled) break;
    }
    runs.push({ from, sequence, settled, count });
    first += count;
  }
  return runs;
}

/** A request, or several, on the way to the log with the commit that carries them out. */
export interface IdentifiedCommit {
  /** The names of them, in their order. */
  readonly runs: readonly NameRun[];
  /** Upper bound for their operations. */
  readonly bytesMax: number;
  /** Writes what the caller of one is told. Called when all else of the commit is staged. */
  encode(output: Encoder, index: number): void;
}

/** What a commit needs for the request that it carries out, if it is one that may be repeated. */
export function requestBytes(request: IdentifiedCommit | undefined): number {
  return request === undefined ? 0 : request.bytesMax;
}

interface Producer {
  /** As in the names of its requests. */
  readonly text: string;
  /** Elapsed time of its last commit. */
  usedMs: number;
  /** Of its last commit since the directory was opened; 0: there was none, and all before is durable. */
  lsn: number;
  /** The highest sequence number whose answer is not remembered any more. */
  forgotten: number;
  readonly answers: Answers;
  // Those that were heard of before and after it.
  before: Producer | undefined;
  behind: Producer | undefined;
}

/** Answers that have gone stand before the others until they are so many. */
const GONE_MAX = 32;

/** Answers of one producer, bytes as strings of Latin-1, by sequence number, in the order of their commits. */
class Answers {
  readonly #sequences: number[] = [];
  readonly #texts: string[] = [];
  /** Where the oldest one stands. */
  #start = 0;
  /** No number that was ever here is higher. */
  #highest = 0;

  get size(): number {
    return this.#sequences.length - this.#start;
  }

  /** Of the oldest one; undefined when there is none. */
  get first(): number | undefined {
    return this.#sequences[this.#start];
  }

  get(sequence: number): string | undefined {
    const index = this.#indexOf(sequence);
    return index < 0 ? undefined : this.#texts[index];
  }

  /** Whether one of so many is here. */
  hasAny(sequence: number, count: number): boolean {
    if (sequence > this.#highest) return false;
    for (let each = sequence; each < sequence + count; each++) if (this.#indexOf(each) >= 0) return true;
    return false;
  }

  add(sequence: number, text: string): void {
    if (sequence > this.#highest) this.#highest = sequence;
    this.#sequences.push(sequence);
    this.#texts.push(text);
  }

  shift(): string {
    const text = this.#texts[this.#start]!;
    this.#texts[this.#start++] = "";
    if (this.#start === this.#sequences.length) {
      this.#sequences.length = 0;
      this.#texts.length = 0;
      this.#start = 0;
    } else if (this.#start > GONE_MAX && 2 * this.#start > this.#sequences.length) {
      this.#sequences.splice(0, this.#start);
      this.#texts.splice(0, this.#start);
      this.#start = 0;
    }
    return text;
  }

  /** Returns what is gone. */
  delete(sequence: number): string | undefined {
    const index = this.#indexOf(sequence);
    if (index < 0) return undefined;
    this.#sequences.splice(index, 1);
    return this.#texts.splice(index, 1)[0];
  }

  *[Symbol.iterator](): Generator<readonly [sequence: number, text: string]> {
    for (let index = this.#start; index < this.#sequences.length; index++) {
      yield [this.#sequences[index]!, this.#texts[index]!];
    }
  }

  #indexOf(sequence: number): number {
    if (sequence > this.#highest) return -1;
    const index = this.#sequences.lastIndexOf(sequence);
    return index < this.#start ? -1 : index;
  }
}

/** A request that has not been answered yet. */
export interface RequestUnderWay {
  /** The kind of its answer. */
  readonly kind: number;
  readonly answer: Promise<unknown>;
  /** Where it stands among several that `answer` is an array for. */
  readonly index: number | undefined;
}

/** Sequence numbers that stand together: those of calls that are made together mostly follow on each other. */
const TOGETHER = 16;

/** Requests of one producer that one promise answers, of one stretch of TOGETHER numbers. */
export interface Group {
  readonly text: string;
  readonly stretch: number;
  /** A bit for each number. */
  readonly members: number;
  readonly kind: number;
  readonly answer: Promise<unknown>;
  /** `index` of the stretch's first number. */
  readonly indexFrom: number | undefined;
  /** Another one with the same place. */
  next: Group | undefined;
}

/** Places for requests under way, at first. Each may be shared by several. A power of two. */
const PLACES_MIN = 4096;
const HIGH = 2 ** 32;
/** 2^32 over the golden ratio, as an odd number. */
const GOLDEN = 0x9e3779b1;

export class RequestsUnderWay {
  readonly #salt: number;
  #places = new Array<Group | undefined>(PLACES_MIN).fill(undefined);
  #size = 0;

  /** @param salt that those who choose the names do not know, so that they cannot have all of them share a place */
  constructor(salt: number) {
    this.#salt = salt;
  }

  /** Whether one of them is here. */
  has({ from, sequence, count }: NameRun): boolean {
    for (let at = sequence; at < sequence + count; at = nextStretch(at)) {
      if (this.#groupOf(from.text, at, membersFrom(at, sequence + count)) !== undefined) return true;
    }
    return false;
  }

  find({ from, sequence }: RequestName): RequestUnderWay | undefined {
    const group = this.#groupOf(from.text, sequence, membersFrom(sequence, sequence + 1));
    if (group === undefined) return undefined;
    const { kind, answer, indexFrom } = group;
    return { kind, answer, index: indexFrom === undefined ? undefined : indexFrom + (sequence % TOGETHER) };
  }

  /**
   * @param run none of which is here
   * @param index where the first of them stands among several that `answer` is an array for
   * @param groups gets what is to be removed in the end
   */
  add(
    { from, sequence, count }: NameRun,
    kind: number,
    answer: Promise<unknown>,
    index: number | undefined,
    groups: Group[],
  ): void {
    const { text } = from;
    const end = sequence + count;
    for (let at = sequence; at < end; at = nextStretch(at)) {
      const stretch = stretchOf(at);
      const indexFrom = index === undefined ? undefined : index + stretch * TOGETHER - sequence;
      if (++this.#size > 2 * this.#places.length) this.#grow();
      const members = membersFrom(at, end);
      const group: Group = { text, stretch, members, kind, answer, indexFrom, next: undefined };
      this.#place(group);
      groups.push(group);
    }
  }

  /** @param group which is there */
  remove(group: Group): void {
    const place = this.#placeOf(group.text, group.stretch);
    let before: Group | undefined;
    for (let each = this.#places[place]; each !== group; each = each!.next) before = each;
    if (before === undefined) this.#places[place] = group.next;
    else before.next = group.next;
    // Kept by nothing that is gone.
    group.next = undefined;
    this.#size--;
  }

  /** One that has any of these members of a number's stretch. */
  #groupOf(text: string, sequence: number, members: number): Group | undefined {
    const stretch = stretchOf(sequence);
    let group = this.#places[this.#placeOf(text, stretch)];
    while (group !== undefined) {
      if (group.stretch === stretch && (group.members & members) !== 0 && group.text === text) break;
      group = group.next;
    }
    return group;
  }

  #place(group: Group): void {
    const place = this.#placeOf(group.text, group.stretch);
    group.next = this.#places[place];
    this.#places[place] = group;
  }

  #grow(): void {
    const places = this.#places;
    this.#places = new Array<Group | undefined>(4 * places.length).fill(undefined);
    for (const first of places) {
      for (let group = first; group !== undefined; ) {
        const { next } = group;
        this.#place(group);
        group = next;
      }
    }
  }

  /**
   * Mostly another one for each group: clients that go in step, as those do that share commits, have the same sequence
   * numbers.
   */
  #placeOf(text: string, stretch: number): number {
    // Of a number beyond 32 bits, all of them count.
    let mixed = stretch ^ (stretch / HIGH) ^ this.#salt;
    for (let index = 0; index < 4; index++) mixed ^= text.charCodeAt(index) << (8 * index);
    // Knuth's multiplicative hashing: the upper bits are the good ones.
    return (Math.imul(mixed, GOLDEN) >>> 8) & (this.#places.length - 1);
  }
}

function stretchOf(sequence: number): number {
  return (sequence - (sequence % TOGETHER)) / TOGETHER;
}

/** The first number behind a number's stretch. */
function nextStretch(sequence: number): number {
  return sequence - (sequence % TOGETHER) + TOGETHER;
}

/** A bit for each number from one on that is of its stretch, and below `end`. */
function membersFrom(sequence: number, end: number): number {
  const first = sequence % TOGETHER;
  const count = Math.min(TOGETHER - first, end - sequence);
  return ((1 << count) - 1) << first;
}

/** What is known of a request. */
export type Known =
  | { readonly state: "answered"; readonly answer: Buffer; readonly lsn: number }
  /** It may have been carried out. `upTo`: so may all of this producer up to there. */
  | { readonly state: "forgotten"; readonly upTo: number };

export class RequestTable {
  readonly #producers = new Map<string, Producer>();
  /** In the order in which they were last heard of. */
  readonly #heard = new LinkedList<Producer>();
  #bytes = 0;
  /** That was asked for last. */
  #asked: Producer | undefined;

  get isEmpty(): boolean {
    return this.#producers.size === 0;
  }

  /** How many producers and answers are remembered. */
  get size(): { readonly producers: number; readonly answers: number } {
    let answers = 0;
    for (const producer of this.#producers.values()) answers += producer.answers.size;
    return { producers: this.#producers.size, answers };
  }

  /** Whether one of these requests has been carried out, or may have been. */
  has({ from, sequence, count }: NameRun): boolean {
    const known = this.#known(from.text);
    return known !== undefined && (sequence <= known.forgotten || known.answers.hasAny(sequence, count));
  }

  /** Mostly the one that was asked for last: requests of a producer come several at a time. */
  #known(text: string): Producer | undefined {
    if (this.#asked?.text !== text) this.#asked = this.#producers.get(text);
    return this.#asked;
  }

  /** Undefined for a request that has not been carried out, as far as is known. */
  find({ from, sequence }: RequestName): Known | undefined {
    const known = this.#known(from.text);
    if (known === undefined) return undefined;
    const answer = known.answers.get(sequence);
    if (answer !== undefined) return { state: "answered", answer: Buffer.from(answer, "latin1"), lsn: known.lsn };
    return sequence <= known.forgotten ? { state: "forgotten", upTo: known.forgotten } : undefined;
  }

  /**
   * Requests were carried out: live, and when the log is repeated.
   * @param answers theirs, from an index on
   * @param lsn of their entry; 0 when the log is repeated
   */
  committed(
    { from, sequence, settled, count }: NameRun,
    answers: readonly string[],
    at: number,
    elapsedMs: number,
    lsn: number,
  ): void {
    const known = this.#heardOf(from.text);
    known.usedMs = elapsedMs;
    known.lsn = lsn;
    if (settled > known.forgotten) known.forgotten = settled;
    for (let index = 0; index < count; index++) this.#answered(known, sequence + index, settled, answers[at + index]!);
    this.#forgetProducers(elapsedMs);
  }

  #answered(producer: Producer, sequence: number, settled: number, answer: string): void {
    const { answers } = producer;
    // Those that were answered out of their order go when their turn comes.
    while (answers.first !== undefined && answers.first <= settled) this.#forgot(answers.shift());
    const before = answers.delete(sequence);
    if (before !== undefined) this.#forgot(before);
    answers.add(sequence, answer);
    this.#bytes += answer.length + ANSWER_BYTES;
    if (answers.size > ANSWERS_MAX) this.#giveUpOldest(producer);
    if (this.#bytes > ANSWER_BYTES_MAX) this.#shrink(producer);
  }

  #heardOf(text: string): Producer {
    const { newest } = this.#heard;
    if (newest?.text === text) return newest;
    let known = this.#known(text);
    if (known === undefined) {
      known = newProducer(text);
      this.#producers.set(text, known);
    } else {
      this.#heard.delete(known);
    }
    this.#heard.add(known);
    return known;
  }

  #forgot(answer: string): void {
    this.#bytes -= answer.length + ANSWER_BYTES;
  }

  #giveUpOldest(producer: Producer): void {
    producer.forgotten = Math.max(producer.forgotten, producer.answers.first!);
    this.#forgot(producer.answers.shift());
  }

  /** @param latest whose last answer stays */
  #shrink(latest: Producer): void {
    for (const producer of this.#heard) {
      const stays = producer === latest ? 1 : 0;
      while (producer.answers.size > stays) {
        if (this.#bytes <= ANSWER_BYTES_LEFT) return;
        this.#giveUpOldest(producer);
      }
    }
  }

  #forgetProducers(elapsedMs: number): void {
    for (let producer = this.#heard.oldest; producer !== undefined; producer = this.#heard.oldest) {
      const isOld = producer !== this.#heard.newest && elapsedMs - producer.usedMs >= PRODUCER_MS_MAX;
      if (!isOld && this.#producers.size <= PRODUCERS_MAX) return;
      while (producer.answers.size > 0) this.#forgot(producer.answers.shift());
      this.#heard.delete(producer);
      this.#producers.delete(producer.text);
      if (producer === this.#asked) this.#asked = undefined;
    }
  }

  encode(output: Encoder): void {
    output.varint(this.#producers.size);
    for (const producer of this.#heard) {
      const { text, usedMs, forgotten, answers } = producer;
      output.latin1(text);
      output.varint(usedMs);
      output.varint(forgotten);
      output.varint(answers.size);
      for (const [sequence, answer] of answers) {
        output.varint(sequence);
        output.varint(answer.length);
        output.latin1(answer);
      }
    }
  }

  /** @param input at its end where there were none */
  static decode(input: Decoder): RequestTable {
    const table = new RequestTable();
    if (input.done) return table;
    for (const { producer, usedMs, forgotten, answers } of readProducers(input)) {
      if (table.#producers.has(producer)) throw new MalformedError("a producer stands twice");
      const known = newProducer(producer);
      known.usedMs = usedMs;
      known.forgotten = forgotten;
      for (const { sequence, answer } of answers) {
        if (known.answers.get(sequence) !== undefined) throw new MalformedError("a request stands twice");
        known.answers.add(sequence, answer);
        table.#bytes += answer.length + ANSWER_BYTES;
      }
      table.#producers.set(producer, known);
      table.#heard.add(known);
    }
    return table;
  }
}

function newProducer(text: string): Producer {
  return { text, usedMs: 0, lsn: 0, forgotten: 0, answers: new Answers(), before: undefined, behind: undefined };
}

/** The producers that a snapshot lists, the one that was heard of longest ago first. */
export function readProducers(input: Decoder) {
  return Array.from({ length: input.varint() }, () => ({
    producer: input.bytes(PRODUCER_BYTES).toString("latin1"),
    usedMs: input.varint(),
    forgotten: input.varint(),
    answers: Array.from({ length: input.varint() }, () => ({
      sequence: input.varint(),
      answer: input.bytes(input.varint()).toString("latin1"),
    })),
  }));
}

/**
 * Writes the fields of an operation that names requests of a commit.
 * @param run the names of the next ones
 * @param answers of those that have been written, as the table keeps them; further ones are added
 */
export function encodeRequests(output: Encoder, request: IdentifiedCommit, run: NameRun, answers: string[]): void {
  const first = answers.length;
  const { from, sequence, settled, count } = run;
  output.latin1(from.text);
  output.varint(sequence);
  output.varint(settled);
  output.varint(count);
  for (let index = first; index < first + count; index++) {
    const at = output.framed();
    request.encode(output, index);
    const answerAt = output.endFramed(at);
    answers.push(latin1Text(output.buffer, answerAt, output.position));
  }
}

export function decodeRequests(fields: Decoder): { readonly run: NameRun; readonly answers: string[] } {
  const from = { text: fields.bytes(PRODUCER_BYTES).toString("latin1") };
  const run = { from, sequence: fields.varint(), settled: fields.varint(), count: fields.varint() };
  const answers: string[] = [];
  while (answers.length < run.count) answers.push(fields.bytes(fields.varint()).toString("latin1"));
  return { run, answers };
}

/** A change that carries out requests. */
export class IdentifiedOperation implements Operation {
  readonly durability: Operation["durability"];
  readonly #operation: Operation;
  readonly #runs: readonly NameRun[];
  readonly #answers: readonly string[];
  readonly #committed: (run: NameRun, answers: readonly string[], at: number) => void;

  /** @param committed notes that requests have been carried out, with their answers from an index on */
  constructor(
    operation: Operation,
    runs: readonly NameRun[],
    answers: readonly string[],
    committed: (run: NameRun, answers: readonly string[], at: number) => void,
  ) {
    this.durability = operation.durability;
    this.#operation = operation;
    this.#runs = runs;
    this.#answers = answers;
    this.#committed = committed;
  }

  apply(): void {
    this.#operation.apply();
    let at = 0;
    for (const run of this.#runs) {
      this.#committed(run, this.#answers, at);
      at += run.count;
    }
  }

  settle(): void {
    this.#operation.settle();
  }

  fail(error: Error): void {
    this.#operation.fail(error);
  }
}
