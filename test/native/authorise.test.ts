/**
 * Every call of the protocol with every right, alone and some together: done or refused, and refused means that nothing was
 * done. What each takes is written down here once more, by hand.
 */

import assert from "node:assert/strict";
import test from "node:test";
import type { QueueKind } from "../../src/api/contract.js";
import { allows, type ObjectKind, type Permission, parseRule, type Rule } from "../../src/auth/rules.js";
import { Input } from "../../src/wire/input.js";
import { Methods } from "../../src/wire/methods.js";
import type { Output } from "../../src/wire/output.js";
import { readValue, writeValue } from "../../src/wire/value.js";
import { codeOf, type RawNative, type TestNative, withNative } from "./raw-native.js";

type Needs = readonly (readonly [permission: Permission, kind?: QueueKind, queue?: string])[] | "any of it" | "nothing";

interface Case {
  readonly method: keyof typeof Methods;
  readonly handle: number;
  readonly needs: Needs;
  readonly body: (output: Output) => void;
}

// What is open on every connection.
const [LOG_A, TASK_A, MEMBER, GROUP, CURSOR, TASK_B, LOG_B, NEW] = [1, 2, 3, 4, 5, 6, 7, 8] as const;

const values =
  (...args: readonly unknown[]) =>
  (output: Output) =>
    writeValue(output, args);
const message = (output: Output) => {
  output.u8(0);
  output.data("x");
};

const readLog: Needs = [["read", "log", "a"]];
const writeLog: Needs = [["write", "log", "a"]];
const adminLog: Needs = [["admin", "log", "a"]];
const readTask: Needs = [["read", "task", "a"]];
const writeTask: Needs = [["write", "task", "a"]];
const adminTask: Needs = [["admin", "task", "a"]];

function on(method: Case["method"], handle: number, needs: Needs, body: Case["body"] = values()): Case {
  return { method, handle, needs, body };
}

