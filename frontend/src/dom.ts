/** Small helpers for elements. Text is always text: nothing here parses HTML. */

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, unknown>;

/** Makes an element: `on…` are listeners, `class` and the rest are attributes or properties. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (name === "value" || name === "checked" || name === "hidden") (element as never as Attributes)[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child): child is Node | string => !!child || child === ""));
  return element;
}

const ICONS: Record<string, string> = {
  add: "M12 5v14M5 12h14",
  bell: "M6 16V11a6 6 0 1 1 12 0v5l2 2H4zM10 21h4",
  camera: "M4 8h3l2-3h6l2 3h3v11H4zM12 10a3.500 3.500 0 1 0 0 7 3.500 3.500 0 0 0 0-7",
  check: "M5 13l4 4L19 7",
  clock: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M12 7v5l3 2",
  close: "M6 6l12 12M18 6L6 18",
  code: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h2v2h-2zM18 18h2v2h-2zM18 14h2M14 20h2",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  eyeoff: "M3 3l18 18M10 6a9 9 0 0 1 11 6 12 12 0 0 1-3 4M6 8a12 12 0 0 0-3 4c2 4 5 6 9 6l3-.5",
  file: "M7 3h7l4 4v14H7zM14 3v4h4",
  left: "M15 5l-7 7 7 7",
  menu: "M4 7h16M4 12h16M4 17h16",
  nodes: "M6 7a2 2 0 1 0 0-.1M18 7a2 2 0 1 0 0-.1M12 18a2 2 0 1 0 0-.1M8 8l3 8M16 8l-3 8M8 6.500h8",
  people: "M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6M3 20c0-4 3-6 6-6s6 2 6 6M16 5a3 3 0 0 1 0 6M17 14c2.500 0 4 2 4 6",
  right: "M9 5l7 7-7 7",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  video: "M4 6h11v12H4zM15 10l5-3v10l-5-3",
  wall: "M3 5h18v12H3zM9 21h6M12 17v4",
  zip: "M6 3h12v18H6zM12 3v2M12 7v2M12 11v2M10 15h4v3h-4z",
};

/** A line drawing; it has no name for screen readers, its button has one. */
export function icon(name: string): SVGElement {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name] ?? "");
  svg.append(path);
  return svg;
}

/** A button with a drawing and a text; the text can be for screen readers only (`quiet`), or on wide
 * screens only (`named`). */
export function button(
  label: string,
  onclick: (event: Event) => void,
  options: { icon?: string; quiet?: boolean; named?: boolean; kind?: string; compact?: boolean; disabled?: boolean } = {},
): HTMLButtonElement {
  return h(
    "button",
    {
      type: "button",
      class: `button ${options.kind ?? ""} ${options.compact ? "compact" : ""}`.trim(),
      title: options.quiet || options.named ? label : undefined,
      "aria-label": options.quiet || options.named ? label : undefined,
      disabled: options.disabled,
      onclick,
    },
    options.icon ? icon(options.icon) : null,
    options.quiet ? null : h("span", {}, label),
  );
}

let openDialogs = 0;

/** Opens a modal dialog; Escape and its close button close it, and the focus returns. */
export function openDialog(title: string, closeLabel: string, className = ""): { dialog: HTMLDialogElement; body: HTMLElement; close: () => void } {
  const id = `dialog-${++openDialogs}`;
  const body = h("div", { class: "dialog-body" });
  const dialog = h("dialog", { class: `dialog ${className}`.trim(), "aria-labelledby": id });
  const close = () => dialog.close();
  dialog.append(
    h("header", { class: "dialog-head" }, h("h2", { id }, title), button(closeLabel, close, { icon: "close", quiet: true, kind: "plain" })),
    body,
  );
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return { dialog, body, close };
}

/** Tells something for a moment, also to screen readers. */
export function toast(text: string, kind = ""): void {
  let area = document.getElementById("toasts");
  if (!area) {
    area = h("div", { id: "toasts", role: "status", "aria-live": "polite" });
  }
  (document.querySelector("dialog[open]:last-of-type") ?? document.body).append(area);
  const message = h("p", { class: `toast ${kind}` }, text);
  area.append(message);
  window.setTimeout(() => message.remove(), 6_000);
}
