/** LMDB by lmdb-js, which gathers the writes of a turn of the event loop into one transaction on a thread of its own. */

import { open } from "lmdb";
import { drive } from "../entry.js";
import { leaseOf, ReadyList } from "./ready-list.js";

export const name = "lmdb";

const QUEUE = "noSync; payloads and leases in two databases, ids of ready tasks in memory";

export const settings = {
  "append-batch": "noSync, binary values, one batch() per call",
  "append-single": "noSync, binary values",
  "append-sync": "synced before a put resolves (overlappingSync off)",
  scan: "getRange()",
  "cycle-single": QUEUE,
  "cycle-batch": QUEUE,
};

const RECORDS = { encoding: "binary", keyEncoding: "uint32" };

function openStore(directory, options) {
  return open({ path: directory, overlappingSync: false, ...RECORDS, ...options });
}

function appendSingly(directory, { payloads, concurrency }, options) {
  const db = openStore(directory, options);
  let id = 0;
  return {
    run: (messages, probe) =>
      drive(concurrency, messages, 16, probe, () => db.put(id++, payloads[id % payloads.length])),
    close: () => db.close(),
  };
}

function openQueue(directory) {
  const root = open({ path: directory, overlappingSync: false, noSync: true, maxDbs: 2 });
  return {
    root,
    payloadOf: root.openDB({ name: "payloads", ...RECORDS }),
    leaseBy: root.openDB({ name: "leases", ...RECORDS }),
    ready: new ReadyList(),
  };
}

export const cases = {
  "append-batch"(directory, { payloads, workers }) {
    const db = openStore(directory, { noSync: true });
    let id = 0;
    return {
      run: async (messages, probe) =>
        payloads.length *
        (await drive(workers, messages / payloads.length, 1, probe, () =>
          db.batch(() => {
            for (const payload of payloads) void db.put(id++, payload);
          }),
        )),
      close: () => db.close(),
    };
  },

  "append-single": (directory, work) => appendSingly(directory, work, { noSync: true }),
  "append-sync": (directory, work) => appendSingly(directory, work, {}),

  async scan(directory, { payloads, messages }) {
    const db = openStore(directory, { noSync: true });
    for (let id = 0; id < messages; ) {
      await db.batch(() => {
        for (const payload of payloads) void db.put(id++, payload);
      });
    }
    return {
      run() {
        let done = 0;
        let bytes = 0;
        for (const { value } of db.getRange({})) {
          bytes += value.length;
          done += 1;
        }
        return { done, bytes };
      },
      close: () => db.close(),
    };
  },

  "cycle-single"(directory, { payloads, concurrency }) {
    const { root, payloadOf, leaseBy, ready } = openQueue(directory);
    let next = 0;
    return {
      run: (messages, probe) =>
        drive(concurrency, messages, 16, probe, async () => {
          const enqueued = next++;
          await payloadOf.put(enqueued, payloads[enqueued % payloads.length]);
          ready.push(enqueued);
          const id = ready.take();
          payloadOf.get(id);
          await leaseBy.put(id, leaseOf(1));
          void payloadOf.remove(id);
          await leaseBy.remove(id);
        }),
      close: () => root.close(),
    };
  },

  "cycle-batch"(directory, { payloads, workers }) {
    const { root, payloadOf, leaseBy, ready } = openQueue(directory);
    let next = 0;
    return {
      run: async (messages, probe) =>
        payloads.length *
        (await drive(workers, messages / payloads.length, 1, probe, async () => {
          const first = next;
          next += payloads.length;
          await root.batch(() => {
            payloads.forEach((payload, index) => void payloadOf.put(first + index, payload));
          });
          for (let id = first; id < first + payloads.length; id++) ready.push(id);
          const ids = payloads.map(() => ready.take());
          for (const id of ids) payloadOf.get(id);
          await root.batch(() => {
            for (const id of ids) void leaseBy.put(id, leaseOf(1));
          });
          await root.batch(() => {
            for (const id of ids) {
              void payloadOf.remove(id);
              void leaseBy.remove(id);
            }
          });
        })),
      close: () => root.close(),
    };
  },
};
