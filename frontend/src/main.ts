/** Starts the page: finds out who is here, and shows the gallery, the wall, the poster or the door. */

import { GalleryError, eventFeed, request } from "./client.ts";
import { button, h } from "./dom.ts";
import { applyTheme } from "./dialogs.ts";
import { errorText, showError } from "./errors.ts";
import { goOnElsewhere } from "./galleries.ts";
import { GalleryPage } from "./gallery_page.ts";
import { showPoster } from "./poster.ts";
import { type Me, Session } from "./session.ts";
import { chosenLanguage, useLanguage } from "./language.ts";
import { t } from "./texts.ts";
import { showWall } from "./wall.ts";

function showDoor(message?: string): void {
  document.body.className = "door";
  document.body.replaceChildren(h("main", { class: "card" }, h("h1", {}, t("needCode")), message ? h("p", { class: "notice" }, message) : "", h("p", {}, t("needCodeText"))));
}

function askName(token: string): void {
  document.body.className = "door";
  const name = h("input", { id: "name", type: "text", autocomplete: "nickname", maxlength: 80, required: true });
  const enter = async (event: Event) => {
    event.preventDefault();
    try {
      await request("POST", "/api/join", { token, name: name.value });
      history.replaceState(null, "", "/");
      await start();
    } catch (error) {
      showError(error);
    }
  };
  document.body.replaceChildren(
    h(
      "main",
      { class: "card" },
      h("h1", {}, t("welcome", { name: "" }).trim()),
      h("form", { onsubmit: (event: Event) => void enter(event) }, h("div", { class: "field" }, h("label", { for: "name" }, t("welcomeText")), name), h("button", { type: "submit", class: "button primary" }, t("join"))),
      location.protocol === "http:" ? h("p", { class: "hint" }, t("plainHttp")) : "",
    ),
  );
  name.focus();
}

/** Comes in with a pass that another gallery signed. */
async function visit(pass: string): Promise<void> {
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await request("POST", "/api/visit", { pass });
  } catch (error) {
    return showDoor(errorText(error));
  }
  await start();
}

async function start(): Promise<void> {
  const token = location.pathname.startsWith("/j/") ? decodeURIComponent(location.pathname.slice(3)) : "";
  const pass = new URLSearchParams(location.hash.slice(1)).get("pass");
  let me: Me;
  try {
    me = await request<Me>("GET", "/api/me");
  } catch (error) {
    if (!(error instanceof GalleryError)) throw error;
    if (error.status !== 401) return showDoor(errorText(error));
    if (token) return askName(token);
    if (pass) return visit(pass);
    return showDoor(error.code === "session_expired" ? errorText(error) : undefined);
  }
  if (token && me.visitor) {
    await request("POST", "/api/join", { token, name: me.name });
    me = await request<Me>("GET", "/api/me");
  }
  if (token || pass) history.replaceState(null, "", "/");
  if (location.pathname === "/wall") return showWall(me);
  if (location.pathname === "/poster") return showPoster(me);
  const wanted = new URLSearchParams(location.search).get("gallery");
  const world = wanted && me.galleries.includes(wanted) ? wanted : me.galleries[0]!;
  document.title = world;
  new GalleryPage(new Session(me, eventFeed(), world)).start();
}

useLanguage(chosenLanguage());
applyTheme();
void start().catch((error: unknown) => {
  document.body.replaceChildren(h("main", { class: "card" }, h("p", {}, error instanceof TypeError ? t("noAnswer") : errorText(error)), button(t("retry"), () => location.reload(), { kind: "primary" }), goOnElsewhere()));
});
