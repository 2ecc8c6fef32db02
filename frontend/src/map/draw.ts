/** Draws a run at one instant: cells, links, nodes, messages on their way, replicas, requests and faults. */

import { type Messages, type Mode, type Position, type Run, lowerBound } from "./run.ts";
import { type MapText, m } from "./map_texts.ts";
import { GROUPS, hue, paint, theme } from "./theme.ts";

const DRAW_MAX = 1500;
const RINGS_MAX = 60;
const LABELS_MAX = 12;
const CELLS_MAX = 2500;
const FONT = "11px system-ui, sans-serif";

type Context = CanvasRenderingContext2D;
type Spot = [number, number];

/** Where metres are on the canvas. */
export interface View {
  width: number;
  height: number;
  scale: number;
  wide: number;
  high: number;
  at(position: Position): Spot;
  from(spot: Spot): Position;
}

/** Sets the size of a canvas in pixels of the device. */
export function sharpen(canvas: HTMLCanvasElement, width: number, height: number): Context {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

export function viewOf(run: Run, width: number, height: number, margin: number, zoom = 1, centre: Position | null = null): View {
  const [west, south, east, north] = run.facts.box;
  const { grid } = run.facts;
  const right = Math.max(east, grid ? grid[0] * grid[2] : east);
  const top = Math.max(north, grid ? grid[1] * grid[2] : north);
  const left = grid ? Math.min(west, 0) : west;
  const bottom = grid ? Math.min(south, 0) : south;
  const wide = Math.max(right - left, 1);
  const high = Math.max(top - bottom, 1);
  const scale = Math.min((width - 2 * margin) / wide, (height - 2 * margin) / high) * zoom;
  const [cx, cy] = centre ?? [(left + right) / 2, (bottom + top) / 2];
  return {
    width,
    height,
    scale,
    wide,
    high,
    at: ([x, y]) => [width / 2 + (x - cx) * scale, height / 2 - (y - cy) * scale],
    from: ([x, y]) => [(x - width / 2) / scale + cx, (height / 2 - y) / scale + cy],
  };
}

/** Cells: darker if their nodes send more; hatched if they have no nodes. */
export function drawGrid(context: Context, run: Run, view: View, t: number, share: ((cell: number) => number) | null): void {
  context.clearRect(0, 0, view.width, view.height);
  if (!run.facts.grid) return;
  const [columns, rows, cell] = run.facts.grid;
  if (share && columns * rows <= CELLS_MAX) drawCells(context, run, view, t, share);
  context.strokeStyle = theme.off;
  context.lineWidth = 0.7;
  context.beginPath();
  for (let i = 0; i <= columns; i++) {
    context.moveTo(...view.at([i * cell, 0]));
    context.lineTo(...view.at([i * cell, rows * cell]));
  }
  for (let j = 0; j <= rows; j++) {
    context.moveTo(...view.at([0, j * cell]));
    context.lineTo(...view.at([columns * cell, j * cell]));
  }
  context.stroke();
}

function drawCells(context: Context, run: Run, view: View, t: number, share: (cell: number) => number): void {
  const [columns, rows] = run.facts.grid!;
  const populated = new Set<number>();
  for (let node = 0; node < run.nodes; node++) if (run.isUp(node, t)) populated.add(run.cellAt(run.position(node, t)));
  for (let number = 0; number < columns * rows; number++) {
    const [x0, y0, side] = cellSquare(run, view, number);
    const part = share(number);
    if (part > 0) {
      context.globalAlpha = 0.03 + 0.5 * part;
      context.fillStyle = theme.accent;
      context.fillRect(x0, y0, side, side);
    }
    context.globalAlpha = 1;
    if (!populated.has(number)) hatch(context, x0, y0, side, side);
    if (side < 60) continue;
    context.font = FONT;
    context.fillStyle = theme.soft;
    context.textAlign = "right";
    context.textBaseline = "bottom";
    context.fillText(String(number), x0 + side - 4, y0 + side - 3);
  }
}

function cellSquare(run: Run, view: View, number: number): [number, number, number] {
  const [columns, , cell] = run.facts.grid!;
  const [x, y] = view.at([(number % columns) * cell, (Math.floor(number / columns) + 1) * cell]);
  return [x, y, cell * view.scale];
}

export function hatch(context: Context, x: number, y: number, width: number, height: number): void {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = -height; at < width; at += 9) {
    context.moveTo(x + at, y + height);
    context.lineTo(x + at + height, y);
  }
  context.stroke();
  context.restore();
}

export function dotSize(run: Run, view: View): number {
  const each = Math.sqrt((view.wide * view.high) / Math.max(run.nodes, 1)) * view.scale;
  return Math.max(1.4, Math.min(6, each / 7));
}

