/**
 * What the server knows of one client, over all its connections. It outlives a lost connection for a while, so that a client
 * that comes back finds its handles, and keeps what it holds "for the session".
 *
 * Invariants
 * - At most one connection serves a session.
 * - A delivery whose answer the client may not have received is remembered until a later call says that it has.
 */

import { createHash } from "node:crypto";
import { Producer } from "../api/call-name.js";
import type { GroupMember, LogQueue, QueueKind, SharedGroup, TaskCursor, TaskQueue, TaskRef } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { ID_BYTES } from "../wire/hello.js";
import type { Principal } from "./access.js";
import type { ServedMember } from "./member.js";

/** What a client may keep open. */
const HANDLES_MAX = 65_536;

/** What hands out tasks, as far as all of them do. */
export type Source = Pick<TaskCursor, "dequeueBatch" | "ack" | "ackBatch" | "peek"> & {
  release(tasks: TaskRef | readonly TaskRef[]): Promise<void>;
};

/** Something that a client has opened. */
export type Handle = { readonly kind: QueueKind; readonly queue: string } & (
  | { readonly type: "log"; readonly object: LogQueue }
  | { readonly type: "task"; readonly object: TaskQueue }
  | { readonly type: "member"; readonly object: GroupMember; readonly served: ServedMember }
  | { readonly type: "group"; readonly object: SharedGroup }
  | { readonly type: "cursor"; readonly object: TaskCursor }
);

interface Delivery {
  readonly number: number;
  readonly source: Source;
  readonly tokens: readonly string[];
}

export class Session {
  readonly id: Buffer;
  readonly clientId: Uint8Array;
  /** As it was let in last. */
  principal: Principal;
  /** The user that alone makes calls under these names; undefined: there are no users. */
  readonly #user: string | undefined;
  readonly #producer: Producer;
  readonly #handles = new Map<number, Handle>();
  /** Tokens of leases without a time limit, and whose tasks they are. */
  readonly #held = new Map<string, Source>();
  #deliveries: Delivery[] = [];
  #delivered = 0;

  /** @param hasUsers whether others may be somebody else */
  constructor(id: Buffer, clientId: Uint8Array, principal: Principal, hasUsers: boolean) {
    this.id = id;
    this.clientId = clientId;
    this.principal = principal;
    this.#user = hasUsers ? principal.name : undefined;
    this.#producer = this.producerOf(clientId);
  }

  /**
   * By whose name a call is known that this client makes. Where there are users, nobody is answered what another one was, or
   * has a call of another one taken for a repeated one, whatever id he claims: a producer is a user's own.
   * @param id undefined: this client's own
   */
  producerOf(id: Uint8Array | undefined): Producer {
    if (id === undefined) return this.#producer;
    // What is no id is the contract's to refuse.
    if (this.#user === undefined || id.length !== ID_BYTES) return new Producer(id);
    return new Producer(createHash("sha256").update(this.#user).update(id).digest().subarray(0, ID_BYTES));
  }

  // ------------------------------------------------------------------------------------------------------- handles

  /** @throws VarveError `ERR_OVERLOADED` */
  keep(id: number, handle: Handle): void {
    if (this.#handles.size >= HANDLES_MAX && !this.#handles.has(id)) {
      void closeHandle(handle);
      throw new VarveError(
        "ERR_OVERLOADED",
        `a client may have ${HANDLES_MAX} queues, groups and cursors open at once`,
      );
    }
    this.#handles.set(id, handle);
  }

  /** @throws VarveError `ERR_NOT_FOUND` */
  handle(id: number): Handle {
    const handle = this.#handles.get(id);
    if (handle === undefined) throw new VarveError("ERR_NOT_FOUND", `there is nothing open under the handle ${id}`);
    return handle;
  }

  /** Whether there is a member of that group under the handle: a client that comes back goes on with it. */
  isMember(id: number, queue: string, group: string): boolean {
    const handle = this.#handles.get(id);
    return handle?.type === "member" && handle.queue === queue && handle.object.name === group;
  }

  async leave(id: number): Promise<void> {
    const handle = this.#handles.get(id);
    this.#handles.delete(id);
    if (handle !== undefined) await closeHandle(handle);
  }

  // ---------------------------------------------------------------------------------------------------- deliveries

  /** Tasks are about to be sent, under leases. */
  delivering(source: Source, tokens: readonly string[], whileSession: boolean): void {
    this.#deliveries.push({ number: ++this.#delivered, source, tokens });
    if (whileSession) for (const token of tokens) this.#held.set(token, source);
  }

  /** An answer with tasks that are done is about to be sent: nothing of it is given back. */
  deliveringDone(): void {
    this.#delivered++;
  }

  /** The client has received so many deliveries. */
  received(count: number): void {
    let index = 0;
    while (index < this.#deliveries.length && this.#deliveries[index]!.number <= count) index++;
    if (index > 0) this.#deliveries.splice(0, index);
  }

  /** The client is back, and has received so many: the others were lost on their way. */
  async giveBackLost(received: number): Promise<void> {
    this.received(received);
    const lost = this.#deliveries;
    this.#deliveries = [];
    this.#delivered = received;
    for (const { source, tokens } of lost.reverse()) {
      for (const token of tokens) this.#held.delete(token);
      await giveBack(source, tokens);
    }
  }

  /** The lease of a token has been settled, or has an end now. */
  settled(token: string): void {
    if (this.#held.size > 0) this.#held.delete(token);
  }

  // ----------------------------------------------------------------------------------------------------------- ends

  /** Nobody reads in a group for this client any more. */
  async leaveGroups(): Promise<void> {
    for (const [id, handle] of this.#handles) {
      if (handle.type !== "member") continue;
      this.#handles.delete(id);
      await closeHandle(handle);
    }
  }

  /** The client will not come back: what it held for the session is given back, in its order. */
  async end(): Promise<void> {
    const held = new Map<Source, string[]>();
    for (const [token, source] of this.#held) {
      const tokens = held.get(source);
      if (tokens === undefined) held.set(source, [token]);
      else tokens.push(token);
    }
    this.#held.clear();
    this.#deliveries = [];
    for (const [source, tokens] of held) await giveBack(source, tokens);
    const handles = [...this.#handles.values()];
    this.#handles.clear();
    for (const handle of handles) await closeHandle(handle);
  }
}

/** Gives tasks back undone, so that they come again in their order. What is settled already is left alone. */
export async function giveBack(source: Source, tokens: readonly string[]): Promise<void> {
  const lastFirst = tokens.toReversed();
  try {
    await source.release(lastFirst);
  } catch {
    // One that is settled refuses them all.
    for (const token of lastFirst) await source.release(token).catch(() => {});
  }
}

async function closeHandle(handle: Handle): Promise<void> {
  if (handle.type === "member" || handle.type === "group") await handle.object.close().catch(() => {});
}
