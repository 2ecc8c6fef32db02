/** The life of an object as steps: from its insert over messages and replicas to its retrieves. */

import { h } from "../dom.ts";
import { type MapText, formatSeconds, m } from "./map_texts.ts";
import { ROLES, type Run, readableObject } from "./run.ts";

const STEPS_MAX = 400;
const ASKED = 0;
const TOLD = 1;

export interface Step {
  at: number;
  node: number;
  /** The receiver of a message; null for everything else. */
  to: number | null;
  text: string;
}

export function stepsOf(run: Run, object: number): Step[] {
  const { life, kept } = run.tables;
  const name = (node: number) => run.names[node]!;
  const steps: Step[] = [];
  const asks = new Set<string>();
  for (let row = 0; row < life.at.length; row++) {
    if (life.object[row] !== object) continue;
    const at = life.at[row]!;
    const node = life.node[row]!;
    const what = run.lifeWords[life.what[row]!]!;
    if (life.type[row] === ASKED) {
      asks.add(`${node} ${what}`);
      steps.push({ at, node, to: null, text: m("asked", { node: name(node), what }) });
    } else if (life.type[row] === TOLD) {
      const took = life.took[row]!;
      const request = what.split(" ")[1];
      if (request && took && !asks.has(`${node} ${request}`)) steps.push({ at: Math.max(0, at - took - 1e-6), node, to: null, text: m("asked", { node: name(node), what: request }) });
      steps.push({ at, node, to: null, text: took ? m("toldAfter", { node: name(node), what, ms: (took * 1000).toFixed(1) }) : m("told", { node: name(node), what }) });
    } else {
      const to = life.to[row] ? life.to[row]! - 1 : null;
      const text = to === null ? m("sentAll", { what, node: name(node) }) : m("sentTo", { what, node: name(node), to: name(to) });
      steps.push({ at, node, to, text: life.around[row] ? `${text}, ${m("way_perimeter")}` : text });
    }
  }
  for (const row of run.replicaRows(object)) {
    const node = kept.node[row]!;
    const role = ROLES[kept.role[row]!];
    const text = role ? m("stored", { node: name(node), role: m(`role_${role}` as MapText) }) : m("removed", { node: name(node) });
    steps.push({ at: kept.at[row]!, node, to: null, text });
  }
  return steps.sort((a, b) => a.at - b.at);
}

/** The panel with the steps of the chosen object. */
export class StoryPanel {
  readonly element = h("section", { class: "story", "aria-labelledby": "story-title", hidden: true });
  steps: Step[] = [];
  current = -1;
  private readonly list = h("ol", { class: "steps" });
  private readonly state = h("p", { class: "soft", role: "status" });
  private total = 0;

  constructor(private readonly onStep: (step: Step) => void) {}

  /** Shows the life of an object; null shows nothing. */
  show(run: Run, object: number | null): void {
    this.element.hidden = object === null;
    this.current = -1;
    this.steps = object === null ? [] : stepsOf(run, object);
    this.total = this.steps.length;
    this.steps = this.steps.slice(0, STEPS_MAX);
    if (object === null) return;
    const press = (text: MapText, act: () => void) => h("button", { type: "button", onclick: act }, m(text));
    this.list.replaceChildren(...this.steps.map((step, number) => h("li", {}, h("button", { type: "button", onclick: () => this.go(number) }, h("span", { class: "soft" }, formatSeconds(step.at)), ` ${step.text}`))));
    this.element.replaceChildren(
      h("h2", { id: "story-title" }, m("story", { object: readableObject(run.objects[object]!) })),
      this.steps.length
        ? h("div", { class: "controls" }, press("toStart", () => this.go(0)), press("previous", () => this.go(this.current - 1)), press("next", () => this.go(this.current + 1)))
        : h("p", { class: "soft" }, m("storyNone")),
      this.state,
      this.list,
      this.total > STEPS_MAX ? h("p", { class: "soft" }, m("storyCut", { n: STEPS_MAX })) : "",
    );
    this.state.textContent = "";
  }

  go(number: number): void {
    const step = this.steps[Math.max(0, Math.min(this.steps.length - 1, number))];
    if (!step) return;
    this.list.children[this.current]?.firstElementChild?.removeAttribute("aria-current");
    this.current = this.steps.indexOf(step);
    const chosen = this.list.children[this.current]!.firstElementChild as HTMLElement;
    chosen.setAttribute("aria-current", "step");
    this.list.scrollTop = chosen.offsetTop - this.list.offsetTop - this.list.clientHeight / 2;
    this.state.textContent = `${m("storyStep", { n: this.current + 1, total: this.steps.length })}: ${step.text}`;
    this.onStep(step);
  }
}
