/**
 * Whatever a client sends ends, at worst, its own connection. Each case plays hostile bytes beside a connection that works,
 * and the working one must not notice.
 */

import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import type { MessageQueue, TaskOptions, TaskQueue } from "../../src/api/contract.js";
import { TAKE_EACH, TAKES_FROM, type TakesEach } from "../../src/api/take-each.js";
import { type RawClient, type TestFront, withFront } from "./front.js";

const MIB = 1024 * 1024;

/** The front answers, and what it answers is right. */
async function works(front: TestFront): Promise<void> {
  const client = await front.client();
  assert.equal(await client.ask("set alive 0 0 2\r\nok\r\n"), "STORED\r\n");
  assert.equal(await client.ask("get alive\r\n", "END\r\n"), "VALUE alive 0 2\r\nok\r\nEND\r\n");
  client.destroy();
}

test("what has killed servers before ends one connection", async () => {
  await withFront({}, async (front) => {
    for (const line of [
      "get",
      "gets",
      "delete",
      "flush",
      "set q 0 0 -1",
      "set q 0 0 99999999999",
      "set q 0 0 4611686018427387904",
      "set q 0 0 9223372036854775807",
      `get q.${"c".repeat(101)}`,
      "set __proto__ 0 0 -1",
      "get constructor/open/close/peek",
      "GET / HTTP/1.1",
      "POST / HTTP/1.1",
      "\0\0\0\0",
      "set q 0 0 1e3",
      "set q 0 0 0x10",
      "get ../../etc/passwd",
      "get q/t=99999999999999999999999999",
    ]) {
      const client = await front.client();
      client.send(`${line}\r\n`);
      client.socket.end();
      await client.toEnd();
      await works(front);
    }
  });
});

test("names that mean something to JavaScript or a file system are names", async () => {
  await withFront({}, async (front) => {
    const client = await front.client();
    for (const name of ["__proto__", "constructor", "toString", "con", "NUL", "-", ":", "a".repeat(100)]) {
      assert.equal(await client.ask(`set ${name} 0 0 1\r\nx\r\n`), "STORED\r\n");
      assert.equal(await client.ask(`get ${name}\r\n`, "END\r\n"), `VALUE ${name} 0 1\r\nx\r\nEND\r\n`);
    }
    // Names that differ in case only are two queues, on every file system.
    await client.ask("set Case 0 0 1\r\nA\r\n");
    await client.ask("set case 0 0 1\r\na\r\n");
    assert.equal(await client.ask("get Case\r\n", "END\r\n"), "VALUE Case 0 1\r\nA\r\nEND\r\n");
  });
});

test("commands inside an oversize value are never carried out, wherever the packets are cut", async () => {
  await withFront({ kestrel: { maxMessageBytes: 64 } }, async (front) => {
    const other = await front.client();
    await other.ask("set keep 0 0 1\r\nx\r\n");
    const bytes = `set q 0 0 65\r\n${"flush_all\r\n".repeat(6)}\r\n`;
    for (let cut = 0; cut < bytes.length; cut += 3) {
      const client = await front.client();
      client.send(bytes.slice(0, cut));
      await new Promise((resolve) => setImmediate(resolve));
      client.send(bytes.slice(cut));
      assert.match(await client.toEnd(), /^SERVER_ERROR [^\r\n]*\r\n$/);
    }
    assert.equal(await other.ask("get keep/peek\r\n", "END\r\n"), "VALUE keep 0 1\r\nx\r\nEND\r\n");
  });
});

test("announced sizes cost nothing until the bytes come", async () => {
  await withFront({ kestrel: { maxMessageBytes: 16 * MIB } }, async (front) => {
    const clients: RawClient[] = [];
    const before = process.memoryUsage().rss;
    for (let index = 0; index < 200; index++) {
      const client = await front.client();
      client.send(`set q 0 0 ${16 * MIB}\r\nx`);
      clients.push(client);
    }
    await works(front);
    // 200 x 16 MiB were announced; a tenth of one percent has been sent.
    assert.ok(process.memoryUsage().rss - before < 200 * MIB);
    for (const client of clients) client.destroy();
    await works(front);
  });
});

