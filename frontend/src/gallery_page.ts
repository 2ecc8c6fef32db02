/** The gallery: four views, a grid of photos, uploads at the foot of the page. */

import type { GalleryEvent, PendingPhoto, Photo } from "./client.ts";
import { button, h, toast } from "./dom.ts";
import { openAround } from "./devices.ts";
import { openInvite, openMenu, openPeople, showInvitation } from "./dialogs.ts";
import { messageOf, showError } from "./errors.ts";
import { goOnElsewhere, loadGalleries } from "./galleries.ts";
import { Grid } from "./grid.ts";
import { authorOf, kindOf, shortLine } from "./photo_text.ts";
import { openPublish } from "./publish.ts";
import type { QueuedPhoto } from "./queue.ts";
import { PhotoList, type Session, type View, photoOf } from "./session.ts";
import { openSubscriptions } from "./subscribe.ts";
import { type TextName, formatTime, t } from "./texts.ts";
import { pendingTile, photoTile, queuedTile } from "./tiles.ts";
import { openViewer } from "./viewer.ts";

const VIEWS: [View, TextName][] = [
  ["available", "available"],
  ["downloads", "downloads"],
  ["publications", "publications"],
  ["private", "private"],
  ["hidden", "hiddenView"],
];
const EMPTY: Record<View, [TextName, TextName]> = {
  available: ["emptyAvailable", "emptyAvailableText"],
  downloads: ["emptyDownloads", "emptyDownloadsText"],
  publications: ["emptyPublications", "emptyPublicationsText"],
  private: ["emptyPrivate", "emptyPrivateText"],
  hidden: ["emptyHidden", "emptyHiddenText"],
};

/** Links to other galleries are renewed so often: their passes last a day. */
const GALLERIES_MS = 600_000;

const failureOf = (photo: QueuedPhoto) => messageOf(photo.code, photo.message ?? t("failed"));

interface TileItem {
  key: string;
  photo?: Photo;
  queued?: QueuedPhoto;
  pending?: PendingPhoto;
}

export class GalleryPage {
  private view: View = "available";
  private filter: { query?: string; by?: string } = {};
  private list: PhotoList;
  private pending: PendingPhoto[] = [];
  private readonly grid: Grid<TileItem>;
  private readonly tabs = h("nav", { class: "tabs" });
  private readonly notice = h("div", { class: "notice", role: "status", hidden: true });
  private readonly filterBar = h("div", { class: "filter-bar", hidden: true });
  private readonly selectBar = h("div", { class: "select-bar", hidden: true, role: "toolbar" });
  private readonly empty = h("div", { class: "empty", hidden: true });
  private readonly uploads = h("div", { class: "uploads", hidden: true, role: "status" });
  private readonly selection: Set<string> = new Set();
  private selecting = false;
  private unseen = 0;
  private sentInAll = 0;
  private viewer: { update: (key: string) => void } | null = null;
  private redraw = 0;

  constructor(private readonly session: Session) {
    this.list = new PhotoList(session.client, this.view);
    this.grid = new Grid({ label: t("available"), tile: (item) => this.tile(item), onEnd: () => void this.loadOlder() });
  }

  start(): void {
    document.body.className = "gallery";
    document.body.replaceChildren(
      h("a", { class: "skip", href: "#photos" }, t("available")),
      this.header(),
      h("main", { id: "photos", tabindex: "-1" }, this.notice, this.visitorHint(), this.filterBar, this.selectBar, this.empty, this.grid.element),
      this.uploads,
    );
    this.session.queue.onChange = (photo) => this.onQueue(photo);
    this.session.feed.listeners.add((event) => this.onEvent(event));
    let lost = 0;
    this.session.feed.onState = (connected) => {
      if (connected && lost) toast(t("back"));
      if (!connected && !lost) lost = Date.now();
      if (connected) lost = 0;
      if (connected) this.notify("");
      else this.notify(t("cutOff", { time: formatTime(lost * 1000) }), goOnElsewhere());
    };
    void this.session.queue.open().then(() => this.drawUploads());
    window.addEventListener("dragover", (event) => event.preventDefault());
    window.addEventListener("drop", (event) => {
      event.preventDefault();
      if (document.querySelector("dialog[open]") || !this.session.may("publish")) return;
      const files = [...(event.dataTransfer?.files ?? [])];
      if (files.length) void this.session.queue.add(this.session.world, files).then((added) => this.publish(added));
    });
    window.setInterval(() => this.updateAges(), 30_000);
    window.setInterval(() => this.learnGalleries(), GALLERIES_MS);
    this.open("available");
    this.checkNode();
    this.learnGalleries();
  }

