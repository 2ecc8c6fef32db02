/** The dialog about devices: neighbours, other galleries, what is stored for whom, and how much space. */

import type { GalleryEvent } from "./client.ts";
import { h, openDialog } from "./dom.ts";
import { showError } from "./errors.ts";
import { type OtherGallery, galleryLinks, loadGalleries } from "./galleries.ts";
import type { Session } from "./session.ts";
import { formatSize, t } from "./texts.ts";

interface Status {
  connected: boolean;
  node: string | null;
  photos: number;
  own: number;
  publishers: Record<string, number>;
  neighbours: string[];
  station: string | null;
  substrate: string | null;
  closed: boolean;
  storage: { objects: number; metadata: number; file_bytes: number; durable: boolean; full: boolean } | null;
  hint: string | null;
  /** What is stored here for each other device. */
  kept: Record<string, { photos: number; bytes: number }>;
}

const FOLLOWED = ["status", "galleries", "item", "gone"];
/** Many events make one drawing. */
const PAUSE_MS = 300;

/** Opens the dialog; it follows what changes while it is open. */
export async function openAround(session: Session): Promise<void> {
  const { dialog, body } = openDialog(t("around"), t("close"), "around");
  const place = h("div");
  body.append(h("p", {}, t("aroundText")), place);
  if (session.may("host")) body.append(h("a", { class: "button", href: `/map?gallery=${encodeURIComponent(session.world)}`, target: "_blank" }, t("map")));
  let drawn = "";
  const draw = async () => {
    const [status, others] = await Promise.all([session.client.get<Status>("status"), loadGalleries(session), session.reload()]);
    const facts = JSON.stringify([status, others, session.me]);
    if (facts !== drawn) place.replaceChildren(...notices(status), factsOf(session, status, others));
    drawn = facts;
  };
  let timer = 0;
  const follow = (event: GalleryEvent) => {
    if (!FOLLOWED.includes(event.kind) || timer) return;
    timer = window.setTimeout(() => {
      timer = 0;
      void draw().catch(() => {}); // the page says when it is cut off
    }, PAUSE_MS);
  };
  session.feed.listeners.add(follow);
  dialog.addEventListener("close", () => {
    session.feed.listeners.delete(follow);
    window.clearTimeout(timer);
  });
  await draw().catch(showError);
}

function notices(status: Status): HTMLElement[] {
  const texts = [status.connected ? "" : t("nodeAway"), status.hint ?? "", status.storage?.full ? t("diskFull") : ""];
  return texts.filter(Boolean).map((text) => h("p", { class: "notice" }, text));
}

function factsOf(session: Session, status: Status, others: OtherGallery[]): HTMLElement {
  const short = (id: string) => (id === status.node ? t("thisDevice") : t("byDevice", { id: id.slice(0, 6) }));
  const facts = h("dl", { class: "facts-list" });
  const fact = (name: string, ...value: (Node | string)[]) => facts.append(h("dt", {}, name), h("dd", {}, ...value));
  fact(t("neighbours"), status.neighbours.length ? h("ul", { class: "devices" }, ...status.neighbours.map((id) => h("li", { class: "device" }, short(id)))) : t("noNeighbours"));
  fact(t("otherGalleries"), others.length ? galleryLinks(others) : t("noOtherGalleries"));
  if (status.station) fact(t("around"), t("station"));
  fact(
    t("publishers"),
    h("ul", { class: "devices" }, ...Object.entries(status.publishers).map(([id, count]) => h("li", { class: status.neighbours.includes(id) || id === status.node ? "device" : "device away" }, `${short(id)}: ${count}`))),
  );
  if (status.storage) {
    const { file_bytes, durable } = status.storage;
    const kept = Object.entries(status.kept);
    fact(
      t("stored"),
      t("storedOwn", { n: status.own }),
      kept.length ? h("ul", { class: "devices" }, ...kept.map(([id, { photos, bytes }]) => h("li", { class: "device" }, t("keptFor", { device: short(id), n: photos, size: formatSize(bytes) })))) : "",
    );
    fact(t("space"), durable ? formatSize(file_bytes) : t("inMemory"));
  }
  fact(t("substrate"), `${t(status.closed ? "closedWorld" : "openWorld")} (${(status.substrate ?? "").toUpperCase()})`);
  const { photos, bytes, photos_max, bytes_max } = session.me;
  if (photos_max !== null && bytes_max !== null) fact(t("used"), t("quota", { photos, photosMax: photos_max, bytes: formatSize(bytes), bytesMax: formatSize(bytes_max) }));
  return facts;
}
