/**
 * Patterns of queue names: a name, in which one "*" may stand for any characters, also for none.
 *
 *   orders         that queue
 *   orders.*       every queue whose name begins with "orders."
 *   *.dead, a*z    also at the beginning, or in between
 *   *              every queue
 *
 * With one star a name fits when it begins with what is before it and ends with what is behind: that takes time in
 * proportion to the pattern, whatever is compared, and needs no regular expression.
 */

const PATTERN_CHARS_MAX = 201;

export function isPattern(text: string): boolean {
  if (text.length === 0 || text.length > PATTERN_CHARS_MAX) return false;
  return /^[A-Za-z0-9_.:-]*\*?[A-Za-z0-9_.:-]*$/.test(text);
}

export function fits(pattern: string, name: string): boolean {
  const star = pattern.indexOf("*");
  if (star < 0) return name === pattern;
  // Both ends may not share characters: "ab*ba" is not "aba".
  return (
    name.length >= pattern.length - 1 &&
    name.startsWith(pattern.slice(0, star)) &&
    name.endsWith(pattern.slice(star + 1))
  );
}
