/** Reads the events of live nodes as they happen: the lines of a recording, as server-sent events. */

import { LiveLoad, type Position, ROLES, Run, type Tables, lowerBound, makeKind, readableName } from "./run.ts";

interface Header {
  recording: number;
  start_us: number;
  nodes: string[];
  places: Position[];
  range_m: number;
  roles: string[];
  title: string;
  area: Position | null;
  grid: [number, number, number] | null;
  control: string[];
}

const KEPT_S = 600;
const ROWS_MAX = 200_000;
/** The page shows the network so much later, so that it knows how messages end before it draws them. */
const DELAY_S = 0.5;

type Grown = Record<string, number[]> & { longest: number };

function emptyTables(): Tables {
  const messages = () => ({ at: [], node: [], to: [], kind: [], bytes: [], around: [], took: [], outcome: [], heard: [], longest: 0 });
  return {
    application: messages(),
    control: messages(),
    marks: { at: [], node: [], what: [] },
    switches: { at: [], node: [], on: [] },
    legs: { at: [], node: [], length: [], x0: [], y0: [], x1: [], y1: [] },
    kept: { at: [], node: [], object: [], role: [] },
    near: { at: [], node: [], peer: [], on: [] },
    life: { at: [], object: [], type: [], node: [], to: [], what: [], around: [], took: [] },
  };
}

function append(table: object, row: Record<string, number>): number {
  const columns = table as Grown;
  for (const name of Object.keys(row)) columns[name]!.push(row[name]!);
  return columns.at!.length - 1;
}

/** A run that grows while it is watched. */
export class LiveRun extends Run {
  /** Events that this page did not get because it was too slow. */
  missing = 0;
  private readonly control: Set<string>;
  private readonly numbers = { kinds: new Map<string, number>(), whats: new Map<string, number>(), causes: new Map<string, number>(), objects: new Map<string, number>(), words: new Map<string, number>() };
  private readonly sent = new Map<number, { table: Grown; row: number }>();
  private readonly trimmed = new Map<object, number>();
  private ahead = -Infinity;

  constructor(header: Header) {
    const area = header.area ?? [1, 1];
    super({ title: header.title, live: true, startUs: header.start_us, rangeM: header.range_m, box: [0, 0, ...area], grid: header.grid }, emptyTables());
    this.control = new Set(header.control);
    header.nodes.forEach((name, node) => this.addNode(name, header.places[node]!, header.roles[node] ?? ""));
    if (!header.area) this.growBox();
    if (header.grid) this.load = new LiveLoad(this);
  }

  private addNode(name: string, place: Position, role: string): void {
    this.names.push(readableName(name));
    this.places.push(place);
    this.roles.push(role);
    this.legRows.push([]);
    this.switchRows.push([]);
    for (const totals of Object.values(this.totals)) (totals as number[]).push(0);
  }

  private growBox(): void {
    const { box } = this.facts;
    for (const [x, y] of this.places) {
      box[0] = Math.min(box[0], x);
      box[1] = Math.min(box[1], y);
      box[2] = Math.max(box[2], x);
      box[3] = Math.max(box[3], y);
    }
  }

  /** Adds one event; unknown ones, of later versions, are left out. */
  add([tag, atUs, ...rest]: [string, number, ...unknown[]]): void {
    const at = atUs / 1e6;
    this.span = Math.max(this.span, at);
    this.ahead = Math.max(this.ahead, at - performance.now() / 1000);
    switch (tag) {
      case "node":
        this.addNode(rest[1] as string, rest[2] as Position, rest[3] as string);
        return this.growBox();
      case "on":
        return void this.switchRows[rest[0] as number]!.push(append(this.tables.switches, { at, node: rest[0] as number, on: +(rest[1] as boolean) }));
      case "go":
        return this.addLeg(at, rest as [number, number, Position, Position]);
      case "tx":
        return this.addSent(at, rest as [number, number, number | null, string, number, boolean, string[]]);
      case "rx":
        return this.addReceived(at, rest[0] as number, rest[1] as number[]);
      case "no":
        return this.addDropped(at, rest[0] as number, rest[1] as string);
      case "ask":
        return this.addMark(at, rest[0] as number, rest[1] as string, false, rest[2] as string[], "", 0);
      case "told":
        return this.addMark(at, rest[0] as number, rest[1] as string, true, rest[2] as string[], rest[3] as string, (rest[4] as number) / 1e6);
      case "has": {
        const object = this.object(rest[1] as string);
        return void this.keptRows[object]!.push(append(this.tables.kept, { at, node: rest[0] as number, object, role: Math.max(0, ROLES.indexOf(rest[2] as string)) }));
      }
      case "near":
        return void append(this.tables.near, { at, node: rest[0] as number, peer: rest[1] as number, on: +(rest[2] as boolean) });
      case "gap":
        this.missing += rest[0] as number;
    }
  }

  private addLeg(at: number, [node, endUs, start, end]: [number, number, Position, Position]): void {
    const length = start[0] === end[0] && start[1] === end[1] ? 0 : Math.max(0, endUs / 1e6 - at);
    this.legRows[node]!.push(append(this.tables.legs, { at, node, length, x0: start[0], y0: start[1], x1: end[0], y1: end[1] }));
  }

