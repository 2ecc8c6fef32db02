/** Words about the node or the cell under the pointer, or the chosen node. */

import { h } from "../dom.ts";
import { type View, nodeTitle } from "./draw.ts";
import { formatNumber, m } from "./map_texts.ts";
import type { Run } from "./run.ts";

const REACH = 16;
type Spot = [number, number];

export class Tip {
  readonly element = h("div", { id: "tip", hidden: true });
  private pointer: Spot | null = null;

  constructor(private readonly run: Run) {}

  point(pointer: Spot | null, spots: Spot[], view: View, t: number): void {
    this.pointer = pointer;
    this.update(spots, view, t, null);
  }

  nearest(pointer: Spot | null, spots: Spot[]): number | null {
    let best: number | null = null;
    let least = REACH ** 2;
    if (!pointer) return null;
    spots.forEach(([x, y], node) => {
      const away = (x - pointer[0]) ** 2 + (y - pointer[1]) ** 2;
      if (away >= least) return;
      least = away;
      best = node;
    });
    return best;
  }

  update(spots: Spot[], view: View, t: number, chosen: number | null): void {
    const node = this.nearest(this.pointer, spots) ?? chosen;
    if (node !== null) this.show(this.describeNode(node, t), spots[node]!, view);
    else if (this.pointer && this.run.load) {
      const [columns, rows, side] = this.run.facts.grid!;
      const [x, y] = view.from(this.pointer);
      if (x < 0 || y < 0 || x >= columns * side || y >= rows * side) this.element.hidden = true;
      else this.show(this.describeCell(this.run.cellAt([x, y]), t), this.pointer, view);
    } else this.element.hidden = true;
  }

  private show(lines: string[], [left, top]: Spot, view: View): void {
    const [title, ...rest] = lines;
    this.element.hidden = false;
    this.element.replaceChildren(h("b", {}, title!), ...rest.map((line) => h("span", {}, line)));
    const flip = left > view.width - 230;
    this.element.style.left = flip ? "" : `${left + 14}px`;
    this.element.style.right = flip ? `${view.width - left + 14}px` : "";
    this.element.style.top = `${Math.max(0, Math.min(top - 10, view.height - this.element.offsetHeight))}px`;
  }

  private describeNode(node: number, t: number): string[] {
    const { run } = this;
    const [x, y] = run.position(node, t);
    const count = (name: keyof Run["totals"]) => formatNumber(run.totals[name][node]!);
    return [
      nodeTitle(run, node),
      m("tipNode", { state: m(run.isUp(node, t) ? "on" : "off"), x: x.toFixed(1), y: y.toFixed(1) }),
      m("tipSent", { n: count("sent") }),
      m("tipControl", { n: count("control") }),
      m("tipHeard", { n: count("heard") }),
      m("tipApps", { asked: count("asked"), told: count("told") }),
    ];
  }

  private describeCell(cell: number, t: number): string[] {
    const { run } = this;
    const here = run.names.filter((_, node) => run.isUp(node, t) && run.cellAt(run.position(node, t)) === cell).length;
    return [m("cellTip", { n: cell }), m("cellNodes", { n: here }), m("cellRecent", { n: formatNumber(run.load!.recent(cell, t)), s: run.load!.windowS.toFixed(0) })];
  }
}
