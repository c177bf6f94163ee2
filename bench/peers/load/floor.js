/**
 * Servers that do nothing but parse and answer: what this machine and this runtime allow at most. What is put is stored nowhere,
 * and what is taken is always the same value. `node floor.js KIND PORT`, and the same code for every kind but its parsing.
 */

import { createServer } from "node:net";
import { HEAD_BYTES, Kind, PREAMBLE } from "./frames.js";

const VALUE_BYTES = 64;
const LF = 10;
const NOTHING = Buffer.alloc(0);

/** Each takes what has arrived and returns how far it went, and what to answer. */
const KINDS = {
  /** Answers with what it gets. */
  echo: () => (input) => ({ end: input.length, answer: input }),

  kestrel: () => {
    const value = "v".repeat(VALUE_BYTES);
    return (input) => {
      let end = 0;
      let answer = "";
      for (;;) {
        const line = input.indexOf(LF, end);
        if (line < 0) break;
        const words = input.toString("latin1", end, line - 1).split(" ");
        if (words[0] === "set") {
          const next = line + 1 + Number(words[4]) + 2;
          if (next > input.length) break;
          end = next;
          answer += "STORED\r\n";
        } else {
          end = line + 1;
          answer += `VALUE ${words[1]} 0 ${value.length}\r\n${value}\r\nEND\r\n`;
        }
      }
      return { end, answer };
    };
  },

  native: () => {
    let greeted = false;
    return (input) => {
      let end = 0;
      if (!greeted) {
        if (input.length < PREAMBLE.length) return { end, answer: NOTHING };
        greeted = true;
        end = PREAMBLE.length;
      }
      const answers = [];
      while (input.length - end >= HEAD_BYTES) {
        const next = end + 4 + input.readUInt32LE(end);
        if (next > input.length) break;
        const answer = Buffer.from(ANSWERS[input[end + 4]] ?? ANSWERS[Kind.goodbye]);
        input.copy(answer, 5, end + 5, end + 9);
        answers.push(answer);
        end = next;
      }
      return { end, answer: answers.length === 1 ? answers[0] : Buffer.concat(answers) };
    };
  },
};

/** By opcode. An offset for append, the rest as long as it really is. */
const ANSWERS = {
  [Kind.goodbye]: ok(0),
  32: ok(8),
  64: ok(4 + 14 + 4 + 8 + 4 + 24 + 4 + VALUE_BYTES),
  80: ok(1 + 4 + 8),
};

function ok(bodyBytes) {
  const bytes = Buffer.alloc(HEAD_BYTES + bodyBytes);
  bytes.writeUInt32LE(bytes.length - 4);
  bytes[4] = Kind.ok;
  return bytes;
}

const [kind, port] = process.argv.slice(2);
const server = createServer({ noDelay: true }, (socket) => {
  const parse = KINDS[kind]();
  let rest = NOTHING;
  socket.on("error", () => {});
  socket.on("data", (data) => {
    const input = rest.length === 0 ? data : Buffer.concat([rest, data]);
    const { end, answer } = parse(input);
    rest = input.subarray(end);
    if (answer.length > 0) socket.write(answer, "latin1");
  });
});
server.listen({ port: Number(port), host: "127.0.0.1", backlog: 2048 });