test("unfinished values of all connections together have a limit, and who goes over it is told", async () => {
  await withFront({ kestrel: { maxRequestBytes: 3 * MIB, maxMessageBytes: 2 * MIB } }, async (front) => {
    const half = Buffer.alloc(MIB + 1, "x");
    const clients = await Promise.all(Array.from({ length: 4 }, () => front.client()));
    for (const client of clients) client.send(`set q 0 0 ${2 * MIB}\r\n`).send(half);
    const ended = await Promise.race(clients.map(async (client) => await client.toEnd()));
    assert.match(ended, /^SERVER_ERROR out of memory/);
    await works(front);
  });
});

test("who needs little is served when others have taken all the memory for requests", async () => {
  await withFront({ kestrel: { maxRequestBytes: 3 * MIB, maxMessageBytes: 2 * MIB } }, async (front) => {
    const part = Buffer.alloc(MIB - 100, "x");
    const greedy = await Promise.all(Array.from({ length: 3 }, () => front.client()));
    for (const client of greedy) client.send(`set q 0 0 ${2 * MIB}\r\n`).send(part);
    const small = await front.client();
    const set = `set small 0 0 10000\r\n${"s".repeat(10_000)}\r\n`;
    for (let round = 0; round < 20; round++) assert.equal(await small.ask(set), "STORED\r\n");
    await works(front);
  });
});

test("a fan-out is bounded: by its names, and by its copies together", async () => {
  await withFront({ kestrel: { maxMessageBytes: 1000 } }, async (front) => {
    for (const [names, bytes, expected] of [
      [Array(101).fill("a").join("+"), 1, /^CLIENT_ERROR/],
      ["a+b", 501, /^SERVER_ERROR object too large/],
    ] as const) {
      const client = await front.client();
      client.send(`set ${names} 0 0 ${bytes}\r\n${"x".repeat(bytes)}\r\n`);
      assert.match(await client.toEnd(), expected);
    }
    const client = await front.client();
    assert.equal(await client.ask(`set a+b 0 0 500\r\n${"x".repeat(500)}\r\n`), "STORED\r\n");
    await works(front);
  });
});

test("what is deleted while others read it can be used again at once", async () => {
  await withFront({}, async (front) => {
    const [one, two] = [await front.client(), await front.client()];
    await one.ask("set q 0 0 1\r\n1\r\n");
    for (let round = 0; round < 30; round++) {
      const command = ["delete q.k", "flush q.k", "delete r", "flush q"][round % 4]!;
      one.send(`${command}\r\n`);
      two.send("get q.k/peek\r\nget r/peek\r\n");
      await one.until("\r\n");
      await two.until("END\r\n");
      await two.until("END\r\n");
      assert.equal(await two.ask("set q+r 0 0 1\r\n2\r\n"), "STORED\r\n", command);
      assert.equal(await two.ask("get r\r\n", "END\r\n"), "VALUE r 0 1\r\n2\r\nEND\r\n", command);
      assert.match(await two.ask("get q.k\r\n", "END\r\n"), /^VALUE q 0 1\r\n/, command);
    }
  });
});

test("as many requests as fit into a packet are answered, one after another", async () => {
  await withFront({}, async (front) => {
    const client = await front.client();
    client.send("version\r\n".repeat(60_000)).send("quit\r\n");
    assert.equal((await client.toEnd()).match(/^VERSION /gm)?.length, 60_000);
  });
});

test("a line without an end is cut off at its limit", async () => {
  await withFront({}, async (front) => {
    const client = await front.client();
    client.send(Buffer.alloc(70_000, "a"));
    assert.equal(await client.toEnd(), "CLIENT_ERROR line too long\r\n");
    await works(front);
  });
});

test("connections over the limit are told so, and the others go on", async () => {
  await withFront({ kestrel: { maxConnections: 3 } }, async (front) => {
    const clients = [await front.client(), await front.client(), await front.client()];
    for (const client of clients) assert.match(await client.ask("version\r\n"), /^VERSION /);
    const one = await front.client();
    assert.match(await one.toEnd(), /^SERVER_ERROR too many connections\r\n$/);
    assert.match(await clients[0]!.ask("version\r\n"), /^VERSION /);
  });
});

test("a client that never reads its replies holds up only itself, and is bounded", async () => {
  await withFront({}, async (front) => {
    const greedy = await front.client();
    const value = "v".repeat(100_000);
    for (let index = 0; index < 50; index++) await greedy.ask(`set big 0 0 ${value.length}\r\n${value}\r\n`);
    greedy.socket.pause();
    greedy.send("get big/peek\r\n".repeat(5000));
    for (let index = 0; index < 20; index++) await works(front);
    greedy.destroy();
    await works(front);
  });
});

