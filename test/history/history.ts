/**
 * What clients noted down about their calls, as lines of JSON, so that a judge can say afterwards whether a queue kept its
 * promises. All times are milliseconds of one monotonic clock that all clients share.
 *
 * A call is one line, or two: the first with `call`, `invoke` and what was asked, written before the call is made, and
 * the second with `call`, `return` and what was told. A call without its second line, or cut off in it, is one whose
 * outcome is unknown. Other lines declare a queue, say what was done to a process, or are notes for people.
 */

/** `unknown`: no answer, or one that says so. It may take effect at any time after it was called, once, or never. */
export type Outcome = "ok" | "refused" | "unknown";

/**
 * A payload, by a name that no other payload sent to the same queue has. Behind a "#" may stand what else there is to
 * compare: "a7#5f3e" names the same payload as "a7", and does not equal it.
 */
export type Value = string;

export type LogEntry = readonly [offset: number, value: Value];
export type TaskEntry = readonly [id: string, value: Value, attempt: number];
export type Delivery = readonly [id: string, value: Value, attempt: number, token: string];

/** What changes something, and can stand in a transaction. What is told stands in the call alone. */
export type Part =
  | { readonly op: "append"; readonly log: string; readonly values: readonly Value[] }
  | {
      readonly op: "enqueue";
      readonly queue: string;
      readonly values: readonly Value[];
      readonly dedupe?: readonly (string | null)[];
      readonly delayMs?: number;
    }
  | { readonly op: "ack"; readonly queue: string; readonly tokens: readonly string[] }
  | { readonly op: "release"; readonly queue: string; readonly tokens: readonly string[] }
  /** `dead`: asks for a dead letter at once. */
  | {
      readonly op: "nack";
      readonly queue: string;
      readonly token: string;
      readonly delayMs?: number;
      readonly bury?: boolean;
    }
  /** Moves a group's position behind the record at `upTo`. */
  | {
      readonly op: "commit";
      readonly log: string;
      readonly group: string;
      readonly member: string;
      readonly upTo: number;
    };

export type Deed =
  | (Part & {
      /** Of an append. */
      readonly offsets?: readonly number[];
      /** Of an enqueue. */
      readonly ids?: readonly string[];
      readonly created?: readonly boolean[];
      /** Of a nack: the task is a dead letter now. */
      readonly dead?: boolean;
    })
  | { readonly op: "transaction"; readonly parts: readonly Part[] }
  // Logs.
  | { readonly op: "read"; readonly log: string; readonly offset: number; readonly value?: Value | null }
  /** What one reader was given next; of its first call, `from` says where it began. */
  | {
      readonly op: "tail";
      readonly log: string;
      readonly reader: string;
      readonly from?: "start" | "end" | number;
      readonly records?: readonly LogEntry[];
    }
  /** Everything from an offset on. */
  | { readonly op: "scan"; readonly log: string; readonly from: number; readonly records?: readonly LogEntry[] }
  | { readonly op: "trim"; readonly log: string; readonly offset: number }
  // Groups.
  | {
      readonly op: "join";
      readonly log: string;
      readonly group: string;
      readonly member: string;
      readonly from: "start" | "end" | number;
    }
  | {
      readonly op: "fetch";
      readonly log: string;
      readonly group: string;
      readonly member: string;
      readonly records?: readonly LogEntry[];
    }
  | {
      readonly op: "seek";
      readonly log: string;
      readonly group: string;
      readonly member: string;
      readonly offset: number;
    }
  | {
      readonly op: "position";
      readonly log: string;
      readonly group: string;
      readonly committed?: number;
      readonly lag?: number;
    }
  // Task queues. `leaseMs` is the queue's own unless given.
  | {
      readonly op: "dequeue";
      readonly queue: string;
      readonly max: number;
      readonly leaseMs?: number;
      readonly tasks?: readonly Delivery[];
    }
  | { readonly op: "extend"; readonly queue: string; readonly token: string; readonly leaseMs: number }
  /** All dead letters. */
  | { readonly op: "letters"; readonly queue: string; readonly letters?: readonly TaskEntry[] }
  | { readonly op: "redrive"; readonly queue: string; readonly ids: readonly string[] }
  /** All tasks that are not done, and all dead letters, listed while nobody else used the queue. */
  | {
      readonly op: "contents";
      readonly queue: string;
      readonly tasks?: readonly TaskEntry[];
      readonly letters?: readonly TaskEntry[];
    }
  /** The numbers that `stats` gave, of a log or of a task queue. */
  | {
      readonly op: "stats";
      readonly log?: string;
      readonly queue?: string;
      readonly stats?: Readonly<Record<string, number | null>>;
    };

