import { isUtf8 } from "node:buffer";
import { styleText } from "node:util";

/** Bytes in JSON output: a string when they are valid UTF-8, else `{ "base64": "..." }`. */
export type JsonBytes = string | { readonly base64: string };

export function jsonBytes(bytes: Uint8Array): JsonBytes {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return isUtf8(buffer) ? buffer.toString("utf8") : { base64: buffer.toString("base64") };
}

/** As {@link jsonBytes}, with null for what is not there: fields of the output never go missing. */
export function jsonBytesOrNull(bytes: Uint8Array | undefined): JsonBytes | null {
  return bytes === undefined ? null : jsonBytes(bytes);
}

/**
 * Bytes as one line for people. Control characters are escaped, so that a payload can neither break the layout nor
 * send commands to the terminal.
 */
export function printable(bytes: Uint8Array | string): string {
  const text = typeof bytes === "string" ? bytes : jsonBytes(bytes);
  if (typeof text !== "string") return `base64:${text.base64}`;
  return text.replace(/\p{Cc}/gu, (character) => {
    if (character === "\t") return character;
    if (character === "\n") return "\\n";
    if (character === "\r") return "\\r";
    return `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`;
  });
}

/** `key=... name=value ...`, each with a space before it; empty when there is neither key nor header. */
export function attributes(item: {
  readonly key: Uint8Array | undefined;
  readonly headers: Readonly<Record<string, string>>;
}): string {
  const key = item.key === undefined ? "" : ` key=${printable(item.key)}`;
  const headers = Object.entries(item.headers).map(([name, value]) => ` ${printable(name)}=${printable(value)}`);
  return key + headers.join("");
}

export type Style = Parameters<typeof styleText>[0];
export type Paint = (style: Style, text: string) => string;

/** Colours text when the stream is a terminal that wants colours. */
export function painter(stream: { readonly isTTY?: boolean }, env: NodeJS.ProcessEnv = process.env): Paint {
  const coloured = stream.isTTY === true && !env.NO_COLOR && env.TERM !== "dumb";
  return coloured ? (style, text) => styleText(style, text) : (_style, text) => text;
}

/** Left-aligned columns, numbers (type number) right-aligned, two spaces between. No trailing newline. */
export function table(head: readonly string[], rows: readonly (readonly (string | number)[])[], paint: Paint): string {
  const cells = rows.map((row) => row.map((cell) => (typeof cell === "number" ? count(cell) : cell)));
  const widths = head.map((title, column) =>
    cells.reduce((width, row) => Math.max(width, (row[column] ?? "").length), title.length),
  );
  const right = head.map((_title, column) => rows.length > 0 && rows.every((row) => typeof row[column] === "number"));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => (right[column] ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0)))
      .join("  ")
      .trimEnd();
  return [paint("dim", line(head)), ...cells.map(line)].join("\n");
}

/** 1234567 as "1,234,567". */
export function count(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/** "1 message", "2,000 messages". */
export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function time(ms: number): string {
  return new Date(ms).toISOString();
}
