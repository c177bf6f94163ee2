import assert from "node:assert/strict";
import { test } from "node:test";
import { open } from "../../src/index.js";
import { startChild } from "../support/child.js";
import { withDirectory } from "../support/directories.js";

void test("case 19: a message that kills its worker, and the queue's process, ends among the dead letters", async () => {
  await withDirectory(async (directory) => {
    const setup = await open(directory);
    const others = 200;
    const queue = await setup.openTask("jobs");
    await queue.enqueueBatch(Array.from({ length: others / 2 }, (_, index) => `${index}`));
    const { id } = await queue.enqueue("poison");
    await queue.enqueueBatch(Array.from({ length: others / 2 }, (_, index) => `later ${index}`));
    await setup.close();
    const deliveries: number[] = [];
    let finished = false;
    for (let process = 0; process < 6 && !finished; process++) {
      const child = startChild(import.meta.url, "./poisoned.js", { args: [directory] });
      const { code, stderr } = await child.exited;
      for (const message of child.messages as { poison?: number; finished?: boolean }[]) {
        if (message.poison !== undefined) deliveries.push(message.poison);
        finished ||= message.finished === true;
      }
      assert.ok(code === 1 || finished, stderr);
    }
    assert.deepEqual(deliveries, [1, 2, 3], "exactly as many deliveries as allowed");
    assert.ok(finished, "all other tasks were done");
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs");
    const letters = await jobs.dead.read();
    assert.equal(letters.length, 1);
    assert.equal(letters[0]?.id, id);
    assert.equal(letters[0]?.attempts, 3);
    assert.match(letters[0]?.reason ?? "", /lease expired/);
    assert.equal(letters[0]?.raw.toString(), "poison");
    assert.equal(await jobs.dequeue(), undefined);
    await mq.close();
  });
});