const CASES: readonly Case[] = [
  on("openLog", NEW, "any of it", values("a")),
  on("openLog", NEW, "any of it", values("a", { create: true })),
  on("openLog", NEW, adminLog, values("a", { retention: { maxAge: "30d" } })),
  on("openTask", NEW, adminTask, values("a", { lease: "1h" })),
  on("openTask", NEW, [...adminTask, ["write", "task", "b"]], values("a", { onExpire: { moveTo: "b" } })),
  on("group", LOG_A, readLog, values(NEW, "g")),
  on("sharedGroup", LOG_A, readLog, values(NEW, "s")),
  on("cursor", TASK_A, readTask, values(NEW, "c")),
  on("leave", CURSOR, "nothing"),
  on(
    "transaction",
    0,
    [...writeLog, ["write", "task", "b"]],
    values([
      ["append", LOG_A, "x"],
      ["enqueue", TASK_B, "x"],
    ]),
  ),
  on(
    "transaction",
    0,
    [...readTask, ["write", "log", "b"]],
    values([
      ["ack", TASK_A, "token"],
      ["append", LOG_B, "x"],
    ]),
  ),
  on(
    "transaction",
    0,
    [...readTask, ...writeTask],
    values([
      ["nack", TASK_A, "token"],
      ["enqueue", TASK_A, "x"],
    ]),
  ),
  on(
    "transaction",
    0,
    [...readLog, ["read", "task", "b"]],
    values([
      ["commitGroup", MEMBER, 0],
      ["release", TASK_B, "t"],
    ]),
  ),
  on(
    "transaction",
    0,
    [...readLog, ["write", "log", "b"]],
    values([
      ["ack", GROUP, "token"],
      ["append", LOG_B, "x"],
    ]),
  ),
  on("flow", 0, writeTask, values({ queue: TASK_A, input: "x", children: [] })),
  on(
    "flow",
    0,
    [...writeTask, ["write", "task", "b"]],
    values({ queue: TASK_A, input: "x", children: [child(TASK_B)] }),
  ),
  on(
    "flow",
    0,
    [...writeTask, ["write", "task", "b"]],
    values({ queue: TASK_B, input: "x", children: [child(TASK_A)] }),
  ),
  on("deleteQueue", 0, adminLog, values("log", "a")),
  on("deleteQueue", 0, adminTask, values("task", "a")),
  on("queues", 0, "nothing"),
  on("stats", 0, [["read"]]),
  on("sync", 0, "nothing"),

  on("append", LOG_A, writeLog, withFlags(message)),
  on("appendBatch", LOG_A, writeLog, withFlags(several(message))),
  on("read", LOG_A, readLog, (output) => output.u64(0)),
  on("batches", LOG_A, readLog, (output) => {
    writeValue(output, {});
    output.u32(2 ** 31);
  }),
  on("delete", LOG_A, writeLog, values("key")),
  on("compact", LOG_A, adminLog),
  on("trim", LOG_A, adminLog, values(1)),
  on("purgeLog", LOG_A, adminLog),
  on("groups", LOG_A, readLog),
  on("deleteGroup", LOG_A, adminLog, values("g")),
  on("configureLog", LOG_A, adminLog, values({ metadata: { owner: "ada" } })),
  on("logSettings", LOG_A, readLog),
  on("logStats", LOG_A, readLog),

  on("memberRead", MEMBER, readLog, (output) => {
    output.u32(1);
    output.u64(1000);
    output.u64(0);
  }),
  on("memberCommit", MEMBER, readLog, values(0)),
  on("memberSeek", MEMBER, readLog, values("start")),
  on("memberPosition", MEMBER, readLog),
  on("groupInfo", GROUP, readLog),
  on("groupSeek", GROUP, readLog, values("start")),

  ...[TASK_A, GROUP].flatMap((handle): Case[] => {
    const [read, admin] = handle === GROUP ? [readLog, adminLog] : [readTask, adminTask];
    return [
      on("dequeue", handle, read, (output) => {
        output.u64(0);
        output.u8(0);
        output.u32(1);
      }),
      on("ack", handle, read, withFlags(several((output) => output.data("token")))),
      on(
        "nack",
        handle,
        read,
        withFlags((output) => output.data("token")),
      ),
      on(
        "extend",
        handle,
        read,
        withFlags((output) => output.data("token")),
      ),
      on("release", handle, read, values(["token"])),
      on("peek", handle, read),
      on("deadRead", handle, read),
      on("deadRedrive", handle, admin),
      on("deadPurge", handle, admin),
    ];
  }),

  on("enqueue", TASK_A, writeTask, (output) => {
    output.u16(0);
    message(output);
  }),
  on("enqueueBatch", TASK_A, writeTask, (output) => {
    output.u16(0);
    writeValue(output, undefined);
    several(message)(output);
  }),
  on("expire", TASK_A, readTask),
  on("pause", TASK_A, adminTask),
  on("resume", TASK_A, adminTask),
  on("purgeTasks", TASK_A, adminTask),
  on("configureTasks", TASK_A, adminTask, values({ lease: "2h" })),
  on("configureTasks", TASK_A, [...adminTask, ["write", "task", "b"]], values({ onExpire: { moveTo: "b" } })),
  on("taskSettings", TASK_A, readTask),
  on("cancel", TASK_A, writeTask, values("0")),
  on("reschedule", TASK_A, writeTask, values("0", { delay: 5 })),
  on("schedule", TASK_A, writeTask, values("s", { every: "1h" }, "x")),
  on("unschedule", TASK_A, writeTask, values("s")),
  on("schedules", TASK_A, readTask),
  on("cursors", TASK_A, readTask),
  on("deleteCursor", TASK_A, adminTask, values("c")),
  on("progress", TASK_A, readTask, values("token", 1)),
  on("list", TASK_A, readTask, values({ state: "ready" })),
  on("status", TASK_A, readTask, values("0")),
  on("result", TASK_A, readTask, values("0", {})),
  on("taskStats", TASK_A, readTask),

  on("dequeue", CURSOR, readTask, (output) => {
    output.u64(0);
    output.u8(0);
    output.u32(1);
  }),
  on("ack", CURSOR, readTask, withFlags(several((output) => output.data("token")))),
  on("cursorReset", CURSOR, readTask),
  on("cursorStats", CURSOR, readTask),
];

function child(queue: number): unknown {
  return { queue, input: "x", children: [] };
}

function withFlags(write: (output: Output) => void): (output: Output) => void {
  return (output) => {
    output.u8(0);
    write(output);
  };
}

function several(write: (output: Output) => void): (output: Output) => void {
  return (output) => {
    output.u32(1);
    write(output);
  };
}

/** Rights that somebody has, and none that would allow all the same. */
const RIGHTS: readonly string[] = [
  "",
  ...["read", "write", "admin"].flatMap((permission) =>
    ["a", "b", "log/a", "task/a", "task/*", "*"].map((queues) => `${permission}:${queues}`),
  ),
  "admin:task/a write:task/b",
  "admin:task/a write:log/b",
  "admin:task/a admin:task/b",
  "read:task/a write:log/b",
  "read:log/a write:log/b",
  "read:task/a write:task/a",
  "read:log/a read:task/b",
  "write:log/a write:task/b",
  "write:task/a write:task/b",
  "read,write:*",
  "read,admin:*",
  "write,admin:*",
  "read,write,admin:b",
  "read,write,admin:aa*",
  "read,write,admin:*",
];

function rulesOf(text: string): Rule[] {
  return text === "" ? [] : text.split(" ").map((rule) => parseRule(rule, ""));
}

function isAllowed(rules: readonly Rule[], { method, needs }: Case): boolean {
  if (needs === "nothing") return true;
  if (needs === "any of it") {
    const kind = method === "openLog" ? "log" : "task";
    return (["read", "write", "admin"] as const).some((permission) => allows(rules, permission, kind, "a"));
  }
  return needs.every(([permission, kind, queue]) => allows(rules, permission, kind ?? "directory", queue ?? ""));
}

