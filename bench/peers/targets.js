/** The ratios that varve aims for, each found in the sections of a run; those that were not measured are left out. */

import { nameOfGiven } from "./contestants.js";
import { ratio } from "./entry.js";
import { rowIn } from "./sections.js";

/**
 * @typedef {object} Result
 * @property {string} text
 * @property {string} bound
 * @property {string} measured
 * @property {boolean} met
 * @property {number} share what was measured of what is aimed for; 1 and more where it is met
 */

const KILL = "process kill";
const POWER = "power loss";

function ratioTarget(text, least, [work, survives], varve, peer, where) {
  return {
    text,
    find: (sections) => {
      const section = sections.find((each) => each.work === work && each.survives === survives);
      const measured = rowIn(section, peer, where)?.ratios[varve];
      if (measured === undefined) return undefined;
      const share = least > 0 ? measured.median / least : -least / measured.median;
      const bound = least > 0 ? `>= ${least}` : `<= ${-least}`;
      return { bound, measured: ratio(measured), met: share >= 1, share };
    },
  };
}

/** Latencies: at most so many times as long. */
const atMost = (most) => -most;

const shape = (operation, connections, pipeline) => ({ operation, connections, pipeline });

function queueTargets(peer, least) {
  return Object.entries(least).flatMap(([at, bound]) => {
    const [connections, pipeline] = at.split("x").map(Number);
    return ["put", "take"].flatMap((operation) =>
      bound[operation] === undefined
        ? []
        : [
            ratioTarget(
              `Kestrel ${operation === "put" ? "set" : "get"}, ${connections} x ${pipeline} / ${peer}`,
              bound[operation],
              ["queue", KILL],
              "varve Kestrel",
              peer,
              shape(operation, connections, pipeline),
            ),
          ],
    );
  });
}

const both = (least) => ({ put: least, take: least });

/** Another server of Kestrel's protocol, as Siberite is one. */
const givenTargets = (given) =>
  queueTargets(nameOfGiven(given), { "10x1": both(1.2), "50x1": both(1.2), "100x1": both(1.2), "50x16": { put: 5 } });

const storeTarget = (id, against, least, survives = KILL) =>
  ratioTarget(`embedded ${id} / ${against}`, least, ["stores", survives], "varve", against, { id });

const logPut = (peer, connections, pipeline, least) =>
  ratioTarget(
    `publish, native, ${connections} x ${pipeline} / ${peer}`,
    least,
    ["log", KILL],
    "varve native",
    peer,
    shape("put", connections, pipeline),
  );

function seriesTarget(text, bound, measure) {
  return {
    text,
    find: (sections) => {
      const section = sections.find(({ work, survives }) => work === "backlog" && survives === KILL);
      const rows = section?.rows.filter(({ name }) => name === "varve Kestrel") ?? [];
      if (rows.length < 2) return undefined;
      const { measured, share } = measure(rows);
      return { bound, measured, met: share >= 1, share };
    },
  };
}

const GROWTH_MIB = 24;
const RESIDENT_MIB = 112;
const AT_DEPTH = 0.9;

const BACKLOG = [
  seriesTarget("backlog: resident memory above that of an empty queue", `<= ${GROWTH_MIB} MiB`, (rows) => {
    const grown = Math.max(...rows.map(({ resident }) => resident)) - rows[0].resident;
    return { measured: `${grown.toFixed(0)} MiB`, share: grown <= 0 ? 1 : GROWTH_MIB / grown };
  }),
  seriesTarget("backlog: resident memory in all", `<= ${RESIDENT_MIB} MiB`, (rows) => {
    const most = Math.max(...rows.map(({ resident }) => resident));
    return { measured: `${most.toFixed(0)} MiB`, share: RESIDENT_MIB / most };
  }),
  ...["put", "take"].map((operation) =>
    seriesTarget(`backlog: ${operation} at every depth / at depth 0`, `>= ${AT_DEPTH}`, (rows) => {
      const least = Math.min(...rows.slice(1).map((row) => row[operation] / rows[0][operation]));
      return { measured: `${least.toFixed(2)} at least`, share: least / AT_DEPTH };
    }),
  ),
];

