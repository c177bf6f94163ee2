import { isIP } from "node:net";
import { VarveError } from "../api/errors.js";

export interface Address {
  readonly host: string;
  readonly port: number;
}

/**
 * `host:port`, `[ip6]:port`, `:port` or `port`; the host is 127.0.0.1 unless given.
 * @throws VarveError `ERR_OPTION`
 */
export function parseAddress(text: string, option: string): Address {
  const parts = /^(?:(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]*)):)?(\d{1,5})$/.exec(text);
  const host = parts?.[1] ?? parts?.[2] ?? "";
  const port = Number(parts?.[3]);
  if (parts === null || port > 65_535 || (parts[1] !== undefined && isIP(parts[1]) !== 6)) {
    throw new VarveError(
      "ERR_OPTION",
      `${option} must be host:port, such as 127.0.0.1:22133; got ${JSON.stringify(text)}`,
    );
  }
  return { host: host === "" ? "127.0.0.1" : host, port };
}

/** Whether only this machine can reach it. A name other than localhost may resolve to anything. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

export function formatAddress({ host, port }: Address): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