export type Call = Deed & {
  readonly client: string;
  readonly invoke: number;
  /** Infinity when there was no answer. */
  readonly return: number;
  readonly outcome: Outcome;
  /** Of an error. */
  readonly code?: string;
};

/** The rules of a task queue. */
export interface Declared {
  readonly declare: string;
  readonly leaseMs: number;
  /** @defaultValue any number */
  readonly maxAttempts?: number;
  /** Longest wait before another attempt, of a nack that does not say. @defaultValue 0 */
  readonly backoffMs?: number;
  /** How long a dedupe key stands for its first task. @defaultValue 10 minutes */
  readonly dedupeMs?: number;
}

/** What was done to a process. The daemon is "daemon"; any other name is that of a client, or the beginning of several. */
export interface Fault {
  /** From "kill" to "start", and from "pause" to "resume", it answers nobody. */
  readonly fault: "kill" | "start" | "pause" | "resume";
  readonly whom: string;
  readonly at: number;
}

export interface History {
  /** By the time of the call. */
  readonly calls: readonly Call[];
  readonly queues: ReadonlyMap<string, Declared>;
  /** By time. */
  readonly faults: readonly Fault[];
}

type Line = Partial<Call & Declared & Fault> & { readonly call?: number; readonly note?: string };

/** Puts a history together from lines, which may be those of several files one after another, or from what recorders write. */
export class HistoryReader {
  readonly #calls: Call[] = [];
  readonly #queues = new Map<string, Declared>();
  readonly #faults: Fault[] = [];
  /** Calls that have not returned yet. */
  readonly #open = new Map<string, Line>();

  /**
   * @param last whether nothing followed it in its file: such a line may be cut off, as its writer was killed
   * @throws Error when it is no line of a history
   */
  line(text: string, last = false): void {
    if (text === "") return;
    let line: Line;
    try {
      line = JSON.parse(text) as Line;
    } catch (error) {
      if (last) return;
      throw new Error(`no line of a history: ${text.slice(0, 200)}`, { cause: error });
    }
    try {
      this.write(line);
    } catch (error) {
      throw new Error(`no line of a history: ${text.slice(0, 200)}`, { cause: error });
    }
  }

  /** What a line says, for those who note down what they do without a file. */
  write(note: object): void {
    const line = note as Line;
    if (line.note !== undefined) return;
    if (line.declare !== undefined) this.#queues.set(line.declare, line as Declared);
    else if (line.fault !== undefined) this.#faults.push(line as Fault);
    else if (line.client === undefined) throw new Error("it says nothing");
    else if (line.call === undefined) this.#whole(line);
    else this.#half(line, `${line.client} ${line.call}`);
  }

  end(): History {
    for (const line of this.#open.values()) this.#whole(line);
    this.#open.clear();
    this.#calls.sort((a, b) => a.invoke - b.invoke);
    this.#faults.sort((a, b) => a.at - b.at);
    return { calls: this.#calls, queues: this.#queues, faults: this.#faults };
  }

  #half(line: Line, name: string): void {
    if (line.invoke !== undefined && line.return === undefined) {
      this.#open.set(name, { ...line });
      return;
    }
    const asked = this.#open.get(name);
    if (asked === undefined) throw new Error(`call ${name} returned before it was made`);
    this.#open.delete(name);
    // The call itself takes the answer on: a copy of each would cost a long history twice its memory.
    this.#whole(Object.assign(asked, line));
  }

  #whole(line: Line): void {
    const { return: returned = Number.POSITIVE_INFINITY, outcome = "unknown" } = line;
    this.#calls.push(Object.assign(line, { return: returned, outcome }) as Call);
  }
}

/** A history that is there as a whole, such as one that a test writes down. */
export function parseHistory(text: string): History {
  const reader = new HistoryReader();
  const lines = text.split("\n");
  for (const [index, line] of lines.entries()) reader.line(line, index === lines.length - 1);
  return reader.end();
}
