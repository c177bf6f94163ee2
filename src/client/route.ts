import type { Target } from "../wire/target.js";

/** How a client finds its daemon. */
export interface Route {
  /**
   * Where to connect to; asked before each attempt.
   * @throws VarveError `ERR_DISCONNECTED`: nowhere, at the moment
   */
  reach(): Target | Promise<Target>;
  /** Longest pause between two attempts. */
  readonly retryMsMax: number;
  /** A connection over which no call is under way lets the process end. */
  readonly isBackground: boolean;
  /** Called when the client has closed, which it waits for. */
  closed(): Promise<void>;
}

/** To one place, for good. */
export function directRoute(target: Target): Route {
  return { reach: () => target, retryMsMax: 5000, isBackground: false, closed: async () => {} };
}
