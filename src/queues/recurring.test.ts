import { deepStrictEqual, equal, ok, throws } from "node:assert/strict";
import { test } from "node:test";
import { isVarveError } from "../api/errors.js";
import { Decoder, Encoder } from "../storage/bytes.js";
import {
  Calendar,
  decodeSchedule,
  encodeSchedule,
  FIRINGS_MAX,
  RecurringSchedule,
  RecurringTable,
  sameTimes,
  type Timing,
} from "./recurring.js";

const TEMPLATE = { payload: Buffer.from("p"), key: undefined, headers: undefined, terms: "{}" };
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

function timing(given: Partial<Timing>): Timing {
  return { anchorMs: 0, missed: "once", ...given };
}

function cron(expression: string, timeZone = "UTC"): Calendar {
  return new Calendar(timing({ cron: expression, timeZone }));
}

function following(calendar: Calendar, from: string, count: number): string[] {
  const found: string[] = [];
  let at: number | undefined = Date.parse(from);
  for (let index = 0; index < count && at !== undefined; index++) {
    at = calendar.after(at);
    if (at !== undefined) found.push(new Date(at).toISOString().replace(":00.000Z", "Z"));
  }
  return found;
}

function schedule(given: Partial<Timing>, nextMs: number): RecurringSchedule {
  return new RecurringSchedule("s", timing(given), TEMPLATE, nextMs, undefined, 0);
}

function refusedFor(option: string, given: Partial<Timing>): void {
  throws(
    () => new Calendar(timing(given)),
    (error) => isVarveError(error, "ERR_OPTION") && error.details.option === option,
  );
}

test("cron: five fields, six with seconds, and names", () => {
  deepStrictEqual(following(cron("*/20 8 * * *"), "2026-01-01T08:10:00Z", 3), [
    "2026-01-01T08:20Z",
    "2026-01-01T08:40Z",
    "2026-01-02T08:00Z",
  ]);
  equal(cron("*/10 * * * * *").after(5000), 10_000);
  deepStrictEqual(following(cron("@monthly"), "2026-01-15T00:00:00Z", 2), ["2026-02-01T00:00Z", "2026-03-01T00:00Z"]);
  deepStrictEqual(following(cron("0 0 29 2 *"), "2026-01-15T00:00:00Z", 1), ["2028-02-29T00:00Z"]);
});

test("cron: what is no expression or no time zone is refused, and what never fires has no due time", () => {
  for (const expression of ["", "often", "61 * * * *", "* * *", "0 0 1 1 1 1 1 1"])
    refusedFor("cron", { cron: expression });
  refusedFor("timeZone", { cron: "* * * * *", timeZone: "Mars/Olympus" });
  equal(cron("0 0 30 2 *").after(0), undefined);
  equal(new Calendar(timing({ cron: "0 0 * * *", untilMs: HOUR })).after(1), undefined);
});

test("cron: a local time that summer time leaves out fires behind the gap", () => {
  deepStrictEqual(following(cron("30 2 * * *", "Europe/Berlin"), "2026-03-28T00:00:00Z", 3), [
    "2026-03-28T01:30Z",
    "2026-03-29T01:00Z",
    "2026-03-30T00:30Z",
  ]);
});

