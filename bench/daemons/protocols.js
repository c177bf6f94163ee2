/**
 * How each protocol says "store this" and "give me one". A request is bytes prepared beforehand, and replies are only
 * counted, so that the generator costs as little as it can whatever it talks to.
 *
 * @typedef {object} Operation
 * @property {(queue: string) => Buffer} request one request
 * @property {number | "lines"} replyBytes bytes of a reply; "lines" when it is one line of any length
 * @property {(queue: string) => Buffer} [greeting] sent once, before the first request
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
