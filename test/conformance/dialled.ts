/**
 * The whole suite over sockets: each subject is an embedded queue in this process behind a real listener, and the client that
 * is connected to it. A reopen closes both, as an application and its daemon that are restarted.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { dialOn } from "../../src/client/dial.js";
import type { DialledMessageQueue } from "../../src/client/message-queue.js";
import { type ClientPlatform, PLATFORM } from "../../src/client/work.js";
import type { MessageQueue } from "../../src/index.js";
import { openAlone } from "../support/alone.js";
import { makeCertificate } from "../support/certificates.js";
import { makeDirectory, removeDirectory } from "../support/directories.js";
import { freeTarget, type Listening, listen, type Way } from "../support/listening.js";
import { defineConformance, type Subject } from "./suite.js";

const CERTIFICATE = makeCertificate("127.0.0.1");

export const EXCEPTIONS = {
  "retention: readers finish what they hold, or are told where to go on":
    "records that are on their way to the client when they are removed are given out",
  "retention: what it removes is not given to a tail that has not read it": "as above",
  "delete: a replay that is under way ends": "as above",
  "limits: calls wait for room, in their order, with what they were given":
    "a client that closes cannot take back a call that waits for room at the daemon: its outcome is unknown",
};

/** While time passes as it does. */
export function defineOver(way: "tcp" | "tls"): void {
  defineConformance(`dialled over ${way}`, {
    exceptions: EXCEPTIONS,
    open: (options) =>
      start(
        way,
        PLATFORM,
        (directory) => openAlone(directory, { ...options, durability: "async" }),
        () => ({
          pass: (ms) => sleep(ms),
          wallMs: Date.now,
        }),
      ),
  });
}

export async function start(
  way: Way,
  platform: ClientPlatform,
  openDirectory: (directory: string) => Promise<MessageQueue>,
  time: (client: () => DialledMessageQueue) => Pick<Subject, "pass" | "wallMs" | "stepWall">,
): Promise<Subject> {
  const directory = makeDirectory();
  const begin = async (): Promise<[DialledMessageQueue, Listening]> => {
    const tls = way === "tls" ? CERTIFICATE : undefined;
    const listening = await listen(await openDirectory(directory), freeTarget(way), {}, tls);
    return [await dialOn(platform, listening.target, tls && { tls: { ca: CERTIFICATE.cert } }), listening];
  };
  let [mq, listening] = await begin();
  const end = async () => {
    await Promise.all([mq.close(), listening.close()]);
  };
  return {
    ...time(() => mq),
    get mq() {
      return mq;
    },
    reopen: async () => {
      await end();
      [mq, listening] = await begin();
      return mq;
    },
    dispose: async () => {
      await end();
      removeDirectory(directory);
    },
  };
}
