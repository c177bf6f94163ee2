/**
 * How each protocol says "store this" and "give me one". A request is bytes prepared beforehand, and replies are only
 * counted, so that the generator costs as little as it can whatever it talks to.
 *
 * @typedef {object} Operation
 * @property {(queue: string, connection: number) => Buffer} request one request
 * @property {number | "lines"} replyBytes bytes of a reply; "lines" when it is lines of any length
 * @property {number} [replyLines] how many; 1 unless told
 * @property {(queue: string, connection: number) => Buffer} [greeting] sent once, before the first request
 * @property {number} [greetingLines] lines that answer the greeting
 */

export const VALUE_BYTES = 64;

/** @param {number} bytes */
export function value(bytes) {
  return "v".repeat(bytes);
}

/** @param {string[]} parts */
function resp(...parts) {
  return Buffer.from(`*${parts.length}\r\n${parts.map((part) => `$${part.length}\r\n${part}\r\n`).join("")}`, "latin1");
}

/**
 * @param {string} protocol
 * @param {string} operation
 * @param {number} bytes of each value
 * @returns {Operation}
 */
export function operationOf(protocol, operation, bytes) {
  const found = PROTOCOLS[protocol]?.[operation];
  if (found === undefined) throw new Error(`${protocol} has no operation ${operation}`);
  return found(value(bytes));
}

/** @type {Record<string, Record<string, (value: string) => Operation>>} */
const PROTOCOLS = {
  kestrel: {
    set: (value) => ({
      request: (queue) => Buffer.from(`set ${queue} 0 0 ${value.length}\r\n${value}\r\n`, "latin1"),
      replyBytes: "STORED\r\n".length,
    }),
    get: (value) => ({
      request: (queue) => Buffer.from(`get ${queue}\r\n`, "latin1"),
      // Queue names are all of the same length; a queue that runs empty shows as a run that never ends.
      replyBytes: `VALUE q0 0 ${value.length}\r\n${value}\r\nEND\r\n`.length,
    }),
  },
  redis: {
    set: (value) => ({ request: (queue) => resp("LPUSH", queue, value), replyBytes: "lines" }),
    get: (value) => ({
      request: (queue) => resp("RPOP", queue),
      replyBytes: `$${value.length}\r\n${value}\r\n`.length,
    }),
  },
  "redis streams": {
    publish: (value) => ({
      request: (queue) => resp("XADD", `log-${queue}`, "*", "v", value),
      replyBytes: "lines", // the length of the id, and the id
      replyLines: 2,
    }),
  },
  nats: {
    publish: (value) => ({
      // Each connection makes its stream, which is there already for all but the first, and listens for the acknowledgements.
      greeting: (queue, connection) => {
        const inbox = `_INBOX.${queue}-${connection}`;
        const stream = JSON.stringify({ name: queue, subjects: [queue], storage: "file" });
        return Buffer.from(
          `CONNECT {"verbose":false,"pedantic":false}\r\nSUB ${inbox}.* 1\r\n` +
            `PUB $JS.API.STREAM.CREATE.${queue} ${inbox}.made ${stream.length}\r\n${stream}\r\nPING\r\n`,
          "latin1",
        );
      },
      greetingLines: 4, // INFO, PONG, and the answer of two lines
      request: (queue, connection) =>
        Buffer.from(`PUB ${queue} _INBOX.${queue}-${connection}.ok ${value.length}\r\n${value}\r\n`, "latin1"),
      replyBytes: "lines",
      replyLines: 2,
    }),
  },
  beanstalk: {
    set: (value) => ({
      greeting: (queue) => Buffer.from(`use ${queue}\r\n`, "latin1"),
      greetingLines: 1,
      request: () => Buffer.from(`put 0 0 60 ${value.length}\r\n${value}\r\n`, "latin1"),
      replyBytes: "lines",
    }),
    // A job is reserved, then deleted by its id: two requests, of which the second needs the answer of the first.
    get: () => ({
      greeting: (queue) => Buffer.from(`watch ${queue}\r\nignore default\r\n`, "latin1"),
      greetingLines: 2,
      request: () => Buffer.from("reserve-with-timeout 0\r\n", "latin1"),
      replyBytes: "lines",
    }),
  },
};
