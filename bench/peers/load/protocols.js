/**
 * How each protocol says "put this" and "take one". Requests are bytes prepared beforehand and answers are only counted, so that
 * the generator costs as little as it can whatever it talks to.
 *
 * @typedef {import("./frames.js").Identity} Identity
 *
 * @typedef {object} Step something said, and answered, before the first request
 * @property {Buffer} bytes
 * @property {number} answers
 * @property {import("./counters.js").Counter} counter
 *
 * @typedef {object} Conversation of one connection
 * @property {Step[]} steps
 * @property {(count: number) => Buffer} requests the bytes of so many; valid until all of them are answered
 * @property {import("./counters.js").Counter} counter
 * @property {Buffer} [farewell] said before the connection is ended
 *
 * @typedef {object} About
 * @property {string} queue
 * @property {number} index of the connection
 * @property {string} value
 * @property {number} pipeline most requests that are sent at once
 * @property {Identity} identity
 */

import { BeanstalkJobs, FrameAnswers, Lines, NatsMessages, Sized } from "./counters.js";
import {
  append,
  dequeue,
  enqueue,
  Frames,
  goodbye,
  HEAD_BYTES,
  hello,
  openLog,
  openTask,
  PREAMBLE,
  sharedGroup,
} from "./frames.js";

const latin1 = (text) => Buffer.from(text, "latin1");
const line = (text, first) => ({ bytes: latin1(text), answers: 1, counter: new Lines(1, first) });

/** @param {string[]} parts */
function resp(...parts) {
  return `*${parts.length}\r\n${parts.map((part) => `$${part.length}\r\n${part}\r\n`).join("")}`;
}

/** The same request again and again. */
function repeated(text, { pipeline }) {
  const one = latin1(text);
  const all = Buffer.concat(Array(pipeline).fill(one));
  return (count) => all.subarray(0, count * one.length);
}

const HANDLE = 1;
const GROUP = 2;
/** An answer to dequeue that holds a task is longer than its count. */
const TASK_BYTES_MIN = HEAD_BYTES + 5;

/** @param {Buffer[]} opening calls that build upon each other */
function native({ identity, pipeline }, opening, one, kind, counter) {
  identity.received = 0;
  const frames = new Frames(one, pipeline);
  const greeting = Buffer.concat([PREAMBLE, hello({ clientId: identity.clientId, name: "load" })]);
  return {
    steps: [...[greeting, ...opening].map((bytes) => ({ bytes, answers: 1, counter: new FrameAnswers() }))],
    requests: (count) => frames[kind](count, identity),
    counter,
    farewell: goodbye(identity.nextId()),
  };
}

