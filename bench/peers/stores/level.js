/** LevelDB by classic-level. */

import { ClassicLevel } from "classic-level";
import { drive } from "../entry.js";
import { leaseOf, ReadyList } from "./ready-list.js";

export const name = "classic-level";

const TUNED = "no compression, 16 MiB write buffer";
const QUEUE = `${TUNED}; leases beside payloads under keys of their own, ids of ready tasks in memory`;

export const settings = {
  "append-batch": `${TUNED}, one chained batch per call`,
  "append-single": TUNED,
  "append-sync": `${TUNED}, sync: true`,
  scan: "iterator, nextv(1000), highWaterMarkBytes 1 MiB",
  "cycle-single": QUEUE,
  "cycle-batch": QUEUE,
};

const PAYLOAD = 1;
const LEASE = 2;

/** Keys sort as their ids do. */
function key(kind, id) {
  const bytes = Buffer.allocUnsafe(5);
  bytes[0] = kind;
  bytes.writeUInt32BE(id, 1);
  return bytes;
}

async function openStore(directory) {
  const db = new ClassicLevel(directory, {
    keyEncoding: "buffer",
    valueEncoding: "buffer",
    compression: false,
    writeBufferSize: 16 * 1024 * 1024,
  });
  await db.open();
  return db;
}

function putAll(db, first, payloads) {
  const batch = db.batch();
  payloads.forEach((payload, index) => {
    batch.put(key(PAYLOAD, first + index), payload);
  });
  return batch.write();
}

async function appendSingly(directory, { payloads, concurrency }, options) {
  const db = await openStore(directory);
  let id = 0;
  return {
    run: (messages, probe) =>
      drive(concurrency, messages, 16, probe, () =>
        db.put(key(PAYLOAD, id++), payloads[id % payloads.length], options),
      ),
    close: () => db.close(),
  };
}

export const cases = {
  async "append-batch"(directory, { payloads, workers }) {
    const db = await openStore(directory);
    let next = 0;
    return {
      run: async (messages, probe) =>
        payloads.length *
        (await drive(workers, messages / payloads.length, 1, probe, () => {
          const first = next;
          next += payloads.length;
          return putAll(db, first, payloads);
        })),
      close: () => db.close(),
    };
  },

  "append-single": (directory, work) => appendSingly(directory, work, {}),
  "append-sync": (directory, work) => appendSingly(directory, work, { sync: true }),

  async scan(directory, { payloads, messages }) {
    const db = await openStore(directory);
    for (let id = 0; id < messages; id += payloads.length) await putAll(db, id, payloads);
    return {
      async run() {
        let done = 0;
        let bytes = 0;
        const iterator = db.iterator({ highWaterMarkBytes: 1024 * 1024 });
        for (;;) {
          const entries = await iterator.nextv(1000);
          if (entries.length === 0) break;
          for (const [, value] of entries) bytes += value.length;
          done += entries.length;
        }
        await iterator.close();
        return { done, bytes };
      },
      close: () => db.close(),
    };
  },

  async "cycle-single"(directory, { payloads, concurrency }) {
    const db = await openStore(directory);
    const ready = new ReadyList();
    let next = 0;
    return {
      run: (messages, probe) =>
        drive(concurrency, messages, 16, probe, async () => {
          const enqueued = next++;
          await db.put(key(PAYLOAD, enqueued), payloads[enqueued % payloads.length]);
          ready.push(enqueued);
          const id = ready.take();
          await db.get(key(PAYLOAD, id));
          await db.put(key(LEASE, id), leaseOf(1));
          await db.batch().del(key(PAYLOAD, id)).del(key(LEASE, id)).write();
        }),
      close: () => db.close(),
    };
  },

  async "cycle-batch"(directory, { payloads, workers }) {
    const db = await openStore(directory);
    const ready = new ReadyList();
    let next = 0;
    return {
      run: async (messages, probe) =>
        payloads.length *
        (await drive(workers, messages / payloads.length, 1, probe, async () => {
          const first = next;
          next += payloads.length;
          await putAll(db, first, payloads);
          for (let id = first; id < first + payloads.length; id++) ready.push(id);
          const ids = payloads.map(() => ready.take());
          await db.getMany(ids.map((id) => key(PAYLOAD, id)));
          const leases = db.batch();
          for (const id of ids) leases.put(key(LEASE, id), leaseOf(1));
          await leases.write();
          const acks = db.batch();
          for (const id of ids) acks.del(key(PAYLOAD, id)).del(key(LEASE, id));
          await acks.write();
        })),
      close: () => db.close(),
    };
  },
};
