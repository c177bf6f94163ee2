import { cycle, cycleBatch, drive, open, rest } from "../entry.js";

export const name = "varve";

export const settings = {
  async: 'durability "async", everything else at its default',
  sync: 'durability "sync", everything else at its default',
};

async function log(directory, durability, body) {
  const mq = await open(directory, { durability });
  return { ...body(await mq.openLog("bench")), settle: () => rest(mq), close: () => mq.close() };
}

async function tasks(directory, body) {
  const mq = await open(directory, { durability: "async" });
  return { ...body(await mq.openTask("bench")), settle: () => rest(mq), close: () => mq.close() };
}

const appendSingly = (directory, { payloads, concurrency }, durability) =>
  log(directory, durability, (queue) => {
    let turn = 0;
    return {
      run: (messages, probe) =>
        drive(concurrency, messages, 16, probe, () => queue.append(payloads[turn++ % payloads.length])),
    };
  });

export const cases = {
  "append-batch": (directory, { payloads, workers }) =>
    log(directory, "async", (queue) => ({
      run: async (messages, probe) =>
        payloads.length *
        (await drive(workers, messages / payloads.length, 1, probe, () => queue.appendBatch(payloads))),
    })),

  "append-single": (directory, work) => appendSingly(directory, work, "async"),
  "append-sync": (directory, work) => appendSingly(directory, work, "sync"),
  "append-sequential": (directory, work) => appendSingly(directory, { ...work, concurrency: 1 }, "sync"),

  async scan(directory, { payloads, messages }) {
    const filling = await open(directory, { durability: "async" });
    const filled = await filling.openLog("bench");
    for (let done = 0; done < messages; done += payloads.length) await filled.appendBatch(payloads);
    await filling.close();
    // Opened again: nothing of it is left in the write path, every byte comes from segments, its checksum verified.
    return log(directory, "async", (queue) => ({
      async run() {
        let done = 0;
        let bytes = 0;
        for await (const records of queue.batches({ from: "start" })) {
          for (const { payload } of records) bytes += payload.length;
          done += records.length;
        }
        return { done, bytes };
      },
    }));
  },

  "cycle-single": (directory, { payloads, concurrency }) =>
    tasks(directory, (queue) => {
      let turn = 0;
      return {
        run: (messages, probe) =>
          drive(concurrency, messages, 16, probe, () => cycle(queue, payloads[turn++ % payloads.length])),
      };
    }),

  "cycle-batch": (directory, { payloads, workers }) =>
    tasks(directory, (queue) => ({
      run: async (messages, probe) =>
        payloads.length *
        (await drive(workers, messages / payloads.length, 1, probe, () => cycleBatch(queue, payloads))),
    })),
};
