import { VarveError } from "../api/errors.js";
import { show } from "../api/show.js";

/** Where a daemon listens. */
export type Target =
  | { readonly scheme: "tcp" | "tls"; readonly host: string; readonly port: number }
  | { readonly scheme: "unix" | "pipe"; readonly path: string };

const PORT_MAX = 65_535;
const NETWORK = /^(tcp|tls):\/\/(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+)):(\d{1,5})$/;
const LOCAL = /^(unix|pipe):\/\/(.+)$/;
const PIPES = "\\\\.\\pipe\\";

/**
 * `tcp://host:port`, `tls://host:port`, `unix:///path`, or `pipe://name` of a named pipe of Windows.
 * @param option for messages
 * @throws VarveError `ERR_OPTION`
 */
export function parseTarget(text: unknown, option = "target"): Target {
  if (typeof text === "string" && !text.includes("\0")) {
    const network = NETWORK.exec(text);
    if (network !== null && Number(network[4]) <= PORT_MAX) {
      return { scheme: network[1] as "tcp" | "tls", host: network[2] ?? network[3]!, port: Number(network[4]) };
    }
    const local = LOCAL.exec(text);
    if (local?.[1] === "unix" && local[2]!.startsWith("/")) return { scheme: "unix", path: local[2]! };
    if (local?.[1] === "pipe" && /^[A-Za-z0-9_.-]+$/.test(local[2]!)) return { scheme: "pipe", path: PIPES + local[2] };
  }
  throw new VarveError(
    "ERR_OPTION",
    `${option} must be tcp://host:port, tls://host:port, unix:///path or pipe://name; got ${show(text)}`,
    { details: { option } },
  );
}

export function formatTarget(target: Target): string {
  if ("port" in target) {
    return `${target.scheme}://${target.host.includes(":") ? `[${target.host}]` : target.host}:${target.port}`;
  }
  return `${target.scheme}://${target.scheme === "pipe" ? target.path.slice(PIPES.length) : target.path}`;
}
