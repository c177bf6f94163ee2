import assert from "node:assert/strict";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { Access } from "../../src/auth/access.js";
import { formatUsers, NO_USERS, parseUsers, type User } from "../../src/auth/users.js";
import { withDirectory } from "../support/directories.js";
import { jsonLines, varve } from "./program.js";

test("a token is made, shown once, listed without a secret, and revoked", () =>
  withDirectory(async (directory) => {
    const file = join(directory, "users.json");
    const create = await varve([
      "token",
      "create",
      "ada",
      "--allow",
      "read,write:orders.*",
      "--allow",
      "admin:task/jobs",
      "--file",
      file,
    ]);
    assert.equal(create.code, 0, create.stderr);
    const token = create.stdout.trimEnd();
    assert.match(token, /^varve_ada\.[A-Za-z0-9_-]{43}$/);
    assert.match(create.stderr, /the one time that the token is shown/);
    if (process.platform !== "win32") assert.equal(statSync(file).mode & 0o777, 0o600);

    const text = readFileSync(file, "utf8");
    const login = new Access(parseUsers(text, file)).authenticate({ token });
    assert.equal(login?.name, "ada");
    assert.deepEqual(
      [
        login?.may("write", "log", "orders.eu"),
        login?.may("admin", "task", "jobs"),
        login?.may("admin", "log", "jobs"),
      ],
      [true, true, false],
    );
    assert.ok(!text.includes(token.slice("varve_ada.".length)));

    const second = jsonLines(
      (await varve(["token", "create", "bob", "--allow", "read:*", "--file", file, "--json"])).stdout,
    );
    assert.deepEqual(Object.keys(second[0]), ["name", "token", "allow"]);
    const list = await varve(["token", "list", "--file", file]);
    assert.match(
      list.stdout,
      /^USER {2}LOGIN {2}MAY\nada {3}token {2}read,write:orders\.\* admin:task\/jobs\nbob .*read:\*\n$/,
    );
    assert.ok(!list.stdout.includes("varve_"));
    assert.deepEqual(
      jsonLines((await varve(["token", "list", "--file", file, "--json"])).stdout).map(({ name, token }) => [
        name,
        token,
      ]),
      [
        ["ada", true],
        ["bob", true],
      ],
    );

    assert.equal((await varve(["token", "revoke", "ada", "--file", file])).code, 0);
    assert.equal(new Access(parseUsers(readFileSync(file, "utf8"), file)).authenticate({ token }), undefined);
    const again = await varve(["token", "revoke", "ada", "--file", file]);
    assert.deepEqual([again.code, again.stdout], [2, ""]);
    assert.match(again.stderr, /no user "ada" with a token/);
  }));

test("a user with a certificate gets a token beside it, and keeps the certificate when it is revoked", () =>
  withDirectory(async (directory) => {
    const file = join(directory, "users.json");
    const eve: User = { name: "eve", token: undefined, certificate: { commonName: "eve" }, allow: [] };
    writeFileSync(file, formatUsers({ ...NO_USERS, users: [eve] }), { mode: 0o600 });
    const users = () => parseUsers(readFileSync(file, "utf8"), file).users;
    await varve(["token", "create", "eve", "--allow", "read:a", "--file", file]);
    assert.deepEqual(
      users().map(({ token, certificate, allow }) => [token !== undefined, certificate, allow.length]),
      [[true, { commonName: "eve" }, 1]],
    );
    await varve(["token", "revoke", "eve", "--file", file]);
    assert.deepEqual(
      users().map(({ token, certificate }) => [token, certificate]),
      [[undefined, { commonName: "eve" }]],
    );
  }));

test("what makes no sense is refused, and makes no file", () =>
  withDirectory(async (directory) => {
    const file = join(directory, "users.json");
    for (const [args, message] of [
      [["create", "--allow", "read:a", "--file", file], /missing required argument 'name'/],
      [["create", "ada", "--file", file], /required option '--allow/],
      [["create", "ada", "--allow", "read:a"], /required option '--file/],
      [["create", "a.da", "--allow", "read:a", "--file", file], /user's name is 1 to 64/],
      [["create", "ada", "--allow", "read", "--file", file], /--allow must be permissions/],
      [["create", "ada", "--allow", "raed:a", "--file", file], /--allow must be permissions/],
      [["create", "ada", "--allow", "read:a", "--allow", "read:**", "--file", file], /--allow must be permissions/],
      [["list", "--file", file], /cannot be read/],
      [["revoke", "ada", "--file", file], /cannot be read/],
    ] as const) {
      const { code, stdout, stderr } = await varve(["token", ...args]);
      assert.deepEqual([code, stdout], [2, ""], args.join(" "));
      assert.match(stderr, message);
      assert.match(stderr, /Try: varve token --help\n$/);
    }
    assert.ok(!existsSync(file));

    await varve(["token", "create", "ada", "--allow", "read:a", "--file", file]);
    const before = readFileSync(file, "utf8");
    const twice = await varve(["token", "create", "ada", "--allow", "read:a", "--file", file]);
    assert.match(twice.stderr, /ada has a token already/);
    assert.equal(readFileSync(file, "utf8"), before);
  }));
