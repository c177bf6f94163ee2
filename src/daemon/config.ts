/**
 * What a daemon can be told in a file: how queues are made that a protocol creates.
 *
 *   {
 *     "queues": {
 *       "jobs":    { "maxAttempts": 5, "limits": { "maxCount": 100000 } },
 *       "audit-*": { "ttl": "7d" },
 *       "*":       { "maxAttempts": "unlimited" }
 *     }
 *   }
 *
 * The first name that fits counts; "*" stands for any characters at the end of a name. A queue that exists keeps its own
 * settings, and gets those given here on top when the daemon starts.
 */

import type { TaskOptions } from "../api/contract.js";
import { VarveError } from "../api/errors.js";

export type QueueSettings = Omit<TaskOptions, "codec" | "create">;

export interface DaemonConfig {
  readonly queues: readonly { readonly pattern: string; readonly settings: QueueSettings }[];
}

export const NO_CONFIG: DaemonConfig = Object.freeze({ queues: [] });

const CONFIG_BYTES_MAX = 1024 * 1024;
const PATTERN = /^[A-Za-z0-9_.:-]*\*?$/;

/**
 * @param file for messages
 * @throws VarveError `ERR_OPTION`
 */
export function parseConfig(text: string, file: string): DaemonConfig {
  if (text.length > CONFIG_BYTES_MAX) throw wrong(file, `is larger than ${CONFIG_BYTES_MAX} bytes`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new VarveError("ERR_OPTION", `${file}: is not JSON: ${(cause as Error).message}`, { cause });
  }
  const config = object(value, file, "the file");
  for (const name of Object.keys(config)) {
    if (name !== "queues") throw wrong(file, `has no member ${JSON.stringify(name)}; it takes "queues"`);
  }
  const queues = config.queues === undefined ? {} : object(config.queues, file, '"queues"');
  return {
    queues: Object.entries(queues).map(([pattern, settings]) => {
      if (pattern === "" || !PATTERN.test(pattern)) {
        throw wrong(
          file,
          `${JSON.stringify(pattern)} is neither the name of a queue nor the beginning of one with a "*"`,
        );
      }
      return { pattern, settings: taskSettings(object(settings, file, `the settings of "${pattern}"`)) };
    }),
  };
}

/** The settings for a queue of a name; none when no name fits. */
export function settingsFor(config: DaemonConfig, name: string): QueueSettings {
  const found = config.queues.find(({ pattern }) => {
    return pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
  });
  return found?.settings ?? {};
}

/** JSON cannot say Infinity; a queue's settings can. */
function taskSettings(given: Record<string, unknown>): QueueSettings {
  return replaceUnlimited(given) as QueueSettings;
}

function replaceUnlimited(value: unknown): unknown {
  if (value === "unlimited") return Number.POSITIVE_INFINITY;
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, replaceUnlimited(member)]));
}

function object(value: unknown, file: string, what: string): Record<string, unknown> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw wrong(file, `${what} must be an object`);
}

function wrong(file: string, what: string): VarveError {
  return new VarveError("ERR_OPTION", `${file}: ${what}`);
}
