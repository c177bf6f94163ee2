/**
 * One request line of the Kestrel protocol, understood: which command, on what, with which suffixes. Pure text in, a
 * request or a refusal out; nothing here knows a queue. The grammar is in docs/kestrel.md.
 */

/** Refuses a request: the line is the reply, and the connection ends after it. */
export class Refusal extends Error {
  override readonly name = "Refusal";
}

/** What a `get` is about: a queue, or a cursor on it, and what to do there. */
export interface GetRequest {
  readonly command: "get";
  readonly queue: string;
  readonly cursor: string | undefined;
  readonly open: boolean;
  readonly close: boolean;
  readonly abort: boolean;
  readonly peek: boolean;
  /** 0: answer at once. */
  readonly waitMs: number;
}

export interface SetRequest {
  readonly command: "set";
  /** One copy goes to each; a name may stand twice. */
  readonly queues: readonly string[];
  /** Seconds as they were sent: 0 never, below a million from now, else since 1970. */
  readonly expiry: number;
  readonly bytes: number;
}

/** `delete` and `flush` of a queue, or of a cursor on it. */
export interface NamedRequest {
  readonly command: "delete" | "flush";
  readonly queue: string;
  readonly cursor: string | undefined;
}

export interface QueueRequest {
  readonly command: "flush_expired";
  readonly queue: string;
}

export interface DumpRequest {
  readonly command: "dump_stats";
  /** All queues when there are none. */
  readonly queues: readonly string[];
}

export interface PlainRequest {
  readonly command: "flush_all" | "flush_all_expired" | "stats" | "version" | "quit";
}

export type Request = GetRequest | SetRequest | NamedRequest | QueueRequest | DumpRequest | PlainRequest;

const INVALID_COMMAND = "CLIENT_ERROR Invalid command";
const UNKNOWN_COMMAND = "ERROR Unknown command";
export const BAD_CHUNK = "CLIENT_ERROR bad data chunk";
export const CLOSE_FIRST = "CLIENT_ERROR Close current item first";
export const LINE_TOO_LONG = "CLIENT_ERROR line too long";
export const UNEXPECTED_END = "ERROR unexpected EOF";

const NAME_LENGTH_MAX = 100;
/** Longest wait of a read; what asks for more waits this long. A platform timer holds 2^31 - 1 ms. */
const WAIT_MS_MAX = 24 * 86_400_000;
/** Queues that one `set` may name. */
const FAN_OUT_MAX = 100;
/** Of `get`, stray slashes included. */
const SUFFIXES_MAX = 8;
const PLAIN = new Set(["flush_all", "flush_all_expired", "stats", "version", "quit"]);

/** Lines understood before: clients say the same ones again and again. */
const known = new Map<string, Request>();
const KNOWN_MAX = 4096;
/** Longer ones are understood anew each time: what is kept must be small. */
const KNOWN_LENGTH_MAX = 128;

/**
 * The same line may give the same object.
 * @param line without its line end; each character is one byte
 * @throws Refusal
 */
export function parseRequest(line: string): Request {
  const found = known.get(line);
  if (found !== undefined) return found;
  const request = understand(line);
  if (line.length > KNOWN_LENGTH_MAX) return request;
  if (known.size >= KNOWN_MAX) known.clear();
  known.set(line, request);
  return request;
}

function understand(line: string): Request {
  const words = trimSpaces(line).split(" ");
  const command = words[0]!;
  switch (command === "get" || command === "set" ? command : command.toLowerCase()) {
    case "get":
    case "gets":
      return parseGet(words[1]);
    case "set":
      return parseSet(words);
    case "delete":
      return parseNamed("delete", words[1]);
    case "flush":
      return parseNamed("flush", words[1]);
    case "flush_expired":
      return { command: "flush_expired", queue: checkQueue(needed(words[1])) };
    case "dump_stats":
      return { command: "dump_stats", queues: words.slice(1).filter((word) => word !== "") };
    default: {
      const lower = command.toLowerCase();
      if (PLAIN.has(lower)) return { command: lower } as PlainRequest;
      throw new Refusal(UNKNOWN_COMMAND);
    }
  }
}

