/** The page of the map: the drawing with its time control, the panel, the story of an object and the tables. */

import { h } from "../dom.ts";
import { LANGUAGES, chosenLanguage, language, writeSetting } from "../language.ts";
import { type View, drawFaults, drawFlight, drawGrid, drawLinks, drawMarks, drawMessages, drawNames, drawNodes, drawReplicas, drawScale, dotSize, sharpen, viewOf } from "./draw.ts";
import { Film } from "./film.ts";
import { LiveRun } from "./live.ts";
import { formatNumber, formatSeconds, m } from "./map_texts.ts";
import { Choices, Panel } from "./panel.ts";
import type { RecordingFacts } from "./recorded.ts";
import { type Fault, type Position, type Run, lowerBound, readableObject } from "./run.ts";
import { StoryPanel, type Step } from "./story.ts";
import { Strip } from "./strip.ts";
import { describeNetwork } from "./tables.ts";
import { paint, readTheme } from "./theme.ts";
import { Tip } from "./tip.ts";

const SPEEDS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60];
const LINGER_S = 0.6;
const MARK_S = 1.6;
const REPLICA_S = 2.2;
const NAMES_MAX = 40;
const WORDS_MS = 120;
const ZOOM_MAX = 20;

/** Time for which events stay visible; somewhat less than proportional to the speed. */
const lingers = (seconds: number, speed: number): number => (seconds * speed) / (1 + speed / 40);

export class MapPage {
  t = 0;
  speed = 1;
  playing = false;
  /** Whether the page follows live nodes. */
  follow: boolean;
  frames = 0;
  readonly choices = new Choices();
  readonly story: StoryPanel;
  private readonly panel: Panel;
  private readonly strip: Strip;
  private readonly film: Film | null;
  private readonly tip: Tip;
  private readonly net = h("canvas", { id: "net", role: "img", "aria-label": m("stage"), tabindex: 0 });
  private readonly now = h("div", { id: "now" });
  private readonly facts = h("p", { class: "soft", id: "facts" });
  private readonly seen = h("span", { class: "soft", id: "seen" });
  private readonly slider = h("input", { id: "slider", type: "range", min: 0, max: 100_000, value: 0, step: 1, "aria-label": m("time") });
  private readonly playButton = h("button", { type: "button", id: "play" });
  private readonly liveButton = h("button", { type: "button", id: "live", "aria-pressed": "true" }, m("live"));
  private readonly speedSelect = h("select", { id: "speed" });
  private readonly tables = h("details", { id: "tables" }, h("summary", {}, m("asTable")));
  private readonly tableBody = h("div");
  private context!: CanvasRenderingContext2D;
  private view!: View;
  private spots: [number, number][] = [];
  private links: { at: number; links: [number, number][] } = { at: -1, links: [] };
  private zoom = 1;
  private centre: Position | null = null;
  private step: Step | null = null;
  private before: number | null = null;
  private words = 0;
  private closed = false;
  private readonly listeners = new AbortController();

  constructor(
    readonly run: Run,
    private readonly recording: RecordingFacts | null,
  ) {
    this.follow = run.facts.live;
    this.choices.extend(run);
    this.story = new StoryPanel((step) => this.showStep(step));
    this.panel = new Panel(run, this.choices, (what) => this.onChoice(what));
    const seek = (t: number) => this.seek(t);
    this.strip = new Strip(run, this.choices, seek);
    this.film = run.facts.live ? null : new Film(run, this.choices, (t) => (this.seek(t), scrollTo({ top: 0 })));
    this.tip = new Tip(run);
    this.build();
    this.listen();
    this.openAt(location.hash);
    this.resize();
    requestAnimationFrame((now) => this.frame(now));
  }

  close(): void {
    this.closed = true;
    this.listeners.abort();
  }