test("a connection that stands still in mid-request is ended, one that merely idles is not", async () => {
  await withFront({ kestrel: { stallTimeoutMs: 1 } }, async (front) => {
    const idle = await front.client();
    assert.match(await idle.ask("version\r\n"), /^VERSION /);
    const stuck = await front.client();
    stuck.send("set q 0 0 10\r\nabc");
    assert.equal(await stuck.toEnd(), "");
    assert.match(await idle.ask("version\r\n"), /^VERSION /);
  });
});

test("an open read comes back however its connection ends", async () => {
  await withFront({}, async (front) => {
    const ends: [string, (client: RawClient) => void][] = [
      ["quit", (client) => client.send("quit\r\n")],
      ["end", (client) => client.socket.end()],
      ["reset", (client) => client.socket.resetAndDestroy()],
      ["error", (client) => client.send("nonsense\r\n")],
      ["half a request", (client) => client.send("set q 0 0 100\r\nabc").socket.end()],
    ];
    const other = await front.client();
    await other.ask("set q 0 0 1\r\n1\r\n");
    for (const [what, end] of ends) {
      const client = await front.client();
      assert.equal(await client.ask("get q/open\r\n", "END\r\n"), "VALUE q 0 1\r\n1\r\nEND\r\n", what);
      end(client);
      // Waits for it, as the server may notice a moment later.
      assert.equal(await other.ask("get q/t=20000/open\r\n", "END\r\n"), "VALUE q 0 1\r\n1\r\nEND\r\n", what);
      assert.equal(await other.ask("get q/abort\r\n"), "END\r\n");
    }
  });
});

test("random bytes never take the front down, nor leave an open read behind", async () => {
  await withFront({}, async (front) => {
    const piece = fc.oneof(
      fc.constantFrom(
        "get q\r\n",
        "get q/open\r\n",
        "get q/close/open\r\n",
        "get q/abort\r\n",
        "get q.c/open\r\n",
        "get q/t=1\r\n",
        "set q 0 0 3\r\nabc\r\n",
        "set q+r 0 1 1\r\nx\r\n",
        "set q 0 0 5\r\nab",
        "flush q\r\n",
        "flush q.c\r\n",
        "delete q\r\n",
        "delete q.c\r\n",
        "stats\r\n",
        "dump_stats q\r\n",
        "flush_expired q\r\n",
        "quit\r\n",
        "\r\n",
      ),
      fc.string({ maxLength: 8 }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 12 }), fc.nat({ max: 60 }), async (pieces, cut) => {
        const bytes = Buffer.from(pieces.join(""), "latin1");
        const client = await front.client();
        client.send(bytes.subarray(0, cut));
        await new Promise((resolve) => setImmediate(resolve));
        client.send(bytes.subarray(cut));
        client.socket.end();
        await client.toEnd();
      }),
      { numRuns: 150 },
    );
    const client = await front.client();
    await client.ask("version\r\n");
    const stats = await client.ask("stats\r\n", "END\r\n");
    for (const [, open] of stats.matchAll(/_open_transactions (-?\d+)/g)) assert.equal(open, "0");
    await works(front);
  });
});

test("thousands of requests in one packet are answered in order, whatever they are", async () => {
  await withFront({}, async (front) => {
    const client = await front.client();
    const many = 5000;
    client.send(`${"version\r\n".repeat(many)}quit\r\n`);
    assert.equal(await client.toEnd(), "VERSION varve-test\r\n".repeat(many));
    await works(front);
  });
});

test("sets in a row stop at the queue's limit, and gets in a row at its end", async () => {
  await withFront({ kestrel: { settings: () => ({ limits: { maxCount: 5 } }) } }, async (front) => {
    const client = await front.client();
    const sets = "set full 0 0 1\r\nx\r\n".repeat(8);
    // Twice, as the queue is new to the front the first time.
    for (let round = 0; round < 2; round++) {
      client.send(`${sets}${"get full\r\n".repeat(8)}version\r\n`);
      assert.equal(
        await client.until("varve-test\r\n"),
        "STORED\r\n".repeat(5) +
          "NOT_STORED\r\n".repeat(3) +
          "VALUE full 0 1\r\nx\r\nEND\r\n".repeat(5) +
          "END\r\n".repeat(3) +
          "VERSION varve-test\r\n",
      );
    }
  });
});

