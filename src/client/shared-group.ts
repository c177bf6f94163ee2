import type { Codec } from "../api/codec.js";
import type {
  CommitOptions,
  GroupInfo,
  Handler,
  LogPosition,
  SharedGroup,
  Worker,
  WorkOptions,
} from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { resolveCommitOptions, resolvePosition } from "../api/options.js";
import { Methods } from "../wire/methods.js";
import type { Handle } from "./handle.js";
import type { Link } from "./link.js";
import { DialledDeadLetters, DialledSource } from "./source.js";
import { type ClientPlatform, workAt } from "./work.js";

/** What a worker leases for where the group's own lease is not known. */
const LEASE_MS = 30_000;

/** A member of a shared group of a daemon's log. */
export class DialledSharedGroup<O> extends DialledSource<O> implements SharedGroup<O> {
  readonly log: string;
  readonly dead: DialledDeadLetters<O>;
  readonly #platform: ClientPlatform;
  readonly #leaseMs: number;
  readonly #closeListeners = new Set<(error: Error) => void>();
  #isClosed = false;

  /** @param leaseMs the rule that was given when it was joined */
  constructor(
    link: Link,
    platform: ClientPlatform,
    handle: Handle,
    name: string,
    log: string,
    codec: Codec<never, O>,
    leaseMs: number | undefined,
  ) {
    super(link, handle, name, codec);
    this.log = log;
    this.dead = new DialledDeadLetters((method, ...args) => this.call(method, ...args), this.codec);
    this.#platform = platform;
    this.#leaseMs = leaseMs ?? LEASE_MS;
    link.keep(handle);
  }

  async seek(to: LogPosition, options?: CommitOptions): Promise<number> {
    resolvePosition(to);
    resolveCommitOptions(options);
    return await this.call(Methods.groupSeek, to, options);
  }

  info(): Promise<GroupInfo> {
    return this.call(Methods.groupInfo);
  }

  work(handler: Handler<O>, options?: WorkOptions): Worker<O> {
    this.checkOpen();
    return workAt(this.link, this.#platform, this, handler, options, {
      leaseMs: () => this.#leaseMs,
      refresh: () => this.info(),
      keepsResults: false,
      onEnd: (callback) => {
        this.#closeListeners.add(callback);
        return () => this.#closeListeners.delete(callback);
      },
    });
  }

  /** Its waits end at the daemon. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const listener of this.#closeListeners) listener(this.#left());
    await this.link.leave(this.handle.id);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  override checkOpen(): void {
    super.checkOpen();
    if (this.#isClosed) throw this.#left();
  }

  #left(): VarveError {
    return new VarveError("ERR_CLOSED", `this member has left group ${this.name} of ${this.log}`);
  }
}
