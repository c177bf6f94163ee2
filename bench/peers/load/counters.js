/**
 * How many answers have come. An answer is not read further than that takes, and than it takes to tell a refusal; all of
 * them cost the generator about the same.
 *
 * @typedef {object} Counter
 * @property {(bytes: Buffer, reply: (bytes: string) => void) => number} count answers that are complete with these bytes;
 * `reply` sends what the server must hear before it goes on
 */

const LF = 10;
const HEAD_BYTES = 9;
const OK = 0x80;
const NOTHING = Buffer.alloc(0);

function refused(bytes) {
  const text = bytes.toString("latin1", 0, Math.min(bytes.length, 200)).replace(/[^\x20-\x7e]+/g, " ");
  return new Error(`the server answered: ${text}`);
}

/** Answers of one or more lines. */
export class Lines {
  #each;
  #first;
  #lines = 0;
  /** The last piece ended inside an answer. */
  #isInside = false;

  /** @param {number} each lines of an answer  @param {string} [first] what an answer begins with, unless it is a refusal */
  constructor(each, first) {
    this.#each = each;
    this.#first = first?.charCodeAt(0);
  }

  count(bytes) {
    if (!this.#isInside && this.#first !== undefined && bytes[0] !== this.#first) throw refused(bytes);
    let lines = this.#lines;
    for (let at = bytes.indexOf(LF); at >= 0; at = bytes.indexOf(LF, at + 1)) lines++;
    const whole = Math.floor(lines / this.#each);
    this.#lines = lines - whole * this.#each;
    this.#isInside = this.#lines > 0 || bytes.at(-1) !== LF;
    return whole;
  }
}

/** Answers that are all of one length. */
export class Sized {
  #size;
  #first;
  #partial = 0;

  constructor(size, first) {
    this.#size = size;
    this.#first = first.charCodeAt(0);
  }

  count(bytes) {
    if (this.#partial === 0 && bytes[0] !== this.#first) throw refused(bytes);
    const all = this.#partial + bytes.length;
    const whole = Math.floor(all / this.#size);
    this.#partial = all - whole * this.#size;
    return whole;
  }
}

/** Puts what was left of the last piece in front of the next. */
class Remainder {
  #rest = NOTHING;

  join(bytes) {
    return this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
  }

  /** The generator's buffer is used again, so it is copied. */
  keep(bytes, at) {
    this.#rest = at === bytes.length ? NOTHING : Buffer.from(bytes.subarray(at));
  }
}

/** Frames of varve's protocol; docs/protocol.md. */
export class FrameAnswers {
  #remainder = new Remainder();
  #least;

  /** @param {number} least bytes of an answer: one that hands out nothing is shorter */
  constructor(least = HEAD_BYTES) {
    this.#least = least;
  }

  count(piece) {
    const bytes = this.#remainder.join(piece);
    let whole = 0;
    let at = 0;
    while (bytes.length - at >= HEAD_BYTES) {
      const end = at + 4 + bytes.readUInt32LE(at);
      if (end > bytes.length) break;
      if (bytes[at + 4] !== OK) throw refused(bytes.subarray(at + HEAD_BYTES, end));
      if (end - at < this.#least) throw new Error("a queue ran empty");
      whole++;
      at = end;
    }
    this.#remainder.keep(bytes, at);
    return whole;
  }
}

const M = 77;
const P = 80;

/** Messages that a NATS server delivers: the answers to requests. */
export class NatsMessages {
  #remainder = new Remainder();

  count(piece, reply) {
    const bytes = this.#remainder.join(piece);
    let whole = 0;
    let at = 0;
    for (let end = bytes.indexOf(LF); end >= 0; end = bytes.indexOf(LF, at)) {
      if (bytes[at] === M) {
        // MSG <subject> <subscription> [<reply>] <bytes>: the last number, read from behind.
        let size = 0;
        for (let digit = end - 2, ten = 1; bytes[digit] !== 32; digit--, ten *= 10) size += (bytes[digit] - 48) * ten;
        const next = end + 1 + size + 2;
        if (next > bytes.length) break;
        if (size === 0) throw new Error("a queue ran empty");
        if (bytes.indexOf('"error"', end) === end + 2) throw refused(bytes.subarray(end + 1, next));
        whole++;
        at = next;
      } else if (bytes[at] === P) {
        if (bytes[at + 1] === "I".charCodeAt(0)) reply("PONG\r\n");
        at = end + 1;
      } else {
        throw refused(bytes.subarray(at));
      }
    }
    this.#remainder.keep(bytes, at);
    return whole;
  }
}

/** Jobs that beanstalkd hands out. Each is deleted, and counts when that is answered: the id must be read for it. */
export class BeanstalkJobs {
  #text = "";

  count(piece, reply) {
    let text = this.#text + piece.toString("latin1");
    let deleted = 0;
    let deletes = "";
    for (let end = text.indexOf("\r\n"); end >= 0; end = text.indexOf("\r\n")) {
      const line = text.slice(0, end);
      const job = /^RESERVED (\d+) (\d+)$/.exec(line);
      if (job === null) {
        if (line !== "DELETED") throw refused(Buffer.from(line));
        deleted++;
        text = text.slice(end + 2);
        continue;
      }
      const size = end + 2 + Number(job[2]) + 2;
      if (text.length < size) break;
      text = text.slice(size);
      deletes += `delete ${job[1]}\r\n`;
    }
    this.#text = text;
    if (deletes !== "") reply(deletes);
    return deleted;
  }
}
