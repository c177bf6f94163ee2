/**
 * Plots as SVG, of lines and of bars, without any library. A figure has panels side by side, each with axes of its own, and one
 * legend for all.
 *
 * @typedef {object} Panel
 * @property {"lines" | "bars"} form
 * @property {string} title
 * @property {Axis} x
 * @property {Axis} y what bars are named by stands in their `name`; they need no y
 * @property {Line[] | Bar[]} data
 *
 * @typedef {object} Axis
 * @property {string} title with the unit
 * @property {"linear" | "log"} scale
 * @property {number[]} [ticks] otherwise round numbers
 * @property {number} [mark] a line of its own across the panel
 *
 * @typedef {{ name: string, points: Point[] }} Line
 * @typedef {{ x: number, y: number, min?: number, max?: number }} Point with the lowest and the highest, if they are known
 * @typedef {{ name: string, group?: string, value: number, min?: number, max?: number }} Bar bars of a group stand together
 */

const PANEL_WIDTH = 420;
const PANEL_HEIGHT = 270;
const MARGIN = { left: 62, right: 18, top: 30, bottom: 48 };
const TITLE_HEIGHT = 54;
const LEGEND_LINE = 20;
const BAR_HEIGHT = 15;
const BAR_GAP = 5;
/** The title of a group stands on a line of its own. */
const GROUP_LINE = 24;
const FONT = "font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\"";
const INK = "#24292f";
const FAINT = "#6e7781";
const GRID = "#e3e6ea";
/** Told apart by people who see colours differently, too. */
const STRONG = "#d55e00";
const PLAIN = "#0072b2";
const GREY = "#8c959f";
const COLOURS = [STRONG, PLAIN, "#009e73", "#cc79a7", "#56b4e9", "#b8860b", "#7a5195", "#4d4d4d"];

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const px = (value) => (Math.round(value * 10) / 10).toString();

function text(x, y, words, { size = 12, anchor = "start", fill = INK, weight = "normal", rotate } = {}) {
  const turned = rotate === undefined ? "" : ` transform="rotate(${rotate} ${px(x)} ${px(y)})"`;
  return `<text x="${px(x)}" y="${px(y)}" font-size="${size}" text-anchor="${anchor}" fill="${fill}" font-weight="${weight}"${turned}>${escaped(words)}</text>`;
}

const line = (x1, y1, x2, y2, stroke, more = "") =>
  `<line x1="${px(x1)}" y1="${px(y1)}" x2="${px(x2)}" y2="${px(y2)}" stroke="${stroke}" ${more}/>`;

/** Round numbers that cover what is shown: 1, 2 or 5 times a power of ten, or the powers alone where they are many. */
export function ticksOf(low, high, scale, most = 6) {
  if (scale === "log") {
    const from = Math.floor(Math.log10(low));
    const to = Math.ceil(Math.log10(high));
    const powers = Array.from({ length: to - from + 1 }, (_, index) => 10 ** (from + index));
    const steps = powers.length > 3 ? [1] : [1, 2, 5];
    const all = powers.flatMap((power) => steps.map((step) => step * power));
    const first = all.findLast((tick) => tick <= low) ?? all[0];
    const last = all.find((tick) => tick >= high) ?? all.at(-1);
    return all.filter((tick) => tick >= first && tick <= last);
  }
  const power = 10 ** Math.floor(Math.log10(high / most));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => high / each <= most);
  return Array.from({ length: Math.ceil(high / step - 1e-9) + 1 }, (_, index) =>
    Number((index * step).toPrecision(12)),
  );
}

