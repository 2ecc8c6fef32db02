/** What the page knows: the guest, the gallery in sight, and the photos of its views. */

import { EventFeed, GalleryClient, type GalleryEvent, type Photo, type PhotoPage, request } from "./client.ts";
import { UploadQueue } from "./queue.ts";

export interface Me {
  id: string;
  name: string;
  rights: "look" | "publish" | "approve" | "host";
  local: boolean;
  /** Whether the guest came with a pass of another gallery. */
  visitor: boolean;
  encrypted: boolean;
  approval: boolean;
  photos: number;
  bytes: number;
  photos_max: number | null;
  bytes_max: number | null;
  upload_bytes_max: number;
  galleries: string[];
}

export type View = "available" | "downloads" | "publications" | "private" | "hidden";

const RIGHTS = ["look", "publish", "approve", "host"];

export class Session {
  client: GalleryClient;
  readonly queue = new UploadQueue();
  readonly feed: EventFeed;

  constructor(
    public me: Me,
    feed: EventFeed,
    public world: string,
  ) {
    this.feed = feed;
    this.client = new GalleryClient(world);
  }

  may(right: string): boolean {
    return RIGHTS.indexOf(this.me.rights) >= RIGHTS.indexOf(right);
  }

  async reload(): Promise<void> {
    this.me = await request<Me>("GET", "/api/me");
  }

  /** Whether this is the host, who was never asked for a name. */
  get isNameless(): boolean {
    return this.me.local && this.me.name === "Host";
  }

  async rename(name: string): Promise<void> {
    await request("PATCH", "/api/me", { name });
    await this.reload();
  }

  switchTo(world: string): void {
    this.world = world;
    this.client = new GalleryClient(world);
  }
}

/** Whether a photo belongs to a view, as on the server. */
export function belongs(photo: Photo, view: View): boolean {
  const mark = photo.mark ?? "";
  switch (view) {
    case "available":
      return !!photo.wanted && !photo.mine && !photo.hidden && (mark === "" || mark === "near");
    case "downloads":
      return mark === "downloaded" && !photo.hidden;
    case "publications":
      return !!photo.mine;
    case "hidden":
      return !!photo.hidden || mark === "discarded";
    default:
      return false;
  }
}

/** The loaded photos of one view, newest first. */
export class PhotoList {
  photos: Photo[] = [];
  next: string | null = null;
  loaded = false;
  private loading: Promise<void> | null = null;
  private generation = 0;
  /** Pages that were asked for and have not arrived. */
  private asked = 0;
  /** Photos that changed or went (null) since then: a page that arrives may be older. */
  private readonly changes = new Map<string, Photo | null>();

  constructor(
    private readonly client: GalleryClient,
    readonly view: View,
    readonly filter: { query?: string; by?: string } = {},
  ) {}

  /** Loads the newest photos, then all older ones, page by page. */
  async load(onPage: () => void, first = 60): Promise<void> {
    const generation = ++this.generation;
    const page = await this.fetchPage({ limit: first });
    if (generation !== this.generation) return;
    this.setPhotos(page.items, page.next);
    this.loaded = true;
    onPage();
  }

  private async fetchPage(part: { before?: string; limit: number }): Promise<PhotoPage> {
    this.asked++;
    try {
      return await this.client.list(this.view, { ...this.filter, ...part });
    } finally {
      this.asked--;
    }
  }

  /** Takes in photos as the server listed them, then what changed while the list was on its way. */
  private setPhotos(photos: Photo[], next: string | null): void {
    this.photos = photos;
    this.next = next;
    for (const [key, photo] of this.changes) photo ? this.apply(photo) : this.drop(key);
    if (!this.asked) this.changes.clear();
  }

  /** Whether older photos are on their way. */
  get busy(): boolean {
    return this.loading !== null;
  }

  /** Loads the next page of older photos; after a failure the next call tries again. */
  more(onPage: () => void): Promise<void> {
    if (!this.next || this.loading) return this.loading ?? Promise.resolve();
    this.loading = this.loadMore(this.next, this.generation)
      .finally(() => (this.loading = null))
      .then(onPage);
    return this.loading;
  }

  private async loadMore(before: string, generation: number): Promise<void> {
    const page = await this.fetchPage({ before, limit: 1000 });
    if (generation !== this.generation) return;
    const known = new Set(this.photos.map((photo) => photo.card.key));
    this.setPhotos(this.photos.concat(page.items.filter((photo) => !known.has(photo.card.key))), page.next);
  }

  /** Takes in a changed or new photo; returns whether the list changed. */
  update(photo: Photo): "added" | "changed" | "removed" | null {
    if (this.asked) this.changes.set(photo.card.key, photo);
    return this.apply(photo);
  }

  private apply(photo: Photo): "added" | "changed" | "removed" | null {
    const index = this.photos.findIndex((one) => one.card.key === photo.card.key);
    const wanted = belongs(photo, this.view) && this.matches(photo);
    if (index >= 0) {
      if (wanted) this.photos[index] = photo;
      else this.photos = this.photos.filter((one) => one !== this.photos[index]);
      return wanted ? "changed" : "removed";
    }
    if (!wanted) return null;
    const at = this.photos.findIndex((one) => one.card.published_us <= photo.card.published_us);
    if (at < 0 && this.next) return null;
    this.photos = [...this.photos];
    this.photos.splice(at < 0 ? this.photos.length : at, 0, photo);
    return "added";
  }

  remove(key: string): boolean {
    if (this.asked) this.changes.set(key, null);
    return this.drop(key);
  }

  private drop(key: string): boolean {
    const before = this.photos.length;
    this.photos = this.photos.filter((photo) => photo.card.key !== key);
    return this.photos.length < before;
  }

  private matches(photo: Photo): boolean {
    const { by, query } = this.filter;
    if (by && by !== photo.card.owner && by !== photo.card.by) return false;
    return !query || photo.card.tags.includes(query);
  }
}

export function photoOf(event: GalleryEvent): Photo | null {
  return (event.facts.item as Photo | undefined) ?? null;
}