test("every call of the protocol is judged here", () => {
  const judged = new Set(CASES.map(({ method }) => method));
  assert.deepEqual(
    Object.keys(Methods).filter((method) => !judged.has(method as keyof typeof Methods)),
    [],
  );
});

test("a call is done with what it takes on everything that it touches, and refused without", async () => {
  let rules: Rule[] = [];
  const principal = {
    name: "ada",
    may: (...question: readonly [Permission, ObjectKind, string]) => allows(rules, ...question),
    current: true,
  };
  const authenticator = { authenticate: () => principal };
  await withNative({ native: { authenticator } }, async (native) => {
    let client: RawNative | undefined;
    let before = "";
    for (const each of CASES) {
      for (const right of RIGHTS) {
        rules = rulesOf("read,write,admin:*");
        if (client === undefined) {
          client = await entered(native);
          before = await state(native);
        }
        rules = rulesOf(right);
        const answer = await client.ask(Methods[each.method], each.handle, each.body);
        const code = codeOf(answer);
        const what = `${each.method} on ${each.handle}, with ${right || "no right"}: ${JSON.stringify(answer)}`;
        if (isAllowed(rules, each)) {
          assert.ok(
            code !== "ERR_FORBIDDEN" && code !== "ERR_PROTOCOL" && code !== "ERR_INTERNAL" && code !== "ended",
            what,
          );
          before = await state(native);
          if (each.method !== "deleteQueue" && each.method !== "leave") continue;
          // In order, so that its members have left before the next state is looked at.
          await client.leave();
          client = undefined;
        } else {
          assert.equal(code, "ERR_FORBIDDEN", what);
          assert.equal(await state(native), before, what);
        }
      }
    }
  });
});

test("the list of queues shows those with which something may be done", async () => {
  const rules = [parseRule("write:task/a", ""), parseRule("admin:log/b", "")];
  const principal = {
    name: "ada",
    may: (...question: readonly [Permission, ObjectKind, string]) => allows(rules, ...question),
    current: true,
  };
  await withNative({ native: { authenticator: { authenticate: () => principal } } }, async (native) => {
    for (const name of ["a", "b", "c"]) {
      await native.mq.openLog(name);
      await native.mq.openTask(name);
    }
    const client = await native.connect();
    await client.enter();
    const answer = await client.call(Methods.queues, 0);
    assert.ok("value" in answer);
    const infos = readValue(new Input(answer.value)) as { kind: string; name: string }[];
    assert.deepEqual(infos.map(({ kind, name }) => `${kind}/${name}`).sort(), ["log/b", "task/a"]);
  });
});

test("who may not write makes no queue by opening it", async () => {
  for (const permission of ["read", "admin"] as const) {
    const principal = { name: "ada", may: (asked: Permission) => asked === permission, current: true };
    await withNative({ native: { authenticator: { authenticate: () => principal } } }, async (native) => {
      const client = await native.connect();
      await client.enter();
      assert.equal(codeOf(await client.call(Methods.openLog, 1, ["new"])), "ERR_NOT_FOUND");
      assert.equal(codeOf(await client.call(Methods.openTask, 1, ["new", { create: true }])), "ERR_NOT_FOUND");
      assert.deepEqual(await native.mq.queues(), []);
    });
  }
});

/** A client with everything open; what was changed before is made good. */
async function entered({ mq, connect }: TestNative): Promise<RawNative> {
  for (const name of ["a", "b"]) {
    await (await mq.openLog(name)).append("x");
    await (await mq.openTask(name)).enqueue("x");
  }
  const client = await connect();
  await client.enter();
  const opened = [
    await client.call(Methods.openLog, LOG_A, ["a"]),
    await client.call(Methods.openTask, TASK_A, ["a"]),
    await client.call(Methods.openTask, TASK_B, ["b"]),
    await client.call(Methods.openLog, LOG_B, ["b"]),
    await client.call(Methods.group, LOG_A, [MEMBER, "readers"]),
    await client.call(Methods.sharedGroup, LOG_A, [GROUP, "workers"]),
    await client.call(Methods.cursor, TASK_A, [CURSOR, "cursor"]),
  ];
  assert.deepEqual(opened.map(codeOf), Array(opened.length).fill(undefined));
  return client;
}

/** Everything that a call may have changed. */
async function state({ mq }: TestNative): Promise<string> {
  const found: unknown[] = [];
  for (const { kind, name, count } of await mq.queues()) {
    if (kind === "log") {
      const log = await mq.openLog(name);
      found.push([kind, name, count, await log.settings(), await log.groups(), (await log.stats()).next]);
    } else {
      const tasks = await mq.openTask(name);
      const { ready, leased, scheduled, enqueued, delivered } = await tasks.stats();
      const settings = await tasks.settings();
      const names = [await tasks.cursors(), (await tasks.schedules()).map((schedule) => schedule.name)];
      found.push([kind, name, count, settings, names, ready, leased, scheduled, enqueued, delivered]);
    }
  }
  return JSON.stringify(found, (key, value) => (key === "lagAge" ? undefined : value));
}
