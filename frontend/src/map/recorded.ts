/** Reads the data inside a page of a recording: zlib-compressed; a length, a JSON object of that length, then the columns. */

import { type Column, type Fault, type Position, RecordedLoad, Run, type Tables, makeKind, readableName } from "./run.ts";

interface About {
  title: string;
  span_us: number;
  tick_us: number;
  bin_us: number;
  range_m: number;
  names: string[];
  roles: string[];
  places: Position[];
  corner: Position;
  box: [number, number, number, number];
  grid: [number, number, number] | null;
  kinds: [string, boolean][];
  causes: string[];
  objects: string[];
  whats: [string, boolean, number][];
  faults: [number, boolean, Omit<Fault, "at" | "begins">][];
  life_words: string[];
  strides: Record<string, number>;
  seen: Record<string, number>;
  bytes: number;
  omitted: { replicas: number; life: number; missing: number };
  columns: [string, "u1" | "u2" | "u4", number][];
}

/** Numbers about a recording that its page tells: what happened, and what is left out. */
export interface RecordingFacts {
  seen: Record<string, number>;
  bytes: number;
  omitted: About["omitted"];
}

const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
const SECONDS = new Set(["at", "took", "length"]);

export async function readRecording(text: string): Promise<{ run: Run; recording: RecordingFacts }> {
  const packed = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return parseRecording(new Uint8Array(await new Response(stream).arrayBuffer()));
}

export function parseRecording(bytes: Uint8Array): { run: Run; recording: RecordingFacts } {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const about = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))) as About;
  const tables = readColumns(bytes, 4 + length, about);
  const facts = { title: about.title, live: false, startUs: 0, rangeM: about.range_m, box: about.box, grid: about.grid };
  const run = new Run(facts, tables as unknown as Tables);
  run.names = about.names.map(readableName);
  run.roles = about.roles;
  run.places = about.places;
  run.kinds = about.kinds.map(([name, control]) => makeKind(name, control));
  run.causes = about.causes;
  run.objects = about.objects;
  run.whats = about.whats.map(([name, told, count]) => ({ name, told, count }));
  run.lifeWords = about.life_words;
  run.faults = about.faults.map(([at, begins, fault]) => ({ ...fault, at: at / 1e6, begins }) as Fault);
  run.rates = about.kinds.map((_, kind) => tables.rates?.[kind] ?? []);
  run.binS = about.bin_us / 1e6;
  run.totals = tables.totals as Run["totals"];
  run.strides = about.strides;
  run.span = Math.max(about.span_us / 1e6, 1e-6);
  run.index();
  if (about.grid) run.load = new RecordedLoad(run);
  return { run, recording: { seen: about.seen, bytes: about.bytes, omitted: about.omitted } };
}

function readColumns(bytes: Uint8Array, start: number, about: About): Record<string, Record<string, Column>> {
  const tables: Record<string, Record<string, Column>> = {};
  let at = start;
  for (const [name, kind, count] of about.columns) {
    const type = TYPES[kind];
    const end = at + count * type.BYTES_PER_ELEMENT;
    const [table, field] = name.split(".") as [string, string];
    (tables[table] ??= {})[field] = inUnits(table, field, new type(bytes.slice(at, end).buffer), about);
    at = end;
  }
  for (const name of ["application", "control"]) (tables[name] as unknown as { longest: number }).longest = 0;
  return tables;
}

function inUnits(table: string, field: string, column: Uint8Array | Uint16Array | Uint32Array, about: About): Column {
  if (SECONDS.has(field)) {
    let sum = 0;
    const scale = about.tick_us / 1e6;
    return Float64Array.from(column, (value) => (field === "at" ? (sum += value) : value) * scale);
  }
  if (table !== "legs" || field === "node") return column;
  const corner = about.corner[field[0] === "x" ? 0 : 1];
  return Float64Array.from(column, (value) => corner + value / 100);
}