export function drawLinks(context: Context, spots: Spot[], links: [number, number][], chosen: number | null): void {
  context.lineWidth = 1;
  context.strokeStyle = theme.off;
  context.globalAlpha = Math.max(0.12, Math.min(0.6, 40 / Math.max(links.length, 1)));
  context.beginPath();
  for (const [one, other] of links) {
    context.moveTo(...spots[one]!);
    context.lineTo(...spots[other]!);
  }
  context.stroke();
  context.globalAlpha = 1;
  if (chosen === null) return;
  context.strokeStyle = theme.accent;
  context.lineWidth = 1.6;
  context.beginPath();
  for (const [one, other] of links) {
    if (one !== chosen && other !== chosen) continue;
    context.moveTo(...spots[one]!);
    context.lineTo(...spots[other]!);
  }
  context.stroke();
}

/** Nodes are discs, hollow if they are off; stations and servers are diamonds. */
export function drawNodes(context: Context, run: Run, view: View, spots: Spot[], t: number, groups: number[][] | null, chosen: number | null = null): void {
  const size = dotSize(run, view);
  const group = groups && groupsOf(run, groups);
  const inOrder = [...spots.keys()].sort((one, other) => Number(!!run.roles[one]) - Number(!!run.roles[other])); // stations on top
  for (const node of inOrder) {
    const [x, y] = spots[node]!;
    const up = run.isUp(node, t);
    context.beginPath();
    if (run.roles[node]) diamond(context, x, y, Math.max(6, size * 1.8));
    else context.arc(x, y, up ? size : size * 0.8, 0, 7);
    if (up) {
      context.fillStyle = run.roles[node] ? theme.station : theme.node;
      context.fill();
    } else {
      context.strokeStyle = theme.off;
      context.lineWidth = 1.3;
      context.stroke();
    }
    if (group && up) ring(context, x, y, size + Math.min(2, size / 2) * 1.5, paint(GROUPS[group[node]! % GROUPS.length]!), Math.min(2, size / 2));
    if (node === chosen) ring(context, x, y, size + 5, theme.accent, 2.5);
  }
}

function ring(context: Context, x: number, y: number, radius: number, colour: string, width: number): void {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.stroke();
}

export function diamond(context: Context, x: number, y: number, half: number): void {
  context.moveTo(x, y - half);
  context.lineTo(x + half, y);
  context.lineTo(x, y + half);
  context.lineTo(x - half, y);
  context.closePath();
}

function groupsOf(run: Run, groups: number[][]): number[] {
  const group = new Array<number>(run.nodes).fill(groups.length);
  groups.forEach((nodes, number) => nodes.forEach((node) => (group[node] = number)));
  return group;
}

/** The bend separates the messages of the two directions. */
function bend(a: Spot, b: Spot): Spot {
  return [(a[0] + b[0]) / 2 + (b[1] - a[1]) * 0.12, (a[1] + b[1]) / 2 - (b[0] - a[0]) * 0.12];
}

/** Many lines are drawn fainter, so that the busiest routes remain visible. */
export const fainter = (lines: number): number => Math.max(0.1, Math.min(1, Math.sqrt(150 / Math.max(lines, 1))));

/** Which messages are shown. */
export interface MessageFilter {
  kinds: boolean[];
  modes: Record<Mode, boolean>;
  /** Only those that this node sends or receives; null for all. */
  node: number | null;
}

export function passes(run: Run, table: Messages, row: number, filter: MessageFilter): boolean {
  if (!filter.kinds[table.kind[row]!]) return false;
  if (filter.node !== null && table.node[row] !== filter.node && table.to[row] !== filter.node + 1) return false;
  return filter.modes[run.mode(table, row)];
}

export function drawMessages(context: Context, run: Run, view: View, spots: Spot[], t: number, table: Messages, filter: MessageFilter, linger: number): { drawn: number; stride: number } {
  const from = lowerBound(table.at, t - linger - table.longest);
  const to = lowerBound(table.at, t + 1e-9);
  const stride = Math.max(1, Math.ceil((to - from) / DRAW_MAX));
  const crowd = fainter((to - from) / stride);
  const size = dotSize(run, view);
  let drawn = 0;
  let rings = 0;
  for (let row = from; row < to; row += stride) if (table.to[row] === 0 && passes(run, table, row, filter)) rings++;
  for (let row = from; row < to; row += stride) {
    if (!passes(run, table, row, filter)) continue;
    const travel = Math.max(Math.min(table.took[row]!, table.longest), linger * 0.35);
    const age = t - table.at[row]!;
    const fade = age < travel ? 1 : 1 - (age - travel) / (linger * 0.65);
    if (fade <= 0) continue;
    drawn++;
    const kind = run.kinds[table.kind[row]!]!;
    const mode = run.mode(table, row);
    const here = spots[table.node[row]!]!;
    const done = Math.min(1, (age + 1e-6) / travel);
    context.strokeStyle = context.fillStyle = paint(kind.control ? null : hue(kind.name));
    if (table.to[row] === 0) {
      drawRing(context, here, done, run.facts.rangeM * view.scale, fade, rings);
      if (mode === "cell" && run.facts.grid) drawCellPulse(context, run, view, run.cellAt(run.position(table.node[row]!, t)), fade);
    } else drawFlight(context, here, spots[table.to[row]! - 1]!, { done, fade, crowd, size, lost: table.outcome[row]! > 1, mode });
  }
  context.globalAlpha = 1;
  context.setLineDash([]);
  return { drawn, stride };
}

