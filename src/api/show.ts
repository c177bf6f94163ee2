const SHOWN_CHARS_MAX = 60;

/** A value as it appears in an error message: escaped, on one line, cut. Never throws, never calls the value's code. */
export function show(value: unknown): string {
  switch (typeof value) {
    case "string":
      return value.length <= SHOWN_CHARS_MAX
        ? quote(value)
        : `${quote(value.slice(0, SHOWN_CHARS_MAX))}... (${value.length} characters)`;
    case "number":
      return Object.is(value, -0) ? "-0" : String(value);
    case "bigint": {
      // The digits of a huge BigInt are slow to produce; its size says as much.
      return value > -(10n ** 30n) && value < 10n ** 30n ? `${value}n` : "a huge BigInt";
    }
    case "boolean":
    case "undefined":
      return String(value);
    case "function":
      return "a function";
    case "symbol":
      return "a symbol";
    case "object":
      return value === null ? "null" : describeObject(value);
  }
}

/** Quoted, with nothing left in it that could break a line, hide, or turn the direction of the text. */
function quote(text: string): string {
  return JSON.stringify(text).replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`,
  );
}

/** `an array`, `a Date`, `an object`: what kind of object it is, with its article. */
export function describeObject(value: object): string {
  if (Array.isArray(value)) return "an array";
  const name = constructorName(value);
  if (name === "" || name === "Object") return "an object";
  return `${/^[AEIOU]/i.test(name) ? "an" : "a"} ${name}`;
}

function constructorName(value: object): string {
  let prototype: object | null;
  try {
    prototype = Object.getPrototypeOf(value);
  } catch {
    return ""; // a proxy that refuses
  }
  if (prototype === null) return "";
  const maker: unknown = Object.getOwnPropertyDescriptor(prototype, "constructor")?.value;
  if (typeof maker !== "function") return "";
  const name: unknown = Object.getOwnPropertyDescriptor(maker, "name")?.value;
  return typeof name === "string" ? name.slice(0, SHOWN_CHARS_MAX) : "";
}
