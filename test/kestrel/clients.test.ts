/** Clients that others wrote, used as their documentation says. */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import test from "node:test";
import { withFront } from "./front.js";

const require = createRequire(import.meta.url);

interface Memcached {
  set(key: string, value: unknown, lifetime: number, done: (error: Error | undefined, ok: boolean) => void): void;
  get(key: string, done: (error: Error | undefined, value: unknown) => void): void;
  del(key: string, done: (error: Error | undefined, ok: boolean) => void): void;
  end(): void;
}

test("memcached (npm) sets, gets, waits, opens, closes and deletes", async () => {
  const Client = require("memcached") as new (server: string, options: object) => Memcached;
  await withFront({}, async ({ port }) => {
    const client = new Client(`127.0.0.1:${port}`, { poolSize: 1, retries: 0 });
    const call = <T>(run: (done: (error: Error | undefined, value: T) => void) => void) =>
      new Promise<T>((resolve, reject) => {
        run((error, value) => (error === undefined || error === null ? resolve(value) : reject(error)));
      });
    try {
      for (const value of ["one", "two", "three"]) {
        assert.equal(await call<boolean>((done) => client.set("jobs", value, 0, done)), true);
      }
      assert.equal(await call((done) => client.get("jobs", done)), "one");
      assert.equal(await call((done) => client.del("jobs", done)), true);
      assert.equal(await call((done) => client.get("jobs", done)), undefined);
    } finally {
      client.end();
    }
  });
});

interface CacheClient {
  set(key: string, value: string | Buffer, options?: object): Promise<unknown>;
  get(key: string): Promise<{ value: unknown } | undefined>;
  shutdown(): void;
}

test("memcache-client (npm) sets and gets text and bytes", async () => {
  const { MemcacheClient } = require("memcache-client") as { MemcacheClient: new (options: object) => CacheClient };
  await withFront({}, async ({ port }) => {
    const client = new MemcacheClient({ server: `127.0.0.1:${port}` });
    try {
      await client.set("jobs", "text");
      assert.equal((await client.get("jobs"))?.value, "text");
      assert.equal(await client.get("jobs"), undefined);
    } finally {
      client.shutdown();
    }
  });
});
