/** Values flow between the protocol and the contract: the same queues, whoever asks. */

import assert from "node:assert/strict";
import test from "node:test";
import { withFront } from "./front.js";

test("what set stores, dequeue delivers, and the other way round", async () => {
  await withFront({}, async ({ mq, client }) => {
    const one = await client();
    const jobs = await mq.openTask("jobs");
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, value) => value));
    one.send(`set jobs 0 0 ${bytes.length}\r\n`).send(bytes).send("\r\n");
    assert.equal(await one.until("\r\n"), "STORED\r\n");
    const task = await jobs.dequeue();
    assert.deepEqual(task?.payload, bytes);
    await jobs.ack(task!);
    await jobs.enqueue("from inside", { key: "k", headers: { a: "b" } });
    assert.equal(await one.ask("get jobs\r\n", "END\r\n"), "VALUE jobs 0 11\r\nfrom inside\r\nEND\r\n");
    assert.equal((await jobs.stats()).ready, 0);
  });
});

test("a waiting read gets what is enqueued inside, and a waiting dequeue what is set", async () => {
  await withFront({}, async ({ mq, client }) => {
    const one = await client();
    const jobs = await mq.openTask("jobs");
    const reading = one.ask("get jobs/t=60000\r\n", "END\r\n");
    await one.socket.writableLength;
    await jobs.enqueue("x");
    assert.equal(await reading, "VALUE jobs 0 1\r\nx\r\nEND\r\n");
    const taking = jobs.dequeue({ wait: "60s" });
    await one.ask("set jobs 0 0 1\r\ny\r\n");
    assert.equal((await taking)?.payload.toString(), "y");
  });
});

test("an open read is a lease: nobody else gets it, and it shows in the queue's stats", async () => {
  await withFront({}, async ({ mq, client }) => {
    const one = await client();
    const jobs = await mq.openTask("jobs");
    await jobs.enqueue("x");
    await one.ask("get jobs/open\r\n", "END\r\n");
    assert.equal(await jobs.dequeue(), undefined);
    assert.equal((await jobs.stats()).leased, 1);
    await one.ask("get jobs/close\r\n");
    assert.equal((await jobs.stats()).leased, 0);
    assert.equal((await jobs.stats()).ready, 0);
  });
});

test("a fan-out is one commit: all queues have it, or none", async () => {
  await withFront(
    { kestrel: { settings: (name) => (name === "b" ? { limits: { maxCount: 1 } } : {}) } },
    async ({ client }) => {
      const one = await client();
      assert.equal(await one.ask("set a+b+c 0 0 1\r\n1\r\n"), "STORED\r\n");
      assert.equal(await one.ask("set a+b+c 0 0 1\r\n2\r\n"), "NOT_STORED\r\n");
      for (const queue of ["a", "b", "c"]) {
        assert.equal(await one.ask(`get ${queue}\r\n`, "END\r\n"), `VALUE ${queue} 0 1\r\n1\r\nEND\r\n`);
        assert.equal(await one.ask(`get ${queue}\r\n`), "END\r\n");
      }
    },
  );
});

test("sets that are sent at once go in in their order, also those of a fan-out", async () => {
  await withFront({}, async ({ client }) => {
    const one = await client();
    const die = Math.floor(Date.now() / 1000) + 3600;
    for (const queue of ["a", "b"]) await one.ask(`set ${queue} 0 0 1\r\n0\r\n`);
    const names = ["a+b", "a", "b", "new+a", "a+b", "a", "a", "a+b", "b+a"];
    const sets = names.map((name, at) => `set ${name} 0 ${at % 3 === 1 ? die : 0} 1\r\n${at + 1}\r\n`);
    one.send(sets.join(""));
    const replies = "STORED\r\n".repeat(names.length);
    assert.equal((await one.until(replies)).length, replies.length);
    for (const queue of ["a", "b", "new"]) {
      const stored = names.flatMap((name, at) => (name.split("+").includes(queue) ? [at + 1] : []));
      for (const item of queue === "new" ? stored : [0, ...stored]) {
        assert.equal(await one.ask(`get ${queue}\r\n`, "END\r\n"), `VALUE ${queue} 0 1\r\n${item}\r\nEND\r\n`);
      }
    }
  });
});

test("with synced commits, replies come all the same, in order, to clients that pipeline and those that do not", async () => {
  await withFront({ open: { durability: "sync" } }, async (front) => {
    const clients = await Promise.all(Array.from({ length: 8 }, () => front.client()));
    await Promise.all(
      clients.map(async (client, index) => {
        for (let round = 0; round < 10; round++) {
          assert.equal(await client.ask(`set s${index} 0 0 1\r\n${round}\r\n`), "STORED\r\n");
          const value = `VALUE s${index} 0 1\r\n${round}\r\nEND\r\n`;
          assert.equal(await client.ask(`get s${index}\r\n`, "END\r\n"), value);
        }
        client.send(`set s${index} 0 0 1\r\nx\r\nget s${index}\r\nversion\r\nquit\r\n`);
        const all = `STORED\r\nVALUE s${index} 0 1\r\nx\r\nEND\r\nVERSION varve-test\r\n`;
        assert.equal(await client.toEnd(), all);
      }),
    );
  });
});
