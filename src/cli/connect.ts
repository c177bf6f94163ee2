import { readFileSync } from "node:fs";
import type { MessageQueue } from "../api/contract.js";
import { isVarveError } from "../api/errors.js";
import { dial, open } from "../index.js";
import type { CommonOptions } from "./options.js";

/**
 * The queues that a command works on: those of a daemon, or of a directory, which other processes may be using as well.
 * @param mode `existing` refuses a directory that is not there instead of making an empty one
 */
export async function connect(options: CommonOptions, mode: "create" | "existing"): Promise<MessageQueue> {
  const { target, dataDir, durability } = options;
  if (target !== undefined) return await dialTarget(target, options);
  const create = mode === "create";
  try {
    return await open(dataDir, { create, shared: true, durability });
  } catch (error) {
    const isWeaker = isVarveError(error) && error.details.option === "durability";
    if (durability !== undefined || !isWeaker) throw error;
    // Whoever types a command has not asked for more than the owner gives.
    return await open(dataDir, { create, shared: true, durability: "async" });
  }
}

export async function dialTarget(target: string, options: CommonOptions) {
  const { tlsCa, tlsCert, tlsKey } = options;
  const file = (path: string | undefined) => (path === undefined ? undefined : readFileSync(path));
  return await dial(target, {
    name: "varve command line",
    token: process.env.VARVE_TOKEN || undefined,
    ...(target.startsWith("tls:") && { tls: { ca: file(tlsCa), cert: file(tlsCert), key: file(tlsKey) } }),
    // Someone waits for the answer.
    offlineTimeout: "10s",
  });
}
