/** A poster to print: the code of the Wi-Fi network and the code of the gallery. */

import { request } from "./client.ts";
import { button, h } from "./dom.ts";
import { codeImage } from "./dialogs.ts";
import type { Me } from "./session.ts";
import { t } from "./texts.ts";

export async function showPoster(me: Me): Promise<void> {
  document.body.className = "poster";
  document.title = t("poster");
  const link = await request<{ url: string; svg: string }>("GET", "/api/invitation").catch((error: Error) => error);
  if (link instanceof Error) return document.body.replaceChildren(h("main", { class: "card" }, h("h1", {}, t("poster")), h("p", {}, link.message)));
  const name = h("input", { id: "ssid", type: "text", autocomplete: "off" });
  const password = h("input", { id: "password", type: "text", autocomplete: "off" });
  const wifi = h("section", { class: "poster-code", hidden: true });
  const scan = h("h2", {}, t("posterScanOnly"));

  let drawn = 0;
  async function draw(): Promise<void> {
    const number = ++drawn;
    wifi.hidden = !name.value;
    scan.textContent = t(name.value ? "posterScan" : "posterScanOnly");
    if (!name.value) return;
    const escape = (text: string) => text.replace(/([\\;,:"])/g, "\\$1");
    const text = password.value ? `WIFI:T:WPA;S:${escape(name.value)};P:${escape(password.value)};;` : `WIFI:T:nopass;S:${escape(name.value)};;`;
    const { svg } = await request<{ svg: string }>("POST", "/api/code", { text });
    if (number !== drawn) return;
    wifi.replaceChildren(h("h2", {}, t("posterWifi")), codeImage(svg, name.value), h("p", { class: "address" }, name.value));
  }
  name.addEventListener("input", () => void draw());
  password.addEventListener("input", () => void draw());

  document.body.replaceChildren(
    h(
      "main",
      {},
      h(
        "form",
        { class: "poster-form", onsubmit: (event: Event) => event.preventDefault() },
        h("div", { class: "field" }, h("label", { for: "ssid" }, t("wifiName")), name),
        h("div", { class: "field" }, h("label", { for: "password" }, t("wifiPassword")), password, h("p", { class: "hint" }, t("wifiNote"))),
        button(t("print"), () => window.print(), { kind: "primary" }),
      ),
      h(
        "article",
        { class: "poster-sheet" },
        h("h1", {}, t("posterTitle")),
        h("p", { class: "poster-world" }, me.galleries[0]!),
        h("div", { class: "poster-codes" }, wifi, h("section", { class: "poster-code" }, scan, codeImage(link.svg, link.url), h("p", { class: "address" }, link.url))),
      ),
    ),
  );
}
