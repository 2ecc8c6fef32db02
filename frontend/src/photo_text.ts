/** Words about a photo. */

import type { Photo } from "./client.ts";
import { formatAge, formatTime, t } from "./texts.ts";

export function authorOf(photo: Photo): string {
  return photo.card.by || t("byDevice", { id: photo.card.owner.slice(0, 6) });
}

export function kindOf(photo: Photo): "photo" | "video" | "file" {
  const type = photo.card.type ?? "";
  return type.startsWith("image/") ? "photo" : type.startsWith("video/") ? "video" : "file";
}

/** What is on a photo: its caption, else what it is. */
export function nameOf(photo: Photo): string {
  return photo.card.title || (kindOf(photo) === "file" && photo.card.file_name) || t(kindOf(photo));
}

/** The text instead of the picture: its name, who and when. */
export function altOf(photo: Photo): string {
  return `${nameOf(photo)}, ${t("by", { name: authorOf(photo) })}, ${formatTime(photo.card.published_us)}`;
}

export function shortLine(photo: Photo): string {
  return `${authorOf(photo)} · ${formatAge(photo.card.published_us)}`;
}

export function shownTags(photo: Photo): string[] {
  return photo.card.tags.filter((tag) => tag !== "gallery");
}
