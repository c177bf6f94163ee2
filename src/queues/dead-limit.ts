import { bytes } from "../api/codec.js";
import { isVarveError } from "../api/errors.js";
import type { Engine } from "../engine/engine.js";
import { EmbeddedDeadLetters } from "./dead-letters.js";
import type { TaskState } from "./task-state.js";

/**
 * Keeps the dead letters of a task queue within their limit. The oldest go in commits of their own, when the newer ones
 * are there to stay: a crash in between leaves too many, which the next open sees to.
 */
export class DeadLimit {
  readonly #state: TaskState;
  #engine!: Engine;
  #letters!: EmbeddedDeadLetters<Buffer>;
  #dropping = false;
  /** Letters below cannot be read: they stay, so that their loss is not overlooked, and others go in their place. */
  #from = 0;

  constructor(state: TaskState) {
    this.#state = state;
  }

  attach(engine: Engine): void {
    this.#engine = engine;
    this.#letters = new EmbeddedDeadLetters(engine, this.#state.consumer, bytes());
    this.#state.deadTasks.onVisible = () => this.check();
    this.check();
  }

  /** Sees to it that those above the limit go. */
  check(): void {
    if (!this.#dropping && this.#isExceeded) void this.#drop();
  }

  get #isExceeded(): boolean {
    const max = this.#state.config.maxDeadLetters;
    return max > 0 && this.#state.consumer.dead.count > max;
  }

  async #drop(): Promise<void> {
    this.#dropping = true;
    try {
      while (this.#isExceeded) {
        if ((await this.#letters.dropAbove(this.#state.config.maxDeadLetters, this.#from)) === 0) return;
      }
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#dropping = false;
    }
  }

  /** It is tried again when the next letter is there. */
  #failed(error: unknown): void {
    const { consumer, ended, name } = this.#state;
    if (ended !== undefined || consumer.deleted !== undefined || this.#engine.failure !== undefined) return;
    if (isVarveError(error, "ERR_CORRUPT") && typeof error.details.to === "number") {
      this.#from = Math.max(this.#from, error.details.to);
    }
    this.#engine.logger.error({ queue: name, error }, "dead letters above the limit cannot be dropped");
  }
}
