/**
 * The load generator, in a process of its own for each contestant: `fork`ed with the name of a protocol, it takes turns (turn.js)
 * that its parent sends. Each of N connections sends up to P requests in one write and goes on when all are answered; with a
 * rate, requests are sent when their time has come, and their latency counts from then.
 */

import { randomBytes } from "node:crypto";
import { connect } from "node:net";
import { serve } from "../worker.js";
import { Identity } from "./frames.js";
import { conversationOf } from "./protocols.js";
import { Measure, shareOf } from "./turn.js";

const protocol = process.argv[2];
const INPUT_BYTES = 256 * 1024;
/** A server that answers nothing for so long has lost an answer, or the generator a count. */
const SILENCE_MS_MAX = 60_000;

/** All connections read into it: what arrives is counted before the next piece is read. */
const input = Buffer.allocUnsafeSlow(INPUT_BYTES);
/** Connections come and go with the turns; those who make them stay the same, as real clients do. */
const identities = [];

class Connection {
  #socket;
  #conversation;
  #counter;
  #fail;
  #pending = 0;
  /** Called with the number of answers that have come. */
  #onAnswers;

  constructor(conversation, fail) {
    this.#conversation = conversation;
    this.#fail = fail;
  }

  async open({ host, port, path }) {
    await new Promise((resolve, reject) => {
      const where = path === undefined ? { host, port, noDelay: true } : { path };
      const onread = { buffer: input, callback: (length) => this.#read(input.subarray(0, length)) };
      this.#socket = connect({ ...where, onread });
      this.#socket.once("connect", resolve).once("error", reject);
    });
    this.#socket.on("error", this.#fail);
    this.#socket.on("close", () => this.#fail(new Error("the server ended a connection")));
    for (const { bytes, answers, counter } of this.#conversation.steps) {
      await new Promise((resolve) => {
        this.#counter = counter;
        this.#pending = answers;
        this.#onAnswers = () => {
          if (this.#pending === 0) resolve();
        };
        this.#socket.write(bytes);
      });
    }
    this.#counter = this.#conversation.counter;
  }

  /** @param {(count: number) => void} onAnswers */
  start(onAnswers) {
    this.#onAnswers = onAnswers;
  }

  get isIdle() {
    return this.#pending === 0;
  }

  send(count) {
    this.#pending = count;
    this.#socket.write(this.#conversation.requests(count));
  }

  close() {
    this.#socket
      .removeAllListeners("close")
      .removeAllListeners("error")
      .on("error", () => {});
    if (this.#conversation.farewell !== undefined) this.#socket.write(this.#conversation.farewell);
    this.#onAnswers = undefined;
    return new Promise((resolve) => {
      this.#socket.once("close", resolve);
      this.#socket.end();
      setTimeout(() => this.#socket.destroy(), 1000).unref();
    });
  }

  #read(bytes) {
    if (this.#onAnswers === undefined) return true;
    try {
      const count = this.#counter.count(bytes, (reply) => this.#socket.write(reply, "latin1"));
      if (count > this.#pending) throw new Error(`${count} answers to ${this.#pending} requests`);
      this.#pending -= count;
      if (count > 0) this.#onAnswers(count);
    } catch (error) {
      this.#fail(error);
    }
    return true;
  }
}

/** @param {import("./turn.js").Turn} turn */
async function takeTurn(turn) {
  const { connections, pipeline, queues, valueBytes, operation } = turn;
  const measure = new Measure(turn);
  const conversation = conversationOf(protocol, operation);
  let fail;
  const failed = new Promise((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  const value = "v".repeat(valueBytes);
  const open = Array.from({ length: connections }, (_, index) => {
    identities[index] ??= new Identity(randomBytes(16));
    const about = { queue: `q${index % queues}`, index, value, pipeline, identity: identities[index] };
    return new Connection(conversation(about), fail);
  });
  let heard = -1;
  const watch = setInterval(() => {
    if (measure.done === heard) fail(new Error(`no answer for a minute, after ${measure.done}`));
    heard = measure.done;
  }, SILENCE_MS_MAX);
  try {
    // Not all at once: some servers have short queues for those that come.
    for (let at = 0; at < open.length; at += 100) {
      await Promise.race([failed, Promise.all(open.slice(at, at + 100).map((connection) => connection.open(turn)))]);
    }
    measure.begin();
    const all =
      turn.rate === undefined
        ? open.map((connection, index) => closedLoop(connection, index, turn, measure))
        : [openLoop(open, turn, measure)];
    await Promise.race([failed, Promise.all(all)]);
    return measure.end();
  } finally {
    clearInterval(watch);
    await Promise.all(open.map((connection) => connection.close()));
  }
}

/** The next requests when those before are answered. */
function closedLoop(connection, index, turn, measure) {
  const { pipeline, queues, seconds } = turn;
  const queue = index % queues;
  const deadlineMs = seconds === undefined ? Number.POSITIVE_INFINITY : measure.startedMs + seconds * 1000;
  let left = shareOf(turn, index);
  let sentMs = measure.startedMs;
  return new Promise((resolve) => {
    const send = () => {
      const count = Math.min(pipeline, left);
      if (count === 0 || sentMs >= deadlineMs) {
        resolve();
        return;
      }
      left -= count;
      connection.send(count);
    };
    connection.start((count) => {
      measure.done += count;
      measure.counts[queue] += count;
      if (!connection.isIdle) return;
      const nowMs = performance.now();
      measure.latency(nowMs - sentMs);
      sentMs = nowMs;
      send();
    });
    send();
  });
}

/** A request whenever its time has come, on the connection that has been idle the longest; late when there is none. */
function openLoop(connections, { rate, seconds, queues }, measure) {
  const { startedMs } = measure;
  const total = Math.floor(rate * seconds);
  const idle = connections.map((_, index) => index);
  const dueMs = new Float64Array(connections.length);
  let sent = 0;
  return new Promise((resolve) => {
    for (const [index, connection] of connections.entries()) {
      connection.start(() => {
        measure.done++;
        measure.counts[index % queues]++;
        measure.latency(performance.now() - dueMs[index]);
        idle.push(index);
        if (measure.done === total) resolve();
      });
    }
    // Looks at the clock all the time: timers would be late by up to a millisecond.
    const look = () => {
      const due = Math.min(total, Math.floor(((performance.now() - startedMs) / 1000) * rate) + 1);
      while (sent < due && idle.length > 0) {
        const index = idle.shift();
        dueMs[index] = startedMs + (sent / rate) * 1000;
        sent++;
        connections[index].send(1);
      }
      if (sent < total) setImmediate(look);
    };
    look();
  });
}

serve(takeTurn);
