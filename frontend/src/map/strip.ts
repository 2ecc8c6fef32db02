/** The time line under the map: messages per second by type, routing control, and ticks for requests, events and faults. */

import { h } from "../dom.ts";
import { sharpen } from "./draw.ts";
import { formatNumber, m } from "./map_texts.ts";
import type { Choices } from "./panel.ts";
import type { Run } from "./run.ts";
import { hue, paint, theme } from "./theme.ts";

const HEIGHT = 116;
const MARGIN = 8;
const TICKS_MAX = 20_000;
const STEPS = [1e-3, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14_400, 86_400];

export class Strip {
  readonly canvas = h("canvas", { id: "strip", role: "img", "aria-label": m("rates") });
  private readonly still = document.createElement("canvas");

  constructor(
    private readonly run: Run,
    private readonly choices: Choices,
    onSeek: (t: number) => void,
  ) {
    const scrub = (event: PointerEvent) => {
      if (event.type === "pointerdown") this.canvas.setPointerCapture(event.pointerId);
      if (event.buttons & 1) onSeek(run.from + ((event.offsetX - MARGIN) / (this.canvas.clientWidth - 2 * MARGIN)) * (run.span - run.from));
    };
    this.canvas.addEventListener("pointerdown", scrub);
    this.canvas.addEventListener("pointermove", scrub);
  }

  /** Draws everything that does not change with the chosen instant. */
  draw(): void {
    const { run, choices } = this;
    const width = this.canvas.parentElement!.clientWidth;
    const inner = Math.max(1, width - 2 * MARGIN);
    const context = sharpen(this.still, width, HEIGHT);
    const kinds = run.kinds.map((_, kind) => kind);
    context.translate(MARGIN, 0);
    this.bars(context, inner, kinds.filter((kind) => !run.kinds[kind]!.control && choices.kinds[kind]), 58, 42, false);
    this.bars(context, inner, kinds.filter((kind) => run.kinds[kind]!.control), 86, 13, true);
    const tick = (at: number, colour: string, top: number, height: number) => {
      context.fillStyle = colour;
      context.fillRect(this.x(at, inner) - 0.5, top, 1.2, height);
    };
    const { marks } = run.tables;
    const stride = Math.ceil(marks.at.length / TICKS_MAX) || 1;
    for (let row = 0; row < marks.at.length; row += stride) {
      const what = marks.what[row]!;
      const { name, told } = run.whats[what]!;
      if (choices.marks[what]) tick(marks.at[row]!, paint(hue(name)), told ? 93 : 88, 5);
    }
    for (const fault of run.faults) tick(fault.at, theme.alarm, 88, 10);
    this.axis(context, inner);
  }

  private x(at: number, inner: number): number {
    return ((at - this.run.from) / Math.max(this.run.span - this.run.from, 1e-6)) * inner;
  }

  /** Messages per second in equal parts of the run. */
  private rates(columns: number, chosen: number[]): Float64Array {
    const { rates, binS, from, span } = this.run;
    const found = new Float64Array(columns);
    for (const kind of chosen) {
      for (let column = 0; column < columns; column++) {
        const begin = Math.floor((from + (column / columns) * (span - from)) / binS);
        const end = Math.max(begin + 1, Math.floor((from + ((column + 1) / columns) * (span - from)) / binS));
        let sum = 0;
        for (let i = begin; i < end; i++) sum += rates[kind]?.[i] ?? 0;
        found[column]! += sum / ((end - begin) * binS);
      }
    }
    return found;
  }

  private bars(context: CanvasRenderingContext2D, inner: number, chosen: number[], bottom: number, height: number, control: boolean): void {
    const columns = Math.max(1, Math.floor(inner / 3));
    const each = inner / columns;
    const scale = control ? Math.log1p : (rate: number) => rate;
    const peak = this.rates(columns, chosen).reduce((a, b) => Math.max(a, b), 1e-9);
    const base = new Float64Array(columns);
    for (const kind of chosen) {
      context.fillStyle = control ? theme.soft : paint(hue(this.run.kinds[kind]!.name));
      this.rates(columns, [kind]).forEach((rate, column) => {
        if (!rate) return;
        const low = (scale(base[column]!) / scale(peak)) * height;
        const high = (scale((base[column]! += rate)) / scale(peak)) * height;
        const x = Math.round(column * each);
        context.fillRect(x, bottom - Math.max(high, 1), Math.round((column + 1) * each) - x, Math.max(high - low, 1));
      });
    }
    context.fillStyle = theme.line;
    context.fillRect(0, bottom, inner, 1);
    const most = peak < 10 ? peak.toFixed(1) : formatNumber(peak);
    if (chosen.length) write(context, m(control ? "controlRate" : "selected", { n: most }), 2, bottom - height - 14);
  }

  private axis(context: CanvasRenderingContext2D, inner: number): void {
    const { from, span } = this.run;
    const step = STEPS.find((size) => (span - from) / size <= inner / 70) ?? span;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    context.fillStyle = theme.soft;
    for (let at = Math.ceil(from / step) * step; at <= span + 1e-9; at += step) {
      const x = this.x(at, inner);
      context.textAlign = x < 15 ? "left" : x > inner - 15 ? "right" : "center";
      context.fillRect(x, 99, 1, 3);
      context.fillText(`${+at.toFixed(3)} s`, x, 103);
    }
  }

  /** Draws the time line with the chosen instant. */
  cursor(t: number): void {
    const { canvas, still } = this;
    if (!still.width) return;
    if (canvas.width !== still.width) {
      canvas.width = still.width;
      canvas.height = still.height;
    }
    const context = canvas.getContext("2d")!;
    const ratio = window.devicePixelRatio || 1;
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(still, 0, 0);
    context.fillStyle = theme.accent;
    context.fillRect((MARGIN + this.x(t, canvas.width / ratio - 2 * MARGIN)) * ratio - ratio, 0, 2 * ratio, 99 * ratio);
  }
}

function write(context: CanvasRenderingContext2D, text: string, x: number, y: number): void {
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "left";
  context.textBaseline = "top";
  context.lineWidth = 3;
  context.strokeStyle = theme.paper;
  context.fillStyle = theme.soft;
  context.strokeText(text, x, y);
  context.fillText(text, x, y);
}
