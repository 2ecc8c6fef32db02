/** The galleries of other devices: where the photos are as well, and where to go on when this one is gone. */

import { h } from "./dom.ts";
import { readSetting, writeSetting } from "./language.ts";
import type { Session } from "./session.ts";
import { t } from "./texts.ts";

/** A gallery of another device in the same world. */
export interface OtherGallery {
  node: string;
  name: string;
  url: string;
  /** A link by which this guest can come in there. */
  link: string;
  /** Whether its device is in reach of this one. */
  near: boolean;
}

const SAVED = "galleries";
const SAVED_MAX = 20;

/** Asks for the other galleries, and keeps them in this browser for when this one does not answer. */
export async function loadGalleries(session: Session): Promise<OtherGallery[]> {
  const found = await session.client.get<OtherGallery[]>("galleries");
  writeSetting(SAVED, JSON.stringify(found.slice(0, SAVED_MAX)));
  return found;
}

/** The other galleries as they were known last; this page needs nobody for it. */
export function savedGalleries(): OtherGallery[] {
  try {
    const saved: unknown = JSON.parse(readSetting(SAVED) ?? "[]");
    return Array.isArray(saved) ? saved.filter(isGallery) : [];
  } catch {
    return [];
  }
}

function isGallery(value: Partial<OtherGallery> | null): value is OtherGallery {
  const texts = [value?.node, value?.name, value?.url, value?.link];
  return texts.every((text) => typeof text === "string") && /^https?:\/\//.test(value!.link!);
}

export function galleryName(gallery: OtherGallery): string {
  return gallery.name || t("byDevice", { id: gallery.node.slice(0, 6) });
}

/** Links to other galleries, each with its address: people see where they go. */
export function galleryLinks(galleries: OtherGallery[]): HTMLElement {
  return h(
    "ul",
    { class: "galleries" },
    ...galleries.map((gallery) =>
      h(
        "li",
        {},
        h("a", { class: "button", href: gallery.link, rel: "noreferrer" }, galleryName(gallery)),
        h("span", { class: "quiet" }, gallery.url.replace(/^https?:\/\//, "")),
        gallery.near ? "" : h("span", { class: "quiet" }, t("notInReach")),
      ),
    ),
  );
}

/** What to do when this gallery does not answer: nothing if no other one is known. */
export function goOnElsewhere(): HTMLElement | "" {
  const galleries = savedGalleries();
  return galleries.length ? h("div", { class: "elsewhere" }, h("p", {}, t("elsewhere")), galleryLinks(galleries)) : "";
}
