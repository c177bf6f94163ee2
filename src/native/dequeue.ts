/** The call `dequeue`: made together with others of its turn where that can be, and answered by itself. */

import type { DequeueOptions, Durability, RequestIdentity } from "../api/contract.js";
import { isPlainDequeue } from "../api/options.js";
import type { GivenTask, TakesEach } from "../api/take-each.js";
import type { Take } from "../net/takes.js";
import { Kind } from "../wire/frame.js";
import type { Input } from "../wire/input.js";
import { durabilityOf, writeGivenTasks, writeTasks } from "../wire/layouts.js";
import { Methods } from "../wire/methods.js";
import type { Output } from "../wire/output.js";
import { type Connection, leaving } from "./connection.js";
import { giveBack, type Session, type Source } from "./session.js";

const COMMIT = 3;
const AUTO_ACK = 4;
const LEASE = 8;

export class Dequeue implements Take {
  readonly source: Source & Partial<TakesEach>;
  readonly max: number;
  readonly leaseMs: number | undefined;
  readonly #connection: Connection;
  readonly #session: Session;
  readonly #id: number;
  readonly #waitMs: number;
  readonly #flags: number;

  /** @param input what stands behind the name */
  constructor(connection: Connection, id: number, source: Source, waitMs: number, input: Input) {
    this.source = source;
    this.#connection = connection;
    this.#session = connection.session!;
    this.#id = id;
    this.#waitMs = waitMs;
    this.#session.received(input.u64());
    this.#flags = input.u8();
    this.max = input.u32();
    this.leaseMs = (this.#flags & LEASE) === 0 ? undefined : input.f64();
    input.end();
  }

  get autoAck(): boolean {
    return (this.#flags & AUTO_ACK) !== 0;
  }

  get durability(): Durability | undefined {
    return durabilityOf(this.#flags);
  }

  get waits(): boolean {
    return this.#waitMs > 0;
  }

  /** Whether it may be made together with others, of which none is told what is wrong with it. */
  get isPlain(): boolean {
    return isPlainDequeue(this.max, this.#waitMs, this.leaseMs, this.autoAck);
  }

  get isVain(): boolean {
    return this.#connection.isOver;
  }

  /** @param request its name */
  make(request: RequestIdentity | undefined): void {
    const { autoAck, leaseMs, max } = this;
    const lease = leaseMs === 0 ? "session" : leaseMs;
    const options: DequeueOptions & { max: number } = {
      max,
      ...(this.waits ? { wait: this.#waitMs, signal: this.#connection.waitOf(this.#id) } : {}),
      ...((this.#flags & COMMIT) === 0 ? {} : { durability: this.durability }),
      ...(autoAck ? { autoAck } : {}),
      ...(lease === undefined ? {} : { lease }),
      ...(request === undefined ? {} : { request }),
    };
    this.source.dequeueBatch(options).then(
      (tasks) => this.#answer(tasks, 0, tasks.length, writeTasks),
      (error: unknown) => this.failed(error),
    );
  }

  alone(): void {
    try {
      this.make(undefined);
    } catch (error) {
      this.#connection.refuse(error);
      this.dropped();
    }
  }

  dropped(): void {
    this.#connection.done(Methods.dequeue, this.#id);
  }

  failed(error: unknown): void {
    this.#connection.done(Methods.dequeue, this.#id);
    this.#connection.fail(this.#id, error);
  }

  told(tasks: readonly GivenTask[], from: number, to: number): void {
    this.#answer(tasks, from, to, writeGivenTasks);
  }

  #answer<T extends { readonly token: string }>(
    tasks: readonly T[],
    from: number,
    to: number,
    write: (output: Output, tasks: readonly T[], from: number, to: number) => void,
  ): void {
    const connection = this.#connection;
    const id = this.#id;
    const isVain = connection.isOver;
    // Before those who wait until the last call has ended.
    if (isVain) this.#giveBack(tasks, from, to);
    connection.done(Methods.dequeue, id);
    if (isVain) return;
    if (connection.isLeaving && this.waits && from === to) {
      connection.fail(id, leaving());
      return;
    }
    try {
      connection.output.begin(Kind.Ok, id);
      write(connection.output, tasks, from, to);
      connection.ended();
    } catch (error) {
      this.#giveBack(tasks, from, to);
      connection.fail(id, error);
      return;
    }
    if (from === to) return;
    if (this.autoAck) this.#session.deliveringDone();
    else this.#session.delivering(this.source, tokensOf(tasks, from, to), this.leaseMs === 0);
  }

  /** Nobody has them. Given out with autoAck they are done, whoever has them. */
  #giveBack(tasks: readonly { readonly token: string }[], from: number, to: number): void {
    if (from === to || this.autoAck) return;
    const tokens = tokensOf(tasks, from, to);
    // Not at once: who has given them out may be in the midst of it.
    void Promise.resolve().then(() => giveBack(this.source, tokens));
  }
}

function tokensOf(tasks: readonly { readonly token: string }[], from: number, to: number): string[] {
  return tasks.slice(from, to).map(({ token }) => token);
}
