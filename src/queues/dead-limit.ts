import { bytes } from "../api/codec.js";
import { isVarveError } from "../api/errors.js";
import type { Engine } from "../engine/engine.js";
import type { Consumer } from "./consumer.js";
import { EmbeddedDeadLetters } from "./dead-letters.js";

/**
 * Keeps the dead letters of a task queue or shared group within their limit. The oldest go in commits of their own, when
 * the newer ones are there to stay: a crash in between leaves too many, which the next open sees to.
 */
export class DeadLimit {
  readonly #consumer: Consumer;
  #engine: Engine | undefined;
  #letters!: EmbeddedDeadLetters<Buffer>;
  #dropping = false;
  /** Letters below cannot be read: they stay, so that their loss is not overlooked, and others go in their place. */
  #from = 0;

  constructor(consumer: Consumer) {
    this.#consumer = consumer;
  }

  attach(engine: Engine): void {
    this.#engine = engine;
    this.#letters = new EmbeddedDeadLetters(engine, this.#consumer, bytes());
    this.watch();
  }

  /** There is a stream of dead letters now, if there was none. */
  watch(): void {
    const { stream } = this.#consumer.dead;
    if (stream !== undefined) stream.onVisible = () => this.check();
    this.check();
  }

  /** Sees to it that those above the limit go. */
  check(): void {
    if (this.#engine !== undefined && !this.#dropping && this.#isExceeded) void this.#drop(this.#engine);
  }

  get #max(): number {
    return this.#consumer.host.rules.maxDeadLetters;
  }

  get #isExceeded(): boolean {
    return this.#max > 0 && this.#consumer.dead.count > this.#max;
  }

  async #drop(engine: Engine): Promise<void> {
    this.#dropping = true;
    try {
      while (this.#isExceeded) if ((await this.#letters.dropAbove(this.#max, this.#from)) === 0) return;
    } catch (error) {
      this.#failed(engine, error);
    } finally {
      this.#dropping = false;
    }
  }

  /** It is tried again when the next letter is there. */
  #failed(engine: Engine, error: unknown): void {
    if (engine.closed || engine.failure !== undefined || this.#consumer.deleted !== undefined) return;
    if (isVarveError(error, "ERR_CORRUPT") && typeof error.details.to === "number") {
      this.#from = Math.max(this.#from, error.details.to);
    }
    engine.logger.error({ queue: this.#consumer.host.name, error }, "dead letters above the limit cannot be dropped");
  }
}
