/** The map in words: nodes, cells and the last messages as tables. */

import { h } from "../dom.ts";
import { type MessageFilter, passes } from "./draw.ts";
import { type MapText, formatNumber, formatSeconds, m } from "./map_texts.ts";
import { type Messages, type Run, lowerBound } from "./run.ts";

const MESSAGES_MAX = 25;
const CELLS_MAX = 200;

export function outcomeOf(run: Run, table: Messages, row: number, t: number): string {
  const { at, to, took, outcome, heard } = table;
  const ms = (took[row]! * 1000).toFixed(1);
  const known = outcome[row]! > 0 && t >= at[row]! + took[row]! - 1e-9;
  if (known && outcome[row]! > 1) return m("dropped", { ms, cause: run.causes[outcome[row]! - 2]! });
  if (known) return to[row] ? m("arrived", { ms }) : m("heardBy", { n: heard[row]!, ms });
  return m(to[row] ? "inTransit" : "unheard");
}

/** The last messages before an instant, newest first. */
export function lastMessages(run: Run, t: number, filter: MessageFilter, count: number): [Messages, number][] {
  const found: [Messages, number][] = [];
  for (const table of [run.tables.application, run.tables.control]) {
    const end = lowerBound(table.at, t + 1e-9);
    for (let row = end - 1, here = 0; row >= Math.max(0, end - 2000) && here < count; row--) {
      if (!passes(run, table, row, filter)) continue;
      found.push([table, row]);
      here++;
    }
  }
  found.sort(([one, i], [other, j]) => other.at[j]! - one.at[i]!);
  return found.slice(0, count);
}

function tableOf(title: MapText, columns: (MapText | [MapText, Record<string, string | number>])[], rows: string[][]): HTMLElement {
  const heads = columns.map((column) => h("th", { scope: "col" }, typeof column === "string" ? m(column) : m(...column)));
  const lines = rows.map((row) => h("tr", {}, ...row.map((cell, number) => (number ? h("td", {}, cell) : h("th", { scope: "row" }, cell)))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": m(title) }, h("table", {}, h("caption", {}, m(title)), h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...lines)));
}

export function describeNetwork(run: Run, t: number, filter: MessageFilter): HTMLElement[] {
  const neighbours = new Array<number>(run.nodes).fill(0);
  for (const [one, other] of run.links(t)) {
    neighbours[one]!++;
    neighbours[other]!++;
  }
  const replicas = new Array<number>(run.nodes).fill(0);
  for (let object = 0; object < Math.min(run.objects.length, 2000); object++) for (const node of run.replicas(object, t).keys()) replicas[node]!++;
  const nodes = run.names.map((name, node) => {
    const [x, y] = run.position(node, t);
    return [
      name,
      run.roles[node] ? m(run.roles[node] as MapText) : "",
      m(run.isUp(node, t) ? "on" : "off"),
      run.facts.grid ? String(run.cellAt([x, y])) : "",
      `${x.toFixed(0)}, ${y.toFixed(0)}`,
      String(neighbours[node]),
      formatNumber(run.totals.sent[node]!),
      formatNumber(run.totals.heard[node]!),
      String(replicas[node]),
    ];
  });
  const messages = lastMessages(run, t, filter, MESSAGES_MAX).map(([table, row]) => [
    formatSeconds(table.at[row]!),
    run.kinds[table.kind[row]!]!.name,
    run.names[table.node[row]!]!,
    table.to[row] ? run.names[table.to[row]! - 1]! : m("all"),
    m(`way_${run.mode(table, row)}`),
    outcomeOf(run, table, row, t),
  ]);
  const found = [
    tableOf("tableNodes", ["column_node", "column_role", "column_state", "column_cell", "column_position", "column_neighbours", "column_sent", "column_heard", "column_replicas"], nodes),
    tableOf("tableMessages", ["column_time", "column_message", "column_from", "column_to", "column_way", "column_outcome"], messages),
  ];
  if (run.load) found.push(describeCells(run, t));
  return found;
}

function describeCells(run: Run, t: number): HTMLElement {
  const counts = new Map<number, number>();
  run.names.forEach((_, node) => {
    if (!run.isUp(node, t)) return;
    const cell = run.cellAt(run.position(node, t));
    counts.set(cell, (counts.get(cell) ?? 0) + 1);
  });
  const load = run.load!;
  const rows = Array.from({ length: Math.min(load.cells, CELLS_MAX) }, (_, cell) => [String(cell), String(counts.get(cell) ?? 0), formatNumber(load.recent(cell, t))]);
  return tableOf("tableCells", ["column_cell", "column_nodes", ["column_load", { s: load.windowS.toFixed(0) }]], rows);
}
