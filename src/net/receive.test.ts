import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, Socket } from "node:net";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { BusyPoll } from "./busy-poll.js";
import { receive } from "./receive.js";

interface Peer {
  readonly client: Socket;
  readonly server: Socket;
  /** Copies of what the server was lent. */
  readonly pieces: Buffer[];
  readonly buffers: Set<ArrayBufferLike>;
}

async function withPeers(count: number, run: (peers: readonly Peer[]) => Promise<void>): Promise<void> {
  const listener = createServer({ allowHalfOpen: true });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const peers: Peer[] = [];
  for (let index = 0; index < count; index++) {
    const accepted = once(listener, "connection") as Promise<[Socket]>;
    const client = connect((listener.address() as AddressInfo).port, "127.0.0.1");
    const peer: Peer = { client, server: (await accepted)[0], pieces: [], buffers: new Set() };
    receive(peer.server, (bytes) => {
      peer.pieces.push(Buffer.from(bytes));
      peer.buffers.add(bytes.buffer);
    });
    peers.push(peer);
  }
  try {
    await run(peers);
  } finally {
    for (const { client, server } of peers) {
      client.destroy();
      server.destroy();
    }
    listener.close();
    await once(listener, "close");
  }
}

const arrived = ({ pieces }: Peer) => pieces.reduce((sum, { length }) => sum + length, 0);

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await turn();
}

void test("every socket gets its own bytes, all of them by way of one buffer", async () => {
  await withPeers(8, async (peers) => {
    const sent = peers.map((_, index) => Buffer.alloc(300_000, `${index} `));
    for (const [index, { client }] of peers.entries()) client.end(sent[index]!);
    await Promise.all(peers.map(({ server }) => once(server, "end")));
    for (const [index, { pieces }] of peers.entries()) assert.ok(Buffer.concat(pieces).equals(sent[index]!));
    assert.equal(new Set(peers.flatMap(({ buffers }) => [...buffers])).size, 1, "this Node reads into it");
  });
});

void test("a socket that is paused gets nothing until it goes on", async () => {
  await withPeers(2, async ([paused, other]) => {
    paused!.server.pause();
    paused!.client.write("one");
    other!.client.write("two");
    await until(() => arrived(other!) === 3);
    for (let turns = 0; turns < 20; turns++) await turn();
    assert.equal(arrived(paused!), 0);
    paused!.server.resume();
    await until(() => arrived(paused!) === 3);
    assert.equal(String(paused!.pieces[0]), "one");
  });
});

void test("whoever looks out for the next read is told of each, of what is decrypted as well", async () => {
  const told: string[] = [];
  const tells = (what: string) => new BusyPoll(1, { nowMs: () => 0, nextTurn: () => told.push(what) });
  const listener = createServer();
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const accepted = once(listener, "connection") as Promise<[Socket]>;
  const client = connect((listener.address() as AddressInfo).port, "127.0.0.1");
  const [server] = await accepted;
  // As one that decrypts is: no plain socket.
  const other = new (class extends Socket {})();
  let pieces = 0;
  receive(server, () => pieces++, tells("plain"));
  receive(other, () => pieces++, tells("decrypted"));
  other.emit("data", Buffer.from("secret"));
  client.write("plain");
  await until(() => pieces === 2);
  assert.deepEqual(told, ["decrypted", "plain"]);
  other.destroy();
  client.destroy();
  server.destroy();
  listener.close();
  await once(listener, "close");
});