test("cron: a local time that comes twice fires once, each hour of a wildcard fires", () => {
  deepStrictEqual(following(cron("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00:00Z", 2), [
    "2026-10-25T00:30Z",
    "2026-10-26T01:30Z",
  ]);
  deepStrictEqual(following(cron("30 * * * *", "Europe/Berlin"), "2026-10-24T23:45:00Z", 3), [
    "2026-10-25T00:30Z",
    "2026-10-25T01:30Z",
    "2026-10-25T02:30Z",
  ]);
});

test("cron: due times only go up, across every change of the clocks", () => {
  const zones = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Casablanca"];
  for (const zone of zones) {
    for (const expression of ["*/15 * * * *", "30 1,2,3 * * *", "0 0 * * *", "59 23 * * *"]) {
      const calendar = cron(expression, zone);
      for (const start of [Date.UTC(2026, 2, 5), Date.UTC(2026, 9, 20), Date.UTC(2018, 10, 3)]) {
        let at = start;
        for (let count = 0; count < 60; count++) {
          const next = calendar.after(at);
          ok(next !== undefined && next > at, `${expression} in ${zone} after ${new Date(at).toISOString()}`);
          // Asking from anywhere before it gives the same one.
          if (count % 10 === 0) equal(calendar.after(next - 1), next);
          at = next;
        }
      }
    }
  }
});

test("every: counts from its anchor, whenever it is asked", () => {
  const calendar = new Calendar(timing({ everyMs: 100, anchorMs: 1030 }));
  equal(calendar.after(1030), 1130);
  equal(calendar.after(1129), 1130);
  equal(calendar.after(1130), 1230);
  const later = new Calendar(timing({ everyMs: 100, anchorMs: 5000, fromMs: 5000, untilMs: 5150 }));
  equal(later.after(0), 5000);
  equal(later.after(5000), 5100);
  equal(later.after(5100), undefined);
});

test("missed: once fires one time for all, and goes on behind now", () => {
  const { firings, nextMs } = schedule({ cron: "0 * * * *" }, HOUR).plan(10.5 * HOUR, 64);
  deepStrictEqual(firings, [10 * HOUR]);
  equal(nextMs, 11 * HOUR);
});

test("missed: skip fires only what has just become due", () => {
  const hourly = { cron: "0 * * * *", missed: "skip" } as const;
  deepStrictEqual(schedule(hourly, HOUR).plan(10.5 * HOUR, 64), { firings: [], nextMs: 11 * HOUR });
  deepStrictEqual(schedule(hourly, HOUR).plan(10 * HOUR + 500, 64), { firings: [10 * HOUR], nextMs: 11 * HOUR });
  deepStrictEqual(schedule(hourly, HOUR).plan(HOUR, 64), { firings: [HOUR], nextMs: 2 * HOUR });
});

test("missed: all fires each, in pieces, and only the last thousand", () => {
  const each = schedule({ everyMs: HOUR, missed: "all" }, HOUR);
  const first = each.plan(5.5 * HOUR, 2);
  deepStrictEqual(first, { firings: [HOUR, 2 * HOUR], nextMs: 3 * HOUR });
  each.nextMs = first.nextMs;
  deepStrictEqual(each.plan(5.5 * HOUR, 64), { firings: [3 * HOUR, 4 * HOUR, 5 * HOUR], nextMs: 6 * HOUR });
  for (const given of [{ everyMs: MINUTE }, { cron: "* * * * *" }]) {
    const { firings, nextMs } = schedule({ ...given, missed: "all" }, MINUTE).plan(365 * DAY, 5000);
    equal(firings.length, FIRINGS_MAX);
    equal(firings[0], 365 * DAY - (FIRINGS_MAX - 1) * MINUTE);
    equal(firings.at(-1), 365 * DAY);
    equal(nextMs, 365 * DAY + MINUTE);
  }
});

test("missed: a jump of a year costs no more than a day", () => {
  for (const given of [{ everyMs: 10 }, { cron: "* * * * * *" }, { cron: "0 0 1 1 *" }]) {
    const { firings } = schedule(given, 10_000).plan(366 * DAY, 64);
    equal(firings.length, 1);
    ok(firings[0]! <= 366 * DAY);
  }
});

test("limit: the last firing ends the schedule", () => {
  const limited = schedule({ everyMs: 10, limit: 3, missed: "all" }, 10);
  deepStrictEqual(limited.plan(1000, 2), { firings: [10, 20], nextMs: 30 });
  const table = new RecurringTable();
  table.set(limited);
  table.advance("s", 2, 20, 30);
  deepStrictEqual(limited.plan(1000, 64), { firings: [30], nextMs: undefined });
  table.advance("s", 1, 30, undefined);
  equal(table.size, 0);
});

test("a table knows what is due and when to look again, and comes back from its encoding", () => {
  const table = new RecurringTable();
  const make = (name: string, nextMs: number): RecurringSchedule =>
    new RecurringSchedule(
      name,
      timing({ everyMs: 100, limit: 5 }),
      { payload: Buffer.from([0, 255]), key: Buffer.alloc(0), headers: { ü: "ä" }, terms: '{"priority":3}' },
      nextMs,
      50,
      2,
    );
  for (const [name, nextMs] of [
    ["b", 300],
    ["a", 100],
    ["c", 200],
  ] as const)
    table.set(make(name, nextMs));
  equal(table.nextMs, 100);
  deepStrictEqual(
    table.due(200).map(({ name }) => name),
    ["a", "c"],
  );
  const output = new Encoder(16);
  table.encode(output);
  const copy = RecurringTable.decode(new Decoder(output.view()));
  deepStrictEqual(copy.list(), table.list());
  const single = new Encoder(16);
  encodeSchedule(single, table.get("a")!);
  deepStrictEqual(decodeSchedule(new Decoder(single.view())), table.get("a"));
  ok(table.remove("a") && !table.remove("a"));
});

test("the same times asked for again are the same schedule", () => {
  const asked = timing({ cron: "* * * * *", timeZone: "UTC" });
  ok(sameTimes(asked, { ...asked, anchorMs: 99, missed: "all", limit: 4 }));
  ok(!sameTimes(asked, { ...asked, timeZone: "Europe/Paris" }));
  ok(!sameTimes(asked, { ...asked, untilMs: 4 }));
});
