/** Writes what was measured into the documentation: a page with all tables, plots, and what the README shows. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { ratio } from "./entry.js";
import { headingOf, markdownTable, sectionMarkdown } from "./report.js";
import { rowIn } from "./sections.js";
import { figure } from "./svg.js";
import { aheadOf, targetsOf } from "./targets.js";

const ROOT = new URL("../../", import.meta.url);
const PAGES = new URL("docs/benchmarks/", ROOT);
const BEGIN = "<!-- bench:peers begin -->";
const END = "<!-- bench:peers end -->";

const slug = ({ work, survives }) => `${work}-${survives === "process kill" ? "kill" : "power"}`;
const namesOf = (section, kind) => [
  ...new Set(section.rows.filter((row) => row.kind === kind).map(({ name }) => name)),
];

function marks(section) {
  return { strong: namesOf(section, "varve"), faint: namesOf(section, "floor") };
}

/** Rates over connections, a panel for each operation and depth of pipelining. */
function throughputFigure(section, subtitle) {
  const pipelines = [...new Set(section.rows.map(({ where }) => where.pipeline))];
  const panels = pipelines.flatMap((pipeline) =>
    ["put", "take"].map((operation) => {
      const rows = section.rows.filter(({ where }) => where.operation === operation && where.pipeline === pipeline);
      const names = [...new Set(rows.map(({ name }) => name))];
      return {
        form: "lines",
        title: `${operation}, ${pipeline === 1 ? "one request at a time" : `${pipeline} pipelined`}`,
        x: { title: "connections", scale: "log", ticks: [...new Set(rows.map(({ where }) => where.connections))] },
        y: { title: "messages a second", scale: "log" },
        data: names.map((name) => ({
          name,
          points: rows
            .filter((row) => row.name === name)
            .map(({ where, value }) => ({ x: where.connections, y: value.median, min: value.min, max: value.max })),
        })),
      };
    }),
  );
  return figure({ title: headingOf(section), subtitle, panels, ...marks(section) });
}

function seriesFigure(section, subtitle) {
  const names = [...new Set(section.rows.map(({ name }) => name))];
  const panels = section.columns.map(({ key, title }) => ({
    form: "lines",
    title: title.split(",")[0],
    x: { title: section.x, scale: section.rows.some(({ x }) => x === 0) ? "linear" : "log" },
    y: { title, scale: key === "put" || key === "take" ? "linear" : "log" },
    data: names.map((name) => ({
      name,
      points: section.rows.filter((row) => row.name === name).map((row) => ({ x: row.x, y: row[key] })),
    })),
  }));
  return figure({ title: headingOf(section), subtitle, panels, columns: 3, ...marks(section) });
}

function barsFigure(section, subtitle) {
  const several = new Set(section.rows.map(({ at }) => at)).size > 1;
  const unit = section.measure === "rate" ? "a second" : `${section.measure}, us`;
  const panel = {
    form: "bars",
    title: "",
    x: { title: `${unit} (logarithmic)`, scale: "log" },
    data: section.rows.map(({ at, name, value }) => ({
      ...(several ? { group: at } : {}),
      ...{ name, value: value.median, min: value.min, max: value.max },
    })),
  };
  return figure({ title: headingOf(section), subtitle, panels: [panel], ...marks(section) });
}

/** Costs are few: bars, by what they are of. */
function costFigure(section, subtitle) {
  const panels = section.columns.map(({ key, title }) => ({
    form: "bars",
    title,
    x: { title: `${title} (logarithmic)`, scale: "log" },
    data: [...new Set(section.rows.map(({ x }) => x))].flatMap((x) =>
      section.rows.filter((row) => row.x === x).map((row) => ({ group: `${x} B`, name: row.name, value: row[key] })),
    ),
  }));
  return figure({ title: headingOf(section), subtitle, panels, ...marks(section) });
}

function figureOf(section, subtitle) {
  if (section.work === "cost") return costFigure(section, subtitle);
  if (section.form === "series") return seriesFigure(section, subtitle);
  return section.work === "queue" || section.work === "log"
    ? throughputFigure(section, subtitle)
    : barsFigure(section, subtitle);
}

const shape = (operation, connections, pipeline) => ({ operation, connections, pipeline });
/** What a user chooses by: in each row, the same work of the same durability class. */
const SUMMARY = [
  ...["process kill", "power loss"].flatMap((survives) => [
    ["set, 50 connections, one at a time", "queue", survives, "varve Kestrel", shape("put", 50, 1)],
    ["get, the same", "queue", survives, "varve Kestrel", shape("take", 50, 1)],
    ["set, 50 connections, 16 pipelined", "queue", survives, "varve Kestrel", shape("put", 50, 16)],
    ["publish, 50 connections, one at a time", "log", survives, "varve native", shape("put", 50, 1)],
    ["publish, 50 connections, 16 pipelined", "log", survives, "varve native", shape("put", 50, 16)],
    ["tasks enqueued and handled by 64 handlers", "tasks", survives, "varve dialled", {}],
  ]),
  ["embedded: append 1 KiB, batches of 64", "stores", "process kill", "varve", { id: "append-batch" }],
  ["embedded: append 1 KiB one by one", "stores", "process kill", "varve", { id: "append-single" }],
  ["embedded: append 1 KiB one by one", "stores", "power loss", "varve", { id: "append-sync" }],
  ["embedded: scan", "stores", "process kill", "varve", { id: "scan" }],
  ["embedded: task enqueued, dequeued, acknowledged", "stores", "process kill", "varve", { id: "cycle-single" }],
];

