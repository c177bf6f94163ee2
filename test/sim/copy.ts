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
    const twin = emptyLike(value);
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
    else for (const key of Object.keys(source)) Reflect.set(twin, key, copy(Reflect.get(source, key)));
  }
  return result;
}

function emptyLike(value: object): object {
  if (value instanceof Map) return new Map();
  if (value instanceof Set) return new Set();
  return Array.isArray(value) ? [] : (Object.create(Object.getPrototypeOf(value)) as object);
}
