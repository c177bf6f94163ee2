/**
 * Queue names, and the folder names that stand for them.
 *
 * A folder name must survive case-insensitive file systems and Windows, so upper-case letters, ":", dots at either end
 * and device names cannot appear in it as they are; and 200 characters of any kind must fit the 255 bytes of a file
 * name, which rules out three bytes for each odd character.
 *
 *   ordinary name   [a-z0-9_.-], no dot at either end, no device name      itself             events -> events
 *   ":"             always                                                 "+"                eu:jobs -> eu+jobs
 *   any other name  "%" + the name in lower case + "%" + case mask         Events -> %events%8,  con -> %con%
 *
 * The case mask has one bit for each character, left to right, set where it is an upper-case letter; four bits make one
 * lower-case hex digit, zero digits at its end are left off. "%" and "+" are in no queue name, so no two names share a
 * folder. The longest folder name is 1 + 200 + 1 + 50 = 252 bytes.
 */

import { assert, VarveError } from "./errors.js";
import { show } from "./show.js";

const QUEUE_NAME_BYTES_MAX = 200;

const NAME_PATTERN = /^[A-Za-z0-9_.:-]+$/;
const UPPER_CASE = /[A-Z]/;
const MARK = "%";
/** The names that Windows keeps for devices, whatever follows the first dot. */
const DEVICE_NAME = /^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)/;
const MARKED_FOLDER = /^%([a-z0-9_.+-]+)%([0-9a-f]*)$/;

/**
 * The name, if it is one.
 * @throws VarveError `ERR_QUEUE_NAME`
 */
export function checkQueueName(name: unknown): string {
  return checkName(name, "queue");
}

/**
 * The same for a group.
 * @throws VarveError `ERR_QUEUE_NAME`
 */
export function checkGroupName(name: unknown): string {
  return checkName(name, "group");
}

/**
 * The same for a cursor.
 * @throws VarveError `ERR_QUEUE_NAME`
 */
export function checkCursorName(name: unknown): string {
  return checkName(name, "cursor");
}

function checkName(name: unknown, what: string): string {
  const fits = typeof name === "string" && name.length <= QUEUE_NAME_BYTES_MAX && NAME_PATTERN.test(name);
  if (fits && name !== "." && name !== "..") return name;
  throw new VarveError(
    "ERR_QUEUE_NAME",
    `a ${what} name is 1 to ${QUEUE_NAME_BYTES_MAX} characters of A-Z a-z 0-9 _ . : - (and not . or ..); got ${show(name)}`,
  );
}

/** The folder name for a valid queue name. */
export function nameToPath(name: string): string {
  const body = name.toLowerCase().replaceAll(":", "+");
  const mask = caseMask(name);
  const ordinary = mask === "" && !body.startsWith(".") && !body.endsWith(".") && !DEVICE_NAME.test(body);
  return ordinary ? body : `${MARK}${body}${MARK}${mask}`;
}

/** The queue name that a folder name stands for; undefined when it stands for none: a foreign folder. */
export function pathToName(path: string): string | undefined {
  const marked = MARKED_FOLDER.exec(path);
  const name = (marked === null ? path : applyCaseMask(marked[1]!, marked[2]!)).replaceAll("+", ":");
  if (name.length > QUEUE_NAME_BYTES_MAX || !NAME_PATTERN.test(name)) return undefined;
  // Only the one spelling that nameToPath gives is varve's.
  return nameToPath(name) === path ? name : undefined;
}

function caseMask(name: string): string {
  if (!UPPER_CASE.test(name)) return "";
  let mask = "";
  for (let start = 0; start < name.length; start += 4) {
    let digit = 0;
    for (let bit = 0; bit < 4; bit++) {
      if (UPPER_CASE.test(name.charAt(start + bit))) digit |= 8 >> bit;
    }
    mask += digit.toString(16);
  }
  return mask.replace(/0+$/, "");
}

function applyCaseMask(body: string, mask: string): string {
  let name = "";
  for (let index = 0; index < body.length; index++) {
    const digit = Number.parseInt(mask.charAt(index >> 2) || "0", 16);
    const upper = (digit & (8 >> (index & 3))) !== 0;
    name += upper ? body.charAt(index).toUpperCase() : body.charAt(index);
  }
  return name;
}

assert(1 + QUEUE_NAME_BYTES_MAX + 1 + Math.ceil(QUEUE_NAME_BYTES_MAX / 4) <= 255, "folder names fit 255 bytes");
