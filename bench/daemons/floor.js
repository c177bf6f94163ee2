/**
 * A server that does nothing but parse and answer: what this machine and this runtime allow at most. It speaks just enough of
 * the Kestrel protocol for the load generator: every `set` is stored nowhere, every `get` gets the same value.
 */

import { createServer } from "node:net";
import { VALUE_BYTES, value } from "./protocols.js";

const LF = 10;
const VALUE = value(VALUE_BYTES);
const server = createServer({ noDelay: true }, (socket) => {
  let rest = Buffer.alloc(0);
  socket.on("error", () => {});
  socket.on("data", (data) => {
    const input = rest.length === 0 ? data : Buffer.concat([rest, data]);
    let at = 0;
    let replies = "";
    for (;;) {
      const end = input.indexOf(LF, at);
      if (end < 0) break;
      const words = input.toString("latin1", at, end - 1).split(" ");
      if (words[0] === "set") {
        const next = end + 1 + Number(words[4]) + 2;
        if (next > input.length) break;
        at = next;
        replies += "STORED\r\n";
      } else {
        at = end + 1;
        replies += `VALUE ${words[1]} 0 ${VALUE.length}\r\n${VALUE}\r\nEND\r\n`;
      }
    }
    rest = input.subarray(at);
    if (replies !== "") socket.write(replies, "latin1");
  });
});
server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => {
  process.stdout.write(`${JSON.stringify({ port: server.address().port })}\n`);
});