test("a limit that a queue gets while it is used counts for sets in a row", async () => {
  await withFront({}, async (front) => {
    const client = await front.client();
    const sets = (count: number) => "set later 0 0 1\r\nx\r\n".repeat(count);
    // By the last of these, the front knows that there is no limit, and stores them together.
    for (let round = 0; round < 3; round++) {
      assert.equal(
        await client.ask(`${sets(4)}version\r\n`, "varve-test\r\n"),
        `${"STORED\r\n".repeat(4)}VERSION varve-test\r\n`,
      );
    }
    const queue = await front.mq.openTask("later");
    assert.equal((await queue.stats()).enqueued, 12);
    await queue.configure({ limits: { maxCount: 12 } });
    assert.equal(
      await client.ask(`${sets(4)}version\r\n`, "varve-test\r\n"),
      `${"NOT_STORED\r\n".repeat(4)}VERSION varve-test\r\n`,
    );
  });
});

test("requests in a row for several queues, with values of all sizes and different ends, keep their order", async () => {
  await withFront({}, async (front) => {
    const client = await front.client();
    const value = (index: number) => String(index).padStart([1, 50, 200, 5000][index % 4]!, ".");
    // So that both are open.
    for (const queue of ["rowa", "rowb"]) assert.equal(await client.ask(`get ${queue}\r\n`), "END\r\n");
    const expected: string[] = [];
    let requests = "";
    for (let index = 0; index < 200; index++) {
      const text = value(index);
      requests += `set row${index % 16 < 8 ? "a" : "b"} 0 ${index % 3 === 0 ? 60 : 0} ${text.length}\r\n${text}\r\n`;
    }
    for (const queue of ["a", "b"]) {
      for (let index = 0; index < 200; index++) {
        if (index % 16 < 8 !== (queue === "a")) continue;
        requests += `get row${queue}\r\n`;
        expected.push(`VALUE row${queue} 0 ${value(index).length}\r\n${value(index)}\r\nEND\r\n`);
      }
      requests += `get row${queue}\r\n`.repeat(3);
      expected.push("END\r\n".repeat(3));
    }
    client.send(`${requests}quit\r\n`);
    assert.equal(await client.toEnd(), "STORED\r\n".repeat(200) + expected.join(""));
  });
});

/** The directory, but with handles of task queues that are changed. */
function withTasks(mq: MessageQueue, change: (tasks: TaskQueue) => void): MessageQueue {
  return new Proxy(mq, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      if (name !== "openTask") return member.bind(target);
      return async (queue: string, options: TaskOptions) => {
        const tasks = await target.openTask(queue, options);
        change(tasks);
        return tasks;
      };
    },
  });
}

/** Those that a queue has besides the contract are not used: as with a queue that has none. */
function takeAlone(tasks: TaskQueue): void {
  (tasks as unknown as TakesEach)[TAKES_FROM] = () => undefined;
}

test("a get that fails leaves those behind it where they are", async () => {
  const failing = (tasks: TaskQueue) => {
    takeAlone(tasks);
    if (tasks.name === "bad") tasks.dequeue = () => Promise.reject(new Error("the disk is gone"));
  };
  await withFront({ around: (mq) => withTasks(mq, failing) }, async (front) => {
    const client = await front.client();
    for (const queue of ["one", "bad", "two"]) await client.ask(`set ${queue} 0 0 1\r\nx\r\n`);
    client.send("get one\r\nget bad\r\nget two\r\n");
    assert.equal(await client.toEnd(), "VALUE one 0 1\r\nx\r\nEND\r\nSERVER_ERROR Error: the disk is gone\r\n");
    const other = await front.client();
    assert.equal(await other.ask("get two\r\n", "END\r\n"), "VALUE two 0 1\r\nx\r\nEND\r\n");
  });
});

