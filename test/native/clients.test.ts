/** Clients by their ids: names of calls that are one user's alone, and of several connections the last one. */

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import test from "node:test";
import type { LogQueue, MessageQueue } from "../../src/api/contract.js";
import { Access } from "../../src/auth/access.js";
import { parseRule } from "../../src/auth/rules.js";
import { makeToken } from "../../src/auth/token.js";
import { NO_USERS, type User } from "../../src/auth/users.js";
import { Kind, PREAMBLE } from "../../src/wire/frame.js";
import { ID_BYTES } from "../../src/wire/hello.js";
import { Methods } from "../../src/wire/methods.js";
import type { Output } from "../../src/wire/output.js";
import { writeValue } from "../../src/wire/value.js";
import { eventually } from "../support/expect.js";
import { codeOf, type RawNative, type TestNative, withNative } from "./raw-native.js";

const LOG = 1;

function user(name: string): { readonly user: User; readonly token: string } {
  const { token, hash } = makeToken(name);
  const allow = [parseRule("read,write,admin:*", "")];
  return { user: { name, token: hash, certificate: undefined, allow }, token };
}

async function entered({ connect }: TestNative, clientId: Uint8Array, token = ""): Promise<RawNative> {
  const client = await connect();
  assert.equal(codeOf(await client.enter(token, clientId)), undefined);
  assert.equal(codeOf(await client.call(Methods.openLog, LOG, ["log"])), undefined);
  return client;
}

const message = (text: string) => (output: Output) => {
  output.u8(0);
  output.u8(0);
  output.data(text);
};

async function payloads(mq: MessageQueue): Promise<string[]> {
  const found: string[] = [];
  for await (const batch of (await mq.openLog("log")).batches())
    found.push(...batch.map(({ payload }) => String(payload)));
  return found;
}

/** The ways to name a call: by the client's id, a caller's own, and among the options. */
const WAYS: readonly ((client: RawNative, producer: Uint8Array, sequence: number) => Promise<unknown>)[] = [
  (client, _, sequence) => client.ask(Methods.append, LOG, message("x"), [undefined, sequence]),
  (client, producer, sequence) => client.ask(Methods.append, LOG, message("x"), [producer, sequence]),
  (client, producer, sequence) => client.call(Methods.delete, LOG, ["key", { request: { producer, sequence } }]),
];

for (const [index, append] of WAYS.entries()) {
  test(`a name is its user's alone, whatever id another one claims (${index})`, async () => {
    const [ada, eve] = [user("ada"), user("eve")];
    const authenticator = new Access({ ...NO_USERS, users: [ada.user, eve.user] });
    await withNative({ native: { authenticator } }, async (native) => {
      const producer = randomBytes(ID_BYTES);
      const log = await native.mq.openLog("log");
      const thief = await entered(native, producer, eve.token);
      const first = await entered(native, producer, ada.token);
      const answer = await append(first, producer, 1);
      // Neither is answered what ada was, nor has taken her number from her.
      assert.notDeepEqual(await append(thief, producer, 1), answer);
      await append(thief, producer, 2);
      assert.equal((await log.stats()).next, 3);
      await append(first, producer, 2);
      assert.equal((await log.stats()).next, 4);
      assert.equal(codeOf(await thief.call(Methods.logStats, LOG)), undefined, "both are served");
      // Her own repeated calls are known, over another connection, too.
      const again = await entered(native, producer, ada.token);
      assert.deepEqual(await append(again, producer, 1), answer);
      assert.equal((await log.stats()).next, 4);
    });
  });
}

test("without users a name is the same over the network and in the process", async () => {
  await withNative({}, async (native) => {
    const producer = randomBytes(ID_BYTES);
    const log = await native.mq.openLog("log");
    await log.append("x", { request: { producer, sequence: 1 } });
    const client = await entered(native, producer);
    for (const append of WAYS.slice(0, 2))
      assert.equal(codeOf((await append(client, producer, 1)) as never), undefined);
    assert.equal((await log.stats()).next, 1);
  });
});

/** Calls of `deleteQueue`, and looks at the log's numbers, stand still until they are let go. */
class Gate {
  readonly #going: (() => void)[] = [];
  waiting = 0;

