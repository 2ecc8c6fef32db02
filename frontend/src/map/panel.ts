/** The panel beside the map: layers, filters and the key of the drawing. */

import { h } from "../dom.ts";
import { cross, diamond, drawReplica, drawTriangle, halo, hatch, sharpen } from "./draw.ts";
import { type MapText, formatNumber, m } from "./map_texts.ts";
import { MODES, type Mode, type Run, readableObject } from "./run.ts";
import { hue, paint, theme } from "./theme.ts";

export type Layer = "load" | "links" | "replicas" | "marks" | "names";
const LAYERS: [Layer, MapText][] = [["load", "layerLoad"], ["links", "layerLinks"], ["replicas", "layerReplicas"], ["marks", "layerMarks"], ["names", "layerNames"]];
const OBJECTS_LISTED = 500;

/** What the reader chose to see. */
export class Choices {
  layers: Record<Layer, boolean> = { load: true, links: false, replicas: true, marks: true, names: true };
  modes: Record<Mode, boolean> = { greedy: true, perimeter: true, cell: true, other: true };
  kinds: boolean[] = [];
  marks: boolean[] = [];
  node: number | null = null;
  onlyNode = false;
  object: number | null = null;

  /** Gives types that are new their default: shown, unless they are routing control. */
  extend(run: Run): boolean {
    const before = this.kinds.length + this.marks.length;
    while (this.kinds.length < run.kinds.length) this.kinds.push(!run.kinds[this.kinds.length]!.control);
    while (this.marks.length < run.whats.length) this.marks.push(true);
    return before !== this.kinds.length + this.marks.length;
  }

  get filter() {
    return { kinds: this.kinds, modes: this.modes, node: this.onlyNode ? this.node : null };
  }
}

export class Panel {
  readonly element = h("aside", { class: "panel" });
  readonly nodeSelect = h("select", { id: "node" });
  readonly objectSelect = h("select", { id: "object" });
  private readonly parts = { choice: h("fieldset"), layers: h("fieldset"), modes: h("fieldset"), kinds: h("div"), keys: h("fieldset") };
  private listed = "";

  constructor(
    private readonly run: Run,
    private readonly choices: Choices,
    private readonly onChange: (what: "filter" | "object" | "node") => void,
  ) {
    this.element.append(...Object.values(this.parts));
    this.drawChoice();
    this.drawLayers();
    this.drawKeyList();
    this.update();
  }

  /** Follows a run that grows: new nodes, objects and types. */
  update(): void {
    const { run, choices } = this;
    const state = `${run.nodes} ${run.objects.length} ${run.kinds.length} ${run.whats.length}`;
    if (state !== this.listed) {
      this.listed = state;
      choices.extend(run);
      this.fillNodes();
      this.fillObjects();
      this.drawKinds();
      this.drawKeys();
    } else this.updateCounts();
  }

  private drawChoice(): void {
    const { choices } = this;
    this.nodeSelect.addEventListener("change", () => {
      choices.node = this.nodeSelect.value === "" ? null : Number(this.nodeSelect.value);
      this.onChange("node");
    });
    this.objectSelect.addEventListener("change", () => {
      choices.object = this.objectSelect.value === "" ? null : Number(this.objectSelect.value);
      this.onChange("object");
    });
    const only = this.tick(m("onlyNode"), choices.onlyNode, (on) => (choices.onlyNode = on));
    this.parts.choice.append(
      h("legend", {}, `${m("node")}, ${m("object")}`),
      h("label", { for: "node" }, m("node")),
      this.nodeSelect,
      only,
      h("label", { for: "object" }, m("object")),
      this.objectSelect,
    );
  }

  private fillNodes(): void {
    const options = this.run.names.map((name, node) => new Option(name, String(node)));
    this.nodeSelect.replaceChildren(new Option(m("noNode"), ""), ...options);
    this.nodeSelect.value = String(this.choices.node ?? "");
  }

  /** In a recording, objects with most replicas come first; of live nodes, the newest do. */
  private fillObjects(): void {
    const { run, choices } = this;
    const most = run.objects.map((_, object) => run.holders(object));
    const order = run.objects.map((_, object) => object);
    if (run.facts.live) order.reverse();
    else order.sort((a, b) => most[b]! - most[a]! || a - b);
    order.length = Math.min(order.length, OBJECTS_LISTED);
    if (choices.object !== null && !order.includes(choices.object)) order.push(choices.object);
    const options = order.map((object) => new Option(m("atNodes", { object: readableObject(run.objects[object]!), n: most[object]! }), String(object)));
    this.objectSelect.replaceChildren(new Option(m("allObjects"), ""), ...options);
    this.objectSelect.value = String(choices.object ?? "");
  }

  private drawLayers(): void {
    const { layers, modes } = this.choices;
    const has = { load: this.run.load !== null, links: true, replicas: true, marks: true, names: true };
    this.parts.layers.append(h("legend", {}, m("layers")), ...LAYERS.filter(([layer]) => has[layer]).map(([layer, text]) => this.tick(m(text), layers[layer], (on) => (layers[layer] = on))));
    this.parts.modes.append(h("legend", {}, m("routing")), ...MODES.map((mode) => this.tick(m(`mode_${mode}`), modes[mode], (on) => (modes[mode] = on), { key: mode })));
  }

