/** Eight pictures that sum up the traffic of a recorded run; a printed page shows them, too. */

import { h } from "../dom.ts";
import { drawGrid, drawNodes, fainter, sharpen, viewOf, type View } from "./draw.ts";
import { formatNumber, formatSeconds, m } from "./map_texts.ts";
import type { Choices } from "./panel.ts";
import { type Run, lowerBound } from "./run.ts";
import { hue, paint } from "./theme.ts";

const PICTURES = 8;

interface Sums {
  pairs: Map<number, number>;
  discs: Map<number, number>;
  count: number;
}

export class Film {
  readonly element: HTMLElement;
  private readonly figures: { canvas: HTMLCanvasElement; caption: HTMLElement }[] = [];
  private readonly grid = h("div", { class: "film" });

  constructor(
    private readonly run: Run,
    private readonly choices: Choices,
    onSeek: (t: number) => void,
  ) {
    for (let i = 0; i < PICTURES; i++) {
      const canvas = h("canvas", { "aria-hidden": "true" });
      const caption = h("span", { class: "soft" });
      this.grid.append(h("button", { type: "button", onclick: () => onSeek(((i + 0.5) / PICTURES) * run.span) }, canvas, caption));
      this.figures.push({ canvas, caption });
    }
    this.element = h("section", {}, h("h2", {}, m("film")), h("p", { class: "soft" }, m("filmText")), this.grid);
  }

  draw(): void {
    const { run } = this;
    const width = this.figures[0]!.canvas.clientWidth;
    if (width < 10) return;
    const { wide, high } = viewOf(run, 100, 100, 0);
    const height = Math.max(80, Math.min(width * 1.1, (width * high) / wide));
    const digits = run.span / PICTURES < 1 ? 2 : run.span / PICTURES < 10 ? 1 : 0;
    this.sums().forEach((sums, i) => {
      const { canvas, caption } = this.figures[i]!;
      const begin = (i / PICTURES) * run.span;
      const end = ((i + 1) / PICTURES) * run.span;
      canvas.style.height = `${height}px`;
      this.drawPicture(sharpen(canvas, width, height), viewOf(run, width, height, 9), sums, begin, end);
      const marks = lowerBound(run.tables.marks.at, end) - lowerBound(run.tables.marks.at, begin);
      caption.textContent = m("filmCaption", {
        begin: formatSeconds(begin, digits),
        end: formatSeconds(end, digits),
        messages: formatNumber(sums.count * run.strides.application!),
        marks: formatNumber(marks * run.strides.marks!),
      });
    });
  }

  private sums(): Sums[] {
    const { run, choices } = this;
    const { at, node, to, kind } = run.tables.application;
    const sums: Sums[] = Array.from({ length: PICTURES }, () => ({ pairs: new Map(), discs: new Map(), count: 0 }));
    for (let row = 0; row < at.length; row++) {
      if (!choices.kinds[kind[row]!]) continue;
      const one = sums[Math.min(PICTURES - 1, Math.floor((at[row]! / run.span) * PICTURES))]!;
      one.count++;
      const from = node[row]!;
      const receiver = to[row]! - 1;
      const place = receiver < 0 ? from : Math.min(from, receiver) * run.nodes + Math.max(from, receiver);
      const map = receiver < 0 ? one.discs : one.pairs;
      const key = place * run.kinds.length + kind[row]!;
      map.set(key, (map.get(key) ?? 0) + 1);
    }
    return sums;
  }

  private drawPicture(context: CanvasRenderingContext2D, view: View, sums: Sums, begin: number, end: number): void {
    const { run } = this;
    const t = (begin + end) / 2;
    const spots = run.names.map((_, node) => view.at(run.position(node, t)));
    const loads = run.load ? Array.from({ length: run.load.cells }, (_, cell) => run.load!.between(cell, begin, end)) : [];
    const busiest = loads.reduce((a, b) => Math.max(a, b), 1);
    drawGrid(context, run, view, t, (cell) => loads[cell]! / busiest);
    let most = 1;
    for (const map of [sums.pairs, sums.discs]) for (const count of map.values()) most = Math.max(most, count);
    const colour = (key: number) => paint(hue(run.kinds[key % run.kinds.length]!.name));
    context.globalAlpha = 0.22;
    for (const [key, count] of sums.discs) {
      context.fillStyle = colour(key);
      context.beginPath();
      context.arc(...spots[Math.floor(key / run.kinds.length)]!, 3 + 9 * Math.sqrt(count / most), 0, 7);
      context.fill();
    }
    context.globalAlpha = 0.7 * fainter(sums.pairs.size);
    for (const [key, count] of sums.pairs) {
      const pair = Math.floor(key / run.kinds.length);
      context.strokeStyle = colour(key);
      context.lineWidth = 0.5 + 3 * Math.sqrt(count / most);
      context.beginPath();
      context.moveTo(...spots[Math.floor(pair / run.nodes)]!);
      context.lineTo(...spots[pair % run.nodes]!);
      context.stroke();
    }
    context.globalAlpha = 1;
    drawNodes(context, run, view, spots, t, run.activeFaults(t).groups);
  }
}
