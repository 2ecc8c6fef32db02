/**
 * What happened in a network: instants in seconds, positions in metres. A recording fills it at once (`recorded.ts`), live
 * nodes as things happen (`live.ts`); everything that draws reads it only.
 */

export type Position = [number, number];
/** A column of a table; the ones of a live run grow. */
export type Column = number[] | Float64Array | Uint32Array | Uint16Array | Uint8Array;

/** Messages; `to` is 0 for a broadcast, else the receiver + 1; `outcome` is 0 unknown, 1 arrived, else the cause of its drop + 2. */
export interface Messages {
  at: Column;
  node: Column;
  to: Column;
  kind: Column;
  bytes: Column;
  around: Column;
  took: Column;
  outcome: Column;
  heard: Column;
  /** The longest time on the way, at most two seconds. */
  longest: number;
}

export interface Tables {
  application: Messages;
  control: Messages;
  marks: { at: Column; node: Column; what: Column };
  switches: { at: Column; node: Column; on: Column };
  /** Movements: from (x0, y0) to (x1, y1) in `length` seconds. */
  legs: { at: Column; node: Column; length: Column; x0: Column; y0: Column; x1: Column; y1: Column };
  /** Replicas: role 0 removed, 1 own, 2 active, 3 passive. */
  kept: { at: Column; node: Column; object: Column; role: Column };
  near: { at: Column; node: Column; peer: Column; on: Column };
  /** Mentions of objects: type 0 a request, 1 an event of an application, 2 a message. */
  life: { at: Column; object: Column; type: Column; node: Column; to: Column; what: Column; around: Column; took: Column };
}

export type Fault = { at: number; begins: boolean; type: string; node?: number; nodes?: number[]; groups?: number[][]; end_us?: number; loss?: number; probability?: number };

/** How a message travels between cells: greedy or around a void (perimeter), inside a cell, or otherwise. */
export type Mode = "greedy" | "perimeter" | "cell" | "other";
export const MODES: Mode[] = ["greedy", "perimeter", "cell", "other"];
export const ROLES = ["", "own", "active", "passive"];

export interface Kind {
  name: string;
  control: boolean;
  carrier: Mode;
}

export function makeKind(name: string, control: boolean): Kind {
  const carrier = name.startsWith("CellPacket/") ? "greedy" : name.startsWith("CellSpread/") || name === "SpreadHeard" ? "cell" : "other";
  return { name, control, carrier };
}

/** The index of the first value that is not less than `wanted`. */
export function lowerBound(values: Column, wanted: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

function lastRow(rows: number[], at: Column, t: number): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at[rows[middle]!]! <= t) low = middle + 1;
    else high = middle;
  }
  return low ? rows[low - 1]! : -1;
}

/** A node id as text if it is one, else shortened. */
export function readableName(hex: string): string {
  const codes = (hex.match(/../g) ?? []).map((pair) => parseInt(pair, 16));
  if (codes.length && codes.every((code) => code > 32 && code < 127)) return String.fromCharCode(...codes);
  return hex.length > 8 ? hex.slice(0, 6) : hex;
}

export function readableObject(oid: string): string {
  return oid.length > 24 ? `${oid.slice(0, 20)}…` : oid;
}

export interface RunFacts {
  title: string;
  live: boolean;
  startUs: number;
  rangeM: number;
  box: [number, number, number, number];
  grid: [number, number, number] | null;
}

export class Run {
  names: string[] = [];
  roles: string[] = [];
  places: Position[] = [];
  kinds: Kind[] = [];
  causes: string[] = [];
  objects: string[] = [];
  whats: { name: string; told: boolean; count: number }[] = [];
  lifeWords: string[] = [];
  faults: Fault[] = [];
  /** Messages sent per bin, by kind. */
  rates: Column[] = [];
  binS = 1;
  totals: Record<"sent" | "control" | "heard" | "asked" | "told", Column> = { sent: [], control: [], heard: [], asked: [], told: [] };
  strides: Record<string, number> = { application: 1, control: 1, marks: 1 };
  /** The end of what is known, and the beginning of what is still kept. */
  span = 0;
  from = 0;
  load: CellLoad | null = null;
  protected legRows: number[][] = [];
  protected switchRows: number[][] = [];
  protected keptRows: number[][] = [];

  constructor(
    readonly facts: RunFacts,
    readonly tables: Tables,
  ) {}