  private drawKinds(): void {
    const { run, choices } = this;
    const totals = run.kinds.map((_, kind) => sum(run.rates[kind] ?? []));
    const kinds = run.kinds.map((kind, number) => ({ ...kind, number })).sort((a, b) => totals[b.number]! - totals[a.number]! || (a.name < b.name ? -1 : 1));
    const whats = run.whats.map((what, number) => ({ ...what, number }));
    const group = (title: MapText, rows: { name: string; number: number }[], shown: boolean[], key: string, count: (number: number) => number) =>
      rows.length
        ? h("fieldset", {}, h("legend", {}, m(title)), ...rows.map(({ name, number }) => this.tick(name.replaceAll("/", "/\u200b"), shown[number]!, (on) => (shown[number] = on), { key, name, count: count(number), id: `${key}-${number}` })))
        : "";
    this.parts.kinds.replaceChildren(
      group("messages", kinds.filter((kind) => !kind.control), choices.kinds, "line", (number) => totals[number]!),
      group("control", kinds.filter((kind) => kind.control), choices.kinds, "grey", (number) => totals[number]!),
      group("requests", whats.filter((what) => !what.told), choices.marks, "ask", (number) => run.whats[number]!.count),
      group("events", whats.filter((what) => what.told), choices.marks, "told", (number) => run.whats[number]!.count),
    );
  }

  private updateCounts(): void {
    const set = (key: string, number: number, count: number) => {
      const place = this.parts.kinds.querySelector(`[data-count="${key}-${number}"]`);
      if (place) place.textContent = formatNumber(count);
    };
    this.run.kinds.forEach((kind, number) => set(kind.control ? "grey" : "line", number, sum(this.run.rates[number] ?? [])));
    this.run.whats.forEach((what, number) => set(what.told ? "told" : "ask", number, what.count));
  }

  private drawKeyList(): void {
    const rows: [MapText, string][] = [["keyOn", "on"], ["keyOff", "off"], ["keyStation", "station"], ["keyRing", "ring"], ["keyLost", "lost"], ["role_own", "own"], ["role_active", "active"], ["role_passive", "passive"]];
    if (this.run.load) rows.push(["keyLoad", "load"], ["keyEmpty", "empty"]);
    if (!this.run.facts.live) rows.push(["keyCrash", "crash"], ["keyRestart", "restart"]);
    this.parts.keys.append(h("legend", {}, m("legend")), ...rows.map(([text, key]) => h("p", { class: "row" }, keyPicture(key), h("span", { class: "name" }, m(text)))));
  }

  private tick(text: string, on: boolean, set: (on: boolean) => void, row: { key?: string; name?: string; count?: number; id?: string } = {}): HTMLElement {
    const box = h("input", { type: "checkbox", checked: on });
    box.addEventListener("change", () => {
      set(box.checked);
      this.onChange("filter");
    });
    return h(
      "label",
      { class: "row" },
      box,
      row.key ? keyPicture(row.key, row.name) : null,
      h("span", { class: "name" }, text),
      row.count === undefined ? null : h("span", { class: "count", "data-count": row.id }, formatNumber(row.count)),
    );
  }

  /** Draws the pictures of the key, in the colours of the theme. */
  drawKeys(): void {
    for (const canvas of this.element.querySelectorAll<HTMLCanvasElement>("canvas.key")) drawKey(canvas);
  }
}

const sum = (column: ArrayLike<number>): number => {
  let total = 0;
  for (let i = 0; i < column.length; i++) total += column[i]!;
  return total;
};

function keyPicture(key: string, name = ""): HTMLCanvasElement {
  return h("canvas", { class: "key", "data-key": key, "data-name": name, "aria-hidden": "true" });
}

function drawKey(canvas: HTMLCanvasElement): void {
  const context = sharpen(canvas, 21, 13);
  const key = canvas.dataset.key!;
  const colour = key === "grey" ? theme.soft : paint(hue(canvas.dataset.name || "Insert"));
  const line = () => {
    context.beginPath();
    context.moveTo(0, 6.5);
    context.lineTo(21, 6.5);
    context.stroke();
  };
  const disc = (radius: number) => {
    context.beginPath();
    context.arc(10, 6.5, radius, 0, 7);
  };
  context.fillStyle = context.strokeStyle = colour;
  context.lineWidth = 2;
  switch (key) {
    case "line":
    case "grey":
      return context.fillRect(1, 5, 19, 4);
    case "ask":
    case "told":
      return drawTriangle(context, 10, 6.5, key === "told");
    case "greedy":
    case "perimeter":
    case "cell":
    case "other":
      context.strokeStyle = theme.soft;
      if (key === "perimeter") halo(context, 1, line);
      context.globalAlpha = 1;
      context.lineWidth = 1.6;
      if (key === "other") return disc(5), context.stroke();
      context.setLineDash(key === "perimeter" ? [9, 4] : key === "cell" ? [2, 3] : []);
      return line();
    case "on":
    case "off":
      context.fillStyle = theme.node;
      context.strokeStyle = theme.off;
      disc(4);
      return key === "on" ? context.fill() : context.stroke();
    case "station":
      context.fillStyle = theme.station;
      context.beginPath();
      diamond(context, 10, 6.5, 6);
      return context.fill();
    case "load":
      context.fillStyle = theme.accent;
      context.globalAlpha = 0.5;
      context.fillRect(0, 0, 11, 13);
      context.globalAlpha = 0.15;
      return context.fillRect(11, 0, 10, 13);
    case "empty":
      return hatch(context, 0, 0, 21, 13);
    case "own":
    case "active":
    case "passive":
      return drawReplica(context, [10, 6.5], 1, ["own", "active", "passive"].indexOf(key) + 1, 1);
    case "ring":
    case "restart":
      context.strokeStyle = key === "ring" ? theme.soft : theme.good;
      disc(5);
      return context.stroke();
    default:
      cross(context, 10, 6.5, 4, theme.alarm, 2);
      if (key !== "lost") return;
      context.setLineDash([3, 2]);
      context.strokeStyle = theme.soft;
      context.lineWidth = 1;
      line();
  }
}
