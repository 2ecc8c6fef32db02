/** Dialogs around the photos: the code to scan, people, settings. */

import { type GalleryEvent, type PendingPhoto, request } from "./client.ts";
import { button, h, openDialog } from "./dom.ts";
import { errorText, showError } from "./errors.ts";
import type { Session } from "./session.ts";
import { pendingPicture } from "./tiles.ts";
import { LANGUAGES, chosenLanguage, readSetting, writeSetting } from "./language.ts";
import { type TextName, formatSize, t } from "./texts.ts";

interface Link {
  url: string;
  svg: string;
}

/** A code to scan as a picture. */
export function codeImage(svg: string, alt: string): HTMLImageElement {
  return h("img", { class: "code", alt, src: `data:image/svg+xml;utf8,${encodeURIComponent(svg)}` });
}

/** Draws the code to scan, if the gallery is served to guests. */
export async function showInvitation(place: HTMLElement): Promise<void> {
  const link = await request<Link>("GET", "/api/invitation").catch(() => null);
  if (link) place.replaceChildren(codeImage(link.svg, link.url), h("p", {}, t("inviteText")), h("p", { class: "address" }, link.url));
}

export async function openInvite(session: Session): Promise<void> {
  const { body } = openDialog(t("invite"), t("close"), "invite");
  const place = h("div", { class: "invitation" });
  const show = (link: Link, note = "") => {
    place.replaceChildren(
      codeImage(link.svg, link.url),
      h("p", {}, t("inviteText")),
      h("p", { class: "address" }, link.url),
      note ? h("p", { class: "hint" }, note) : "",
      link.url.startsWith("http:") ? h("p", { class: "hint" }, t("plainHttp")) : "",
    );
  };
  body.append(place);
  try {
    show(await request<Link>("GET", "/api/invitation"));
  } catch (error) {
    place.replaceChildren(h("p", {}, errorText(error)));
    return;
  }
  const row = h("div", { class: "row" });
  row.append(h("a", { class: "button", href: "/poster", target: "_blank" }, t("poster")), h("a", { class: "button", href: `/wall?gallery=${encodeURIComponent(session.world)}`, target: "_blank" }, t("wall")));
  if (session.may("host")) {
    row.append(
      button(t("newCode"), () => void request<Link>("POST", "/api/invitation").then((link) => show(link, t("newCodeNote")), showError)),
      button(t("inviteHelper"), () => void request<Link>("POST", "/api/invitations", { rights: "approve" }).then((link) => show(link, t("inviteHelperNote")), showError)),
    );
  }
  body.append(row);
}

interface GuestEntry {
  id: string;
  /** The device from whose gallery the guest came; null for guests of this one. */
  origin: string | null;
  name: string;
  rights: string;
  blocked: boolean;
  photos: number;
  bytes: number;
}

const RIGHT_TEXTS: Record<string, TextName> = { look: "mayLook", publish: "mayPublish", approve: "mayApprove", host: "isHost" };

