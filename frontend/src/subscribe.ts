/** Subscriptions: a formula by clicking or typing, and a time frame on a time line. */

import { button, h, openDialog } from "./dom.ts";
import { errorText, showError } from "./errors.ts";
import type { Session } from "./session.ts";
import { formatTime, t } from "./texts.ts";

interface Entry {
  id: string;
  query: string;
  start_us: number | null;
  end_us: number | null;
}

interface Timeline {
  first_us: number;
  last_us: number;
  counts: number[];
}

const STEPS = 200;

export function openSubscriptions(session: Session, onChange: () => void): void {
  const { body } = openDialog(t("subscriptions"), t("close"), "subscribe");
  const list = h("ul", { class: "entries" });
  const note = h("p", { class: "hint", role: "status", hidden: true }, t("stillEverything"));
  const formula = h("input", { id: "formula", type: "text", autocomplete: "off", autocapitalize: "none", spellcheck: "false", placeholder: t("formulaHint"), "aria-describedby": "explained" });
  const explained = h("p", { id: "explained", class: "hint", "aria-live": "polite" });
  const tags = h("div", { class: "chips", role: "group", "aria-label": t("tags") });
  const chosen = new Map<string, boolean>();
  const frame = new FrameChooser();
  const go = button(t("subscribe"), () => void subscribe(), { icon: "bell", kind: "primary", disabled: true });

  async function load(): Promise<void> {
    const entries = await session.client.get<Entry[]>("subscriptions");
    list.replaceChildren(
      ...entries.map((entry) =>
        h(
          "li",
          {},
          h("div", {}, h("strong", {}, entry.query === "gallery" ? t("everything") : entry.query), h("span", { class: "quiet" }, describeFrame(entry.start_us, entry.end_us))),
          button(`${t("remove")}: ${entry.query}`, () => {
            void session.client.send("DELETE", `subscriptions/${entry.id}`).then(load).then(onChange, showError);
          }, { icon: "trash", quiet: true, kind: "plain" }),
        ),
      ),
    );
    const everything = entries.some((entry) => entry.query === "gallery" && entry.start_us === null && entry.end_us === null);
    note.hidden = !everything || entries.length < 2;
  }

  async function subscribe(): Promise<void> {
    try {
      await session.client.send("POST", "subscriptions", { query: formula.value, ...frame.value() });
      formula.value = "";
      chosen.clear();
      drawTags();
      explained.textContent = "";
      go.disabled = true;
      await load();
      onChange();
    } catch (error) {
      showError(error);
    }
  }

  let timer = 0;
  function explain(): void {
    window.clearTimeout(timer);
    const query = formula.value.trim();
    go.disabled = true;
    if (!query) return void (explained.textContent = "");
    timer = window.setTimeout(async () => {
      try {
        const found = await session.client.get<{ canonical: string; matching: number; total: number }>(`explanation?query=${encodeURIComponent(query)}`);
        if (formula.value.trim() !== query) return;
        explained.className = "hint";
        explained.textContent = `${found.canonical} — ${t("matches", { n: found.matching, total: found.total })}`;
        go.disabled = false;
        frame.show(await session.client.get<Timeline>(`timeline?query=${encodeURIComponent(query)}`));
      } catch (error) {
        explained.className = "hint bad";
        explained.textContent = errorText(error);
      }
    }, 150);
  }
  formula.addEventListener("input", explain);
  formula.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !go.disabled) void subscribe();
  });

  function drawTags(): void {
    for (const chip of tags.querySelectorAll<HTMLButtonElement>(".chip")) {
      const state = chosen.get(chip.dataset.tag!);
      chip.setAttribute("aria-pressed", state === undefined ? "false" : state ? "true" : "mixed");
      chip.textContent = `${state === false ? "−" : state ? "+" : "#"}${chip.dataset.tag}`;
    }
  }
  function cycle(tag: string): void {
    const state = chosen.get(tag);
    if (state === undefined) chosen.set(tag, true);
    else if (state) chosen.set(tag, false);
    else chosen.delete(tag);
    formula.value = [...chosen].map(([word, wanted]) => (wanted ? word : `!${word}`)).join(" & ");
    drawTags();
    explain();
  }

  body.append(
    list,
    note,
    h("div", { class: "field" }, h("label", { for: "formula" }, t("formula")), formula, explained, h("p", { class: "hint" }, t("clickTags")), tags),
    frame.element,
    h("div", { class: "dialog-foot" }, go),
  );
  void load().catch(showError);
  void session.client.get<{ tag: string; count: number }[]>("tags").then((around) => {
    tags.append(...around.slice(0, 24).map(({ tag }) => h("button", { type: "button", class: "chip", "data-tag": tag, "aria-pressed": "false", onclick: () => cycle(tag) }, `#${tag}`)));
  }, showError);
  void session.client.get<Timeline>("timeline").then((timeline) => frame.show(timeline), showError);
}

