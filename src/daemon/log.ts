import type { Logger } from "../api/contract.js";

export const LOG_LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Logs one JSON object per line: time, level, message, then what there is to say. Never payloads. */
export function jsonLogger(level: LogLevel, write: (line: string) => void): Logger {
  const from = LOG_LEVELS.indexOf(level);
  const at = (name: Exclude<LogLevel, "silent">) => {
    if (LOG_LEVELS.indexOf(name) < from) return () => {};
    return (fields: object, message: string) => {
      write(`${JSON.stringify({ time: new Date().toISOString(), level: name, message, ...fields }, plainError)}\n`);
    };
  };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}

/** An Error has no members of its own that JSON would show. */
function plainError(_name: string, value: unknown): unknown {
  if (!(value instanceof Error)) return value;
  const { message, cause } = value;
  const code = (value as { code?: unknown }).code;
  return { code, message, ...(cause === undefined ? {} : { cause }) };
}
