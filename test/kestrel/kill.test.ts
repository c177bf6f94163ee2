/** A daemon ends, by a kill or in order, while clients are at work: what they were told holds. */

import assert from "node:assert/strict";
import { join } from "node:path";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { withDirectory } from "../support/directories.js";
import { scaled } from "../support/scale.js";
import { seedOr, withSeed } from "../support/seeded.js";
import { Book } from "./book.js";
import { drain, killDaemons, startDaemon } from "./kill.js";
import { Speaker } from "./speaker.js";

test("a daemon that is killed again and again loses nothing it has acknowledged, and returns what was open", async () => {
  await withSeed(seedOr(20260), async (random) => {
    await withDirectory(async (directory) => {
      const rounds = scaled(5);
      const shown = { stored: 0, confirmed: 0, open: 0 };
      const isShown = () => shown.stored > 0 && shown.confirmed > 0 && shown.open > 0;
      // A machine with much else to do may need more of them for something of everything.
      for (let times = 0; times < 10 && !isShown(); times++) {
        const { kills, stored, confirmed, open } = await killDaemons(join(directory, `${times}`), rounds, random);
        assert.equal(kills, rounds);
        shown.stored += stored;
        shown.confirmed += confirmed;
        shown.open += open;
      }
      assert.ok(isShown(), JSON.stringify(shown));
    });
  });
});

test("SIGTERM under load: waits end, all that was acknowledged is there, and the daemon leaves in order", async () => {
  await withDirectory(async (directory) => {
    const data = join(directory, "data");
    for (const durability of ["sync", "async"]) {
      const [daemon, port] = await startDaemon(data, ["--durability", durability]);
      const waiting = new Speaker(port).ask("get nothing/t=600000\r\n");
      const book = new Book("jobs", true);
      const producers = Array.from({ length: 20 }, async (_, producer) => {
        const speaker = new Speaker(port);
        for (let number = 0; ; number++) {
          const value = `${producer}-${number}`;
          book.asks(value);
          const said = await speaker.ask(`set jobs 0 0 ${value.length}\r\n${value}\r\n`);
          if (said === undefined) return number;
          assert.equal(said.line, "STORED");
          book.isStored(value);
        }
      });
      await sleep(200);
      daemon.child.kill("SIGTERM");
      // It ends itself with 1 before its ten seconds are over if it cannot leave in order.
      const { code, stderr } = await daemon.ended;
      assert.equal(code, 0, stderr);
      assert.equal((await waiting)?.line, "END");
      assert.ok((await Promise.all(producers)).some((stored) => stored > 0));
      const [again, portAgain] = await startDaemon(data, []);
      book.judge(await drain(portAgain, "jobs"));
      again.child.kill("SIGTERM");
      assert.equal((await again.ended).code, 0);
    }
  });
});

test("the book finds what it is for", () => {
  const book = () => {
    const made = new Book("q", true);
    for (const value of ["p-0", "p-1", "p-2", "p-3"]) made.asks(value);
    for (const value of ["p-0", "p-1", "p-2"]) made.isStored(value);
    made.opened("p-0");
    made.closes("p-0");
    made.isClosed("p-0");
    return made;
  };
  book().judge(["p-1", "p-2"]);
  book().judge(["p-1", "p-2", "p-3"]);
  assert.throws(() => book().judge(["p-0", "p-1", "p-2"]), /p-0 was confirmed/);
  assert.throws(() => book().judge(["p-1"]), /1 stored items are lost, 0 may be; among them p-2/);
  assert.throws(() => book().judge(["p-2", "p-1"]), /p-1 comes behind p-2/);
  assert.throws(() => book().judge(["p-1", "p-2", "p-2"]), /p-2 is there twice/);
  assert.throws(() => book().judge(["p-1", "p-2", "x-0"]), /nobody has stored x-0/);
  assert.throws(() => book().opened("p-0"), /was confirmed/);
  const two = book();
  two.opened("p-1");
  assert.throws(() => two.opened("p-1"), /given out twice at once/);
  const gets = book();
  gets.getSent();
  gets.judge(["p-2"]);
});
