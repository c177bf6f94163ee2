/** What a section says, as a table: for a terminal, or for a page. */

import { ratio, table, whole } from "./entry.js";

/** Above it, the generator may be what set the pace. */
const BOUND = 0.9;

const microseconds = (value) => (value === undefined ? "" : value >= 100 ? whole(value) : value.toFixed(1));
const share = (value) => (value === undefined ? "" : `${Math.round(100 * value)} %${value >= BOUND ? " *" : ""}`);
const rates = ({ median, min, max }) => `${whole(median)} (${whole(min)} - ${whole(max)})`;
const times = ({ median, min, max }) => `${microseconds(median)} (${microseconds(min)} - ${microseconds(max)})`;

/** Ratios first. */
function cellsOf(section) {
  if (section.form === "series") {
    return {
      head: ["", section.x, ...section.columns.map(({ title }) => title)],
      rows: section.rows.map((row) => [row.name, whole(row.x), ...section.columns.map(({ key }) => number(row[key]))]),
    };
  }
  const isRate = section.measure === "rate";
  const has = (key) => section.rows.some(({ more }) => more[key] !== undefined);
  const columns = [
    ...(isRate ? [] : [["p50, us", ({ more }) => microseconds(more.p50)]]),
    [isRate ? "a second" : `${section.measure}, us`, ({ value }) => (isRate ? rates(value) : times(value))],
    ...(isRate && has("p50") ? [["p50, us", ({ more }) => microseconds(more.p50)]] : []),
    ...(isRate && has("p99") ? [["p99, us", ({ more }) => microseconds(more.p99)]] : []),
    ...(!isRate && has("p999") ? [["p99.9, us", ({ more }) => microseconds(more.p999)]] : []),
    ...(has("serverCpu") ? [["CPU, us each", ({ more }) => more.serverCpu?.toFixed(2) ?? ""]] : []),
    ...(has("ownCpu") ? [["generator", ({ more }) => share(more.ownCpu)]] : []),
  ];
  return {
    head: ["", "", ...section.varve.map((name) => `${name} / it`), ...columns.map(([title]) => title)],
    rows: section.rows.map((row, index) => [
      section.rows[index - 1]?.at === row.at ? "" : row.at,
      row.name,
      ...section.varve.map((name) => (row.ratios[name] === undefined ? "" : ratio(row.ratios[name]))),
      ...columns.map(([, cell]) => cell(row)),
    ]),
  };
}

function number(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return "";
  return value >= 100 ? whole(value) : value.toFixed(1);
}

export const headingOf = ({ title, survives }) => `${title} (survives ${survives})`;

/** @param {import("./sections.js").Comparison | import("./sections.js").Series} section */
export function sectionText(section) {
  const { head, rows } = cellsOf(section);
  return [headingOf(section), "", table(head, rows), ...(section.notes ?? []).map((note) => `  ${note}`)].join("\n");
}

export function markdownTable(head, rows) {
  const line = (cells) => `| ${cells.map((cell) => `${cell}`.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

export function sectionMarkdown(section) {
  const { head, rows } = cellsOf(section);
  return [markdownTable(head, rows), ...(section.notes ?? []).map((note) => `\n${note}.`)].join("\n");
}

/** The floors: how it is known that the generator does not set the pace. */
export function generatorText(sections) {
  const rows = sections
    .filter(({ form, survives }) => form === "comparison" && survives === "process kill")
    .flatMap(({ rows: all }) => all)
    .filter(({ kind, where, more }) => kind === "floor" && where.connections === 50 && more.ownCpu !== undefined)
    .map(({ name, at, value, more }) => [
      `${name}, ${at}`,
      whole(value.median),
      share((value.median * more.serverCpu) / 1e6),
      share(more.ownCpu),
    ]);
  if (rows.length === 0) return "";
  return [
    "the generator: what it reaches with servers that do nothing but parse and answer; a server that uses its core to the full",
    "while the generator does not has set the pace",
    "",
    table(["", "a second", "server's core", "generator's core"], rows),
  ].join("\n");
}

/** @param {import("./targets.js").Result[]} results */
export function targetsText(results) {
  return [
    "targets",
    "",
    table(
      ["", "target", "measured", ""],
      results.map(({ text, bound, measured, met }) => [text, bound, measured, met ? "met" : "MISSED"]),
    ),
  ].join("\n");
}
