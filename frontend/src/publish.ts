/** Choosing photos and publishing them. */

import { button, h, icon, openDialog, toast } from "./dom.ts";
import { showError } from "./errors.ts";
import type { QueuedPhoto } from "./queue.ts";
import type { Session } from "./session.ts";
import { formatSize, t } from "./texts.ts";

/** Splits what people type into tags. */
export function splitTags(text: string): string[] {
  return [...new Set(text.split(/[\s,#]+/).map((word) => word.replace(/[&|!()]/g, "").toLowerCase()).filter(Boolean))];
}

const previews = new WeakMap<Blob, string>();

/** A link to the picture of a photo that is only in this browser. */
export function previewUrl(blob: Blob): string {
  let url = previews.get(blob);
  if (!url) previews.set(blob, (url = URL.createObjectURL(blob)));
  return url;
}

/** A small picture of a photo or video that is only in this browser; its name if it has none. */
export function preview(photo: QueuedPhoto): HTMLElement {
  const { type } = photo.blob;
  if (type.startsWith("image/") && !/hei[cf]|tiff|svg/.test(type)) {
    return h("img", { src: previewUrl(photo.blob), alt: photo.name, decoding: "async" });
  }
  if (type.startsWith("video/")) {
    return h("video", { src: `${previewUrl(photo.blob)}#t=0.1`, "aria-label": photo.name, preload: "metadata", playsinline: true, muted: true });
  }
  return h("span", { class: "no-picture" }, icon("file"), h("span", { class: "file-name" }, photo.name));
}

export function openPublish(session: Session, given: QueuedPhoto[], onDone: () => void): void {
  const { dialog, body, close } = openDialog(t("addPhotos"), t("close"), "publish");
  const chosen = new Map(given.map((photo) => [photo.id, photo]));
  const shown = h("div", { class: "previews", role: "list", "aria-label": t("private") });
  const status = h("p", { role: "status", class: "hint" });
  const tags = h("input", { id: "tags", type: "text", autocomplete: "off", autocapitalize: "none", "aria-describedby": "tags-hint" });
  const title = h("input", { id: "title", type: "text", maxlength: 500, "aria-describedby": "title-hint" });
  const keep = h("input", { id: "keep", type: "checkbox" });
  const name = h("input", { id: "own-name", type: "text", autocomplete: "nickname", maxlength: 80 });
  const suggestions = h("div", { class: "chips", role: "group", "aria-label": t("tags") });
  const go = button(t("publish"), () => void publish(), { icon: "check", kind: "primary" });

  const add = async (list: FileList | File[] | null | undefined) => {
    if (!list?.length) return;
    status.textContent = t("preparing");
    const files = [...list].filter((file) => {
      if (file.size <= session.me.upload_bytes_max) return true;
      toast(t("tooLarge", { name: file.name, max: formatSize(session.me.upload_bytes_max) }), "bad");
      return false;
    });
    for (const photo of await session.queue.add(session.world, files)) chosen.set(photo.id, photo);
    status.textContent = session.queue.persistent ? "" : t("storageOff");
    draw();
  };
  const camera = h("input", { type: "file", accept: "image/*", capture: "environment", hidden: true, onchange: (event: Event) => void add((event.target as HTMLInputElement).files) });
  const library = h("input", { type: "file", id: "files", multiple: true, hidden: true, onchange: (event: Event) => void add((event.target as HTMLInputElement).files) });

  async function publish(): Promise<void> {
    if (!chosen.size) return library.click();
    const details = { tags: splitTags(tags.value), title: title.value.trim(), keepLocation: keep.checked };
    if (name.value.trim()) await session.rename(name.value).catch(showError);
    close();
    await session.queue.publish([...chosen.keys()], details);
    onDone();
  }

  function draw(): void {
    shown.replaceChildren(
      ...[...chosen.values()].slice(0, 60).map((photo) =>
        h(
          "div",
          { class: "preview", role: "listitem" },
          preview(photo),
          button(`${t("remove")}: ${photo.name}`, () => {
            chosen.delete(photo.id);
            void session.queue.remove(photo.id);
            draw();
          }, { icon: "close", quiet: true, kind: "mini" }),
        ),
      ),
    );
    go.disabled = !chosen.size;
    go.querySelector("span")!.textContent = chosen.size > 1 ? t("publishAll", { n: chosen.size }) : t("publish");
  }

  const drop = h(
    "div",
    { class: "drop" },
    h("div", { class: "row" }, button(t("chooseFiles"), () => library.click(), { icon: "file", kind: "primary" }), button(t("takePhoto"), () => camera.click(), { icon: "camera" })),
    h("p", { class: "hint wide-only" }, t("dropHere")),
    library,
    camera,
  );
  dialog.addEventListener("dragover", (event) => event.preventDefault());
  dialog.addEventListener("drop", (event) => {
    event.preventDefault();
    void add(event.dataTransfer?.files);
  });
  dialog.addEventListener("paste", (event) => void add(event.clipboardData?.files));

  body.append(
    drop,
    status,
    shown,
    h("div", { class: "field" }, h("label", { for: "tags" }, t("tagsOptional")), tags, h("p", { id: "tags-hint", class: "hint" }, t("tagsHint")), suggestions),
    h("div", { class: "field" }, h("label", { for: "title" }, t("caption")), title, h("p", { id: "title-hint", class: "hint" }, t("captionHint"))),
    session.isNameless ? h("div", { class: "field" }, h("label", { for: "own-name" }, t("yourNameOnce")), name) : "",
    h("label", { class: "check", for: "keep" }, keep, h("span", {}, t("keepLocation"))),
    h("div", { class: "dialog-foot" }, go),
  );
  draw();
  void session.client.get<{ tag: string; count: number }[]>("tags").then((around) => {
    for (const { tag } of around.slice(0, 16)) {
      suggestions.append(
        h("button", { type: "button", class: "chip", onclick: () => (tags.value = [...new Set([...splitTags(tags.value), tag])].join(", ")) }, `#${tag}`),
      );
    }
  }, () => {}); // without suggestions one types
}