export function short(value) {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (value >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return `${Number(value.toPrecision(3))}`;
}

/** Where a value stands between two ends, as the axis has it. */
function scaleOf({ scale }, ticks, from, to) {
  const at = scale === "log" ? Math.log10 : (value) => value;
  const low = at(ticks[0]);
  const high = at(ticks.at(-1));
  return (value) => from + ((at(Math.max(value, ticks[0])) - low) / (high - low || 1)) * (to - from);
}

function valuesOf(data, key) {
  return data.flatMap(({ points }) =>
    points.flatMap((point) => (key === "y" ? [point.y, point.min ?? point.y, point.max ?? point.y] : [point.x])),
  );
}

function axisTicks(axis, values) {
  if (axis.ticks !== undefined) return axis.ticks;
  const shown = axis.scale === "log" ? values.filter((value) => value > 0) : values;
  const all = axis.mark === undefined ? shown : [...shown, axis.mark];
  return ticksOf(Math.min(...all), Math.max(...all), axis.scale);
}

function lines(panel, colours, left, top) {
  const { x, y, data } = panel;
  const area = {
    left: left + MARGIN.left,
    right: left + PANEL_WIDTH - MARGIN.right,
    top: top + MARGIN.top,
    bottom: top + PANEL_HEIGHT - MARGIN.bottom,
  };
  const xTicks = axisTicks(x, valuesOf(data, "x"));
  const yTicks = axisTicks(y, valuesOf(data, "y"));
  const toX = scaleOf(x, xTicks, area.left + 6, area.right - 6);
  const toY = scaleOf(y, yTicks, area.bottom, area.top);
  const parts = [];
  for (const tick of yTicks) {
    parts.push(line(area.left, toY(tick), area.right, toY(tick), GRID));
    parts.push(text(area.left - 7, toY(tick) + 4, short(tick), { size: 11, anchor: "end", fill: FAINT }));
  }
  for (const tick of xTicks) {
    parts.push(line(toX(tick), area.bottom, toX(tick), area.bottom + 4, FAINT));
    parts.push(text(toX(tick), area.bottom + 17, short(tick), { size: 11, anchor: "middle", fill: FAINT }));
  }
  parts.push(line(area.left, area.bottom, area.right, area.bottom, FAINT));
  parts.push(text((area.left + area.right) / 2, area.bottom + 36, x.title, { anchor: "middle", fill: FAINT }));
  const middle = (area.top + area.bottom) / 2;
  parts.push(text(left + 14, middle, y.title, { anchor: "middle", fill: FAINT, rotate: -90 }));
  for (const { name, points } of data) {
    const { colour, dash, width } = colours.get(name);
    const path = points
      .map((point, index) => `${index === 0 ? "M" : "L"}${px(toX(point.x))} ${px(toY(point.y))}`)
      .join("");
    parts.push(`<path d="${path}" fill="none" stroke="${colour}" stroke-width="${width}" stroke-dasharray="${dash}"/>`);
    for (const { x: at, y: value, min, max } of points) {
      if (min !== undefined && max !== undefined) {
        parts.push(line(toX(at), toY(min), toX(at), toY(max), colour, 'stroke-opacity="0.45"'));
      }
      parts.push(`<circle cx="${px(toX(at))}" cy="${px(toY(value))}" r="3" fill="${colour}"/>`);
    }
  }
  return parts;
}

const NAMES_WIDTH = 190;

function barsHeight({ data }) {
  const groups = new Set(data.flatMap(({ group }) => group ?? [])).size;
  return MARGIN.top + data.length * (BAR_HEIGHT + BAR_GAP) + groups * GROUP_LINE + MARGIN.bottom;
}

/** Bars have their names beside them, so that their colour can say something else. */
function colourOf({ name, value }, { mark }, { strong, faint }) {
  if (mark !== undefined) return value < mark ? STRONG : PLAIN;
  if (faint.includes(name)) return GREY;
  return strong.includes(name) ? STRONG : PLAIN;
}

function bars(panel, kinds, top, width) {
  const { x, data } = panel;
  const from = NAMES_WIDTH;
  const to = width - MARGIN.right - 56;
  const bottom = top + barsHeight(panel) - MARGIN.bottom;
  const ticks = axisTicks(
    x,
    data.flatMap(({ value, min, max }) => [value, min ?? value, max ?? value]),
  );
  const toX = scaleOf(x, ticks, from, to);
  const parts = [];
  for (const tick of ticks) {
    parts.push(line(toX(tick), top + MARGIN.top - 4, toX(tick), bottom, GRID));
    parts.push(text(toX(tick), bottom + 16, short(tick), { size: 11, anchor: "middle", fill: FAINT }));
  }
  parts.push(text((from + to) / 2, bottom + 34, x.title, { anchor: "middle", fill: FAINT }));
  const base = toX(x.mark ?? ticks[0]);
  let at = top + MARGIN.top;
  let group;
  for (const bar of data) {
    if (bar.group !== group) {
      group = bar.group;
      at += GROUP_LINE;
      parts.push(text(16, at - 6, group, { weight: "600" }));
    }
    const end = toX(bar.value);
    parts.push(text(from - 8, at + 12, bar.name, { anchor: "end" }));
    parts.push(
      `<rect x="${px(Math.min(base, end))}" y="${px(at)}" width="${px(Math.max(1, Math.abs(end - base)))}" height="${BAR_HEIGHT}" fill="${colourOf(bar, x, kinds)}" rx="2"/>`,
    );
    if (bar.min !== undefined && bar.max !== undefined) {
      const middle = at + BAR_HEIGHT / 2;
      parts.push(line(toX(bar.min), middle, toX(bar.max), middle, INK, 'stroke-opacity="0.6"'));
    }
    const beyond = Math.max(base, end, bar.max === undefined ? 0 : toX(bar.max));
    parts.push(text(beyond + 6, at + 12, short(bar.value), { size: 11, fill: FAINT }));
    at += BAR_HEIGHT + BAR_GAP;
  }
  if (x.mark !== undefined) parts.push(line(base, top + MARGIN.top - 6, base, bottom, INK, 'stroke-width="1.5"'));
  return parts;
}

/** The same name has the same colour in all panels: strong for varve's, a dashed grey for what does nothing. */
function coloursOf(panels, { strong, faint }) {
  const names = [...new Set(panels.flatMap(({ data }) => data.map(({ name }) => name)))];
  let next = 0;
  return new Map(
    names.map((name) => [
      name,
      faint.includes(name)
        ? { colour: GREY, dash: "5 4", width: 1.5 }
        : { colour: COLOURS[next++ % COLOURS.length], dash: "none", width: strong.includes(name) ? 3 : 1.8 },
    ]),
  );
}

function legend(colours, left, top, width) {
  const parts = [];
  let x = left;
  let y = top;
  for (const [name, { colour, dash, width: stroke }] of colours) {
    const needed = 34 + name.length * 7.2;
    if (x + needed > left + width && x > left) {
      x = left;
      y += LEGEND_LINE;
    }
    parts.push(line(x, y, x + 22, y, colour, `stroke-width="${stroke}" stroke-dasharray="${dash}"`));
    parts.push(text(x + 28, y + 4, name));
    x += needed + 14;
  }
  return { parts, height: y - top + LEGEND_LINE };
}

/**
 * @param {{ title: string, subtitle: string, panels: Panel[], columns?: number, strong?: string[], faint?: string[] }} figure
 * `strong` and `faint`: names that are drawn so
 * @returns {string}
 */
export function figure({ title, subtitle, panels, columns = 2, strong = [], faint = [] }) {
  const colours = coloursOf(panels, { strong, faint });
  const wide = panels.every(({ form }) => form === "bars");
  const across = wide ? 1 : Math.min(columns, panels.length);
  const width = Math.max(2 * PANEL_WIDTH, across * PANEL_WIDTH);
  // A long title in smaller letters, rather than one that is cut.
  const size = Math.min(16, Math.floor((width - 32) / (0.62 * title.length)));
  const parts = [text(16, 26, title, { size, weight: "600" }), text(16, 45, subtitle, { fill: FAINT })];
  let top = TITLE_HEIGHT;
  for (let index = 0; index < panels.length; index += across) {
    const row = panels.slice(index, index + across);
    for (const [column, panel] of row.entries()) {
      const left = column * PANEL_WIDTH;
      parts.push(text(left + 16, top + 18, panel.title, { weight: "600", size: 13 }));
      parts.push(
        ...(panel.form === "bars" ? bars(panel, { strong, faint }, top, width) : lines(panel, colours, left, top)),
      );
    }
    top += Math.max(...row.map((panel) => (panel.form === "bars" ? barsHeight(panel) : PANEL_HEIGHT)));
  }
  const { parts: keys, height } = wide ? { parts: [], height: 0 } : legend(colours, 20, top + 12, width - 40);
  const all = top + height + 8;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${px(all)}" width="${width}" height="${px(all)}" ${FONT} role="img">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="${width}" height="${px(all)}" rx="6" fill="#ffffff"/>`,
    ...parts,
    ...keys,
    "</svg>\n",
  ].join("\n");
}
