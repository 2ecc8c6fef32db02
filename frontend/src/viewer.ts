/** One photo large, with what is known of it and what one can do with it. */

import type { Photo } from "./client.ts";
import { button, h, icon, openDialog, toast } from "./dom.ts";
import { showError } from "./errors.ts";
import { altOf, authorOf, kindOf, shownTags } from "./photo_text.ts";
import type { Session } from "./session.ts";
import { formatSize, formatTime, t } from "./texts.ts";

export interface ViewerActions {
  neighbour: (key: string, step: number) => Photo | null;
  find: (key: string) => Photo | null;
  onTag: (tag: string) => void;
  onAuthor: (photo: Photo) => void;
}

export function openViewer(session: Session, start: Photo, actions: ViewerActions): { update: (key: string) => void } {
  let photo = start;
  const { dialog, body, close } = openDialog("", t("close"), "viewer");
  const heading = dialog.querySelector("h2")!;

  const go = (step: number) => {
    const next = actions.neighbour(photo.card.key, step);
    if (next) {
      photo = next;
      draw();
    }
  };
  const attempt = async (action: () => Promise<unknown>) => {
    try {
      await action();
    } catch (error) {
      showError(error);
    }
  };

  dialog.addEventListener("keydown", (event) => {
    if (event.target instanceof HTMLVideoElement) return;
    if (event.key === "ArrowRight") go(1);
    else if (event.key === "ArrowLeft") go(-1);
  });
  let touchX = 0;
  body.addEventListener("touchstart", (event) => (touchX = event.touches[0]!.clientX), { passive: true });
  body.addEventListener(
    "touchend",
    (event) => {
      const moved = event.changedTouches[0]!.clientX - touchX;
      if (Math.abs(moved) > 60) go(moved < 0 ? 1 : -1);
    },
    { passive: true },
  );

  function picture(): HTMLElement {
    const client = session.client;
    const { key, width, height } = photo.card;
    const full = photo.here || photo.mark === "downloaded";
    if (full && kindOf(photo) === "video") {
      const poster = photo.card.has_thumbnail ? client.thumbnailUrl(key) : undefined;
      return h("video", { src: client.objectUrl(key), poster, controls: true, playsinline: true, preload: "metadata", "aria-label": altOf(photo) });
    }
    if (photo.card.has_thumbnail || (full && kindOf(photo) === "photo")) {
      const image = h("img", { alt: altOf(photo), src: client.thumbnailUrl(key) });
      if (width && height) {
        image.width = width;
        image.height = height;
      }
      if (full && kindOf(photo) === "photo") {
        const large = new Image();
        large.onload = () => (image.src = large.src);
        large.src = client.objectUrl(key);
      }
      return image;
    }
    return h("div", { class: "viewer-file" }, icon(kindOf(photo)), h("span", {}, photo.card.file_name || t(kindOf(photo))));
  }

  function choices(): HTMLElement {
    const client = session.client;
    const { key, size } = photo.card;
    const mark = photo.mark ?? "";
    const bar = h("div", { class: "actions" });
    const full = photo.here || mark === "downloaded";
    if (full) bar.append(h("a", { class: "button primary", href: client.objectUrl(key, true), download: "" }, icon("download"), h("span", {}, t("save"))));
    if (mark !== "downloaded" && !photo.mine) {
      const label = photo.here ? t("keep") : t("downloadSize", { size: formatSize(size ?? 0) });
      const download = button(label, () => {
        download.disabled = true;
        download.querySelector("span")!.textContent = t("downloading");
        void attempt(() => client.setMark([key], "downloaded").then(() => toast(t("downloaded")))).finally(() => {
          download.disabled = false;
          draw();
        });
      }, photo.here ? { icon: "check" } : { icon: "download", kind: "primary" });
      bar.append(download);
      if (photo.here) {
        // it is at this device already: nothing to wait for
      } else if (mark === "near") bar.append(h("p", { class: "hint" }, icon("clock"), t("waitingNear")));
      else bar.append(button(t("whenNear"), () => void attempt(() => client.setMark([key], "near")), { icon: "clock" }));
      if (mark === "discarded") bar.append(button(t("restore"), () => void attempt(() => client.setMark([key], "")), { icon: "check" }));
      else
        bar.append(button(t("discard"), () => {
          const next = actions.neighbour(key, 1);
          void attempt(() => client.setMark([key], "discarded"));
          if (next) {
            photo = next;
            draw();
          } else close();
        }, { icon: "close" }));
    }
    if (photo.mine || (session.may("host") && photo.here)) {
      bar.append(button(t("delete"), () => {
        if (window.confirm(t("deleteAsk"))) void attempt(() => client.delete(key).then(close));
      }, { icon: "trash", kind: "danger" }));
    }
    if (session.may("approve") && !photo.mine) {
      const hide = (what: string, hidden: boolean) => attempt(() => client.send("POST", "hidden", { what, hidden })).then(close);
      if (photo.hidden) bar.append(button(t("show"), () => void hide(key, false).then(() => hide(photo.card.owner, false)), { icon: "check" }));
      else {
        bar.append(button(t("hide"), () => void hide(key, true), { icon: "eyeoff" }));
        if (!photo.here) bar.append(button(t("hideNode"), () => void hide(photo.card.owner, true), { icon: "eyeoff" }));
      }
    }
    return bar;
  }

  function draw(): void {
    const { title, published_us, taken_us } = photo.card;
    heading.textContent = title || authorOf(photo);
    const tags = h("div", { class: "chips" });
    for (const tag of shownTags(photo)) {
      tags.append(h("button", { type: "button", class: "chip", onclick: () => (close(), actions.onTag(tag)) }, `#${tag}`));
    }
    const facts = h(
      "div",
      { class: "facts" },
      h("p", {}, h("strong", {}, authorOf(photo)), ` · ${t("publishedAt", { time: formatTime(published_us) })} · ${formatSize(photo.card.size ?? 0)}`),
      taken_us ? h("p", { class: "quiet" }, t("takenAt", { time: formatTime(taken_us) })) : null,
      photo.here ? null : h("p", { class: "quiet" }, t("claimed")),
    );
    facts.append(button(t("onlyTheirs"), () => (close(), actions.onAuthor(photo)), { icon: "people", kind: "plain" }));
    body.replaceChildren(
      h(
        "div",
        { class: "stage" },
        actions.neighbour(photo.card.key, -1) ? button(t("previous"), () => go(-1), { icon: "left", quiet: true, kind: "step" }) : h("span"),
        picture(),
        actions.neighbour(photo.card.key, 1) ? button(t("next"), () => go(1), { icon: "right", quiet: true, kind: "step" }) : h("span"),
      ),
      h("div", { class: "about" }, tags, facts, choices()),
    );
  }

  draw();
  return {
    update(key: string) {
      if (!dialog.open || key !== photo.card.key) return;
      const now = actions.find(key);
      if (now) {
        photo = now;
        draw();
      }
    },
  };
}
