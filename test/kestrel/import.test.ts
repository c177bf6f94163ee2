/** Queues are moved here from another server, whatever stops meanwhile: nothing is lost, and little comes twice. */

import assert from "node:assert/strict";
import { join } from "node:path";
import test from "node:test";
import type { MessageQueue } from "../../src/api/contract.js";
import { open } from "../../src/index.js";
import { type ImportProgress, importKestrel } from "../../src/kestrel/import.js";
import { owns, startVarve, varve } from "../cli/program.js";
import { withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { Seeded } from "../support/seeded.js";
import { withFront } from "./front.js";
import { FakeSiberite } from "./siberite.js";

const HOST = "127.0.0.1";

async function withSiberite(body: (siberite: FakeSiberite, directory: string) => Promise<void>): Promise<void> {
  const siberite = new FakeSiberite();
  await siberite.listen();
  try {
    await withDirectory(async (directory) => await body(siberite, join(directory, "data")));
  } finally {
    await siberite.close();
  }
}

async function withQueue<T>(directory: string, body: (mq: MessageQueue) => Promise<T>): Promise<T> {
  const mq = await open(directory);
  try {
    return await body(mq);
  } finally {
    await mq.close();
  }
}

/** What waits in a queue, in order; it is removed. */
async function drained(mq: MessageQueue, name: string): Promise<string[]> {
  const tasks = await mq.openTask(name);
  const items: string[] = [];
  for (;;) {
    const some = await tasks.dequeueBatch({ max: 1000, autoAck: true });
    if (some.length === 0) return items;
    items.push(...some.map(({ payload }) => payload.toString("latin1")));
  }
}

function fill(siberite: FakeSiberite, queue: string, count: number): string[] {
  const items = Array.from({ length: count }, (_, index) => `${queue} ${index}`);
  siberite.queues.set(
    queue,
    items.map((item) => Buffer.from(item)),
  );
  return items;
}

/** All have come, in their order; those that came again did so at once. Returns how many came again. */
function checkOrder(items: readonly string[], expected: readonly string[]): number {
  const firsts = items.filter((item, index) => item !== items[index - 1]);
  assert.deepEqual(firsts, expected);
  return items.length - firsts.length;
}

test("the queues of a Siberite server are moved, in order, with items of no bytes between them, and told of", async () => {
  await withSiberite(async (siberite, directory) => {
    const expected = new Map([600, 0, 3].map((count, index) => [`q${index}`, fill(siberite, `q${index}`, count)]));
    // Two of these Siberite cannot deliver: it takes them for "nothing there", and goes on behind them.
    siberite.queues.get("q2")!.splice(1, 0, Buffer.alloc(0), Buffer.alloc(0));
    await withQueue(directory, async (mq) => {
      const told: ImportProgress[] = [];
      const imported = await importKestrel(mq, {
        host: HOST,
        port: siberite.port,
        onProgress: (progress) => told.push(progress),
      });
      assert.deepEqual(
        imported.map(({ queue, moved }) => [queue, moved]),
        [
          ["q0", 600],
          ["q1", 0],
          ["q2", 3],
        ],
      );
      assert.equal(imported[0]?.bytes, expected.get("q0")!.join("").length);
      for (const [queue, items] of expected) assert.deepEqual(await drained(mq, queue), items);
      const ofFirst = told.filter(({ queue }) => queue === "q0");
      assert.deepEqual(
        ofFirst.map(({ moved, expected }) => [moved, expected]),
        [
          [256, 600],
          [512, 600],
          [600, 600],
        ],
      );
    });
    assert.deepEqual([...siberite.queues.values()].flat(), []);
  });
});

test("only the queues that are named are moved", async () => {
  await withSiberite(async (siberite, directory) => {
    for (const queue of ["one", "two"]) fill(siberite, queue, 3);
    await withQueue(directory, async (mq) => {
      await importKestrel(mq, { host: HOST, port: siberite.port, queues: ["two"] });
      assert.deepEqual(
        (await mq.queues()).map(({ name }) => name),
        ["two"],
      );
    });
    assert.equal(siberite.queues.get("one")?.length, 3);
  });
});

test("an import that loses its connections says so; run again, it goes on, and one item a cut comes twice at most", async () => {
  await withSiberite(async (siberite, directory) => {
    const random = new Seeded(7);
    const expected = ["a", "b", "c"].map((queue) => fill(siberite, queue, 200));
    const cuts = { before: 0, after: 0 };
    siberite.cut = () => {
      if (cuts.before + cuts.after >= 8 || !random.chance(0.03)) return undefined;
      const cut = random.pick(["before", "after"] as const);
      cuts[cut]++;
      return cut;
    };
    await withQueue(directory, async (mq) => {
      let failures = 0;
      for (;;) {
        try {
          await importKestrel(mq, { host: HOST, port: siberite.port });
          break;
        } catch (error) {
          assert.equal((error as { code?: string }).code, "ERR_IO");
          failures++;
        }
      }
      assert.ok(failures > 0);
      const counts = await Promise.all(
        expected.map(async (items, index) => checkOrder(await drained(mq, "abc"[index]!), items)),
      );
      // All three connections are lost together.
      assert.ok(Math.max(...counts) <= cuts.before + cuts.after, `${counts} came again, ${JSON.stringify(cuts)}`);
    });
  });
});

test("an import that is told to stop ends in order: nothing comes twice when it is run again", async () => {
  await withFront({ open: { durability: "async" } }, async (source) => {
    const expected = Array.from({ length: 500 }, (_, index) => `${index}`);
    await (await source.mq.openTask("jobs")).enqueueBatch(expected);
    await withDirectory(async (directory) => {
      await withQueue(directory, async (mq) => {
        const stop = new AbortController();
        const first = importKestrel(mq, {
          host: HOST,
          port: source.port,
          signal: stop.signal,
          onProgress: () => stop.abort(),
        });
        const moved = (await first)[0]!.moved;
        assert.ok(moved >= 256 && moved < 500, `${moved} moved`);
        await importKestrel(mq, { host: HOST, port: source.port });
        assert.deepEqual(await drained(mq, "jobs"), expected);
      });
    });
    assert.equal((await (await source.mq.openTask("jobs")).stats()).ready, 0);
  });
});

test("varve import, killed again and again, loses nothing", async () => {
  await withSiberite(async (siberite, directory) => {
    const expected = ["a", "b"].map((queue) => fill(siberite, queue, 150));
    const command = ["import", `kestrel://${HOST}:${siberite.port}`, "--data-dir", directory];
    const kills = 3;
    for (let round = 0; round < kills; round++) {
      const running = startVarve(command);
      const until = siberite.confirmed + 20 + 10 * round;
      const reached = new Promise<void>((resolve) => {
        siberite.cut = () => {
          if (siberite.confirmed >= until) resolve();
          return undefined;
        };
      });
      await owns(directory, running);
      await reached;
      running.child.kill("SIGKILL");
      await running.ended;
    }
    siberite.cut = () => undefined;
    const { code, stdout } = await varve([...command, "--json"]);
    assert.equal(code, 0);
    const { queues } = JSON.parse(stdout) as { queues: { queue: string; moved: number }[] };
    assert.deepEqual(
      queues.map(({ queue }) => queue),
      ["a", "b"],
    );
    await withQueue(directory, async (mq) => {
      for (const [index, items] of expected.entries()) {
        assert.ok(checkOrder(await drained(mq, "ab"[index]!), items) <= kills);
      }
    });
  });
});

test("a child queue of Kestrel goes by a name that is one here, and never together with another queue", async () => {
  await withSiberite(async (kestrel, directory) => {
    const parent = fill(kestrel, "orders", 3);
    const child = fill(kestrel, "orders+audit", 4);
    await withQueue(directory, async (mq) => {
      const imported = await importKestrel(mq, { host: HOST, port: kestrel.port });
      assert.deepEqual(
        imported.map(({ queue, into, moved }) => [queue, into, moved]),
        [
          ["orders", "orders", 3],
          ["orders+audit", "orders:audit", 4],
        ],
      );
      assert.deepEqual(await drained(mq, "orders"), parent);
      assert.deepEqual(await drained(mq, "orders:audit"), child);
    });
    fill(kestrel, "orders:audit", 1);
    const left = fill(kestrel, "orders+audit", 1);
    await withQueue(directory, async (mq) => {
      const both = importKestrel(mq, { host: HOST, port: kestrel.port });
      await rejectsWith("ERR_ARGUMENT", both, /orders\+audit and orders:audit|orders:audit and orders\+audit/);
      assert.deepEqual(await drained(mq, "orders:audit"), []);
      await importKestrel(mq, { host: HOST, port: kestrel.port, queues: ["orders+audit"] });
      assert.deepEqual(await drained(mq, "orders:audit"), left);
    });
  });
});

test("what is no such server is told of, and the import ends", async () => {
  await withDirectory(async (directory) => {
    const nobody = new FakeSiberite();
    await nobody.listen();
    const { port } = nobody;
    await nobody.close();
    const { code, stderr } = await varve([
      "import",
      `kestrel://${HOST}:${port}`,
      "--data-dir",
      join(directory, "data"),
    ]);
    assert.equal(code, 1);
    assert.match(stderr, /cannot connect to 127\.0\.0\.1/);
  });
});
