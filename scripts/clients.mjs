/**
 * npm run clients -- [--dist DIR]
 *
 * Clients that others wrote, from Debian's packages, against a daemon of its own: libmemcached's tools, pymemcache, and Perl's
 * Cache::Memcached. What is missing is installed by apt-get where that is allowed (root); a client that cannot be had is
 * named in a line that begins with SKIPPED.
 */

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { build, checkNode, fail, install, ROOT } from "./setup.mjs";

const PATIENCE_MS = 15_000;

const PYTHON = `
import sys
from pymemcache.client.base import Client
client = Client(("127.0.0.1", int(sys.argv[1])), default_noreply=False, timeout=10)
data = bytes(range(256))
for value in (b"one", data, b""):
    assert client.set("py", value), value
assert client.get("py") == b"one"
assert client.get("py") == data
assert client.get("py") == b""
assert client.get("py") is None
assert client.set("py", b"old", expire=-1)
assert client.get("py") is None
assert client.set("py", b"kept")
assert client.delete("py")
assert client.get("py") is None
assert client.set("shared", b"from python")
assert b"curr_items" in client.stats()
assert client.version().startswith(b'1.0.0 varve-')
client.close()
`;

const PERL = `
use strict; use warnings;
use Cache::Memcached;
my $client = Cache::Memcached->new({ servers => ["127.0.0.1:$ARGV[0]"], compress_enable => 0 });
for my $value ("one", "two \\r\\n END \\r\\n", "three") { $client->set("pl", $value) or die "set $value" }
for my $value ("one", "two \\r\\n END \\r\\n", "three") { my $got = $client->get("pl"); $got eq $value or die "got $got" }
defined $client->get("pl") and die "not empty";
$client->set("pl", "gone"); $client->delete("pl") or die "delete";
defined $client->get("pl") and die "not deleted";
$client->get("shared") eq "from python" or die "what another client stored";
`;

const SHELL = `
set -e
cd "$2"
printf 'a value from a file' > tool
memccp --servers=127.0.0.1:$1 tool
test "$(memccat --servers=127.0.0.1:$1 tool)" = 'a value from a file'
if memccat --servers=127.0.0.1:$1 tool 2>/dev/null | grep -q .; then echo 'given twice' >&2; exit 1; fi
memccp --servers=127.0.0.1:$1 tool
memcrm --servers=127.0.0.1:$1 tool
if memccat --servers=127.0.0.1:$1 tool 2>/dev/null | grep -q .; then echo 'not deleted' >&2; exit 1; fi
memcping --servers=127.0.0.1:$1
memcstat --servers=127.0.0.1:$1 | grep -q cmd_set
`;

/** In this order: the Perl client reads what the Python client has stored. */
const CLIENTS = [
  {
    name: "libmemcached's tools",
    package: "libmemcached-tools",
    present: ["memcping", ["--version"]],
    command: (port, folder) => ["sh", ["-c", SHELL, "sh", String(port), folder]],
  },
  {
    name: "pymemcache (Python)",
    package: "python3-pymemcache",
    present: ["/usr/bin/python3", ["-c", "import pymemcache"]],
    command: (port) => ["/usr/bin/python3", ["-c", PYTHON, String(port)]],
  },
  {
    name: "Cache::Memcached (Perl)",
    package: "libcache-memcached-perl",
    present: ["/usr/bin/perl", ["-MCache::Memcached", "-e", "1"]],
    command: (port) => ["/usr/bin/perl", ["-e", PERL, String(port)]],
  },
];

const { values: options } = parseArgs({ options: { dist: { type: "string" } } });
checkNode();
if (options.dist === undefined) {
  install();
  await build();
}
const missing = CLIENTS.filter((client) => !present(client));
if (missing.length > 0 && process.getuid?.() === 0) {
  const packages = missing.map((client) => client.package);
  const apt = (...args) => spawnSync("apt-get", ["-qq", ...args], { stdio: ["ignore", "ignore", "inherit"] });
  if (apt("install", "-y", "--no-install-recommends", ...packages).status !== 0) {
    apt("update");
    apt("install", "-y", "--no-install-recommends", ...packages);
  }
}

const directory = mkdtempSync(join(tmpdir(), "varve-clients-"));
const port = await freePort();
const program = resolve(ROOT, options.dist ?? "dist", "bin/varve.js");
const daemon = spawn(
  process.execPath,
  [program, "daemon", "--data-dir", join(directory, "data"), "--kestrel", `127.0.0.1:${port}`, "--log-level", "warn"],
  { stdio: ["ignore", "ignore", "inherit"] },
);
const exited = new Promise((done) => daemon.once("exit", (code) => done(code)));
process.once("exit", () => daemon.kill("SIGKILL"));
await listening(port);

let failed = 0;
let passed = 0;
for (const client of CLIENTS) {
  if (!present(client)) {
    console.log(`SKIPPED  ${client.name}: ${client.package} is not installed, and could not be`);
    continue;
  }
  const [command, args] = client.command(port, directory);
  // Not spawnSync: the daemon's end must be noticed, should a client bring it about.
  const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe"] });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (text) => {
    errors += text;
  });
  const code = await new Promise((done) => child.once("close", done));
  if (code === 0 && daemon.exitCode === null) {
    passed++;
    console.log(`ok       ${client.name}`);
  } else {
    failed++;
    console.log(`FAILED   ${client.name} (exit code ${code})\n${errors}`);
  }
}
daemon.kill("SIGTERM");
const code = await Promise.race([exited, sleep(PATIENCE_MS).then(() => "late")]);
rmSync(directory, { recursive: true, force: true });
if (code !== 0) fail(`the daemon ended with ${code}`);
if (failed > 0) fail(`${failed} clients failed`);
console.log(`${passed} clients`);

function present({ present: [command, args] }) {
  const result = spawnSync(command, args, { stdio: "ignore" });
  return result.error === undefined && result.status === 0;
}

function freePort() {
  return new Promise((done, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

async function listening(port) {
  const startedMs = performance.now();
  while (performance.now() - startedMs < PATIENCE_MS && daemon.exitCode === null) {
    const answered = await new Promise((done) => {
      const socket = connect({ host: "127.0.0.1", port });
      socket.once("connect", () => {
        socket.destroy();
        done(true);
      });
      socket.once("error", () => done(false));
    });
    if (answered) return;
    await sleep(20);
  }
  fail("the daemon did not start");
}