function parseGet(target: string | undefined): GetRequest {
  const [name = "", ...suffixes] = needed(target).split("/", SUFFIXES_MAX + 2);
  if (suffixes.length > SUFFIXES_MAX) throw new Refusal(INVALID_COMMAND);
  let open = false;
  let close = false;
  let abort = false;
  let peek = false;
  let waitMs = 0;
  for (const suffix of suffixes) {
    if (suffix === "open") open = true;
    else if (suffix === "close") close = true;
    else if (suffix === "abort") abort = true;
    else if (suffix === "peek") peek = true;
    else if (suffix.startsWith("t=")) waitMs = parseWait(suffix.slice(2));
    else if (suffix !== "") throw new Refusal(INVALID_COMMAND);
  }
  if ((peek && (open || close || abort)) || (abort && (open || close))) throw new Refusal(INVALID_COMMAND);
  return { command: "get", ...parseName(name), open, close, abort, peek, waitMs };
}

/** Whether it does no more than remove the head of a queue and give it. */
export function isPlainGet(request: Request): request is GetRequest {
  if (request.command !== "get" || request.cursor !== undefined || request.waitMs > 0) return false;
  return !(request.open || request.close || request.abort || request.peek);
}

function parseWait(digits: string): number {
  if (!/^\d+$/.test(digits)) throw new Refusal(INVALID_COMMAND);
  return Math.min(Number(digits), WAIT_MS_MAX);
}

function parseSet(words: readonly string[]): SetRequest {
  if (words.length < 5 || words.length > 6) throw new Refusal(INVALID_COMMAND);
  const queues = words[1]!.split("+", FAN_OUT_MAX + 1).map(checkQueue);
  if (queues.length > FAN_OUT_MAX) throw new Refusal(INVALID_COMMAND);
  const [, , , expiry, bytes] = words as [string, string, string, string, string];
  // Flags (the third word) are neither looked at nor kept.
  if (!/^[+-]?\d{1,15}$/.test(expiry)) throw new Refusal(INVALID_COMMAND);
  if (!/^\+?\d{1,15}$/.test(bytes)) throw new Refusal("CLIENT_ERROR Invalid <bytes> number");
  return { command: "set", queues, expiry: Number(expiry), bytes: Number(bytes) };
}

function parseNamed(command: "delete" | "flush", name: string | undefined): NamedRequest {
  return { command, ...parseName(needed(name)) };
}

function needed(word: string | undefined): string {
  if (word === undefined) throw new Refusal(INVALID_COMMAND);
  return word;
}

/** `queue` or `queue.cursor`; `queue.` is the queue. */
function parseName(name: string): { queue: string; cursor: string | undefined } {
  const [first = "", cursor = "", ...more] = name.split(".", 3);
  const queue = checkQueue(first);
  if (more.length > 0) throw new Refusal("ERROR cgroup: name is not alphanumeric");
  if (cursor === "") return { queue, cursor: undefined };
  if (!/^\w+$/.test(cursor)) throw new Refusal("ERROR cgroup: name is not alphanumeric");
  if (cursor.length > NAME_LENGTH_MAX) throw new Refusal("ERROR cgroup: name is too long");
  return { queue, cursor: copy(cursor) };
}

function checkQueue(name: string): string {
  if (!/^[\w:-]+$/.test(name)) throw new Refusal("ERROR queue: name is not alphanumeric");
  if (name.length > NAME_LENGTH_MAX) throw new Refusal("ERROR queue: name is too long");
  return copy(name);
}

/** Names are kept, and a part of a string keeps all of it in memory: here, a line that may be long. */
function copy(name: string): string {
  return Buffer.from(name, "latin1").toString("latin1");
}

/** Without the spaces at both ends. A tab is a character like any other. */
function trimSpaces(line: string): string {
  let start = 0;
  let end = line.length;
  while (start < end && isBlank(line.charCodeAt(start))) start++;
  while (end > start && isBlank(line.charCodeAt(end - 1))) end--;
  return start === 0 && end === line.length ? line : line.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x0d;
}
