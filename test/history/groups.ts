/** Exclusive groups of a log: nothing is passed over in silence, nothing that is committed comes back, one has the turn. */

import type { Report } from "./anomalies.js";
import type { GroupCommit, GroupFacts } from "./facts.js";
import type { Call } from "./history.js";
import type { KnownLog } from "./logs.js";
import { LargestBefore } from "./search.js";

type Fetch = GroupFacts["fetches"][number];

export function judgeGroup(group: GroupFacts, log: KnownLog, report: Report): void {
  const reach = new Reach(group);
  judgePositions(group, log, reach, report);
  judgeFetches(group, log, reach, report);
  judgeTurns(group, report);
}

/** How far a group's position can be, and how far it must be. */
class Reach {
  /** What an acknowledged commit has come to must not be read again. */
  readonly #least: LargestBefore;
  readonly #most: LargestBefore;
  readonly #seeks: GroupFacts["seeks"];
  /** Where it began; undefined when that is not known. */
  readonly start: number | undefined;

  constructor({ joins, commits, seeks }: GroupFacts) {
    const told = commits.filter(({ by }) => by.outcome === "ok");
    this.#least = new LargestBefore(told.map(({ by, upTo }) => [by.return, upTo + 1]));
    const possible = commits.filter(({ by }) => by.outcome !== "refused");
    this.#most = new LargestBefore(possible.map(({ by, upTo }) => [by.invoke, upTo + 1]));
    this.#seeks = seeks.filter(({ outcome }) => outcome !== "refused");
    const places = new Set(joins.map(({ from }) => (from === "start" ? 0 : from)));
    const [place] = places;
    this.start = places.size === 1 && typeof place === "number" ? place : undefined;
  }

  /** Whether somebody has moved, or may have moved, the position at will before a call was over: anything goes then. */
  sought({ return: returned }: Call): boolean {
    return this.#seeks.some(({ invoke }) => invoke < returned);
  }

  least({ invoke }: Call): number {
    return this.#least.before(invoke, 0);
  }

  /** Undefined when it is not known where the group began. */
  most({ return: returned }: Call): number | undefined {
    return this.start === undefined ? undefined : this.#most.before(returned, this.start);
  }
}

function judgePositions({ name, positions }: GroupFacts, log: KnownLog, reach: Reach, report: Report): void {
  for (const position of positions) {
    const { committed, lag = 0, return: at } = position;
    if (lag < 0) report("absurd-stats", at, `${name}: a lag of ${lag}`);
    if (committed === undefined || reach.sought(position)) continue;
    const least = reach.least(position);
    if (committed < least) report("commit-regress", at, `${name}: at ${committed}, after ${least} was committed`);
    const most = reach.most(position);
    if (most === undefined) continue;
    const passed = log.between(most, committed, at);
    if (passed !== undefined) report("silent-skip", at, `${name}: at ${committed}, and nobody committed ${passed}`);
  }
}

function judgeFetches({ name, fetches }: GroupFacts, log: KnownLog, reach: Reach, report: Report): void {
  /** What each member reads next. */
  const next = new Map<string, number>();
  for (const fetch of fetches) {
    const { member, records = [], return: at } = fetch;
    let expected = next.get(member);
    let first = true;
    for (const [offset, value] of records) {
      const sought = reach.sought(fetch);
      if (!sought && offset < reach.least(fetch)) {
        report("commit-regress", at, `${name}: ${member} was given ${value} at ${offset}, which was committed`);
      } else if (!sought && expected !== undefined && offset < expected) {
        report("non-monotonic", at, `${name}: ${member} was given ${value} at ${offset} after ${expected - 1}`);
      }
      // The first may stand behind what somebody else has committed meanwhile.
      const most = first && !sought ? reach.most(fetch) : undefined;
      const floor = first ? (most === undefined ? undefined : Math.max(most, expected ?? 0)) : expected;
      const passed = floor === undefined ? undefined : log.between(floor, offset, at);
      if (passed !== undefined) {
        report("silent-skip", at, `${name}: ${member} was given ${value} at ${offset}, and nobody ${passed}`);
      }
      expected = offset + 1;
      first = false;
    }
    if (expected !== undefined) next.set(member, expected);
  }
}

/**
 * A commit by a member who was not asked to read any more when another one was given records, and who has known no turn
 * since, must be refused.
 */
function judgeTurns({ name, fetches, commits }: GroupFacts, report: Report): void {
  const byMember = new Map<string, Fetch[]>();
  for (const fetch of fetches) {
    const own = byMember.get(fetch.member);
    if (own === undefined) byMember.set(fetch.member, [fetch]);
    else own.push(fetch);
  }
  const others = fetches.filter(({ outcome, records = [] }) => outcome === "ok" && records.length > 0);
  others.sort((a, b) => a.return - b.return);
  let index = 0;
  /** The fetches that began last among those that were answered, of two members. */
  let latest: Fetch | undefined;
  let second: Fetch | undefined;
  for (const commit of [...commits].sort((a, b) => a.by.invoke - b.by.invoke)) {
    for (let fetch = others[index]; fetch !== undefined && fetch.return < commit.by.invoke; fetch = others[++index]) {
      if (latest === undefined || fetch.invoke > latest.invoke) {
        if (latest !== undefined && latest.member !== fetch.member) second = latest;
        latest = fetch;
      } else if (latest.member !== fetch.member && (second === undefined || fetch.invoke > second.invoke)) {
        second = fetch;
      }
    }
    if (commit.by.outcome !== "ok") continue;
    const other = latest?.member === commit.member ? second : latest;
    if (other !== undefined && !readsSince(byMember.get(commit.member) ?? [], other, commit)) {
      const what = `${name}: ${commit.member} committed ${commit.upTo}, though ${other.member} had the turn`;
      report("stale-accepted", commit.by.return, what);
    }
  }
}

/** Whether the member may have had the turn again between another one's fetch and its own commit. */
function readsSince(own: readonly Fetch[], other: Fetch, commit: GroupCommit): boolean {
  const last = own.findLast(({ invoke }) => invoke < commit.by.invoke);
  return last !== undefined && last.return >= other.invoke;
}
