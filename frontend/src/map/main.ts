/** Starts the map: with the recording inside the page, or with the events of live nodes. */

import { h } from "../dom.ts";
import { chosenLanguage, readSetting, useLanguage } from "../language.ts";
import { followNodes } from "./live.ts";
import { MapPage } from "./map_page.ts";
import { m } from "./map_texts.ts";
import { readRecording } from "./recorded.ts";

declare global {
  interface Window {
    /** The page, for tests and for the console. */
    thymeMap?: MapPage;
  }
}

const TICK_MS = 1_000;

function say(text: string): void {
  document.body.replaceChildren(h("main", {}, h("h1", {}, m("map")), h("p", { role: "status", class: "soft" }, text)));
}

function showState(connected: boolean): void {
  document.getElementById("lost")?.remove();
  if (!connected) document.body.prepend(h("p", { id: "lost", role: "alert" }, m("disconnected")));
}

async function start(): Promise<void> {
  const data = document.getElementById("data");
  if (data) {
    const { run, recording } = await readRecording(data.textContent!.trim());
    window.thymeMap = new MapPage(run, recording);
    return;
  }
  say(m("connecting"));
  followNodes(
    document.body.dataset.events! + location.search,
    (run) => {
      window.thymeMap?.close();
      window.thymeMap = new MapPage(run, null);
    },
    showState,
  );
}

useLanguage(chosenLanguage());
const theme = readSetting("theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
window.setInterval(() => window.thymeMap?.tick(), TICK_MS);
start().catch((error: unknown) => {
  say(m("unplayable", { why: error instanceof Error ? error.message : String(error) }));
  throw error;
});
