/** The wall: the newest photos large on a big screen, with the code to scan in the corner. */

import { GalleryClient, type Photo, eventFeed, request } from "./client.ts";
import { h } from "./dom.ts";
import { codeImage } from "./dialogs.ts";
import { altOf, authorOf, kindOf } from "./photo_text.ts";
import type { Me } from "./session.ts";
import { t } from "./texts.ts";

const SHOWN_MAX = 24;
const LARGE_MS = 8_000;

export async function showWall(me: Me): Promise<void> {
  const asked = new URLSearchParams(location.search).get("gallery") ?? "";
  const client = new GalleryClient(me.galleries.includes(asked) ? asked : me.galleries[0]!);
  document.body.className = "wall";
  document.title = client.world;
  const large = h("div", { class: "wall-large" });
  const strip = h("div", { class: "wall-strip", role: "list", "aria-label": t("available") });
  const corner = h("div", { class: "wall-corner" });
  document.body.replaceChildren(h("main", {}, h("h1", { class: "wall-name" }, client.world), large, strip, corner));
  let photos: Photo[] = [];
  let shown = -1;
  let fresh: Photo[] = [];

  function draw(photo: Photo | undefined): void {
    if (!photo) return large.replaceChildren(h("p", {}, t("wallEmpty")));
    large.replaceChildren(h("figure", {}, kindOf(photo) === "video" ? video(photo) : image(photo), h("figcaption", {}, h("strong", {}, authorOf(photo)), photo.card.title ? ` ${photo.card.title}` : "")));
  }
  function image(photo: Photo): HTMLElement {
    const shown = h("img", { src: client.thumbnailUrl(photo.card.key), alt: altOf(photo) });
    const full = new Image();
    full.onload = () => (shown.src = full.src);
    full.src = client.objectUrl(photo.card.key);
    return shown;
  }
  function video(photo: Photo): HTMLElement {
    const shown = h("video", { src: client.objectUrl(photo.card.key), poster: client.thumbnailUrl(photo.card.key), "aria-label": altOf(photo), autoplay: true, loop: true, playsinline: true });
    shown.muted = true;
    return shown;
  }
  function drawStrip(): void {
    strip.replaceChildren(...photos.slice(0, SHOWN_MAX).map((photo) => h("img", { role: "listitem", src: client.thumbnailUrl(photo.card.key), alt: altOf(photo) })));
  }
  function step(): void {
    const next = fresh.shift() ?? photos[(shown = (shown + 1) % Math.max(1, photos.length))];
    draw(next);
  }
  async function load(): Promise<void> {
    photos = (await client.list("wall", { limit: 200 })).items.filter((photo) => photo.card.has_thumbnail);
    drawStrip();
  }

  await load();
  step();
  window.setInterval(step, LARGE_MS);
  eventFeed().listeners.add((event) => {
    if (event.kind === "reset" || event.kind === "gone") return void load().then(step, () => {});
    const photo = event.facts.item as Photo | undefined;
    if (event.kind !== "item" || event.facts.world !== client.world || !photo || photo.hidden) return;
    if (!photo.card.has_thumbnail || photos.some((one) => one.card.key === photo.card.key)) return;
    photos.unshift(photo);
    fresh.push(photo);
    drawStrip();
    if (fresh.length === 1) step();
  });
  const link = await request<{ url: string; svg: string }>("GET", "/api/invitation").catch(() => null);
  if (link) corner.append(codeImage(link.svg, link.url), h("p", {}, t("posterScanOnly")));
}