  private build(): void {
    const { run } = this;
    document.title = run.facts.title || m("map");
    const press = (text: string, label: string, act: () => void) => h("button", { type: "button", title: label, "aria-label": label, onclick: act }, text);
    for (const speed of SPEEDS) this.speedSelect.append(new Option(`${speed}×`, String(speed)));
    this.speedSelect.value = "1";
    this.tables.append(this.tableBody);
    const languages = h("select", { id: "language", onchange: () => (writeSetting("language", languages.value), location.reload()) });
    for (const [value, text] of Object.entries(LANGUAGES)) languages.append(h("option", { value, selected: chosenLanguage() === value, lang: value }, text));
    document.body.replaceChildren(
      h("header", {}, h("h1", {}, run.facts.title || m("map")), this.facts),
      h(
        "main",
        { class: "screen" },
        h(
          "div",
          { class: "main" },
          h("div", { class: "stage" }, this.net, this.now, this.tip.element, h("div", { class: "zoom" }, press("+", m("zoomIn"), () => this.zoomBy(1.5)), press("−", m("zoomOut"), () => this.zoomBy(1 / 1.5)), press("⤢", m("zoomAll"), () => this.zoomBy(0)))),
          h("div", { class: "controls" }, press("◂", m("back"), () => this.stepBy(-1)), this.playButton, press("▸", m("forward"), () => this.stepBy(1)), run.facts.live ? this.liveButton : null, h("label", {}, m("speed"), " ", this.speedSelect), this.seen),
          this.slider,
          h("div", {}, this.strip.canvas),
          this.story.element,
          this.tables,
          h("p", { class: "soft keys" }, m("keys")),
        ),
        this.panel.element,
      ),
      this.film?.element ?? "",
      this.recording ? this.omissions(this.recording) : "",
      h("footer", { class: "controls" }, h("label", {}, m("language"), " ", languages)),
    );
    this.describeRun();
  }

  private describeRun(): void {
    const { run, recording } = this;
    if (recording) {
      const { seen } = recording;
      const values = { nodes: formatNumber(run.nodes), span: formatSeconds(run.span, 1), megabytes: (recording.bytes / 1e6).toLocaleString(language, { maximumFractionDigits: 1 }) };
      this.facts.textContent = m("recordedFacts", { ...values, messages: formatNumber(seen.application! + seen.control!), control: formatNumber(seen.control!), marks: formatNumber(seen.marks!), faults: run.faults.length });
      return;
    }
    const { at } = run.tables.application;
    const text = m("liveFacts", { nodes: run.nodes, messages: formatNumber(at.length - lowerBound(at, run.span - 10)) });
    const missing = run instanceof LiveRun ? run.missing : 0;
    this.facts.textContent = missing ? `${text}. ${m("missing", { n: formatNumber(missing) })}` : text;
  }

  private omissions({ seen, omitted }: RecordingFacts): HTMLElement {
    const { run } = this;
    const kinds = ["control", "application", "marks"] as const;
    const notes = [m("omitReceivers")];
    for (const kind of kinds) {
      const stride = run.strides[kind]!;
      if (stride > 1) notes.push(m("omitThinned", { seen: formatNumber(seen[kind]!), what: m(`omit_${kind}`), stride, kept: formatNumber(run.tables[kind].at.length) }));
    }
    const complete = kinds.filter((kind) => run.strides[kind] === 1 && seen[kind]).map((kind) => m(`omit_${kind}`));
    if (complete.length) notes.push(m("omitComplete", { what: complete.join(", ") }));
    if (run.tables.kept.at.length) notes.push(m("omitReplicas"));
    if (omitted.replicas || omitted.life) notes.push(m("omitObjects", { n: formatNumber(run.objects.length) }));
    if (omitted.missing) notes.push(m("omitMissing", { n: formatNumber(omitted.missing) }));
    notes.push(m("omitCounts"));
    return h("section", {}, h("h2", {}, m("omissions")), h("ul", { class: "soft" }, ...notes.map((note) => h("li", {}, note))));
  }

  // Input

