/** Notes down what a client calls and is told, in the form that the judge reads. */

import { crc32 } from "node:zlib";
import { isVarveError } from "../../src/index.js";
import { payloadOf } from "../crash/journal.js";
import type { Deed, Outcome, Value } from "./history.js";

/** Milliseconds of the machine's monotonic clock, which all processes share. */
export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** What is asked, and what the answer adds to it. */
export type Asked = Deed extends infer D ? (D extends Deed ? Omit<D, "call"> : never) : never;

/** What a call brought. Without `value`, `code` says why there is none. */
export type Told<R> =
  | { readonly value: R; readonly code?: undefined }
  | { readonly value?: undefined; readonly code: string };

/** Where lines go: to a file, or to whoever judges them in the same process. */
export interface Sink {
  write(line: object): void;
}

export class Recorder {
  readonly client: string;
  readonly #sink: Sink;
  readonly #now: () => number;
  #calls = 0;

  /** @param now milliseconds of the one clock of all clients; another one where time is not real */
  constructor(client: string, sink: Sink, now: () => number = nowMs) {
    this.client = client;
    this.#sink = sink;
    this.#now = now;
  }

  /**
   * Makes a call between its two lines.
   * @param told what the answer adds to the history
   * @returns the answer, or the code of the error
   */
  async call<R>(asked: Asked, run: () => Promise<R>, told: (answer: R) => object = () => ({})): Promise<Told<R>> {
    const call = this.begin(asked);
    try {
      const value = await run();
      this.end(call, "ok", told(value));
      return { value };
    } catch (error) {
      if (!isVarveError(error)) throw error;
      const { code } = error;
      this.end(call, code === "ERR_OUTCOME_UNKNOWN" ? "unknown" : "refused", { code });
      return { code };
    }
  }

  /** The two lines singly, for calls that somebody else makes. Returns the call's number. */
  begin(asked: Asked): number {
    const { client } = this;
    const call = this.#calls++;
    this.#sink.write({ client, call, invoke: this.#now(), ...asked });
    return call;
  }

  /** A call, or what is like one, that began at some time, and is over. */
  whole(asked: Asked, invoke: number, told: object): void {
    this.#sink.write({ client: this.client, invoke, return: this.#now(), outcome: "ok", ...asked, ...told });
  }

  end(call: number, outcome: Outcome, told: object = {}): void {
    this.#sink.write({ client: this.client, call, return: this.#now(), outcome, ...told });
  }
}

/** The name that a payload was sent under, with a sum behind it if it is not, byte for byte, what was sent. */
export function nameOf(payload: Buffer): Value {
  const text = payload.toString();
  const name = text.slice(0, Math.max(0, text.indexOf("|")));
  if (text === payloadOf(name)) return name;
  return `${name.slice(0, 100) || "?"}#${crc32(payload).toString(16)}`;
}