  readonly served = (mq: MessageQueue): MessageQueue =>
    over(mq, {
      deleteQueue: async (...args: Parameters<MessageQueue["deleteQueue"]>) => {
        await this.#wait();
        return await mq.deleteQueue(...args);
      },
      openLog: async (name: string) => {
        const log: LogQueue = await mq.openLog(name);
        return over(log, {
          stats: async () => {
            await this.#wait();
            return await log.stats();
          },
        });
      },
    });

  open(): void {
    for (const go of this.#going.splice(0)) go();
  }

  async #wait(): Promise<void> {
    this.waiting++;
    await new Promise<void>((resolve) => this.#going.push(resolve));
    this.waiting--;
  }
}

function over<T extends object>(below: T, methods: object): T {
  return new Proxy(below, {
    get: (target, name) => {
      const value = Reflect.get(name in methods ? methods : target, name);
      return typeof value === "function" && !(name in methods) ? value.bind(target) : value;
    },
  });
}

test("a client that connects anew is served when what it began before has ended; its old connection is over", async () => {
  const gate = new Gate();
  await withNative({ served: gate.served }, async (native) => {
    const clientId = randomBytes(ID_BYTES);
    const old = await entered(native, clientId);
    void old.call(Methods.deleteQueue, 0, ["log", "log"]);
    await eventually("it is under way", () => gate.waiting === 1);
    const next = await native.connect();
    let isIn = false;
    const entering = next.enter("", clientId).then((answer) => {
      isIn = true;
      return answer;
    });
    await old.toEnd();
    // Meanwhile others come and go.
    const other = await entered(native, randomBytes(ID_BYTES));
    for (let turn = 0; turn < 5; turn++) assert.equal(codeOf(await other.call(Methods.queues, 0)), undefined);
    assert.equal(isIn, false);
    gate.open();
    assert.equal(codeOf(await entering), undefined);
    assert.deepEqual(await native.mq.queues(), [], "what was begun has ended");
  });
});

test("what has arrived over the old connection and is not begun is dropped", async () => {
  const gate = new Gate();
  await withNative({ served: gate.served }, async (native) => {
    const clientId = randomBytes(ID_BYTES);
    const old = await entered(native, clientId);
    // The end of the log is looked for, and nothing is begun before that is known.
    void old.ask(Methods.batches, LOG, (output) => {
      writeValue(output, { from: "end", follow: true });
      output.u32(1000);
    });
    void old.ask(Methods.append, LOG, message("late"));
    await eventually("the stream begins", () => gate.waiting === 1);
    const next = await entered(native, clientId);
    gate.open();
    await old.toEnd();
    assert.equal(codeOf(await next.ask(Methods.append, LOG, message("next"))), undefined);
    assert.deepEqual(await payloads(native.mq), ["next"]);
  });
});

test("a call that does not end keeps its client out for a while only", async () => {
  const gate = new Gate();
  await withNative({ served: gate.served }, async (native) => {
    const clientId = randomBytes(ID_BYTES);
    const old = await entered(native, clientId);
    void old.call(Methods.deleteQueue, 0, ["log", "log"]);
    await eventually("it is under way", () => gate.waiting === 1);
    await entered(native, clientId);
    gate.open();
  });
});

test("of hellos that come together, the last one is served", async () => {
  const gate = new Gate();
  await withNative({ served: gate.served }, async (native) => {
    const clientId = randomBytes(ID_BYTES);
    const old = await entered(native, clientId);
    void old.call(Methods.deleteQueue, 0, ["log", "log"]);
    await eventually("it is under way", () => gate.waiting === 1);
    const clients = await Promise.all([native.connect(), native.connect(), native.connect()]);
    for (const client of clients) {
      client.send(PREAMBLE).send(client.hello("", 0, clientId));
      await eventually("it has arrived", () => native.server.connections > 0);
    }
    gate.open();
    const answers = await Promise.all(clients.map((client) => client.answer(0)));
    const inside = answers.filter((answer) => codeOf(answer) === undefined).length;
    await Promise.all(clients.map(async (client, at) => codeOf(answers[at]!) === undefined || (await client.toEnd())));
    assert.equal(inside >= 1, true);
    const alive = clients.filter((client) => !client.ended);
    assert.equal(alive.length, 1);
    alive[0]!.send(alive[0]!.frame(Kind.Ping, 7));
    assert.equal(codeOf(await alive[0]!.answer(7)), undefined);
  });
});