  private visitorHint(): HTMLElement | "" {
    return this.session.me.visitor && !this.session.may("publish") ? h("p", { class: "hint visitor" }, t("visitorLooks")) : "";
  }

  /** Says above the photos what is wrong; an empty text when nothing is. */
  private notify(text: string, more: HTMLElement | "" = ""): void {
    this.notice.hidden = !text;
    this.notice.replaceChildren(h("p", {}, text), more);
  }

  /** Remembers where else the gallery is, while there is somebody to ask. */
  private learnGalleries(): void {
    void loadGalleries(this.session).catch(() => {});
  }

  private header(): HTMLElement {
    const { session } = this;
    const name = h("h1", { class: "world" }, session.me.galleries.length > 1 ? this.worldSelect() : session.world);
    const tools = h("div", { class: "tools" });
    if (session.may("publish")) tools.append(button(t("addPhotos"), () => this.publish([]), { icon: "add", kind: "primary add" }));
    tools.append(
      button(t("subscriptions"), () => openSubscriptions(session, () => this.reload()), { icon: "bell", named: true, kind: "plain tool" }),
      button(t("invite"), () => void openInvite(session), { icon: "code", named: true, kind: "plain tool" }),
      button(t("around"), () => void openAround(session), { icon: "nodes", named: true, kind: "plain tool" }),
    );
    if (session.may("approve")) tools.append(button(t("people"), () => void openPeople(session), { icon: "people", named: true, kind: "plain tool people-button" }));
    tools.append(
      button(t("menu"), () => openMenu(session, () => this.start()), { icon: "menu", named: true, kind: "plain tool" }),
    );
    return h("header", { class: "top" }, h("div", { class: "bar" }, name, tools), this.tabs);
  }

  private worldSelect(): HTMLSelectElement {
    const { me, world } = this.session;
    const select = h("select", { "aria-label": t("galleries"), onchange: () => this.switchTo(select.value) });
    for (const name of me.galleries) select.append(h("option", { value: name, selected: name === world }, name));
    return select;
  }

  private switchTo(world: string): void {
    this.session.switchTo(world);
    history.replaceState(null, "", `/?gallery=${encodeURIComponent(world)}`);
    this.filter = {};
    this.open("available");
  }

  private drawTabs(): void {
    const rows = VIEWS.filter(([view]) => view !== "hidden" || this.view === "hidden" || this.session.may("look"));
    this.tabs.setAttribute("aria-label", t("views"));
    this.tabs.replaceChildren(
      ...rows.map(([view, text]) => {
        const current = view === this.view;
        const count = view === "private" ? this.session.queue.photos.size : 0;
        const badge = view === "available" && this.unseen && !current ? this.unseen : count;
        return h(
          "button",
          { type: "button", class: "tab", "aria-current": current ? "page" : undefined, onclick: () => this.open(view) },
          t(text),
          badge ? h("span", { class: "badge" }, String(badge)) : null,
        );
      }),
      h("span", { class: "spring" }),
      h("button", { type: "button", class: "tab select", "aria-pressed": String(this.selecting), onclick: () => this.setSelecting(!this.selecting) }, t("select")),
    );
  }