  private addSent(at: number, [id, node, to, name, bytes, around, objects]: [number, number, number | null, string, number, boolean, string[]]): void {
    const kind = this.number("kinds", name, () => {
      this.kinds.push(makeKind(name, this.control.has(name.split("/").at(-1)!)));
      this.rates.push([]);
    });
    const control = this.kinds[kind]!.control;
    const table = control ? this.tables.control : this.tables.application;
    const receiver = to === null ? 0 : to + 1;
    const row = append(table, { at, node, to: receiver, kind, bytes, around: +around, took: 0, outcome: 0, heard: 0 });
    this.sent.set(id, { table: table as unknown as Grown, row: row + (this.trimmed.get(table) ?? 0) });
    const rates = this.rates[kind] as number[];
    const bin = Math.floor(at / this.binS);
    while (rates.length <= bin) rates.push(0);
    rates[bin]!++;
    (this.totals[control ? "control" : "sent"] as number[])[node]!++;
    this.addLife(at, objects, 2, node, receiver, name, +around, 0);
  }

  private rowOf(id: number): { table: Grown; row: number } | null {
    const found = this.sent.get(id);
    const row = found ? found.row - (this.trimmed.get(found.table) ?? 0) : -1;
    return found && row >= 0 ? { table: found.table, row } : null;
  }

  private addReceived(at: number, id: number, nodes: number[]): void {
    for (const node of nodes) (this.totals.heard as number[])[node]!++;
    const found = this.rowOf(id);
    if (!found) return;
    const { table, row } = found;
    table.heard![row]! += nodes.length;
    if (table.outcome![row] === 1) return;
    table.outcome![row] = 1;
    table.took![row] = at - table.at![row]!;
    table.longest = Math.max(table.longest, Math.min(2, table.took![row]!));
  }

  private addDropped(at: number, id: number, cause: string): void {
    const found = this.rowOf(id);
    const number = this.number("causes", cause, () => this.causes.push(cause));
    if (!found || found.table.outcome![found.row]) return;
    found.table.outcome![found.row] = 2 + number;
    found.table.took![found.row] = at - found.table.at![found.row]!;
  }

  private addMark(at: number, node: number, name: string, told: boolean, objects: string[], request: string, took: number): void {
    const what = this.number("whats", `${told} ${name}`, () => this.whats.push({ name, told, count: 0 }));
    this.whats[what]!.count++;
    append(this.tables.marks, { at, node, what });
    (this.totals[told ? "told" : "asked"] as number[])[node]!++;
    this.addLife(at, objects, told ? 1 : 0, node, 0, `${name} ${request}`.trim(), 0, took);
  }

  private addLife(at: number, objects: string[], type: number, node: number, to: number, words: string, around: number, took: number): void {
    for (const oid of objects) {
      const what = this.number("words", words, () => this.lifeWords.push(words));
      append(this.tables.life, { at, object: this.object(oid), type, node, to, what, around, took });
    }
  }

  private object(oid: string): number {
    return this.number("objects", oid, () => {
      this.objects.push(oid);
      this.keptRows.push([]);
    });
  }

  private number(table: keyof LiveRun["numbers"], name: string, add: () => void): number {
    const numbers = this.numbers[table];
    let number = numbers.get(name);
    if (number === undefined) {
      number = numbers.size;
      numbers.set(name, number);
      add();
    }
    return number;
  }

  override now(): number {
    return Math.max(0, Math.min(this.span + 60, performance.now() / 1000 + this.ahead) - DELAY_S);
  }

  /** Forgets what is older than ten minutes. */
  trim(): void {
    for (const table of [this.tables.application, this.tables.control, this.tables.marks, this.tables.life]) {
      const columns = table as unknown as Grown;
      const at = columns.at!;
      const cut = Math.max(lowerBound(at, this.span - KEPT_S), at.length - ROWS_MAX);
      if (cut < 1000) continue;
      for (const column of Object.values(columns)) if (Array.isArray(column)) column.splice(0, cut);
      this.trimmed.set(columns, (this.trimmed.get(columns) ?? 0) + cut);
    }
    this.from = Math.max(0, this.span - KEPT_S);
    for (const [id, { table, row }] of this.sent) {
      const here = row - (this.trimmed.get(table) ?? 0);
      if (here >= 0 && table.at![here]! > this.span - 30) break;
      this.sent.delete(id);
    }
  }
}

export interface LiveSource {
  close(): void;
}

/** Opens the stream; each connection begins with a header and makes a new run. */
export function followNodes(url: string, onRun: (run: LiveRun) => void, onState: (connected: boolean) => void): LiveSource {
  const source = new EventSource(url);
  let run: LiveRun | null = null;
  source.onmessage = ({ data }: MessageEvent<string>) => {
    for (const line of data.split("\n")) {
      const value = JSON.parse(line) as Header | [string, number, ...unknown[]];
      if (Array.isArray(value)) run?.add(value);
      else onRun((run = new LiveRun(value)));
    }
  };
  source.onopen = () => onState(true);
  source.onerror = () => onState(false);
  const timer = window.setInterval(() => run?.trim(), 10_000);
  return {
    close: () => {
      source.close();
      window.clearInterval(timer);
    },
  };
}

