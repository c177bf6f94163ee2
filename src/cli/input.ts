import { createReadStream } from "node:fs";
import type { Readable } from "node:stream";
import { VarveError } from "../api/errors.js";
import { UsageError } from "./exit.js";
import type { Run } from "./run.js";

/** A longer line is refused while it is being read, so that memory stays bounded; as large as a message may be. */
const LINE_BYTES_MAX = 16 * 2 ** 20;
/** Messages of one commit hold at most about this many bytes, whatever `--batch` allows. */
const BATCH_BYTES_MAX = 2 ** 20;
const NEWLINE = 0x0a;
const CARRIAGE_RETURN = 0x0d;

export interface InputOptions {
  readonly file?: string;
  /** Take the whole input as one message instead of one message per line. */
  readonly whole?: boolean;
  /** Messages per commit. */
  readonly batch: number;
}

/**
 * Commits the messages of a command: its arguments in one commit, or else those of standard input or a file, in
 * batches. While one batch is being committed the next one is collected, so a slow producer sees every line committed
 * at once and a fast one gets full batches; at most two batches are in memory.
 */
export async function commitMessages(
  run: Run<InputOptions>,
  args: readonly string[],
  commit: (messages: (string | Buffer)[]) => Promise<void>,
): Promise<void> {
  const { file, whole, batch } = run.options;
  if (args.length > 0) {
    if (file !== undefined || whole) {
      throw new UsageError("messages come from arguments, or from --file or standard input, not from both");
    }
    await commit([...args]);
    return;
  }
  const source: Readable = file === undefined ? process.stdin : createReadStream(file);
  if (file === undefined && process.stdin.isTTY) {
    run.note(whole ? "reading one message; end it with Ctrl-D" : "reading messages, one per line; end with Ctrl-D");
  }

  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let committing: Promise<void> | undefined;
  const stop = new AbortController();
  const start = (): void => {
    const messages = pending;
    pending = [];
    pendingBytes = 0;
    committing = commit(messages).then(
      () => {
        committing = undefined;
        if (pending.length > 0) start();
      },
      (error: unknown) => stop.abort(error),
    );
  };

  const signal = AbortSignal.any([run.signal, stop.signal]);
  for await (const messages of whole ? readWhole(source, signal) : readLines(source, signal)) {
    for (const message of messages) {
      const full = pending.length >= batch || (pending.length > 0 && pendingBytes + message.length > BATCH_BYTES_MAX);
      if (full && committing === undefined) start();
      else if (full) await committing;
      if (stop.signal.aborted) break;
      pending.push(message);
      pendingBytes += message.length;
    }
    if (committing === undefined && pending.length > 0) start();
  }
  while (committing !== undefined && !stop.signal.aborted) await committing;
  stop.signal.throwIfAborted();
}

/** The lines of a stream, those of one chunk together. Lines end with LF or CRLF; the last one may lack its end. */
async function* readLines(source: Readable, signal: AbortSignal): AsyncGenerator<Buffer[]> {
  let parts: Buffer[] = [];
  let partBytes = 0;
  const line = (end: Buffer): Buffer => {
    const whole = parts.length === 0 ? end : Buffer.concat([...parts, end]);
    parts = [];
    partBytes = 0;
    return whole.at(-1) === CARRIAGE_RETURN ? whole.subarray(0, -1) : whole;
  };
  for await (const chunk of readChunks(source, signal)) {
    const lines: Buffer[] = [];
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      lines.push(line(chunk.subarray(from, end)));
      from = end + 1;
    }
    if (from < chunk.length) {
      parts.push(chunk.subarray(from));
      partBytes += chunk.length - from;
      refuseLonger(partBytes, "a line of the input");
    }
    if (lines.length > 0) yield lines;
  }
  // A line cut short by a signal is not a message.
  if (parts.length > 0 && !signal.aborted) yield [line(Buffer.alloc(0))];
}

async function* readWhole(source: Readable, signal: AbortSignal): AsyncGenerator<Buffer[]> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of readChunks(source, signal)) {
    parts.push(chunk);
    bytes += chunk.length;
    refuseLonger(bytes, "the input");
  }
  if (!signal.aborted) yield [Buffer.concat(parts)];
}

/** Chunks until the end or until the signal, which also ends a read that waits. */
async function* readChunks(source: Readable, signal: AbortSignal): AsyncGenerator<Buffer> {
  const end = (): unknown => source.destroy();
  if (signal.aborted) end();
  signal.addEventListener("abort", end, { once: true });
  try {
    for await (const chunk of source) {
      if (signal.aborted) return;
      yield chunk as Buffer;
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    signal.removeEventListener("abort", end);
  }
}

function refuseLonger(bytes: number, what: string): void {
  if (bytes > LINE_BYTES_MAX) {
    throw new VarveError(
      "ERR_TOO_LARGE",
      `${what} is longer than ${LINE_BYTES_MAX} bytes, the most a message may hold`,
    );
  }
}
