import type { Linked } from "../api/linked-table.js";
import type { Input } from "../wire/input.js";
import type { Method } from "../wire/methods.js";

/** How the body of an answer is read. Throws what the call is then refused with. */
export type ReadAnswer<T> = (input: Input) => T;

/** What a call comes to when its caller gives it up, or its wait is over; throws what it is refused with. */
export type GiveUp<T> = (why: "aborted" | "over") => T;

/** Where the time to wait stands in the frame of a call that waits. */
const WAIT_AT = 13;

/** A call that has not been answered. */
export class Pending implements Linked<Pending> {
  readonly id: number;
  readonly method: Method;
  readonly handle: number;
  /** As it was, or will be, sent. */
  readonly frame: Buffer;
  readonly startedMs: number;
  /** When its own wait is over; undefined for calls that do not wait. */
  readonly waitEndsMs: number | undefined;
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
  readonly read: ReadAnswer<unknown>;
  readonly giveUp: GiveUp<unknown> | undefined;
  /** Of its name, if this client has named it; 0 otherwise. */
  readonly sequence: number;
  /** The connection that it was sent over; 0: none. */
  connection = 0;
  /** Its answer was lost once: it may have been carried out. */
  repeated = false;
  isAborted = false;
  /** Stops listening to the caller's signal. */
  unwatch: (() => void) | undefined;
  // For the table that it stands in.
  before: Pending | undefined;
  behind: Pending | undefined;
  inSlot: Pending | undefined;

  constructor(
    id: number,
    method: Method,
    handle: number,
    frame: Buffer,
    startedMs: number,
    waitMs: number,
    resolve: (value: never) => void,
    reject: (error: Error) => void,
    read: ReadAnswer<unknown>,
    giveUp: GiveUp<unknown> | undefined,
    sequence: number,
  ) {
    this.id = id;
    this.method = method;
    this.handle = handle;
    this.frame = frame;
    this.startedMs = startedMs;
    this.waitEndsMs = waitMs > 0 ? startedMs + waitMs : undefined;
    this.resolve = resolve;
    this.reject = reject;
    this.read = read;
    this.giveUp = giveUp;
    this.sequence = sequence;
  }

  get key(): number {
    return this.id;
  }

  /** Makes the frame say how much of the wait is left. */
  shortenWait(nowMs: number): void {
    if (this.waitEndsMs !== undefined) this.frame.writeDoubleLE(Math.max(0, this.waitEndsMs - nowMs), WAIT_AT);
  }

  answered(input: Input): void {
    this.unwatch?.();
    let value: unknown;
    try {
      value = this.read(input);
    } catch (error) {
      this.reject(error as Error);
      return;
    }
    this.resolve(value as never);
  }

  refused(error: Error): void {
    this.unwatch?.();
    this.reject(error);
  }

  /** Ends a wait as if nothing had come of it. */
  end(why: "aborted" | "over"): void {
    this.unwatch?.();
    try {
      this.resolve(this.giveUp!(why) as never);
    } catch (error) {
      this.reject(error as Error);
    }
  }
}
