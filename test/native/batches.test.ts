/** Large batches: each arrives as it was when it was sent, whatever else uses the buffers that it goes through. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { dial, type LogQueue, type OpenOptions, open } from "../../src/index.js";
import { giveLarge, takeLarge } from "../../src/wire/buffers.js";
import { Methods } from "../../src/wire/methods.js";
import { withDirectory } from "../support/directories.js";
import { eventually } from "../support/expect.js";
import { freeTarget, type Listening, listen } from "../support/listening.js";
import { Seeded, seedOr } from "../support/seeded.js";
import { withNative } from "./raw-native.js";

async function withDaemon(body: (listening: Listening) => Promise<void>, options: OpenOptions = {}): Promise<void> {
  await withDirectory(async (directory) => {
    const listening = await listen(await open(directory, { durability: "async", ...options }), freeTarget("tcp"));
    try {
      await body(listening);
    } finally {
      await listening.close();
    }
  });
}

/** Records that tell by themselves whether they are whole, and in their batch: `<client>.<call>.<index>` again and again. */
function batchOf(random: Seeded, client: number, call: number): Buffer[] {
  const most = random.pick([10, 2000, 20_000]);
  return Array.from({ length: random.between(1, 64) }, (_, index) =>
    Buffer.alloc(random.between(12, 12 + most), `${client}.${call}.${index} `),
  );
}

function checkWhole(payload: Buffer): { readonly client: number; readonly call: number; readonly index: number } {
  const mark = payload.toString("latin1", 0, payload.indexOf(" ") + 1);
  assert.ok(payload.equals(Buffer.alloc(payload.length, mark)), `${mark}, and something else`);
  const [client, call, index] = mark.split(".").map(Number);
  return { client: client!, call: call!, index: index! };
}

async function checkLog(log: LogQueue, calls: number): Promise<void> {
  const last = new Map<number, { readonly call: number; readonly index: number }>();
  for await (const records of log.batches()) {
    for (const { payload } of records) {
      const { client, call, index } = checkWhole(payload);
      const before = last.get(client) ?? { call: -1, index: 0 };
      if (index === 0) assert.equal(call, before.call + 1);
      else assert.deepEqual(before, { call, index: index - 1 });
      last.set(client, { call, index });
    }
  }
  for (const { call } of last.values()) assert.equal(call, calls - 1);
}

test("batches of several clients at once arrive whole, and their buffers are the clients' own again at once", async () => {
  const random = new Seeded(seedOr(6101));
  await withDaemon(async ({ mq, target }) => {
    const clients = await Promise.all(Array.from({ length: 4 }, () => dial(target)));
    await Promise.all(
      clients.map(async (client, number) => {
        const log = await client.openLog("log");
        const appends: Promise<unknown>[] = [];
        for (let call = 0; call < 60; call++) {
          const batch = batchOf(random, number, call);
          appends.push(log.appendBatch(batch));
          for (const message of batch) message.fill(0xee);
          if (appends.length % 12 === 0) await Promise.all(appends);
        }
        await Promise.all(appends);
      }),
    );
    await checkLog(await mq.openLog("log"), 60);
    await checkLog(await clients[0]!.openLog("log"), 60);
    await Promise.all(clients.map((client) => client.close()));
  });
});

test("a call that waits for room keeps what it was given, while others use what its frame was read into", async () => {
  await withDaemon(async ({ mq, target }) => {
    const client = await dial(target);
    const full = await client.openLog("full", { limits: { maxCount: 1, whenFull: "wait" } });
    const other = await client.openLog("other");
    await full.append("first");
    const payload = Buffer.alloc(30_000, "p");
    const waiting = full.append({ payload, key: "key", headers: { name: "value" } });
    await other.appendBatch([Buffer.alloc(100_000, "x"), Buffer.alloc(90_000, "y")]);
    await other.append("z");
    await full.trim(1);
    assert.equal(await waiting, 1);
    const record = await (await mq.openLog("full")).read(1);
    assert.ok(record?.payload.equals(payload));
    assert.equal(record?.key?.toString(), "key");
    assert.deepEqual({ ...record?.headers }, { name: "value" });
    await client.close();
  });
});

