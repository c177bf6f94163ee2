import { randomBytes } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessageQueue } from "../../src/index.js";
import { type NativeOptions, NativeServer } from "../../src/native/server.js";
import { formatTarget, parseTarget, type Target } from "../../src/wire/target.js";

/** Ways to reach a daemon. */
export type Way = "tcp" | "tls" | "unix" | "pipe";

/** Somewhere to listen that nobody else uses. */
export function freeTarget(way: Way): Target {
  const name = `varve-${process.pid}-${randomBytes(6).toString("hex")}`;
  if (way === "unix") return parseTarget(`unix://${join(tmpdir(), `${name}.sock`)}`);
  if (way === "pipe") return parseTarget(`pipe://${name}`);
  return parseTarget(`${way}://127.0.0.1:0`);
}

export interface Listening {
  readonly mq: MessageQueue;
  readonly server: NativeServer;
  readonly target: string;
  /** Ends the server and closes what it serves, at the same time, as a daemon does. */
  close(): Promise<void>;
}

/** Serves a message queue in this process. */
export async function listen(
  mq: MessageQueue,
  where: Target,
  options: Partial<NativeOptions> = {},
  tls?: object,
): Promise<Listening> {
  const server = new NativeServer(mq, options);
  const target = formatTarget(await server.listen({ target: where, tls }));
  return {
    mq,
    server,
    target,
    close: async () => {
      await Promise.all([server.close(), mq.close()]);
    },
  };
}
