import type { ConnectionOptions } from "node:tls";
import type { Duration, Logger, Size } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { duration, endless, resolver, size, text, withMethods } from "../api/option-table.js";
import { describeObject, show } from "../api/show.js";

/** What `tls://` takes besides the target. As for `tls.connect` of Node. */
export type DialTlsOptions = Pick<
  ConnectionOptions,
  "ca" | "cert" | "key" | "passphrase" | "pfx" | "servername" | "rejectUnauthorized" | "checkServerIdentity"
>;

export interface DialOptions {
  /** Lets the client in where the daemon asks for one. @defaultValue none */
  readonly token?: string | undefined;
  /** Says who it is in the daemon's logs; at most 100 characters. @defaultValue "varve" */
  readonly name?: string | undefined;
  /** For `tls://` targets. @defaultValue the platform's authorities, and the target's host as the name to expect */
  readonly tls?: DialTlsOptions | undefined;
  /** Longest time for a connection to come about, handshake included. @defaultValue "5s" */
  readonly connectTimeout?: Duration | undefined;
  /**
   * Longest time for the answer to a call, besides what the call itself may wait; then it ends with `ERR_TIMEOUT`, or with
   * `ERR_OUTCOME_UNKNOWN` if it would change something. A lost connection is noticed without it. @defaultValue Infinity
   */
  readonly requestTimeout?: Duration | undefined;
  /**
   * How long calls wait for a lost connection to come back; then they end with `ERR_DISCONNECTED`. @defaultValue "30s"
   */
  readonly offlineTimeout?: Duration | undefined;
  /** Longest time that `close` waits for the answers to calls. @defaultValue "5s" */
  readonly closeTimeout?: Duration | undefined;
  /**
   * Bytes of calls that have not been answered, at most; further ones are refused with `ERR_OVERLOADED`. One larger call
   * is taken while there is no other. @defaultValue "64MiB"
   */
  readonly maxPendingBytes?: Size | undefined;
  /** @defaultValue silent */
  readonly logger?: Logger | undefined;
}

export interface ResolvedDialOptions {
  readonly token: string | undefined;
  readonly name: string | undefined;
  readonly tls: DialTlsOptions | undefined;
  readonly connectMs: number;
  readonly requestMs: number;
  readonly offlineMs: number;
  readonly closeMs: number;
  readonly pendingBytesMax: number;
  readonly logger: Logger;
}

const SECOND_MS = 1000;
const DAY_MS = 86_400 * SECOND_MS;
const MIB = 1024 * 1024;
const SILENT: Logger = Object.freeze({ debug() {}, info() {}, warn() {}, error() {} });

/** @throws VarveError `ERR_OPTION` */
export const resolveDialOptions = resolver<ResolvedDialOptions>("dial()", {
  token: text("token", 8192),
  name: text("name", 100),
  tls: {
    name: "tls",
    default: undefined,
    parse: (given, name) => {
      if (typeof given === "object" && given !== null && !Array.isArray(given)) return given as DialTlsOptions;
      const what = typeof given === "object" && given !== null ? describeObject(given) : show(given);
      throw new VarveError("ERR_OPTION", `${name} must be an object of options for TLS; got ${what}`, {
        details: { option: name },
      });
    },
  },
  connectMs: duration("connectTimeout", 1, DAY_MS, 5 * SECOND_MS),
  requestMs: { ...endless(duration("requestTimeout", 1, DAY_MS)), default: Number.POSITIVE_INFINITY },
  offlineMs: { ...endless(duration("offlineTimeout", 0, DAY_MS)), default: 30 * SECOND_MS },
  closeMs: duration("closeTimeout", 0, DAY_MS, 5 * SECOND_MS),
  pendingBytesMax: size("maxPendingBytes", 1, 1024 * MIB, 64 * MIB),
  logger: withMethods<Logger>("logger", ["debug", "info", "warn", "error"], SILENT),
});