export async function openPeople(session: Session): Promise<void> {
  const { dialog, body } = openDialog(t("people"), t("close"), "people");
  const waiting = h("div", { class: "pending" });
  const guests = h("ul", { class: "entries" });
  body.append(waiting, h("h3", {}, t("guests")), guests);

  async function loadPending(): Promise<void> {
    const found = await session.client.get<PendingPhoto[]>("pending");
    waiting.replaceChildren(
      found.length ? h("h3", {}, t("pending")) : "",
      ...found.map((photo) => {
        const decide = (method: string) => void session.client.send(method, `pending/${photo.id}`).then(loadPending, showError);
        return h(
          "div",
          { class: "pending-photo" },
          h("div", { class: "preview" }, pendingPicture(photo, session.client)),
          h("div", {}, h("strong", {}, photo.by), h("p", { class: "quiet" }, photo.title || photo.tags.map((tag) => `#${tag}`).join(" "))),
          h("div", { class: "row" }, button(t("approve"), () => decide("POST"), { icon: "check", kind: "primary" }), button(t("reject"), () => decide("DELETE"), { icon: "close" })),
        );
      }),
    );
  }

  async function loadGuests(): Promise<void> {
    const found = await request<GuestEntry[]>("GET", "/api/guests");
    guests.replaceChildren(
      ...found.map((guest) => {
        const change = (body: object) => void request("PATCH", `/api/guests/${guest.id}`, body).then(loadGuests, showError);
        const line = h(
          "li",
          {},
          h("div", {}, h("strong", {}, guest.name), h("span", { class: "quiet" }, `${t(RIGHT_TEXTS[guest.rights]!)}${guest.blocked ? `, ${t("blocked")}` : ""} · ${t("photosOf", { n: guest.photos, size: formatSize(guest.bytes) })}${guest.origin === null ? "" : ` · ${t("cameFrom", { id: guest.origin.slice(0, 6) })}`}`)),
        );
        if (session.may("host") && guest.rights !== "host") {
          const rights = h("select", { "aria-label": guest.name, onchange: (event: Event) => change({ rights: (event.target as HTMLSelectElement).value }) });
          for (const right of ["look", "publish", "approve"]) rights.append(h("option", { value: right, selected: right === guest.rights }, t(RIGHT_TEXTS[right]!)));
          line.append(h("div", { class: "row" }, rights, button(t(guest.blocked ? "unblock" : "block"), () => change({ blocked: !guest.blocked }), { kind: guest.blocked ? "" : "danger" })));
        }
        return line;
      }),
    );
  }
  const listener = ({ kind }: GalleryEvent) => {
    if (kind === "approval") void loadPending().catch(showError);
  };
  session.feed.listeners.add(listener);
  dialog.addEventListener("close", () => session.feed.listeners.delete(listener));
  await Promise.all([loadPending(), loadGuests()]).catch(showError);
}

export function applyTheme(): void {
  const theme = readSetting("theme");
  document.documentElement.dataset.theme = theme === "light" || theme === "dark" ? theme : "system";
}

export function openMenu(session: Session, onChange: () => void): void {
  const { body, close } = openDialog(t("menu"), t("close"), "menu");
  const name = h("input", { id: "my-name", type: "text", maxlength: 80, value: session.me.name });
  body.append(
    h("div", { class: "field" }, h("label", { for: "my-name" }, t("yourName")), h("div", { class: "row" }, name, button(t("rename"), () => void session.rename(name.value).then(() => (close(), onChange()), showError)))),
    h("div", { class: "field" }, h("label", { for: "theme" }, t("theme")), themeSelect()),
    h("div", { class: "field" }, h("label", { for: "language" }, t("language")), languageSelect()),
  );
  const row = h("div", { class: "row" }, h("a", { class: "button", href: `/wall?gallery=${encodeURIComponent(session.world)}`, target: "_blank" }, t("wall")));
  if (!session.me.local) row.append(button(t("leave"), () => void request("DELETE", "/api/me").then(() => location.replace("/"), showError)));
  body.append(row);
  if (!session.me.encrypted && !session.me.local) body.append(h("p", { class: "hint" }, t("plainHttp")));
}

function themeSelect(): HTMLSelectElement {
  const select = h("select", { id: "theme", onchange: () => (writeSetting("theme", select.value), applyTheme()) });
  for (const [value, text] of [["system", "themeSystem"], ["light", "themeLight"], ["dark", "themeDark"]] as const) {
    select.append(h("option", { value, selected: (readSetting("theme") ?? "system") === value }, t(text)));
  }
  return select;
}

function languageSelect(): HTMLSelectElement {
  const select = h("select", { id: "language", onchange: () => (writeSetting("language", select.value), location.reload()) });
  for (const [value, text] of Object.entries(LANGUAGES)) select.append(h("option", { value, selected: chosenLanguage() === value, lang: value }, text));
  return select;
}
