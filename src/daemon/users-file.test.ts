import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { filesBelow, withDirectory } from "../../test/support/directories.js";
import { rejectsWith } from "../../test/support/expect.js";
import { parseRule } from "../auth/rules.js";
import { makeToken } from "../auth/token.js";
import { NO_USERS, type User, type Users } from "../auth/users.js";
import { changeUsersFile, readUsersFile } from "./users-file.js";

const POSIX = process.platform !== "win32";

function user(name: string): User {
  return { name, token: makeToken(name).hash, certificate: undefined, allow: [parseRule("read:*", "")] };
}

function adding(user: User): (users: Users) => Users {
  return (users) => ({ ...users, users: [...users.users, user] });
}

test("a users file is made, for this user alone, changed as a whole, and read", () =>
  withDirectory(async (directory) => {
    const file = join(directory, "users.json");
    const [ada, bob] = [user("ada"), user("bob")];
    changeUsersFile(file, adding(ada));
    assert.deepEqual(readUsersFile(file), { ...NO_USERS, users: [ada] });
    if (POSIX) assert.equal(statSync(file).mode & 0o777, 0o600);
    changeUsersFile(file, adding(bob));
    assert.deepEqual(readUsersFile(file), { ...NO_USERS, users: [ada, bob] });
    assert.deepEqual(filesBelow(directory), ["users.json"]);
  }));

test("a change that fails, or would make a file that is refused, leaves the file as it was, and nothing beside it", () =>
  withDirectory(async (directory) => {
    const file = join(directory, "users.json");
    changeUsersFile(file, adding(user("ada")));
    const before = readFileSync(file, "utf8");
    assert.throws(
      () =>
        changeUsersFile(file, () => {
          throw new Error("no");
        }),
      /no/,
    );
    await rejectsWith("ERR_OPTION", () => changeUsersFile(file, adding(user("ada"))), /name is another user's/);
    const many = Array.from({ length: 1000 }, (_, index) => user(`u${index}`));
    await rejectsWith("ERR_OPTION", () => changeUsersFile(file, () => ({ ...NO_USERS, users: many })), /larger than/);
    assert.equal(readFileSync(file, "utf8"), before);
    assert.deepEqual(filesBelow(directory), ["users.json"]);
    await rejectsWith("ERR_OPTION", () => changeUsersFile(join(directory, "none/users.json"), adding(user("bob"))));
  }));

test("a second change at the same time is refused, and harms nothing", () =>
  withDirectory(async (directory) => {
    const file = join(directory, "users.json");
    changeUsersFile(file, (users) => {
      assert.throws(() => changeUsersFile(file, adding(user("bob"))), {
        code: "ERR_OPTION",
        message: /is there already/,
      });
      return adding(user("ada"))(users);
    });
    assert.deepEqual(
      readUsersFile(file).users.map(({ name }) => name),
      ["ada"],
    );
  }));

test("a users file that others may use, or that is no file, is refused", { skip: !POSIX }, () =>
  withDirectory(async (directory) => {
    const at = (name: string): string => join(directory, name);
    changeUsersFile(at("users.json"), adding(user("ada")));
    for (const mode of [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o777]) {
      chmodSync(at("users.json"), mode);
      await rejectsWith("ERR_OPTION", () => readUsersFile(at("users.json")), /may be used by others \(mode 0\d{3}\)/);
    }
    for (const mode of [0o600, 0o400]) {
      chmodSync(at("users.json"), mode);
      assert.equal(readUsersFile(at("users.json")).users.length, 1);
    }
    symlinkSync(at("users.json"), at("link"));
    await rejectsWith("ERR_OPTION", () => readUsersFile(at("link")), /symbolic link/);
    await rejectsWith("ERR_OPTION", () => changeUsersFile(at("link"), adding(user("bob"))), /symbolic link/);
    symlinkSync(at("nowhere"), at("dangling"));
    await rejectsWith("ERR_OPTION", () => changeUsersFile(at("dangling"), adding(user("bob"))), /symbolic link/);
    mkdirSync(at("folder"), { mode: 0o700 });
    await rejectsWith("ERR_OPTION", () => readUsersFile(at("folder")), /is no file/);
    // Nobody writes into it: reading must not wait for that.
    execFileSync("mkfifo", ["-m", "600", at("pipe")]);
    await rejectsWith("ERR_OPTION", () => readUsersFile(at("pipe")), /is no file/);
    await rejectsWith("ERR_OPTION", () => readUsersFile(at("none")), /cannot be read/);
    writeFileSync(at("large"), " ".repeat(10 * 1024 * 1024), { mode: 0o600 });
    await rejectsWith("ERR_OPTION", () => readUsersFile(at("large")), /larger than 65536 bytes/);
  }),
);