  get nodes(): number {
    return this.names.length;
  }

  /** Finds rows by node and object; call it once all tables are filled. */
  index(): void {
    const { legs, switches, kept } = this.tables;
    this.legRows = rowsBy(this.nodes, legs.node);
    this.switchRows = rowsBy(this.nodes, switches.node);
    this.keptRows = rowsBy(this.objects.length, kept.object);
    for (const table of [this.tables.application, this.tables.control]) {
      for (const took of table.took as number[]) if (took > table.longest) table.longest = Math.min(took, 2);
    }
  }

  position(node: number, t: number): Position {
    const rows = this.legRows[node];
    const row = rows?.length ? lastRow(rows, this.tables.legs.at, t) : -1;
    if (row < 0) return this.places[node]!;
    const { at, length, x0, y0, x1, y1 } = this.tables.legs;
    const done = length[row]! ? Math.min(1, (t - at[row]!) / length[row]!) : 1;
    return [x0[row]! + (x1[row]! - x0[row]!) * done, y0[row]! + (y1[row]! - y0[row]!) * done];
  }

  isUp(node: number, t: number): boolean {
    const rows = this.switchRows[node];
    const row = rows?.length ? lastRow(rows, this.tables.switches.at, t) : -1;
    return row >= 0 && this.tables.switches.on[row] === 1;
  }

  /** The number of the cell at a position; for a position outside the grid, the nearest cell. */
  cellAt([x, y]: Position): number {
    const [columns, rows, cell] = this.facts.grid!;
    const within = (at: number, most: number) => Math.max(0, Math.min(most - 1, Math.floor(at / cell)));
    return within(y, rows) * columns + within(x, columns);
  }

  /** The nodes that store an object at an instant, with their roles. */
  replicas(object: number, t: number): Map<number, number> {
    const { at, node, role } = this.tables.kept;
    const found = new Map<number, number>();
    for (const row of this.keptRows[object] ?? []) {
      if (at[row]! > t) break;
      if (role[row]) found.set(node[row]!, role[row]!);
      else found.delete(node[row]!);
    }
    return found;
  }

  replicaRows(object: number): number[] {
    return this.keptRows[object] ?? [];
  }

  /** How many nodes ever stored an object. */
  holders(object: number): number {
    return new Set((this.keptRows[object] ?? []).map((row) => this.tables.kept.node[row])).size;
  }

  /** The neighbours of all nodes: as live nodes report them, else those in range of each other. */
  links(t: number): [number, number][] {
    const { near } = this.tables;
    const found = new Map<number, [number, number]>();
    if (near.at.length) {
      for (let row = 0; row < near.at.length && near.at[row]! <= t; row++) {
        const one = Math.min(near.node[row]!, near.peer[row]!);
        const other = Math.max(near.node[row]!, near.peer[row]!);
        if (near.on[row]) found.set(one * 65_536 + other, [one, other]);
        else found.delete(one * 65_536 + other);
      }
      return [...found.values()];
    }
    const reach = this.facts.rangeM ** 2;
    const places = this.names.map((_, node) => (this.isUp(node, t) ? this.position(node, t) : null));
    const links: [number, number][] = [];
    if (reach) {
      for (let one = 0; one < places.length; one++) {
        const a = places[one];
        if (!a) continue;
        for (let other = one + 1; other < places.length; other++) {
          const b = places[other];
          if (b && (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 <= reach) links.push([one, other]);
        }
      }
    }
    return links;
  }

  mode(table: Messages, row: number): Mode {
    return table.around[row] ? "perimeter" : this.kinds[table.kind[row]!]!.carrier;
  }

  /** The faults that are active at an instant: timed faults, and the groups of a partition. */
  activeFaults(t: number): { windows: Fault[]; groups: number[][] | null } {
    const windows: Fault[] = [];
    let groups: number[][] | null = null;
    for (const fault of this.faults) {
      if (fault.at > t) break;
      if (fault.type === "partition") groups = fault.groups ?? null;
      else if (fault.type === "heal") groups = null;
      else if (fault.end_us !== undefined && fault.begins && t < fault.end_us / 1e6) windows.push(fault);
    }
    return { windows, groups };
  }

  /** The instant that the page shows when it follows live nodes. */
  now(): number {
    return this.span;
  }
}

export function rowsBy(count: number, column: Column): number[][] {
  const rows: number[][] = Array.from({ length: count }, () => []);
  for (let row = 0; row < column.length; row++) rows[column[row]!]!.push(row);
  return rows;
}

/** Messages that the nodes of each cell sent, without routing control. */
export interface CellLoad {
  readonly cells: number;
  /** The time that counts as recent. */
  readonly windowS: number;
  recent(cell: number, t: number): number;
  between(cell: number, begin: number, end: number): number;
  /** Load relative to the busiest cell; all cells are paler if that one is not busy. */
  shares(t: number): (cell: number) => number;
}

const LOAD_S = 10;
const LOADS_MAX = 4e6;

/** The load of a recorded run: sums up to the end of each bin, so that any span is one difference. */
export class RecordedLoad implements CellLoad {
  readonly cells: number;
  readonly windowS: number;
  private readonly bin: number;
  private readonly bins: number;
  private readonly sums: Float32Array;
  private readonly window: number;
  private most = 1;