const TARGETS = [
  ...queueTargets("redis lists", { "50x1": both(1), "50x16": both(1.5) }),
  ...queueTargets("beanstalkd", { "50x1": both(1) }),
  ...queueTargets("floor Kestrel", { "50x1": both(0.8) }),
  logPut("redis streams", 50, 1, 1.2),
  logPut("nats jetstream", 50, 1, 1.5),
  logPut("redis streams", 50, 16, 1.5),
  logPut("nats jetstream", 50, 16, 3),
  ratioTarget("sync / async, set and get", 0.6, ["durability", POWER], "varve sync", "varve async", {}),
  ratioTarget("task cycle, dialled / bullmq", 10, ["tasks", KILL], "varve dialled", "bullmq on redis", {}),
  ratioTarget(
    "batches over a Unix socket / embedded",
    0.5,
    ["batches", KILL],
    "varve over a Unix socket",
    "varve embedded",
    {
      operation: "append",
    },
  ),
  ratioTarget("p99 of one request / echo", atMost(1.5), ["roundtrip", KILL], "varve append", "echo", {}),
  ratioTarget(
    "p99 beside 1000 that wait / none",
    atMost(2),
    ["waiting", KILL],
    "beside 1000 that wait",
    "beside 0 that wait",
    {},
  ),
  ...BACKLOG,
  storeTarget("append-batch", "raw write", 0.6),
  storeTarget("append-batch", "better-sqlite3", 5),
  storeTarget("append-batch", "better-sqlite3 (plain)", 5),
  storeTarget("append-single", "raw write", 0.25),
  storeTarget("append-single", "better-sqlite3", 8),
  storeTarget("append-single", "better-sqlite3 (plain)", 8),
  storeTarget("append-sync", "better-sqlite3", 20, POWER),
  storeTarget("append-sync", "better-sqlite3 (plain)", 20, POWER),
  storeTarget("append-sequential", "overwrite + fdatasync", 0.8, POWER),
  storeTarget("scan", "better-sqlite3", 8),
  storeTarget("cycle-single", "better-sqlite3", 10),
  storeTarget("cycle-batch", "better-sqlite3", 3),
];

/** @returns {Result[]} */
export function targetsOf(sections, kestrel) {
  return [...TARGETS, ...kestrel.flatMap(givenTargets)].flatMap(({ text, find }) => {
    const found = find(sections);
    return found === undefined ? [] : [{ text, ...found }];
  });
}

/**
 * Peers that are ahead of all that varve offers for the same work, where, and why if that is known.
 * @returns {string[]}
 */
export function aheadOf(section) {
  if (section.form !== "comparison" || section.measure !== "rate") return [];
  const ahead = section.rows.filter(
    ({ kind, name, ratios }) =>
      kind === "peer" && !name.startsWith("varve") && section.varve.every((varve) => ratios[varve]?.median < 1),
  );
  return [...new Set(ahead.map(({ name }) => name))].map((name) => {
    const where = ahead
      .filter((row) => row.name === name)
      .map(({ at, ratios }) => `${at} (${Math.max(...section.varve.map((varve) => ratios[varve].median)).toFixed(2)})`);
    const reason = REASONS.find(({ works, peer }) => works.includes(section.work) && name.startsWith(peer));
    return `${name} is ahead in ${where.join("; ")}${reason === undefined ? "" : `: ${reason.why}`}`;
  });
}

const FLOOR =
  "a program in C with a loop of its own over epoll, of which a request that comes alone takes less processor time than of a Node server that does nothing but parse and answer (the floor)";
const REASONS = [
  { works: ["queue", "log"], peer: "redis", why: FLOOR },
  { works: ["queue"], peer: "beanstalkd", why: FLOOR },
  { works: ["log"], peer: "nats", why: "compiled Go that answers on several threads" },
  { works: ["queue"], peer: "siberite", why: "compiled Go that answers on several threads" },
];