  private open(view: View): void {
    this.view = view;
    if (view === "available") this.unseen = 0;
    this.setSelecting(false);
    this.list = new PhotoList(this.session.client, view, this.filter);
    window.scrollTo(0, 0);
    this.grid.element.setAttribute("aria-label", t(VIEWS.find(([name]) => name === view)![1]));
    this.reload();
  }

  private reload(): void {
    this.drawTabs();
    this.drawFilter();
    if (this.session.may("publish")) this.loadPending();
    if (this.view === "private") return this.draw();
    const list = this.list;
    void list.load(() => list === this.list && this.draw()).catch(showError);
  }

  private async loadOlder(): Promise<void> {
    const list = this.list;
    if (!list.next || this.view === "private") return;
    this.grid.setBusy(true);
    await list.more(() => list === this.list && this.draw()).catch(showError);
    this.grid.setBusy(this.list.busy);
  }

  private items(): TileItem[] {
    const { queue, world } = this.session;
    const queued = [...queue.photos.values()]
      .filter((photo) => photo.world === world && (this.view === "private" || photo.state !== "draft"))
      .sort((one, other) => other.added - one.added)
      .map((photo) => ({ key: photo.id, queued: photo }));
    if (this.view === "private") return queued;
    const listed = this.list.photos.map((photo) => ({ key: photo.card.key, photo }));
    if (this.view !== "publications" || this.selecting) return listed;
    const pending = this.pending.filter((photo) => photo.mine).map((photo) => ({ key: photo.id, pending: photo }));
    return [...queued, ...pending, ...listed];
  }

  private draw(fresh: string[] = []): void {
    const items = this.items();
    const [title, text] = EMPTY[this.view];
    this.empty.hidden = items.length > 0 || (this.view !== "private" && !this.list.loaded);
    if (!this.empty.hidden) {
      const code = h("div", { class: "invitation" });
      if (this.view === "available" && this.session.me.local) void showInvitation(code);
      const mayAdd = this.session.may("publish") && (this.view === "available" || this.view === "publications");
      const add = mayAdd ? button(t("addFirst"), () => this.publish([]), { icon: "add" }) : "";
      this.empty.replaceChildren(h("h2", {}, t(title)), h("p", {}, t(text)), code, add);
    }
    this.grid.show(items, fresh);
  }

  /** Draws soon: many events make one drawing. */
  private drawSoon(fresh: string[] = []): void {
    for (const key of fresh) this.stale.add(key);
    this.redraw ||= requestAnimationFrame(() => {
      this.redraw = 0;
      const stale = [...this.stale];
      this.stale.clear();
      this.draw(stale);
    });
  }
  private readonly stale = new Set<string>();

  private tile(item: TileItem): HTMLElement {
    const { selecting } = this;
    const selected = this.selection.has(item.key);
    const onclick = () => {
      if (this.selecting) this.toggle(item.key);
      else if (item.photo) this.openPhoto(item.photo);
      else if (item.pending) this.askBack(item.pending);
      else this.openQueued(item.queued!);
    };
    const choice = { selecting, selected, onclick };
    if (item.pending) return pendingTile(item.pending, this.session.client, choice);
    return item.queued ? queuedTile(item.queued, choice) : photoTile(item.photo!, this.session.client, choice);
  }

  private openQueued(photo: QueuedPhoto): void {
    if (photo.state === "draft") this.publish([photo]);
    else if (photo.state === "failed") this.askFailed(photo);
  }

  private askFailed(photo: QueuedPhoto): void {
    if (window.confirm(`${failureOf(photo)}\n\n${t("retry")}?`)) this.session.queue.retry(photo.id);
    else void this.session.queue.remove(photo.id);
  }

  private askBack(photo: PendingPhoto): void {
    if (window.confirm(t("takeBackAsk"))) void this.session.client.send("DELETE", `pending/${photo.id}`).catch(showError);
  }

