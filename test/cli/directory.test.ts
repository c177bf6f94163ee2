/** Commands about the directory as a whole, and the demonstration. */

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { runDemo } from "../../src/cli/demo.js";
import { open } from "../../src/index.js";
import { RawClient } from "../kestrel/front.js";
import { filesBelow, fingerprint, withDirectory } from "../support/directories.js";
import { jsonLines, startNode, startVarve, varve } from "./program.js";

async function fill(directory: string): Promise<void> {
  await varve(["append", "events", "a", "b", "-d", directory]);
  await varve(["enqueue", "jobs", "m", "-d", directory]);
}

test("queues lists them, as a table and as JSON", () =>
  withDirectory(async (directory) => {
    await fill(directory);
    const people = await varve(["queues", "-d", directory]);
    assert.equal(people.stdout, "TYPE  NAME    COUNT\nlog   events      2\ntask  jobs        1\n");
    const { stdout } = await varve(["queues", "-d", directory, "--json"]);
    const lines = jsonLines(stdout);
    const queue = { metadata: {}, damaged: null };
    assert.deepEqual(lines, [
      { ...queue, kind: "log", name: "events", count: 2, createdAt: lines[0].createdAt },
      { ...queue, kind: "task", name: "jobs", count: 1, createdAt: lines[1].createdAt },
    ]);
    for (const { createdAt } of lines) assert.ok(createdAt > 0 && createdAt <= Date.now());
  }));

test("a directory without queues lists none; one that is missing is not made", () =>
  withDirectory(async (directory) => {
    const empty = join(directory, "empty");
    await (await open(empty)).close();
    const { code, stdout, stderr } = await varve(["queues", "-d", empty]);
    assert.deepEqual([code, stdout, stderr], [0, "", `varve: no queues in ${empty}\n`]);
    const missing = join(directory, "missing");
    const refused = await varve(["queues", "-d", missing]);
    assert.deepEqual([refused.code, refused.stdout, existsSync(missing)], [1, "", false]);
    assert.match(refused.stderr, /^varve: ERR_NOT_FOUND /);
  }));

test("stats shows the directory and its queues, or the queues named", () =>
  withDirectory(async (directory) => {
    await fill(directory);
    const { stdout } = await varve(["stats", "-d", directory, "--json"]);
    const [stats, ...more] = jsonLines(stdout);
    assert.deepEqual([more, Object.keys(stats)], [[], ["directory", "queues"]]);
    assert.equal(stats.directory.health, "ok");
    assert.deepEqual(
      stats.queues.map((queue: { kind: string; name: string; count?: number; ready?: number }) => [
        queue.kind,
        queue.name,
        queue.count ?? queue.ready,
      ]),
      [
        ["log", "events", 2],
        ["task", "jobs", 1],
      ],
    );
    const people = await varve(["stats", "jobs", "-d", directory]);
    assert.match(people.stdout, /^health +ok$/m);
    assert.match(people.stdout, /^jobs +1 +0 +0 +0 /m);
    assert.doesNotMatch(people.stdout, /events/);
    const unknown = await varve(["stats", "nothing", "-d", directory]);
    assert.deepEqual([unknown.code, unknown.stdout], [1, ""]);
    assert.match(unknown.stderr, /ERR_NOT_FOUND there is no queue "nothing"/);
  }));

