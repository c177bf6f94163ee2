/**
 * What a run produces. A section is one kind of work in one durability class; `date` and `rounds` of the run are added to it.
 *
 * @typedef {object} Comparison contestants that did the same, round by round
 * @property {"comparison"} form
 * @property {string} work
 * @property {string} title
 * @property {string} survives what what was acknowledged survives: "process kill" or "power loss"
 * @property {string} measure "rate" (a second), or "p99" (microseconds), of which the ratios are
 * @property {string[]} varve the contestants that the others are compared with
 * @property {Row[]} rows
 * @property {string[]} [notes]
 *
 * @typedef {object} Row
 * @property {string} at what was done, and how: "put, 50 x 16"
 * @property {Record<string, string | number>} where the same, apart
 * @property {string} name
 * @property {"varve" | "peer" | "floor"} kind
 * @property {Record<string, Spread>} ratios by varve's contestant: its measure over this one's, round by round
 * @property {Spread} value
 * @property {Record<string, number>} more medians of p50, p99, p999 (us), serverCpu (us each), ownCpu (share of one core)
 *
 * @typedef {object} Series the same again and again, while something grows
 * @property {"series"} form
 * @property {string} work
 * @property {string} title
 * @property {string} survives
 * @property {string} x
 * @property {{ key: string, title: string }[]} columns
 * @property {{ name: string, kind: Row["kind"], x: number, [column: string]: number }[]} rows
 *
 * @typedef {{ median: number, min: number, max: number }} Spread
 */

import { spread } from "./entry.js";

const MORE = ["p50", "p99", "p999", "serverCpu", "ownCpu"];

/**
 * @param {{ name: string, kind: Row["kind"], taken: object[] }[]} results rounds of each contestant, in the same order
 * @returns {Row[]}
 */
export function rowsOf(results, { at, where, measure = "rate" }) {
  const own = results.filter(({ kind }) => kind === "varve");
  return results.map(({ name, kind, taken }) => ({
    at,
    where,
    name,
    kind,
    ratios: Object.fromEntries(
      own
        .filter((varve) => varve.name !== name)
        .map((varve) => [varve.name, spread(varve.taken.map((each, round) => each[measure] / taken[round][measure]))]),
    ),
    value: spread(taken.map((each) => each[measure])),
    more: Object.fromEntries(
      MORE.filter((key) => taken.some((each) => Number.isFinite(each[key]))).map((key) => [
        key,
        // Processor time is told in ticks of a hundredth of a second, so it is added up.
        key === "serverCpu" ? weighted(taken) : spread(taken.map((each) => each[key])).median,
      ]),
    ),
  }));
}

function weighted(taken) {
  const done = taken.reduce((sum, each) => sum + each.done, 0);
  return taken.reduce((sum, each) => sum + each.serverCpu * each.done, 0) / done;
}

/** The row of a section that has this name and these members of `where`. */
export function rowIn(section, name, where) {
  return section?.rows.find(
    (row) => row.name === name && Object.entries(where).every(([key, value]) => row.where[key] === value),
  );
}