  private listen(): void {
    const options = { signal: this.listeners.signal };
    this.playButton.addEventListener("click", () => this.toggle());
    this.liveButton.addEventListener("click", () => this.goLive());
    this.speedSelect.addEventListener("change", () => this.setSpeed(Number(this.speedSelect.value)));
    this.slider.addEventListener("input", () => this.seek(this.run.from + (Number(this.slider.value) / 1e5) * (this.run.span - this.run.from)));
    this.tables.addEventListener("toggle", () => this.describe());
    document.addEventListener("keydown", (event) => this.onKey(event), options);
    addEventListener("hashchange", () => this.openAt(location.hash), options);
    addEventListener("beforeprint", () => this.print(true), options);
    addEventListener("afterprint", () => this.print(false), options);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.resize(), options);
    new ResizeObserver(() => this.closed || this.resize()).observe(this.net.parentElement!);
    this.listenToPointer();
  }

  private listenToPointer(): void {
    let dragged: { x: number; y: number; moved: boolean } | null = null;
    this.net.addEventListener("pointerdown", (event) => {
      dragged = { x: event.offsetX, y: event.offsetY, moved: false };
      this.net.setPointerCapture(event.pointerId);
    });
    this.net.addEventListener("pointermove", (event) => {
      const spot: [number, number] = [event.offsetX, event.offsetY];
      if (dragged && (dragged.moved || Math.hypot(spot[0] - dragged.x, spot[1] - dragged.y) > 4)) {
        const [x0, y0] = this.view.from([dragged.x, dragged.y]);
        const [x1, y1] = this.view.from(spot);
        const [cx, cy] = this.view.from([this.view.width / 2, this.view.height / 2]);
        this.centre = [cx + x0 - x1, cy + y0 - y1];
        dragged = { x: spot[0], y: spot[1], moved: true };
        this.setView();
      }
      this.tip.point(spot, this.spots, this.view, this.t);
    });
    this.net.addEventListener("pointerup", (event) => {
      if (dragged && !dragged.moved) this.chooseNode(this.tip.nearest([event.offsetX, event.offsetY], this.spots));
      dragged = null;
    });
    this.net.addEventListener("pointerleave", () => this.tip.point(null, this.spots, this.view, this.t));
    this.net.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.2 : 1 / 1.2);
    }, { passive: false });
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const target = event.target as HTMLElement;
    const plain = target === document.body || target === this.net || target === this.slider;
    if (event.key === " " ? ["BUTTON", "INPUT", "SELECT", "SUMMARY"].includes(target.tagName) && target !== this.slider : !plain) return;
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const pace = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (event.key === " ") this.toggle();
    else if (way && event.shiftKey) this.seek(this.t + (way * (this.run.span - this.run.from)) / 100);
    else if (way) this.stepBy(way);
    else if (pace && target !== document.body) this.setSpeed(SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, SPEEDS.indexOf(this.speed) + pace))]!);
    else if (event.key === "Home") this.seek(this.run.from);
    else if (event.key === "End") this.run.facts.live ? this.goLive() : this.seek(this.run.span);
    else if (event.key === "+" || event.key === "-" || event.key === "0") this.zoomBy(event.key === "+" ? 1.5 : event.key === "-" ? 1 / 1.5 : 0);
    else return;
    event.preventDefault();
  }

  private openAt(hash: string): void {
    const wanted = new URLSearchParams(hash.slice(1));
    const speed = Number(wanted.get("speed"));
    if (SPEEDS.includes(speed)) this.setSpeed(speed);
    const object = this.run.objects.indexOf(wanted.get("object") ?? "");
    if (object >= 0) {
      this.choices.object = object;
      this.panel.objectSelect.value = String(object);
      this.onChoice("object");
    }
    if (wanted.has("t")) this.seek(Number(wanted.get("t")) || 0);
  }

  private onChoice(what: "filter" | "object" | "node"): void {
    if (what === "object") {
      this.step = null;
      this.story.show(this.run, this.choices.object);
    }
    this.strip.draw();
    if (what === "filter") this.film?.draw();
    this.describe();
  }

  private chooseNode(node: number | null): void {
    this.choices.node = node;
    this.panel.nodeSelect.value = String(node ?? "");
    this.onChoice("node");
  }

  private showStep(step: Step): void {
    this.step = step;
    this.pause();
    this.seek(step.at + 0.001, true);
  }

  private print(on: boolean): void {
    document.documentElement.classList.toggle("printed", on);
    this.resize();
    this.draw();
  }

  // Time

  private setSpeed(speed: number): void {
    this.speed = speed;
    this.speedSelect.value = String(speed);
  }

  seek(t: number, keepStep = false): void {
    this.follow = false;
    if (!keepStep) this.step = null;
    this.t = Math.max(this.run.from, Math.min(this.run.span, t));
    this.words = 0;
  }

  goLive(): void {
    this.follow = true;
    this.playing = false;
    this.step = null;
  }

  pause(): void {
    this.playing = this.follow = false;
  }

  toggle(): void {
    const running = this.playing || this.follow;
    this.pause();
    if (running) return;
    this.step = null;
    this.playing = true;
    if (this.t >= this.run.span) this.t = this.run.from;
  }

  private frame(now: number): void {
    if (this.closed) return;
    if (this.follow) this.t = this.run.now();
    else if (this.playing && this.before !== null) {
      this.t += (Math.min(now - this.before, 100) / 1000) * this.speed;
      const end = this.run.facts.live ? this.run.now() : this.run.span;
      if (this.t >= end) this.run.facts.live ? this.goLive() : (this.pause(), (this.t = end));
    }
    this.before = now;
    this.draw();
    requestAnimationFrame((next) => this.frame(next));
  }

  /** Goes to the next or the previous instant with a chosen message, application event or fault. */
  stepBy(way: number): void {
    this.pause();
    const { run, choices } = this;
    const { application, control, marks } = run.tables;
    const found: number[] = [];
    for (const [at, what, shown] of [[application.at, application.kind, choices.kinds], [control.at, control.kind, choices.kinds], [marks.at, marks.what, choices.marks]] as const) {
      let row = way > 0 ? lowerBound(at, this.t + 5e-7) : lowerBound(at, this.t - 5e-7) - 1;
      while (row >= 0 && row < at.length && !shown[what[row]!]) row += way;
      if (row >= 0 && row < at.length) found.push(at[row]!);
    }
    for (const { at } of run.faults) if (way > 0 ? at > this.t + 5e-7 : at < this.t - 5e-7) found.push(at);
    if (found.length) this.seek(way > 0 ? Math.min(...found) : Math.max(...found));
  }

  // Drawing

  resize(): void {
    readTheme();
    const width = this.net.parentElement!.clientWidth - 2;
    const { wide, high } = viewOf(this.run, 100, 100, 0);
    const height = Math.max(240, Math.min((width * high) / wide + 40, innerHeight * 0.66));
    this.net.style.height = `${height + 2}px`;
    this.context = sharpen(this.net, width, height);
    this.setView(width, height);
    this.panel.drawKeys();
    this.strip.draw();
    this.film?.draw();
  }

  private setView(width = this.view.width, height = this.view.height): void {
    this.view = viewOf(this.run, width, height, 34, this.zoom, this.centre);
  }

  /** Zooms about the centre; 0 shows everything. */
  zoomBy(factor: number): void {
    this.zoom = factor ? Math.max(1, Math.min(ZOOM_MAX, this.zoom * factor)) : 1;
    if (this.zoom === 1) this.centre = null;
    this.setView();
  }

  private linksAt(t: number): [number, number][] {
    if (Math.abs(t - this.links.at) > 0.3) this.links = { at: t, links: this.run.links(t) };
    return this.links.links;
  }

  draw(): void {
    const { run, context, view, t, choices } = this;
    const { layers } = choices;
    const linger = lingers(LINGER_S, this.speed);
    const { windows, groups } = run.activeFaults(t);
    const spots = (this.spots = run.names.map((_, node) => view.at(run.position(node, t))));
    drawGrid(context, run, view, t, run.load && layers.load ? run.load.shares(t) : null);
    drawScale(context, view);
    if (layers.links || choices.node !== null) drawLinks(context, spots, layers.links ? this.linksAt(t) : this.linksAt(t).filter((link) => link.includes(choices.node!)), choices.node);
    const anyControl = run.kinds.some(({ control }, kind) => control && choices.kinds[kind]);
    const control = anyControl ? drawMessages(context, run, view, spots, t, run.tables.control, choices.filter, linger) : { drawn: 0, stride: 1 };
    if (layers.replicas) drawReplicas(context, run, view, spots, t, choices.object, lingers(REPLICA_S, this.speed));
    drawNodes(context, run, view, spots, t, groups, choices.node);
    if (layers.names && run.nodes <= NAMES_MAX * this.zoom) drawNames(context, run, spots);
    const other = drawMessages(context, run, view, spots, t, run.tables.application, choices.filter, linger);
    drawFaults(context, run, spots, t, lingers(MARK_S, this.speed));
    if (layers.marks) drawMarks(context, run, spots, t, choices.marks, lingers(MARK_S, this.speed));
    if (this.step) this.drawStep(this.step);
    this.frames++;
    const wall = performance.now();
    if (wall - this.words < WORDS_MS) return;
    this.words = wall;
    this.drawWords(control.drawn + other.drawn, other.stride * run.strides.application!, windows, groups !== null, linger);
  }

  /** The step of the story, drawn over everything else. */
  private drawStep({ node, to }: Step): void {
    const { context, spots } = this;
    const size = dotSize(this.run, this.view);
    context.strokeStyle = context.fillStyle = paint(28);
    if (to !== null) {
      context.lineWidth = 3;
      drawFlight(context, spots[node]!, spots[to]!, { done: 1, fade: 1, crowd: 1, size: size * 1.6, lost: false, mode: "greedy" });
    }
    context.globalAlpha = 1;
    context.lineWidth = 3;
    context.beginPath();
    context.arc(...spots[node]!, size + 8, 0, 7);
    context.stroke();
  }

  private drawWords(drawn: number, stride: number, windows: Fault[], parted: boolean, linger: number): void {
    const { run, t, choices } = this;
    const up = run.names.filter((_, node) => run.isUp(node, t)).length;
    const line = (text: string, kind = "") => h("span", { class: kind }, text);
    const percent = (share: number) => `${Math.round(share * 100)} %`;
    const faultText = (fault: Fault) => {
      const what = fault.type === "loss" ? m("faultLoss", { share: percent(fault.loss ?? 0) }) : fault.probability === undefined ? fault.type : `${fault.type} ${percent(fault.probability)}`;
      return fault.nodes ? m("faultAt", { what, n: fault.nodes.length }) : what;
    };
    this.now.replaceChildren(
      h("b", {}, run.facts.live ? new Date(run.facts.startUs / 1000 + t * 1000).toLocaleTimeString(language) : formatSeconds(t)),
      line(m("nodesOn", { up, nodes: run.nodes })),
      ...(choices.object === null ? [] : [line(m("replicasOf", { object: readableObject(run.objects[choices.object]!), n: run.replicas(choices.object, t).size }))]),
      ...windows.map((fault) => line(faultText(fault), "alarm")),
      ...(parted ? [line(m("partition"), "alarm")] : []),
    );
    const seen = m("seen", { n: drawn, span: formatSeconds(linger, 2) });
    this.seen.textContent = stride > 1 ? `${seen}; ${m("thinned", { n: stride })}` : seen;
    const running = this.playing || this.follow;
    this.playButton.textContent = running ? `❚❚ ${m("pause")}` : `▶ ${m("play")}`;
    this.liveButton.setAttribute("aria-pressed", String(this.follow));
    this.slider.value = String(Math.round(((t - run.from) / Math.max(run.span - run.from, 1e-6)) * 1e5));
    this.slider.setAttribute("aria-valuetext", formatSeconds(t));
    this.strip.cursor(t);
    this.tip.update(this.spots, this.view, t, choices.node);
  }

  /** What changes about once a second: counts, tables, and in a live run everything that grows. */
  tick(): void {
    if (this.run.facts.live) {
      this.panel.update();
      this.strip.draw();
      this.setView();
      this.describeRun();
      if (this.choices.object !== null && !this.step) this.story.show(this.run, this.choices.object);
    }
    if (this.playing || this.follow) this.describe();
  }

  private describe(): void {
    if (this.tables.open) this.tableBody.replaceChildren(...describeNetwork(this.run, this.t, this.choices.filter));
  }
}