  /** Learns which photos wait for approval: one's own, or those that one may approve. */
  private loadPending(): void {
    void this.session.client
      .get<PendingPhoto[]>("pending")
      .then((pending) => {
        this.pending = pending;
        const people = document.querySelector(".people-button");
        people?.classList.toggle("alert", pending.length > 0);
        people?.setAttribute("aria-description", pending.length ? `${t("pending")}: ${pending.length}` : "");
        if (this.view === "publications") this.drawSoon();
      })
      .catch(() => {});
  }

  private openPhoto(photo: Photo): void {
    const index = (key: string) => this.list.photos.findIndex((one) => one.card.key === key);
    this.viewer = openViewer(this.session, photo, {
      neighbour: (key, step) => this.list.photos[index(key) + step] ?? null,
      find: (key) => this.known.get(key) ?? this.list.photos[index(key)] ?? null,
      onTag: (tag) => this.setFilter({ query: tag }),
      onAuthor: (one) => this.setFilter({ by: one.card.by || one.card.owner }),
    });
  }
  private readonly known = new Map<string, Photo>();

  private setFilter(filter: { query?: string; by?: string }): void {
    this.filter = filter;
    this.open(this.view === "private" ? "available" : this.view);
  }

  private drawFilter(): void {
    const { query, by } = this.filter;
    this.filterBar.hidden = !query && !by;
    const name = by && by.length === 32 ? t("byDevice", { id: by.slice(0, 6) }) : (by ?? "");
    this.filterBar.replaceChildren(
      h("span", {}, query ? t("showingQuery", { query: `#${query}` }) : t("showingBy", { name })),
      button(t("clear"), () => this.setFilter({}), { icon: "close", kind: "plain" }),
    );
  }

  private publish(photos: QueuedPhoto[]): void {
    openPublish(this.session, photos, () => {
      this.sentInAll = 0;
      this.drawUploads();
      if (this.view === "private" || this.view === "available") this.open("publications");
    });
  }

  // Selection

  private setSelecting(selecting: boolean): void {
    const changed = this.selecting !== selecting;
    this.selecting = selecting;
    this.selection.clear();
    this.drawTabs();
    this.drawSelectBar();
    if (changed) this.grid.refresh();
  }

  private toggle(key: string): void {
    if (!this.selection.delete(key)) this.selection.add(key);
    this.draw([key]);
    this.drawSelectBar();
    this.grid.element.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"] button`)?.focus({ preventScroll: true });
  }

  private drawSelectBar(): void {
    this.selectBar.hidden = !this.selecting;
    const keys = [...this.selection];
    const client = this.session.client;
    const run = (action: () => Promise<unknown>) =>
      void action()
        .catch(showError)
        .then(() => this.setSelecting(false));
    const bar: (Node | string)[] = [h("strong", {}, t("selected", { n: keys.length }))];
    if (this.view === "private") {
      bar.push(button(t("publish"), () => this.publish(keys.map((key) => this.session.queue.photos.get(key)!).filter(Boolean)), { icon: "check", kind: "primary", disabled: !keys.length }));
      bar.push(button(t("remove"), () => run(() => Promise.all(keys.map((key) => this.session.queue.remove(key)))), { icon: "trash", disabled: !keys.length }));
    } else {
      bar.push(button(keys.length ? t("saveSome", { n: keys.length }) : t("saveAll"), () => run(() => this.saveArchive(keys)), { icon: "zip", kind: "primary" }));
      if (this.view === "available") {
        bar.push(button(t("download"), () => run(() => client.setMark(keys, "downloaded")), { icon: "download", disabled: !keys.length }));
        bar.push(button(t("discard"), () => run(() => client.setMark(keys, "discarded")), { icon: "close", disabled: !keys.length }));
      }
      if (this.view === "hidden") bar.push(button(t("restore"), () => run(() => client.setMark(keys, "")), { icon: "check", disabled: !keys.length }));
      if (this.view === "publications") {
        bar.push(
          button(t("delete"), () => {
            if (window.confirm(t("deleteAsk"))) run(() => Promise.all(keys.map((key) => client.delete(key))));
          }, { icon: "trash", kind: "danger", disabled: !keys.length }),
        );
      }
    }
    bar.push(button(t("cancel"), () => this.setSelecting(false), { kind: "plain" }));
    this.selectBar.replaceChildren(...bar);
  }