  constructor(run: Run) {
    const [columns, rows] = run.facts.grid!;
    const { at, node } = run.tables.application;
    this.cells = columns * rows;
    this.bin = Math.max(run.span < 60 ? run.span / 60 : 1, (run.span * this.cells) / LOADS_MAX);
    this.bins = Math.ceil(run.span / this.bin) + 1;
    this.sums = new Float32Array((this.bins + 1) * this.cells);
    for (let row = 0; row < at.length; row++) {
      const cell = run.cellAt(run.position(node[row]!, at[row]!));
      this.sums[(Math.floor(at[row]! / this.bin) + 1) * this.cells + cell]! += run.strides.application!;
    }
    for (let i = this.cells; i < this.sums.length; i++) this.sums[i]! += this.sums[i - this.cells]!;
    this.window = Math.max(1, Math.round(Math.min(LOAD_S, run.span / 20) / this.bin));
    this.windowS = this.window * this.bin;
    for (let bin = 1; bin <= this.bins; bin++) {
      for (let cell = 0; cell < this.cells; cell++) this.most = Math.max(this.most, this.inBins(cell, bin - this.window, bin));
    }
  }

  private inBins(cell: number, from: number, to: number): number {
    const at = (bin: number) => this.sums[Math.max(0, Math.min(this.bins, bin)) * this.cells + cell]!;
    return at(to) - at(from);
  }

  recent(cell: number, t: number): number {
    const bin = Math.floor(t / this.bin) + 1;
    return this.inBins(cell, bin - this.window, bin);
  }

  between(cell: number, begin: number, end: number): number {
    return this.inBins(cell, Math.floor(begin / this.bin), Math.ceil(end / this.bin));
  }

  shares(t: number): (cell: number) => number {
    const loads = Array.from({ length: this.cells }, (_, cell) => this.recent(cell, t));
    const most = loads.reduce((a, b) => Math.max(a, b), 1e-9);
    const pale = 0.3 + 0.7 * Math.sqrt(most / this.most);
    return (cell) => (pale * loads[cell]!) / most;
  }
}

/** The load of live nodes, counted from the messages that are kept. */
export class LiveLoad implements CellLoad {
  readonly cells: number;
  readonly windowS = LOAD_S;
  private counted: { at: number; loads: Float64Array } = { at: -1, loads: new Float64Array(0) };

  constructor(private readonly run: Run) {
    const [columns, rows] = run.facts.grid!;
    this.cells = columns * rows;
  }

  private count(begin: number, end: number): Float64Array {
    const { at, node } = this.run.tables.application;
    const loads = new Float64Array(this.cells);
    for (let row = lowerBound(at, begin); row < at.length && at[row]! <= end; row++) loads[this.run.cellAt(this.run.position(node[row]!, at[row]!))]!++;
    return loads;
  }

  private loadsAt(t: number): Float64Array {
    if (Math.abs(t - this.counted.at) > 0.25 || !this.counted.loads.length) this.counted = { at: t, loads: this.count(t - LOAD_S, t) };
    return this.counted.loads;
  }

  recent(cell: number, t: number): number {
    return this.loadsAt(t)[cell]!;
  }

  between(cell: number, begin: number, end: number): number {
    return this.count(begin, end)[cell]!;
  }

  shares(t: number): (cell: number) => number {
    const loads = this.loadsAt(t);
    const most = loads.reduce((a, b) => Math.max(a, b), 20);
    return (cell) => loads[cell]! / most;
  }
}
