/** Deletes a log and is gone, without closing: the log of the directory is to be read back. */

import { open } from "../../src/index.js";
import { OPTIONS } from "../inspect/scene.js";

const [directory, name] = process.argv.slice(2);
const mq = await open(directory!, OPTIONS);
await mq.deleteQueue("log", name!);
process.kill(process.pid, "SIGKILL");