/** The ranges of many simultaneous broadcasts would hide everything else: only a short ring is drawn. */
function drawRing(context: Context, [x, y]: Spot, done: number, range: number, fade: number, rings: number): void {
  if (rings <= RINGS_MAX && range) {
    context.lineWidth = 1.3;
    context.globalAlpha = fade * Math.min(0.6, 0.15 + 4 / rings);
    context.beginPath();
    context.arc(x, y, Math.max(range * done, 3), 0, 7);
    context.stroke();
  }
  context.globalAlpha = fade * 0.9;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(x, y, 5 + 6 * done, 0, 7);
  context.stroke();
}

/** A message inside a cell lights the border of the cell. */
function drawCellPulse(context: Context, run: Run, view: View, cell: number, fade: number): void {
  const [x, y, side] = cellSquare(run, view, cell);
  context.globalAlpha = fade * 0.8;
  context.lineWidth = 3;
  context.strokeRect(x + 2, y + 2, side - 4, side - 4);
}

interface Flight {
  done: number;
  fade: number;
  crowd: number;
  size: number;
  lost: boolean;
  mode: Mode;
}

export function drawFlight(context: Context, a: Spot, b: Spot, { done, fade, crowd, size, lost, mode }: Flight): void {
  const c = bend(a, b);
  const left = 1 - done;
  const path = () => {
    context.beginPath();
    context.moveTo(...a);
    context.quadraticCurveTo(...c, ...b);
    context.stroke();
  };
  if (mode === "perimeter") halo(context, fade * crowd, path);
  context.globalAlpha = fade * 0.75 * crowd;
  context.lineWidth = 1.6;
  if (lost || mode === "perimeter" || mode === "cell") context.setLineDash(lost ? [4, 4] : mode === "cell" ? [2, 3] : [9, 4]);
  path();
  context.setLineDash([]);
  context.globalAlpha = fade * Math.max(crowd, 0.5);
  if (lost && done >= 1) {
    cross(context, (a[0] + 2 * c[0] + b[0]) / 4, (a[1] + 2 * c[1] + b[1]) / 4, 4, theme.alarm, 2);
    return;
  }
  const x = left * left * a[0] + 2 * left * done * c[0] + done * done * b[0];
  const y = left * left * a[1] + 2 * left * done * c[1] + done * done * b[1];
  context.beginPath();
  context.arc(x, y, size * (done >= 1 ? 0.8 : 0.55), 0, 7);
  context.fill();
}

export function cross(context: Context, x: number, y: number, half: number, colour: string, width: number): void {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(x - half, y - half);
  context.lineTo(x + half, y + half);
  context.moveTo(x + half, y - half);
  context.lineTo(x - half, y + half);
  context.stroke();
}

/** A step around a void (perimeter) is highlighted. */
export function halo(context: Context, strength: number, path: () => void): void {
  const colour = context.strokeStyle;
  context.globalAlpha = 0.5 * strength;
  context.strokeStyle = theme.around;
  context.lineWidth = 6;
  path();
  context.strokeStyle = colour;
}

/** Replicas are squares around nodes: filled for owner and active replicas, hollow for passive ones. */
export function drawReplica(context: Context, [x, y]: Spot, size: number, role: number, strength: number): void {
  const half = size + 4;
  context.globalAlpha = strength;
  context.strokeStyle = context.fillStyle = role === 1 ? paint(28) : theme.good;
  context.lineWidth = 2;
  context.beginPath();
  context.rect(x - half, y - half, 2 * half, 2 * half);
  if (role < 3) {
    context.globalAlpha = strength * 0.55;
    context.fill();
    context.globalAlpha = strength;
  }
  context.stroke();
  context.globalAlpha = 1;
}