test("what several read at once, from segments, the log and memory, is as it was written", async () => {
  const random = new Seeded(seedOr(6103));
  const calls = 150;
  const options = { walFileBytes: "4MiB", maxMessageBytes: "1MiB", segmentBytes: "4MiB", cacheBytes: "4MiB" } as const;
  await withDaemon(async ({ mq, target }) => {
    const clients = await Promise.all(Array.from({ length: 3 }, () => dial(target)));
    const logs = await Promise.all(clients.map((client) => client.openLog("log")));
    const writing = (async () => {
      for (let call = 0; call < calls; call++) await logs[0]!.appendBatch(batchOf(random, 0, call));
    })();
    const following = logs.map(async (log) => {
      const kept: Buffer[] = [];
      for await (const { payload } of log.tail({ from: "start" })) {
        kept.push(payload);
        if (checkWhole(payload).call === calls - 1) break;
      }
      for (const payload of kept) checkWhole(payload);
    });
    await Promise.all([writing, ...following]);
    await (await mq.openLog("log")).append(Buffer.alloc(100, `0.${calls}.0 `));
    await Promise.all(logs.map((log) => checkLog(log, calls + 1)));
    await Promise.all(clients.map((client) => client.close()));
  }, options);
});

test("a daemon that is not asked for arrays sends frames that several of fit on their way", async () => {
  await withDaemon(async ({ mq, target }) => {
    const client = await dial(target);
    const log = await client.openLog("log");
    const batch = Array.from({ length: 64 }, () => Buffer.alloc(1024));
    for (let call = 0; call < 40; call++) await log.appendBatch(batch);
    const sizes: number[] = [];
    for await (const records of log.batches())
      sizes.push(records.reduce((sum, { payload }) => sum + payload.length, 0));
    assert.equal(
      sizes.reduce((sum, size) => sum + size, 0),
      40 * 64 * 1024,
    );
    assert.ok(Math.max(...sizes) <= 256 * 1024, `${sizes}`);
    const small: number[] = [];
    for await (const records of log.batches({ maxBytes: 8192 })) small.push(records.length);
    assert.deepEqual(new Set(small), new Set([8]));
    assert.equal((await (await mq.openLog("log")).stats()).count, 40 * 64);
    await client.close();
  });
});

test("batches whose answers are lost are sent again as they were", async () => {
  const random = new Seeded(seedOr(6102));
  await withDaemon(async ({ mq, target }) => {
    const { port } = new URL(target.replace("tcp:", "http:"));
    const sockets = new Set<Socket>();
    let arrived = 0;
    const proxy = createServer((near) => {
      const far = connect(Number(port), "127.0.0.1");
      for (const socket of [near, far]) {
        sockets.add(socket);
        socket.on("error", () => {});
        socket.on("close", () => {
          near.destroy();
          far.destroy();
        });
      }
      near.on("data", (piece: Buffer) => {
        arrived += piece.length;
        far.write(piece);
      });
      far.pipe(near);
    });
    proxy.listen(0, "127.0.0.1");
    await once(proxy, "listening");
    const client = await dial(`tcp://127.0.0.1:${(proxy.address() as { port: number }).port}`);
    const log = await client.openLog("log");
    const appends: Promise<unknown>[] = [];
    for (let call = 0; call < 80; call++) {
      appends.push(log.appendBatch(batchOf(random, 0, call)));
      if (call % 10 !== 9) continue;
      const before = arrived;
      await eventually("some of it is on its way", () => arrived > before);
      for (const socket of sockets) socket.destroy();
      sockets.clear();
      if (call % 20 === 19) await Promise.all(appends);
    }
    await Promise.all(appends);
    await checkLog(await mq.openLog("log"), 80);
    await client.close();
    proxy.close();
  });
});

test("what an answer was estimated too large for is given back as well", () =>
  withNative({}, async (native) => {
    const client = await native.connect();
    await client.enter();
    await client.call(Methods.openLog, 1, ["log", undefined]);
    const log = await native.mq.openLog("log");
    // Of headers three bytes for each character are set aside.
    await log.append("a", { headers: { long: "x".repeat(12_000) } });
    const next = takeLarge();
    giveLarge(next);
    const answer = await client.ask(Methods.read, 1, (output) => output.u64(0));
    assert.ok("value" in answer && answer.value.length < 32 * 1024);
    await eventually("it is back", async () => {
      const free = takeLarge();
      giveLarge(free);
      return free === next;
    });
  }));