test("gets in a row of which one fails give what those before it have taken", async () => {
  let calls = 0;
  const failing = (tasks: TaskQueue) => {
    takeAlone(tasks);
    const take = tasks.dequeueBatch.bind(tasks);
    tasks.dequeueBatch = async (options) => {
      if (++calls === 3) throw new Error("the disk is gone");
      return await take({ ...options, max: 1 }); // fewer than it is asked for
    };
  };
  await withFront({ around: (mq) => withTasks(mq, failing) }, async (front) => {
    const client = await front.client();
    for (const value of ["0", "1", "2", "3"]) await client.ask(`set a 0 0 1\r\n${value}\r\n`);
    assert.equal(await client.ask("get a\r\n", "END\r\n"), "VALUE a 0 1\r\n0\r\nEND\r\n");
    client.send("get a\r\n".repeat(4));
    const given = ["1", "2"].map((value) => `VALUE a 0 1\r\n${value}\r\nEND\r\n`).join("");
    assert.equal(await client.toEnd(), `${given}SERVER_ERROR Error: the disk is gone\r\n`);
    const other = await front.client();
    assert.equal(await other.ask("get a\r\n", "END\r\n"), "VALUE a 0 1\r\n3\r\nEND\r\n");
  });
});

test("gets in a row of which some are given something do not take that as if it were all", async () => {
  const fewer = (tasks: TaskQueue) => {
    const each = tasks as unknown as TakesEach;
    const take = each[TAKE_EACH].bind(tasks);
    each[TAKE_EACH] = (line) => {
      const { durability, autoAck, leaseMs } = line;
      take({
        ...{ durability, autoAck, leaseMs },
        get count() {
          return line.count;
        },
        weed: (from, to) => line.weed(from, to),
        maxOf: (place) => Math.min(2, line.maxOf(place)),
        waits: (place) => line.waits(place),
        told: (place, given, from, to) => line.told(place, given, from, to),
        failed: (place, error) => line.failed(place, error),
        alone: (place) => line.alone(place),
      });
    };
  };
  await withFront({ around: (mq) => withTasks(mq, fewer) }, async (front) => {
    const client = await front.client();
    const long = "x".repeat(3000);
    for (const value of ["0", long, "2", long, "4"]) await client.ask(`set a 0 0 ${value.length}\r\n${value}\r\n`);
    client.send(`${"get a\r\n".repeat(7)}quit\r\n`);
    const given = ["0", long, "2", long, "4"].map((value) => `VALUE a 0 ${value.length}\r\n${value}\r\nEND\r\n`);
    assert.equal(await client.toEnd(), `${given.join("")}END\r\nEND\r\n`);
  });
});

test("what follows on a get is not begun in the midst of the commit that gave its item", async () => {
  let isGiving = false;
  let given = 0;
  const early: string[] = [];
  const watched = (tasks: TaskQueue) => {
    const each = tasks as unknown as TakesEach;
    const take = each[TAKE_EACH].bind(tasks);
    each[TAKE_EACH] = (line) => {
      const { durability, autoAck, leaseMs } = line;
      if (isGiving) early.push("get");
      take({
        ...{ durability, autoAck, leaseMs },
        get count() {
          return line.count;
        },
        weed: (from, to) => line.weed(from, to),
        // One at a time: whoever wants two has to ask again.
        maxOf: () => 1,
        waits: (place) => line.waits(place),
        told: (place, tasks, from, to) => {
          isGiving = true;
          given += to - from;
          line.told(place, tasks, from, to);
          isGiving = false;
        },
        failed: (place, error) => line.failed(place, error),
        alone: (place) => line.alone(place),
      });
    };
    const enqueue = tasks.enqueue.bind(tasks);
    tasks.enqueue = (...call) => {
      if (isGiving) early.push("set");
      return enqueue(...call);
    };
    const dequeueBatch = tasks.dequeueBatch.bind(tasks);
    tasks.dequeueBatch = (...call) => {
      if (isGiving) early.push("get");
      return dequeueBatch(...call);
    };
  };
  await withFront({ around: (mq) => withTasks(mq, watched) }, async (front) => {
    const client = await front.client();
    const die = Math.floor(Date.now() / 1000) + 3600;
    for (const value of ["0", "1", "2"]) await client.ask(`set a 0 0 1\r\n${value}\r\n`);
    // What is not open yet is opened first.
    await client.ask("set b 0 0 1\r\nw\r\n");
    client.send(`get a\r\nset b 0 ${die} 1\r\nx\r\nget a\r\nget a\r\nset b 0 ${die} 1\r\ny\r\nquit\r\n`);
    const value = (text: string) => `VALUE a 0 1\r\n${text}\r\nEND\r\n`;
    assert.equal(await client.toEnd(), `${value("0")}STORED\r\n${value("1")}${value("2")}STORED\r\n`);
  });
  assert.ok(given > 0);
  assert.deepEqual(early, []);
});

