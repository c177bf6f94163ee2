/**
 * Who can reach a listener, and whether that is safe. One table, for every protocol:
 *
 *   listener             others can reach it   starts without --insecure
 *   unix, pipe           no: this user only    always
 *   tcp on loopback      this machine          always
 *   tls on loopback      this machine          always
 *   tcp elsewhere        yes, and may listen   never: tokens would be sent in the clear
 *   tls elsewhere        yes                   with users: --auth
 *   kestrel on loopback  this machine          with users only if their file says what Kestrel may: it has no login
 *   kestrel elsewhere    yes, and may listen   never
 *
 * A name other than localhost counts as elsewhere, since it may resolve to anything.
 */

import { VarveError } from "../api/errors.js";
import { isLoopback } from "./address.js";

export interface Listener {
  readonly scheme: "tcp" | "tls" | "unix" | "pipe" | "kestrel";
  /** Of those that have one. */
  readonly host?: string | undefined;
  /** As messages show it: "tcp://0.0.0.0:7420". */
  readonly shown: string;
}

export interface Protection {
  /** There is a users file. */
  readonly users: boolean;
  /** It says what connections of the Kestrel protocol may. */
  readonly kestrelUsers: boolean;
  /** There are a certificate and its key. */
  readonly tls: boolean;
  /** Start all the same, where only the operator can know that it is safe. */
  readonly insecure: boolean;
}

/**
 * @throws VarveError `ERR_OPTION`: the listener needs what is not there, or is open to others
 */
export function checkExposure(listener: Listener, { users, kestrelUsers, tls, insecure }: Protection): void {
  const { scheme, host, shown } = listener;
  if (scheme === "tls" && !tls) {
    throw new VarveError("ERR_OPTION", `${shown} needs a certificate and its key: --tls-cert and --tls-key`);
  }
  if (scheme === "kestrel" && users && !kestrelUsers) {
    throw new VarveError(
      "ERR_OPTION",
      `${shown}: the Kestrel protocol has no login, so whoever reaches it passes by --auth. Say in the users file what it ` +
        'may ("kestrel"), or leave out --kestrel.',
    );
  }
  if (host === undefined || isLoopback(host) || insecure) return;
  if (scheme === "tls" && users) return;
  const open = `${shown} can be reached from other machines`;
  if (scheme === "kestrel") {
    throw new VarveError(
      "ERR_OPTION",
      `${open}, and this protocol has neither passwords nor encryption. Listen on 127.0.0.1, or say --insecure if the ` +
        "network keeps others out.",
    );
  }
  const missing = [...(users ? [] : ["a login (--auth)"]), ...(scheme === "tls" ? [] : ["encryption (tls://)"])];
  throw new VarveError(
    "ERR_OPTION",
    `${open}, without ${missing.join(" and ")}. Add that, listen on 127.0.0.1, or say --insecure if the network keeps ` +
      "others out.",
  );
}
