/**
 * A copy of a web of objects, arrays, maps and sets, in which what was shared is shared and what pointed back does so. Not
 * of `#private` members, which only constructors can make.
 */
export function copyOf<T extends object>(root: T): T {
  const copies = new Map<object, object>();
  const left: object[] = [];
  // One after another rather than one within another: the web is deep.
  const copy = (value: unknown): unknown => {
    if (typeof value !== "object" || value === null) return value;
    const known = copies.get(value);
    if (known !== undefined) return known;
    const twin = shellOf(value);
    copies.set(value, twin);
    left.push(value);
    return twin;
  };
  const result = copy(root) as T;
  for (let source = left.pop(); source !== undefined; source = left.pop()) {
    const twin = copies.get(source)!;
    if (source instanceof Map)
      for (const [key, value] of source) (twin as Map<unknown, unknown>).set(copy(key), copy(value));
    else if (source instanceof Set) for (const value of source) (twin as Set<unknown>).add(copy(value));
    else if (Array.isArray(source)) for (const value of source) (twin as unknown[]).push(copy(value));
    else {
      // Most of what they hold are numbers and texts, which are there already.
      const values = twin as Record<string, unknown>;
      for (const key in values) {
        const value = values[key];
        if (typeof value === "object" && value !== null) values[key] = copy(value);
      }
    }
  }
  return result;
}

/** A shell that is still to be filled; of an object, one that holds what the object holds. */
function shellOf(value: object): object {
  if (value instanceof Map) return new Map();
  if (value instanceof Set) return new Set();
  if (Array.isArray(value)) return [];
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype ? { ...value } : Object.assign(Object.create(prototype), value);
}
