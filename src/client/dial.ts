import type { MessageQueue } from "../api/contract.js";
import { parseTarget } from "../wire/target.js";
import { Link } from "./link.js";
import { DialledMessageQueue } from "./message-queue.js";
import { type DialOptions, resolveDialOptions } from "./options.js";
import { directRoute, type Route } from "./route.js";
import { type ClientPlatform, PLATFORM } from "./work.js";

/** What `dial` returns. */
export interface DialledQueue extends MessageQueue {
  /** Milliseconds until the daemon has answered. @throws VarveError `ERR_CLOSED`, `ERR_DISCONNECTED` */
  ping(): Promise<number>;
}

/**
 * Connects to a daemon. What it returns does what `open` of the daemon's directory would, over the network, and through
 * lost connections: it connects again by itself, and goes on with tails, workers and leases. A call whose answer was lost is made
 * again: a change under its name, so that it is carried out once (`RequestIdentity`). Where that cannot be told any more, it
 * ends with `ERR_OUTCOME_UNKNOWN`.
 *
 * Closing it leaves the daemon's directory open. Tasks that were taken for the "session" go back then.
 *
 * @param target `tcp://host:port`, `tls://host:port`, `unix:///path/to/socket`, or `pipe://name`
 * @throws VarveError `ERR_OPTION`, `ERR_DISCONNECTED` (nobody listens there, or answers in time; `cause` is the system's
 * error), `ERR_PROTOCOL` (it is no varve daemon, or of another age), `ERR_UNAUTHENTICATED`
 */
export async function dial(target: string, options?: DialOptions): Promise<DialledQueue> {
  return await dialOn(PLATFORM, target, options);
}

/** The same on a platform of the caller's choice. */
export async function dialOn(
  platform: ClientPlatform,
  target: string,
  options?: DialOptions,
): Promise<DialledMessageQueue> {
  return await dialThrough(directRoute(parseTarget(target)), options, platform);
}

/** The same by a route of the caller's choice. */
export async function dialThrough(
  route: Route,
  options?: DialOptions,
  platform: ClientPlatform = PLATFORM,
): Promise<DialledMessageQueue> {
  const link = new Link(route, resolveDialOptions(options));
  await link.open();
  return new DialledMessageQueue(link, platform);
}