test("stats --watch goes on until a signal", () =>
  withDirectory(async (directory) => {
    await fill(directory);
    const watching = startVarve(["stats", "--watch", "0.1", "-d", directory, "--json"]);
    await watching.printed(/(\{"directory".*\n){3}/);
    watching.child.kill("SIGINT");
    assert.equal((await watching.ended).code, 0);
  }));

test("verify finds nothing wrong in a sound directory and leaves it as it was", () =>
  withDirectory(async (directory) => {
    await fill(directory);
    const before = fingerprint(directory);
    const { code, stdout } = await varve(["verify", "-d", directory, "--json"]);
    const [report] = jsonLines(stdout);
    assert.deepEqual([code, report.ok, report.problems, report.notes], [0, true, [], []]);
    assert.deepEqual(Object.keys(report), ["ok", "files", "bytes", "records", "problems", "notes"]);
    assert.ok(report.files > 0 && report.bytes > 0 && report.records >= 2);
    assert.match((await varve(["verify", "-d", directory])).stdout, /^checked \d+ files, .*: no damage\n$/);
    assert.deepEqual(fingerprint(directory), before);
    assert.equal((await varve(["verify", "-d", join(directory, "missing")])).code, 1);
  }));

test("verify names the file and the place of damage, and exits with 5", () =>
  withDirectory(async (directory) => {
    const marker = "a payload to be found again";
    await varve(["append", "events", marker, "-d", directory]);
    await varve(["append", "events", "another record behind it", "-d", directory]);
    let damaged = 0;
    for (const path of filesBelow(directory)) {
      const bytes = readFileSync(join(directory, path));
      const at = bytes.indexOf(marker);
      if (at < 0) continue;
      bytes[at] = 0;
      writeFileSync(join(directory, path), bytes);
      damaged++;
    }
    assert.ok(damaged > 0, "the payload is in some file");
    const { code, stdout } = await varve(["verify", "-d", directory, "--json"]);
    const [report] = jsonLines(stdout);
    assert.deepEqual([code, report.ok], [5, false]);
    assert.ok(report.problems.length > 0);
    for (const problem of report.problems) {
      assert.deepEqual(Object.keys(problem), ["file", "position", "queue", "offsets", "reason"]);
    }
    const people = await varve(["verify", "-d", directory]);
    assert.equal(people.code, 5);
    assert.ok(people.stdout.includes(report.problems[0].file));
  }));

test("dump prints files readably", () =>
  withDirectory(async (directory) => {
    await varve(["append", "events", "an easily found payload", "-d", directory]);
    const segment = filesBelow(directory).find((path) => path.endsWith(".seg")) ?? assert.fail("there is no segment");
    const file = join(directory, segment);
    const people = await varve(["dump", file]);
    assert.equal(people.code, 0);
    assert.match(people.stdout, /^record {2}.*\boffset=0\b.*an easily found payload/m);
    const { code, stdout } = await varve(["dump", file, "--json"]);
    assert.equal(code, 0);
    assert.ok(jsonLines(stdout).some((part) => part.type === "record" && part.offset === 0));

    const foreign = join(directory, "foreign");
    writeFileSync(foreign, "not varve's");
    for (const [path, expected] of [
      [foreign, "ERR_NOT_VARVE"],
      [join(directory, "missing"), "ERR_NOT_FOUND"],
    ] as const) {
      const refused = await varve(["dump", path]);
      assert.deepEqual([refused.code, refused.stdout], [1, ""]);
      assert.match(refused.stderr, new RegExp(`^varve: ${expected} `));
    }
  }));

const FREE_PORTS = { kestrel: 0, native: 0 };

test("the demonstration tells its story, again and again on one directory, and its commands work", () =>
  withDirectory(async (directory) => {
    const data = join(directory, "data");
    for (let round = 1; round <= 2; round++) {
      const lines: string[] = [];
      await runDemo({ directory: data, exit: true, ports: FREE_PORTS, out: (line) => lines.push(line) });
      const story = lines.join("\n");
      assert.match(story, /replayed from offset/i);
      assert.match(story, /tail +offset \d+: order 1002 was paid/);
      assert.match(story, /attempt 1 send the receipt.*again after a pause/);
      assert.match(story, /attempt 2 send the receipt.*done, acked/);
      assert.match(story, /attempt 3 charge the expired card.*no attempts left/);
      assert.match(story, /dead +charge the expired card\n +attempt 1: card declined\n +attempt 2: .*\n +attempt 3: /);
      assert.match(story, new RegExp(`tasks +demo-jobs: 0 tasks to do, ${round} dead letters?`));
      assert.match(story, new RegExp(`log +demo-events: ${6 * round - 1} records`), "one more is appended by dial");
      assert.match(story, /> set demo-mails 0 0 24\n +> \{"to":"ada@example.com"\}\n +< STORED/);
      assert.match(story, /> get demo-mails\/open\n +< VALUE demo-mails 0 24\n +< \{"to":"ada@example.com"\}\n +< END/);
      assert.match(story, /> get demo-mails\/close\n +< END/);
      assert.match(story, /append +order 1003 was placed +-> offset (\d+)\n +read +offset \1: order 1003 was placed/);
      assert.match(story, /work +attempt 1: a mail to bob@example.com\n +done +task \d+: sent to bob@example.com/);
      assert.match(story, /stats +demo-mails: 0 ready, 0 leased\n +Stopped in order/);
      // Commands begin with "node" and the path of the program.
      const commands = lines.filter((line) => /^ +node .*varve\.js /.test(line));
      assert.ok(commands.length >= 4);
    }
    assert.equal(jsonLines((await varve(["read", "demo-events", "-d", data, "--json"])).stdout).length, 12);
    assert.equal(jsonLines((await varve(["dead", "demo-jobs", "list", "-d", data, "--json"])).stdout).length, 2);
  }));

test("the demonstration serves its directory until a signal unless told to end, and then closes in order", () =>
  withDirectory(async (directory) => {
    const demo = new URL("../../src/cli/demo.js", import.meta.url);
    const options = JSON.stringify({ directory: "data", exit: false, ports: FREE_PORTS });
    const program = `import { runDemo } from ${JSON.stringify(demo)}; await runDemo(${options});`;
    const running = startNode(["--input-type=module", "--eval", program], { cwd: directory });
    const printed = await running.printed(/varve\.js --help\n/);
    const port = Number(/nc 127\.0\.0\.1 (\d+)\n/.exec(printed)?.[1]);
    const [, target = ""] = /tail demo-events --from start --target (tcp:\S+)/.exec(printed) ?? [];
    const read = await varve(["read", "demo-events", "--json", "--target", target]);
    assert.equal(jsonLines(read.stdout).length, 6, read.stderr);
    assert.equal(jsonLines((await varve(["read", "demo-events", "--json"], { cwd: directory })).stdout).length, 6);
    const client = await RawClient.connect(port);
    assert.equal(await client.ask("set greetings 0 0 5\r\nhello\r\n"), "STORED\r\n");
    assert.equal(await client.ask("get greetings\r\n", "END\r\n"), "VALUE greetings 0 5\r\nhello\r\nEND\r\n");
    client.destroy();
    running.child.kill("SIGINT");
    const { code, stdout, stderr } = await running.ended;
    assert.deepEqual([code, stderr], [0, ""]);
    assert.match(stdout, /demo-jobs: \d tasks? to do/);
    assert.match(stdout, /Stopped in order/);
    const [stats] = jsonLines((await varve(["stats", "--json"], { cwd: directory })).stdout);
    assert.equal(stats.directory.recovery.recovered, false);
  }));
