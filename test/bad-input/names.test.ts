import { rejectsWith } from "../support/expect.js";
import { badInput } from "./scene.js";

const NAMES: readonly [title: string, name: unknown][] = [
  ["with a slash", "a/b"],
  ["with a backslash", "a\\b"],
  ["that climbs out of the directory", "../jobs"],
  ["that climbs out from within", "a/../../jobs"],
  ["with a NUL", "jobs\0"],
  ["with Unicode", "größe"],
  ["with a control character", "a\nb"],
  ["with a space", "my jobs"],
  ["with a percent sign", "%2e%2e"],
  ["of 201 bytes", "n".repeat(201)],
  ["of 300 bytes", "n".repeat(300)],
  ["that is empty", ""],
  ["that is missing", undefined],
  ["that is null", null],
  ["that is a number", 7],
  ["that only looks like a string", new String("jobs")],
];

for (const [title, name] of NAMES) {
  badInput(`a queue name ${title}`, async ({ mq }) => {
    await rejectsWith("ERR_QUEUE_NAME", mq.openLog(name as string), /1 to 200 characters/);
    await rejectsWith("ERR_QUEUE_NAME", mq.openTask(name as string), /1 to 200 characters/);
  });
}