test("gets of one turn, of several clients: each has what its number in the line gives it, and one has the error", async () => {
  let fails = false;
  let failed = 0;
  const failing = (tasks: TaskQueue) => {
    const each = tasks as unknown as TakesEach;
    const take = each[TAKE_EACH].bind(tasks);
    each[TAKE_EACH] = (line) => {
      if (!fails || line.count === 1 || failed++ > 0) {
        take(line);
        return;
      }
      line.failed(0, new Error("the disk is gone"));
      take({
        durability: line.durability,
        autoAck: line.autoAck,
        leaseMs: line.leaseMs,
        get count() {
          return line.count - 1;
        },
        weed: (from, to) => line.weed(from + 1, to + 1) - 1,
        maxOf: (place) => line.maxOf(place + 1),
        waits: (place) => line.waits(place + 1),
        told: (place, given, from, to) => line.told(place + 1, given, from, to),
        failed: (place, error) => line.failed(place + 1, error),
        alone: (place) => line.alone(place + 1),
      });
    };
  };
  await withFront({ around: (mq) => withTasks(mq, failing) }, async (front) => {
    const setter = await front.client();
    const value = (text: string) => `VALUE a 0 1\r\n${text}\r\nEND\r\n`;
    const getAll = async () => {
      const clients = await Promise.all(Array.from({ length: 4 }, () => front.client()));
      // One by one they are accepted; then what they send is read in one turn.
      for (const client of clients) await client.ask("version\r\n");
      for (const client of clients) client.send("get a\r\nquit\r\n");
      return await Promise.all(clients.map((client) => client.toEnd()));
    };
    const store = () =>
      setter.ask("set a 0 0 1\r\n0\r\nset a 0 0 1\r\n1\r\nset a 0 0 1\r\n2\r\n", "STORED\r\n".repeat(3));
    await store();
    assert.deepEqual((await getAll()).sort(), [...["0", "1", "2"].map(value), "END\r\n"].sort());
    fails = true;
    // That they arrive in one turn is likely, no more.
    for (let round = 0; round < 20 && failed === 0; round++) {
      await store();
      const answers = (await getAll()).sort();
      const others = failed === 0 ? [...["0", "1", "2"].map(value), "END\r\n"] : ["0", "1", "2"].map(value);
      const error = failed === 0 ? [] : ["SERVER_ERROR Error: the disk is gone\r\n"];
      assert.deepEqual(answers, [...others, ...error].sort());
    }
    assert.ok(failed > 0, "they have shared a call");
  });
});

test("sets and gets in a row make a queue again that others have deleted", async () => {
  await withFront({}, async (front) => {
    const client = await front.client();
    const sets = "set q 0 0 1\r\nx\r\n".repeat(4);
    const gets = "get q\r\n".repeat(4);
    const value = "VALUE q 0 1\r\nx\r\nEND\r\n";
    for (let round = 0; round < 3; round++) {
      client.send(`${sets}${gets}version\r\n`);
      const expected = `${"STORED\r\n".repeat(4)}${value.repeat(4)}VERSION varve-test\r\n`;
      assert.equal(await client.until("varve-test\r\n"), expected, `round ${round}`);
      await front.mq.deleteQueue("task", "q");
      if (round < 2) continue;
      assert.equal(
        await client.ask(`${gets}version\r\n`, "varve-test\r\n"),
        `${"END\r\n".repeat(4)}VERSION varve-test\r\n`,
      );
    }
  });
});

void test("a client that names queue after queue is told that there are too many", async () => {
  await withFront({ open: { maxQueues: 3 } }, async ({ client, mq }) => {
    const names = await client();
    for (const name of ["a", "b", "c"]) assert.equal(await names.ask(`set ${name} 0 0 1\r\nx\r\n`), "STORED\r\n");
    for (const request of ["set d 0 0 1\r\nx\r\n", "get d\r\n", "get d/t=10\r\n", "set a+d 0 0 1\r\nx\r\n"]) {
      assert.equal(await (await client()).ask(request), "SERVER_ERROR too many queues\r\n", request);
    }
    assert.equal(await names.ask("get c\r\n", "END\r\n"), "VALUE c 0 1\r\nx\r\nEND\r\n");
    assert.equal(await names.ask("delete c\r\n"), "DELETED\r\n");
    assert.equal(await names.ask("set d 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert.deepEqual(
      (await mq.queues()).map(({ name }) => name),
      ["a", "b", "d"],
    );
  });
});
