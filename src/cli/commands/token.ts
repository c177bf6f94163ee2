import type { Command } from "commander";
import { VarveError } from "../../api/errors.js";
import { show } from "../../api/show.js";
import { formatRule, parseRule, type Rule } from "../../auth/rules.js";
import { isUserName, makeToken } from "../../auth/token.js";
import type { User, Users } from "../../auth/users.js";
import { changeUsersFile, readUsersFile } from "../../daemon/users-file.js";
import { table } from "../format.js";
import { several, withDirectoryOptions } from "../options.js";
import { action } from "../run.js";

interface FileOptions {
  readonly file: string;
}

interface CreateOptions extends FileOptions {
  readonly allow: readonly string[];
}

export function registerToken(program: Command): void {
  const token = program
    .command("token")
    .summary("make, list or revoke the tokens of a daemon's users")
    .description(
      "Keeps the users file of `varve daemon --auth`: who may log in with a token, and what they may do with which queues. " +
        "A daemon that runs takes up a change when it gets SIGHUP.",
    )
    .helpOption("-h, --help", "print this help");
  registerCreateToken(token);
  registerListTokens(token);
  registerRevokeToken(token);
  withDirectoryOptions(token).addHelpText(
    "after",
    `
Examples:
  $ varve token create orders-service --allow read,write:orders.* --file users.json
  $ varve token create operator --allow read,write,admin:* --file users.json
  $ varve token list --file users.json
  $ varve token revoke orders-service --file users.json && kill -HUP $(cat varve.pid)`,
  );
}

function registerCreateToken(token: Command): void {
  const command = withFile(token.command("create <name>"))
    .summary("make a token for a user, and print it, once")
    .description(
      "Makes a token for a new user, or for one that has only a certificate so far, and prints it. It cannot be printed " +
        "again: the file holds a hash of it. The file is made if it is not there.",
    )
    .requiredOption(
      "--allow <permissions:queues>",
      'what the user may: read, write, admin; on a queue, or on all whose name fits with one "*"; one kind only as task/jobs or log/jobs; repeatable',
      several,
    )
    .addHelpText(
      "after",
      `
read takes messages out and looks at what is there, write puts them in, admin makes, changes, empties and deletes
queues. None includes another.

Example:
  $ varve token create orders-service --allow read,write:orders.* --allow write:task/mails --file users.json`,
    );

  action<[string], CreateOptions>(withDirectoryOptions(command), async (run, name) => {
    const { file, allow } = run.options;
    if (!isUserName(name)) {
      throw new VarveError("ERR_ARGUMENT", `a user's name is 1 to 64 characters of A-Z a-z 0-9 _ -; got ${show(name)}`);
    }
    const rules = allow.map((text) => parseRule(text, "--allow"));
    const { token, hash } = makeToken(name);
    changeUsersFile(file, (users) => withUser(users, { name, token: hash, certificate: undefined, allow: rules }));
    run.note(`${file} holds a hash of it only: this is the one time that the token is shown`);
    await run.print({ name, token, allow: rules.map(jsonRule) }, () => token);
    return undefined;
  });
}

function registerListTokens(token: Command): void {
  const command = withFile(token.command("list"))
    .summary("list the users, and what they may do")
    .description("Lists the users of a users file: how they log in, and what they may do.")
    .addHelpText("after", "\nExample:\n  $ varve token list --file users.json");

  action<[], FileOptions>(withDirectoryOptions(command), async (run) => {
    const { users, kestrel } = readUsersFile(run.options.file);
    if (run.options.json) {
      for (const user of users) await run.print(jsonUser(user), () => "");
      return undefined;
    }
    const rows = users.map((user) => [user.name, loginOf(user), user.allow.map(formatRule).join(" ")]);
    if (kestrel !== undefined) rows.push(["(kestrel)", "none", kestrel.allow.map(formatRule).join(" ")]);
    if (rows.length > 0) await run.print(undefined, () => table(["USER", "LOGIN", "MAY"], rows, run.paint));
    return undefined;
  });
}

function registerRevokeToken(token: Command): void {
  const command = withFile(token.command("revoke <name>"))
    .summary("take a user's token away")
    .description(
      "Removes the token of a user from the file, and the user with it unless there is a certificate to log in with too.",
    )
    .addHelpText("after", "\nExample:\n  $ varve token revoke orders-service --file users.json");

  action<[string], FileOptions>(withDirectoryOptions(command), async (run, name) => {
    const { file } = run.options;
    // Read first: revoking makes no file.
    readUsersFile(file);
    changeUsersFile(file, (users) => withoutToken(users, name));
    await run.report({ name, revoked: true }, () => `the token of ${name} is revoked; a running daemon needs a SIGHUP`);
    return undefined;
  });
}

function withFile(command: Command): Command {
  return command.requiredOption("--file <file>", "the users file");
}

function withUser(users: Users, added: User): Users {
  const known = users.users.find(({ name }) => name === added.name);
  if (known === undefined) return { ...users, users: [...users.users, added] };
  if (known.token !== undefined) {
    throw new VarveError("ERR_ARGUMENT", `${added.name} has a token already: revoke it first, or choose another name`);
  }
  const user = { ...known, token: added.token, allow: [...known.allow, ...added.allow] };
  return { ...users, users: users.users.map((other) => (other === known ? user : other)) };
}

function withoutToken(users: Users, name: string): Users {
  const known = users.users.find((user) => user.name === name && user.token !== undefined);
  if (known === undefined) throw new VarveError("ERR_ARGUMENT", `there is no user ${show(name)} with a token`);
  const left = known.certificate === undefined ? [] : [{ ...known, token: undefined }];
  return { ...users, users: users.users.flatMap((user) => (user === known ? left : [user])) };
}

function loginOf({ token, certificate }: User): string {
  const names = certificate && ("commonName" in certificate ? `CN=${certificate.commonName}` : "fingerprint");
  return [...(token === undefined ? [] : ["token"]), ...(names === undefined ? [] : [`certificate ${names}`])].join(
    ", ",
  );
}

function jsonUser({ name, token, certificate, allow }: User): unknown {
  return { name, token: token !== undefined, certificate: certificate ?? null, allow: allow.map(jsonRule) };
}

function jsonRule({ queues, kind, permissions }: Rule): unknown {
  return { queues, kind: kind ?? null, permissions };
}
