/** Appends one record and dies. Arguments: directory, log, payload, durability, bytes of a log file. */

import { open } from "../../src/index.js";
import { OPTIONS } from "../inspect/scene.js";

const [directory = "", log = "", payload = "", durability = "sync", walFileBytes = "256KiB"] = process.argv.slice(2);
const mq = await open(directory, {
  ...OPTIONS,
  durability: durability === "async" ? "async" : "sync",
  walFileBytes: /^\d+$/.test(walFileBytes) ? Number(walFileBytes) : walFileBytes,
});
await (await mq.openLog(log)).append(payload);
process.kill(process.pid, "SIGKILL");
