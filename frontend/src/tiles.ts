/** Tiles of the grid: photos of the gallery, and those that are only in this browser. */

import type { GalleryClient, PendingPhoto, Photo } from "./client.ts";
import { h, icon } from "./dom.ts";
import { messageOf } from "./errors.ts";
import { kindOf, nameOf, shortLine, shownTags } from "./photo_text.ts";
import { preview } from "./publish.ts";
import type { QueuedPhoto } from "./queue.ts";
import { type TextName, t } from "./texts.ts";

export interface TileChoice {
  /** Whether tiles are being selected, and this one is. */
  selecting: boolean;
  selected: boolean;
  onclick: () => void;
}

const STATES: Record<string, TextName> = { draft: "draft", waiting: "waiting", paused: "waiting", sending: "uploading", processing: "processing", failed: "failed" };

function tile(choice: TileChoice, kind: string, ...content: (Node | null)[]): HTMLElement {
  const { selecting, selected } = choice;
  return h(
    "div",
    { class: `tile${kind}${selected ? " selected" : ""}` },
    h(
      "button",
      { type: "button", class: "tile-button", "aria-pressed": selecting ? String(selected) : undefined, onclick: choice.onclick },
      ...content,
      selecting ? h("span", { class: "tile-check" }, selected ? icon("check") : null) : null,
    ),
  );
}

/** A photo as it was notified: thumbnail, tags, who published it, and how long ago. */
export function photoTile(photo: Photo, client: GalleryClient, choice: TileChoice): HTMLElement {
  const { card } = photo;
  const kind = kindOf(photo);
  const mark = photo.mark === "near" ? "clock" : photo.mark === "downloaded" ? "check" : kind === "video" ? "video" : "";
  const tags = shownTags(photo).map((tag) => `#${tag}`).join(" ");
  return tile(
    choice,
    "",
    card.has_thumbnail
      ? h("img", { "data-src": client.thumbnailUrl(card.key), alt: nameOf(photo), decoding: "async", draggable: "false" })
      : h("span", { class: "no-picture" }, icon(kind), h("span", { class: "file-name" }, card.title || card.file_name || t(kind))),
    h("span", { class: "tile-line" }, h("span", { class: "tile-who" }, shortLine(photo)), tags ? h("span", { class: "tile-tags" }, tags) : null),
    mark ? h("span", { class: "tile-mark" }, icon(mark)) : null,
  );
}

/** The thumbnail of a photo that waits for approval; its name if it has none. */
export function pendingPicture(photo: PendingPhoto, client: GalleryClient): HTMLElement {
  if (photo.has_thumbnail) return h("img", { src: client.pendingUrl(photo.id), alt: photo.title || t("photo"), decoding: "async" });
  return h("span", { class: "no-picture" }, icon("file"), h("span", { class: "file-name" }, photo.title || photo.file_name || t("file")));
}

/** A photo of this guest that others see once it is approved. */
export function pendingTile(photo: PendingPhoto, client: GalleryClient, choice: TileChoice): HTMLElement {
  return tile(choice, " queued", pendingPicture(photo, client), h("span", { class: "tile-line" }, t("pending")), h("span", { class: "tile-mark" }, icon("clock")));
}

/** A photo that is only in this browser, and how far its upload is. */
export function queuedTile(photo: QueuedPhoto, choice: TileChoice): HTMLElement {
  const failed = photo.state === "failed";
  const state = t(STATES[photo.state] ?? "waiting");
  const share = photo.blob.size ? Math.round((photo.sent / photo.blob.size) * 100) : 0;
  const line = photo.state === "sending" ? `${state} ${share} %` : failed && photo.message ? messageOf(photo.code, photo.message) : state;
  return tile(choice, " queued", preview(photo), h("span", { class: `tile-line${failed ? " bad" : ""}` }, line));
}
