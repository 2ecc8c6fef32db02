/** Colours: known types of messages have the same colour on every page, others get the next free one. */

const HUES: Record<string, number> = {
  InsertObject: 212, Insert: 212, Notify: 28, Notified: 28, StartSubscription: 286, Subscribe: 286,
  StopSubscription: 262, Unsubscribe: 262, Done: 140, Finished: 140, Page: 48, OwnerPage: 48, More: 48,
  FetchPage: 70, FetchObject: 184, Retrieve: 184, ObjectData: 168, JoinRequest: 322, JoinReply: 338,
  Refused: 2, Failed: 2, DeleteObject: 234, Delete: 234, Receipt: 100, CaughtUp: 60, IndexObject: 212, HoldObject: 196,
  CellNotify: 28, CellNews: 28, CellPage: 48, AnnounceReplica: 120, FetchCellState: 322, CellState: 338,
};
const SPARE = [196, 304, 84, 16, 246, 120, 40, 350];
export const GROUPS = [212, 28, 140, 286, 48, 338];
const NAMES = ["paper", "stage", "ink", "soft", "line", "node", "off", "alarm", "good", "accent", "around", "station"] as const;

const assigned = new Map<string, number>();

export function hue(kind: string): number {
  const inner = kind.split("/").at(-1)!;
  const known = HUES[inner] ?? assigned.get(inner);
  if (known !== undefined) return known;
  const next = SPARE[assigned.size % SPARE.length]!;
  assigned.set(inner, next);
  return next;
}

export const theme = { dark: false } as Record<(typeof NAMES)[number], string> & { dark: boolean };

/** Reads the colours from the style sheet; a printed page is always light. */
export function readTheme(): void {
  const root = document.documentElement;
  const style = getComputedStyle(root);
  for (const name of NAMES) theme[name] = style.getPropertyValue(`--${name}`).trim();
  const wanted = root.dataset.theme;
  const dark = wanted === "dark" || (wanted !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  theme.dark = dark && !root.classList.contains("printed");
}

/** The colour of a hue; null is the one of routing control. */
export function paint(colour: number | null): string {
  return colour === null ? theme.soft : `hsl(${colour} ${theme.dark ? 85 : 75}% ${theme.dark ? 66 : 40}%)`;
}
