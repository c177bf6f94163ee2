/** Opens the directory it is given, tells how that went, and waits to be ended. Run as a child process. */

import { isVarveError, open } from "../../src/index.js";

const [directory = "", user] = process.argv.slice(2);
if (user !== undefined && process.setgid !== undefined && process.setuid !== undefined) {
  process.setgid(Number(user));
  process.setuid(Number(user));
}
try {
  await open(directory);
  process.send?.({ opened: true });
} catch (error) {
  process.send?.({ opened: false, code: isVarveError(error) ? error.code : undefined, message: String(error) });
}
setInterval(() => {}, 60_000);