/** @type {Record<string, Record<string, (about: About) => Conversation>>} */
const PROTOCOLS = {
  kestrel: {
    put: (about) => ({
      steps: [],
      requests: repeated(`set ${about.queue} 0 0 ${about.value.length}\r\n${about.value}\r\n`, about),
      counter: new Sized("STORED\r\n".length, "S"),
    }),
    take: (about) => ({
      steps: [],
      requests: repeated(`get ${about.queue}\r\n`, about),
      counter: new Sized(`VALUE ${about.queue} 0 ${about.value.length}\r\n${about.value}\r\nEND\r\n`.length, "V"),
    }),
  },

  "varve tasks": {
    put: (about) =>
      native(
        about,
        [openTask(1, HANDLE, about.queue)],
        enqueue(0, HANDLE, 0, about.value),
        "named",
        new FrameAnswers(),
      ),
    take: (about) =>
      native(
        about,
        [openTask(1, HANDLE, about.queue)],
        dequeue(0, HANDLE, 0),
        "deliveries",
        new FrameAnswers(TASK_BYTES_MIN),
      ),
  },

  // A log keeps what was read; each member of the group is handed what no other was.
  "varve log": {
    put: (about) =>
      native(about, [openLog(1, HANDLE, about.queue)], append(0, HANDLE, 0, about.value), "named", new FrameAnswers()),
    take: (about) =>
      native(
        about,
        [openLog(1, HANDLE, about.queue), sharedGroup(2, HANDLE, GROUP, "readers")],
        dequeue(0, GROUP, 0),
        "deliveries",
        new FrameAnswers(TASK_BYTES_MIN),
      ),
  },

  "redis lists": {
    put: (about) => ({
      steps: [],
      requests: repeated(resp("LPUSH", about.queue, about.value), about),
      counter: new Lines(1, ":"),
    }),
    take: (about) => ({
      steps: [],
      requests: repeated(resp("RPOP", about.queue), about),
      counter: new Sized(`$${about.value.length}\r\n${about.value}\r\n`.length, "$"),
    }),
  },

  "redis streams": {
    put: (about) => ({
      steps: [],
      requests: repeated(resp("XADD", about.queue, "*", "v", about.value), about),
      counter: new Lines(2, "$"), // the length of the id, and the id
    }),
    take: (about) => ({
      // BUSYGROUP is an answer as well: another connection has made it.
      steps: [line(resp("XGROUP", "CREATE", about.queue, "readers", "0", "MKSTREAM"))],
      requests: repeated(
        resp(
          ...["XREADGROUP", "GROUP", "readers", `c${about.index}`, "COUNT", "1", "NOACK", "STREAMS", about.queue, ">"],
        ),
        about,
      ),
      counter: new Lines(13, "*"), // one stream of one record of one field: 13 lines
    }),
  },

  nats: {
    put: (about) => ({
      steps: jetStream(about),
      requests: repeated(`PUB ${about.queue} ${inbox(about)}.ok ${about.value.length}\r\n${about.value}\r\n`, about),
      counter: new NatsMessages(),
    }),
    take: (about) => ({
      steps: [...jetStream(about), { bytes: readers(about), answers: 1, counter: new NatsMessages() }],
      requests: repeated(`PUB $JS.API.CONSUMER.MSG.NEXT.${about.queue}.readers ${inbox(about)}.next 0\r\n\r\n`, about),
      counter: new NatsMessages(),
    }),
  },

  beanstalk: {
    put: (about) => ({
      steps: [line(`use ${about.queue}\r\n`, "U")],
      requests: repeated(`put 0 0 60 ${about.value.length}\r\n${about.value}\r\n`, about),
      counter: new Lines(1, "I"),
    }),
    take: (about) => ({
      steps: [line(`watch ${about.queue}\r\n`, "W"), line("ignore default\r\n", "W")],
      requests: repeated("reserve-with-timeout 0\r\n", about),
      counter: new BeanstalkJobs(),
    }),
  },

  echo: {
    // As many bytes as an append of varve's has.
    put: (about) => {
      const bytes = append(0, HANDLE, 0, about.value).fill("e");
      const all = Buffer.concat(Array(about.pipeline).fill(bytes));
      return {
        steps: [],
        requests: (count) => all.subarray(0, count * bytes.length),
        counter: new Sized(bytes.length, "e"),
      };
    },
  },
};

const inbox = ({ queue, index }) => `_INBOX.${queue}-${index}`;

/** Each connection makes its stream, which is there already for all but the first, and listens for answers. */
function jetStream(about) {
  const stream = JSON.stringify({ name: about.queue, subjects: [about.queue], storage: "file" });
  return [
    // INFO, then PONG.
    {
      bytes: latin1(`CONNECT {"verbose":false,"pedantic":false}\r\nSUB ${inbox(about)}.* 1\r\nPING\r\n`),
      answers: 2,
      counter: new Lines(1),
    },
    {
      bytes: latin1(`PUB $JS.API.STREAM.CREATE.${about.queue} ${inbox(about)}.made ${stream.length}\r\n${stream}\r\n`),
      answers: 1,
      counter: new NatsMessages(),
    },
  ];
}

function readers(about) {
  const config = { durable_name: "readers", ack_policy: "none", deliver_policy: "all", max_waiting: 32_768 };
  const consumer = JSON.stringify({ stream_name: about.queue, config });
  const subject = `$JS.API.CONSUMER.DURABLE.CREATE.${about.queue}.readers`;
  return latin1(`PUB ${subject} ${inbox(about)}.made ${consumer.length}\r\n${consumer}\r\n`);
}

/**
 * @param {string} protocol
 * @param {string} operation "put" or "take"
 * @returns {(about: About) => Conversation}
 */
export function conversationOf(protocol, operation) {
  const found = PROTOCOLS[protocol]?.[operation];
  if (found === undefined) throw new Error(`${protocol} has no operation ${operation}`);
  return found;
}