export function drawReplicas(context: Context, run: Run, view: View, spots: Spot[], t: number, object: number | null, linger: number): void {
  const size = dotSize(run, view);
  if (object !== null) {
    for (const [node, role] of run.replicas(object, t)) drawReplica(context, spots[node]!, size, role, 1);
    return;
  }
  const { at, node, role } = run.tables.kept;
  for (let row = lowerBound(at, t - linger); row < at.length && at[row]! <= t; row++) {
    if (role[row]) drawReplica(context, spots[node[row]!]!, size, role[row]!, 1 - (t - at[row]!) / linger);
  }
}

export function drawMarks(context: Context, run: Run, spots: Spot[], t: number, shown: boolean[], linger: number): void {
  const { at, node, what } = run.tables.marks;
  const to = lowerBound(at, t + 1e-9);
  const groups = new Map<number, { node: number; what: number; at: number; count: number }>();
  for (let row = lowerBound(at, t - linger); row < to; row++) {
    if (!shown[what[row]!]) continue;
    const key = node[row]! * 4096 + what[row]!;
    const group = groups.get(key);
    if (group) {
      group.count++;
      group.at = at[row]!;
    } else groups.set(key, { node: node[row]!, what: what[row]!, at: at[row]!, count: 1 });
  }
  const levels = new Map<number, number>();
  context.font = `600 ${FONT}`;
  context.textBaseline = "middle";
  for (const group of groups.values()) {
    const level = levels.get(group.node) ?? 0;
    const [x, y] = spots[group.node]!;
    const { name, told } = run.whats[group.what]!;
    levels.set(group.node, level + 1);
    if (level > 3) continue;
    const top = y - 14 - level * 13;
    context.globalAlpha = Math.min(1, 1.6 * (1 - (t - group.at) / linger) + 0.1);
    context.fillStyle = paint(hue(name));
    drawTriangle(context, x, top, told);
    if (groups.size > LABELS_MAX) continue;
    const text = group.count > 1 ? `${name} ×${group.count}` : name;
    const side = x + 9 + context.measureText(text).width > context.canvas.clientWidth ? -9 : 9;
    context.lineWidth = 3;
    context.strokeStyle = theme.stage;
    context.textAlign = side < 0 ? "right" : "left";
    context.strokeText(text, x + side, top);
    context.fillText(text, x + side, top);
  }
  context.globalAlpha = 1;
}

/** Requests of an application point down, its events point up. */
export function drawTriangle(context: Context, x: number, y: number, told: boolean): void {
  const direction = told ? -1 : 1;
  context.beginPath();
  context.moveTo(x - 5, y - 4 * direction);
  context.lineTo(x + 5, y - 4 * direction);
  context.lineTo(x, y + 5 * direction);
  context.fill();
}

export function drawFaults(context: Context, run: Run, spots: Spot[], t: number, linger: number): void {
  for (const fault of run.faults) {
    if (fault.at > t) break;
    if (fault.at < t - linger || fault.node === undefined) continue;
    const [x, y] = spots[fault.node]!;
    context.globalAlpha = 1 - (t - fault.at) / linger;
    if (fault.type === "restart") ring(context, x, y, 10, theme.good, 2.4);
    else cross(context, x, y, 8, theme.alarm, 2.4);
  }
  context.globalAlpha = 1;
}

export function drawNames(context: Context, run: Run, spots: Spot[]): void {
  context.font = FONT;
  context.fillStyle = theme.soft;
  context.textAlign = "center";
  context.textBaseline = "top";
  spots.forEach(([x, y], node) => run.roles[node] || context.fillText(run.names[node]!, x, y + 9));
  context.font = `600 ${FONT}`;
  context.fillStyle = theme.ink;
  spots.forEach(([x, y], node) => run.roles[node] && context.fillText(nodeTitle(run, node), x, y - 24));
}

/** The name of a node; of a station or server also what it is. */
export function nodeTitle(run: Run, node: number): string {
  const role = run.roles[node];
  return role ? `${m(role as MapText)} ${run.names[node]!}` : run.names[node]!;
}

export function drawScale(context: Context, view: View): void {
  const target = view.width / 6 / view.scale;
  const power = 10 ** Math.floor(Math.log10(target));
  const length = [5, 2, 1].map((n) => n * power).find((n) => n <= target) ?? power;
  const pixels = length * view.scale;
  const x = view.width - 12 - pixels;
  const y = view.height - 10;
  context.strokeStyle = context.fillStyle = theme.soft;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x, y - 4);
  context.lineTo(x, y);
  context.lineTo(x + pixels, y);
  context.lineTo(x + pixels, y - 4);
  context.stroke();
  context.font = FONT;
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText(`${length} m`, x + pixels / 2, y - 3);
}
