import { rejectsWith } from "../support/expect.js";
import { badInput } from "./scene.js";

const TOKENS: readonly [title: string, token: unknown][] = [
  ["an empty string", ""],
  ["a word", "token"],
  ["a very long string", "x".repeat(100_000)],
  ["a number", 5],
  ["missing", undefined],
  ["null", null],
  ["an object without one", {}],
  ["an object with something else", { token: 5 }],
];

for (const [title, token] of TOKENS) {
  badInput(`a token that is ${title}`, async ({ mq, jobs, held }) => {
    const wrong = token as string;
    await rejectsWith("ERR_TOKEN", jobs.ack(wrong), /dequeue/);
    await rejectsWith("ERR_TOKEN", jobs.ackBatch([held, wrong]), /dequeue/);
    await rejectsWith("ERR_TOKEN", jobs.nack(wrong, { delay: 0 }), /dequeue/);
    await rejectsWith("ERR_TOKEN", jobs.extend(wrong, "1h"), /dequeue/);
    await rejectsWith(
      "ERR_TOKEN",
      mq.transaction((tx) => {
        tx.ack(jobs, held);
        tx.ack(jobs, wrong);
      }),
    );
  });
}

badInput("a token with one character changed", async ({ jobs, held }) => {
  for (let index = 0; index < held.token.length; index++) {
    const changed = held.token[index] === "1" ? "2" : "1";
    const token = held.token.slice(0, index) + changed + held.token.slice(index + 1);
    let code = "";
    try {
      await jobs.ack(token);
    } catch (error) {
      code = (error as { code: string }).code;
    }
    if (code !== "ERR_TOKEN" && code !== "ERR_STALE_LEASE") throw new Error(`position ${index}: "${code}"`);
  }
});

badInput("a token of another queue", async ({ mq, held, other, otherHeld, jobs }) => {
  await rejectsWith("ERR_TOKEN", other.ack(held), /other queue|another queue|"jobs"|jobs/);
  await rejectsWith("ERR_TOKEN", jobs.nack(otherHeld));
  await rejectsWith("ERR_TOKEN", other.extend(held));
  await rejectsWith(
    "ERR_TOKEN",
    mq.transaction((tx) => {
      tx.ack(jobs, held);
      tx.ack(jobs, otherHeld);
    }),
  );
});

badInput("the token of a delivery that is over", async ({ mq, jobs, stale, held }) => {
  await rejectsWith("ERR_STALE_LEASE", jobs.ack(stale), /deliver|settled/);
  await rejectsWith("ERR_STALE_LEASE", jobs.ackBatch([held, stale]));
  await rejectsWith("ERR_STALE_LEASE", jobs.nack(stale));
  await rejectsWith("ERR_STALE_LEASE", jobs.extend(stale, "1h"));
  await rejectsWith(
    "ERR_STALE_LEASE",
    mq.transaction((tx) => {
      tx.ack(jobs, held);
      tx.nack(jobs, stale);
    }),
  );
});