/** Rows of the summary with the ratio to each peer. */
function summaryOf(sections) {
  return SUMMARY.flatMap(([title, work, survives, varve, where]) => {
    const section = sections.find((each) => each.work === work && each.survives === survives);
    const own = rowIn(section, varve, where);
    if (own === undefined) return [];
    const peers = section.rows.filter(
      (row) => row.at === own.at && row.kind === "peer" && !row.name.includes("(plain)"),
    );
    return [{ title, survives, varve, peers: peers.map(({ name, ratios }) => ({ name, ratio: ratios[varve] })) }];
  });
}

function summaryFigure(summary, subtitle) {
  return figure({
    title: "how many times as fast as others varve is",
    subtitle,
    panels: ["process kill", "power loss"]
      .map((survives) => ({
        form: "bars",
        title: `what is acknowledged survives ${survives === "process kill" ? "a kill of the process" : "a power loss"}`,
        x: { title: "varve / it (logarithmic; right of the line varve is ahead)", scale: "log", mark: 1 },
        data: summary
          .filter((row) => row.survives === survives)
          .flatMap(({ title, peers }) =>
            peers.map(({ name, ratio: { median, min, max } }) => ({ group: title, name, value: median, min, max })),
          ),
      }))
      .filter(({ data }) => data.length > 0),
  });
}

const rounds = (count) => `${count} interleaved round${count === 1 ? "" : "s"}`;

function describe({ date, machine, versions, settings }) {
  const named = Object.entries(versions).map(([name, version]) => `${name}: ${version}`);
  return [
    `${date.slice(0, 10)}; ${machine.processors} x ${machine.processor}, ${machine.memoryGiB} GiB, ${machine.system}, Node ${machine.node}.`,
    `Median of ${rounds(settings.rounds)}, lowest and highest in brackets; ${settings.seconds} s a turn.`,
    named.join("; "),
  ];
}

export function writeDocs(results) {
  const { sections, skipped } = results;
  const { date, machine, settings } = results;
  mkdirSync(PAGES, { recursive: true });
  const subtitleOf = (measured) =>
    `${measured.date.slice(0, 10)}, ${machine.processors} x ${machine.processor}, Node ${machine.node}, median of ${rounds(measured.rounds)} with lowest and highest`;
  const write = (name, text) => writeFileSync(new URL(name, PAGES), text);
  for (const section of sections) write(`${slug(section)}.svg`, figureOf(section, subtitleOf(section)));
  const summary = summaryOf(sections);
  write("summary.svg", summaryFigure(summary, subtitleOf({ date, rounds: settings.rounds })));
  write("results.json", `${JSON.stringify(results, undefined, 1)}\n`);

  const targets = targetsOf(sections, settings.kestrel);
  write(
    "results.md",
    `${[
      "# Results of `npm run bench:peers`",
      "Written by `npm run bench:peers -- --write-docs`; [what it measures and how](../benchmarks.md). Ratios come first: how many times as fast varve is.",
      ...describe(results),
      ...(skipped.length > 0
        ? [`Left out: ${skipped.map(({ name, reason }) => `${name} (${reason})`).join("; ")}.`]
        : []),
      "## Targets",
      markdownTable(
        ["", "target", "measured", ""],
        targets.map(({ text, bound, measured, met }) => [text, bound, measured, met ? "met" : "**missed**"]),
      ),
      ...sections.flatMap((section) => [
        `## ${headingOf(section)}`,
        ...(section.date === date ? [] : [`Of ${section.date.slice(0, 10)}, ${rounds(section.rounds)}.`]),
        `![${headingOf(section)}](${slug(section)}.svg)`,
        sectionMarkdown(section),
        ...aheadOf(section).map((text) => `${text}.`),
      ]),
    ].join("\n\n")}\n`,
  );

  const table = (survives) =>
    markdownTable(
      ["", "varve / it"],
      summary
        .filter((row) => row.survives === survives)
        .map(({ title, peers }) => [title, peers.map((peer) => `${peer.name} ${ratio(peer.ratio)}`).join("<br>")]),
    );
  replaceBetween(
    new URL("README.md", ROOT),
    [
      "A killed process loses nothing that was acknowledged; a power cut may cost the last moments:",
      table("process kill"),
      "A power cut costs nothing either:",
      table("power loss"),
      "![How many times as fast as others varve is](docs/benchmarks/summary.svg)",
      `${describe(results)[0]} Medians of ${rounds(settings.rounds)}, lowest and highest in brackets. [All of it](docs/benchmarks/results.md).`,
    ].join("\n\n"),
  );
}

/** @param {URL} file in which the two comments stand */
function replaceBetween(file, text) {
  const before = readFileSync(file, "utf8");
  const from = before.indexOf(BEGIN);
  const to = before.indexOf(END);
  if (from < 0 || to < from)
    throw new Error(`${fileURLToPath(file)} has no place for the results: ${BEGIN} ... ${END}`);
  writeFileSync(file, `${before.slice(0, from + BEGIN.length)}\n\n${text}\n\n${before.slice(to)}`);
}