  private async saveArchive(keys: string[]): Promise<void> {
    const { url } = await this.session.client.send<{ url: string }>("POST", "archives", { keys });
    h("a", { href: url, download: "" }).click();
  }

  // Events

  private onEvent(event: GalleryEvent): void {
    const { world } = event.facts;
    if (event.kind === "upload") {
      this.session.queue.settle(event.facts as never);
      return;
    }
    if (event.kind === "me") return void this.session.reload().then(() => this.start(), () => location.reload());
    if (world && world !== this.session.world) return;
    if (event.kind === "status") this.checkNode();
    if (event.kind === "status" || event.kind === "galleries") this.learnGalleries();
    if (event.kind === "approval" || event.kind === "decision") this.loadPending();
    if (event.kind === "decision") toast(t(event.facts.approved ? "wasApproved" : "wasRejected"));
    if (event.kind === "reset") this.reload();
    if (event.kind === "gone") {
      const key = event.facts.key as string;
      if (this.list.remove(key)) this.drawSoon();
    }
    const photo = event.kind === "item" ? photoOf(event) : null;
    if (!photo) return;
    const change = this.list.update(photo);
    if (change) this.drawSoon([photo.card.key]);
    this.known.set(photo.card.key, photo);
    this.viewer?.update(photo.card.key);
    if (change === "added" && this.view === "available") this.announce(photo);
    if (this.view !== "available" && photo.wanted && !photo.mine && !photo.mark) {
      this.unseen++;
      this.drawTabs();
    }
  }

  private announce(photo: Photo): void {
    document.title = this.session.world;
    if (document.hidden) toast(`${authorOf(photo)}: ${photo.card.title || t(kindOf(photo))}`);
  }

  private checkNode(): void {
    void this.session.client
      .get<{ connected: boolean }>("status")
      .then(({ connected }) => {
        this.notify(connected ? "" : t("nodeAway"), connected ? "" : goOnElsewhere());
      })
      .catch(() => {});
  }

  private onQueue(photo: QueuedPhoto): void {
    if (photo.state === "published" || photo.state === "pending" || photo.state === "duplicate") {
      this.sentInAll++;
      if (photo.state === "pending") this.loadPending();
      if (photo.state !== "published") toast(`${photo.name} ${t(photo.state === "pending" ? "waitsForApproval" : "duplicate")}`);
    }
    this.drawUploads();
    if (this.view === "private" || this.view === "publications") this.drawSoon([photo.id]);
    if (photo.state !== "sending") this.drawTabs();
  }

  private drawUploads(): void {
    const active = [...this.session.queue.photos.values()].filter((photo) => photo.state !== "draft");
    const failed = active.filter((photo) => photo.state === "failed");
    this.uploads.hidden = !active.length;
    if (!active.length) return;
    const total = active.reduce((sum, photo) => sum + photo.blob.size, 0);
    const sent = active.reduce((sum, photo) => sum + (photo.state === "processing" ? photo.blob.size : photo.sent), 0);
    const bar = h("progress", { max: Math.max(1, total), value: sent, "aria-label": t("uploadsTitle") });
    const text = t("uploadsOf", { done: this.sentInAll, total: this.sentInAll + active.length });
    this.uploads.replaceChildren(h("span", {}, failed.length ? `${text} · ${failed[0]!.name}: ${failureOf(failed[0]!)}` : text), bar, button(t("showUploads"), () => this.open("private"), { kind: "plain" }));
  }

  private updateAges(): void {
    for (const line of this.grid.element.querySelectorAll<HTMLElement>(".tile-who")) {
      const key = line.closest<HTMLElement>(".tile")?.dataset.key;
      const photo = this.list.photos.find((one) => one.card.key === key);
      if (photo) line.textContent = shortLine(photo);
    }
  }
}
