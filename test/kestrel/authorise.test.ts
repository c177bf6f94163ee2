/** Every command with every single right: carried out or refused, and refused means that nothing was done. */

import assert from "node:assert/strict";
import test from "node:test";
import { Access } from "../../src/auth/access.js";
import { PERMISSIONS, type Permission, parseRule } from "../../src/auth/rules.js";
import { NO_USERS } from "../../src/auth/users.js";
import { type TestFront, withFront } from "./front.js";

/** What a command takes, on which queues; none: on the directory as a whole. */
interface Case {
  readonly request: string;
  readonly takes: Permission;
  readonly queues: readonly string[];
}

const COMMANDS: readonly Case[] = [
  { request: "get a", takes: "read", queues: ["a"] },
  { request: "gets a", takes: "read", queues: ["a"] },
  { request: "get a/open", takes: "read", queues: ["a"] },
  { request: "get a/close/open", takes: "read", queues: ["a"] },
  { request: "get a/abort", takes: "read", queues: ["a"] },
  { request: "get a/peek", takes: "read", queues: ["a"] },
  { request: "get a/t=1", takes: "read", queues: ["a"] },
  { request: "get a.c", takes: "read", queues: ["a"] },
  { request: "set a 0 0 1\r\nx", takes: "write", queues: ["a"] },
  { request: "set a+ab 0 0 1\r\nx", takes: "write", queues: ["a", "ab"] },
  { request: "set ab+b+a 0 0 1\r\nx", takes: "write", queues: ["ab", "b", "a"] },
  { request: "delete a", takes: "admin", queues: ["a"] },
  { request: "delete a.c", takes: "admin", queues: ["a"] },
  { request: "DELETE a", takes: "admin", queues: ["a"] },
  { request: "flush a", takes: "admin", queues: ["a"] },
  { request: "flush a.c", takes: "admin", queues: ["a"] },
  { request: "flush_all", takes: "admin", queues: [] },
  { request: "Flush_All", takes: "admin", queues: [] },
  { request: "flush_expired a", takes: "read", queues: ["a"] },
  { request: "flush_all_expired", takes: "read", queues: [] },
  { request: "stats", takes: "read", queues: [] },
  { request: "dump_stats", takes: "read", queues: [] },
  { request: "dump_stats a", takes: "read", queues: ["a"] },
  { request: "dump_stats a b", takes: "read", queues: ["a", "b"] },
];

/** A pattern, and which of the queues it fits. */
const PATTERNS: readonly (readonly [pattern: string, fits: readonly string[], everything: boolean])[] = [
  ["a", ["a"], false],
  ["a*", ["a", "ab"], false],
  ["b", ["b"], false],
  ["task/a", ["a"], false],
  ["task/*", ["a", "ab", "b"], false],
  ["log/*", [], false],
  ["*", ["a", "ab", "b"], true],
];

const FORBIDDEN = /^SERVER_ERROR ERR_FORBIDDEN \w+ takes \w+ on [^\r\n]*\r\n$/;

test("each command is carried out with what it takes on all of its queues, and refused without", async () => {
  const access = new Access(NO_USERS);
  await withFront({ kestrel: { may: access.kestrel.may } }, async (front) => {
    const all = [parseRule("read,write,admin:*", "")];
    for (const { request, takes, queues } of COMMANDS) {
      for (const permission of PERMISSIONS) {
        for (const [pattern, fits, everything] of PATTERNS) {
          access.replace({ ...NO_USERS, kestrel: { allow: all } });
          await fill(front);
          access.replace({ ...NO_USERS, kestrel: { allow: [parseRule(`${permission}:${pattern}`, "")] } });
          const touched = queues.length === 0 ? everything : queues.every((name) => fits.includes(name));
          const client = await front.client();
          client.send(`${request}\r\nquit\r\n`);
          const reply = await client.toEnd();
          const what = `${JSON.stringify(request)} with ${permission}:${pattern}: ${reply}`;
          if (permission === takes && touched) {
            assert.doesNotMatch(reply, /ERROR/, what);
          } else {
            assert.match(reply, FORBIDDEN, what);
            assert.deepEqual(await counts(front), [1, 1, 1], what);
          }
        }
      }
    }
  });
});

test("what may be said without any right", async () => {
  await withFront({ kestrel: { may: () => false } }, async (front) => {
    const client = await front.client();
    assert.equal(await client.ask("version\r\n"), "VERSION varve-test\r\n");
    client.send("quit\r\n");
    assert.equal(await client.toEnd(), "");
  });
});

test("what is allowed before a command that is not is answered; what is behind it is dropped", async () => {
  const may = (permission: Permission) => permission === "write";
  await withFront({ kestrel: { may } }, async (front) => {
    const client = await front.client();
    client.send("set a 0 0 1\r\n1\r\nset a 0 0 1\r\n2\r\nflush a\r\nset a 0 0 1\r\n3\r\n");
    assert.match(
      await client.toEnd(),
      /^STORED\r\nSTORED\r\nSERVER_ERROR ERR_FORBIDDEN flush takes admin on [^\r\n]*\r\n$/,
    );
    assert.equal((await (await front.mq.openTask("a")).stats()).ready, 2);
  });
});

test("commands in the value of a set that is not allowed are not carried out", async () => {
  const may = (permission: Permission) => permission === "admin";
  await withFront({ kestrel: { may } }, async (front) => {
    await (await front.mq.openTask("a")).enqueue("x");
    const client = await front.client();
    client.send("set a 0 0 9\r\nflush_all\r\nflush_all\r\n");
    assert.match(await client.toEnd(), FORBIDDEN);
    assert.equal((await (await front.mq.openTask("a")).stats()).ready, 1);
  });
});

const QUEUES = ["a", "ab", "b"];

/** One item in each queue, and no more. */
async function fill({ mq }: TestFront): Promise<void> {
  for (const name of QUEUES) {
    const queue = await mq.openTask(name);
    await queue.purge();
    await queue.enqueue("x");
  }
}

async function counts({ mq }: TestFront): Promise<number[]> {
  const queues = await mq.queues();
  return QUEUES.map((name) => queues.find((queue) => queue.name === name)?.count ?? 0);
}