function describeFrame(start: number | null, end: number | null): string {
  if (start === null && end === null) return t("allTime");
  return `${start === null ? t("anytime") : formatTime(start)} – ${end === null ? t("noEnd") : formatTime(end)}`;
}

/** Two handles on a time line of what was published; both ends may be open, and the end may lie ahead. */
class FrameChooser {
  readonly element: HTMLElement;
  private readonly bars = h("div", { class: "bars", "aria-hidden": "true" });
  private readonly from = h("input", { type: "range", min: 0, max: STEPS, value: "0", class: "from" });
  private readonly until = h("input", { type: "range", min: 0, max: STEPS, value: String(STEPS), class: "until" });
  private readonly text = h("p", { class: "hint", role: "status" });
  private first_us = 0;
  private ahead_us = 0;
  private start: number | null = null;
  private end: number | null = null;

  constructor() {
    this.from.setAttribute("aria-label", t("from"));
    this.until.setAttribute("aria-label", t("until"));
    this.from.addEventListener("input", () => this.read());
    this.until.addEventListener("input", () => this.read());
    const hour = 3_600_000_000;
    const preset = (label: string, start: () => number | null) =>
      h("button", { type: "button", class: "chip", onclick: () => this.set(start(), null) }, label);
    const midnight = () => new Date().setHours(0, 0, 0, 0) * 1000;
    this.element = h(
      "fieldset",
      { class: "frame" },
      h("legend", {}, t("timeFrame")),
      h("div", { class: "chips" }, preset(t("allTime"), () => null), preset(t("lastHour"), () => Date.now() * 1000 - hour), preset(t("today"), midnight), preset(t("fromNow"), () => Date.now() * 1000)),
      h("div", { class: "timeline" }, this.bars, this.from, this.until),
      this.text,
    );
    this.show({ first_us: 0, last_us: 0, counts: [] });
  }

  value(): { start_us: number | null; end_us: number | null } {
    return { start_us: this.start, end_us: this.end };
  }

  /** The line shows the past of the gallery and as much time again ahead, at least an hour. */
  show(timeline: Timeline): void {
    const now = Date.now() * 1000;
    this.first_us = Math.min(timeline.first_us || now, now - 3_600_000_000);
    this.ahead_us = now + Math.max(3_600_000_000, (now - this.first_us) / 3);
    const most = Math.max(1, ...timeline.counts);
    const share = (us: number) => ((us - this.first_us) / (this.ahead_us - this.first_us)) * 100;
    this.bars.replaceChildren(
      ...timeline.counts.map((count, index) => {
        const at = timeline.first_us + ((timeline.last_us - timeline.first_us) * index) / timeline.counts.length;
        const bar = h("span", {});
        bar.style.left = `${share(at)}%`;
        bar.style.width = `${Math.max(0.8, (share(timeline.last_us) - share(timeline.first_us)) / timeline.counts.length - 0.2)}%`;
        bar.style.height = count ? `${12 + (88 * count) / most}%` : "0";
        return bar;
      }),
      this.mark(share(now)),
    );
    this.set(this.start, this.end);
  }

  private mark(left: number): HTMLElement {
    const mark = h("i", { class: "now" }, t("now"));
    mark.style.left = `${left}%`;
    return mark;
  }

  private set(start: number | null, end: number | null): void {
    this.start = start;
    this.end = end;
    const step = (us: number) => Math.round(((us - this.first_us) / (this.ahead_us - this.first_us)) * STEPS);
    this.from.value = String(start === null ? 0 : step(start));
    this.until.value = String(end === null ? STEPS : step(end));
    this.draw();
  }

  private read(): void {
    const at = (step: number) => Math.round(this.first_us + ((this.ahead_us - this.first_us) * step) / STEPS);
    const from = Math.min(Number(this.from.value), Number(this.until.value) - 1);
    this.from.value = String(from);
    this.start = from <= 0 ? null : at(from);
    const until = Number(this.until.value);
    this.end = until >= STEPS ? null : at(until);
    this.draw();
  }

  private draw(): void {
    this.text.textContent = describeFrame(this.start, this.end);
    this.from.setAttribute("aria-valuetext", this.start === null ? t("anytime") : formatTime(this.start));
    this.until.setAttribute("aria-valuetext", this.end === null ? t("noEnd") : formatTime(this.end));
  }
}
