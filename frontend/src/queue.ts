/** Photos of this browser that are not published yet: they survive a reload and a dark screen.
 *
 * Drafts and uploads are kept in IndexedDB with their bytes, until the gallery has them. Two are
 * sent at once; each goes on where it was.
 */

import { GalleryClient, GalleryError, type UploadState } from "./client.ts";
import { makeStill } from "./video_still.ts";

export interface QueuedPhoto {
  id: string;
  world: string;
  blob: Blob;
  name: string;
  tags: string[];
  title: string;
  keepLocation: boolean;
  /** draft, waiting, sending, processing, or the state of a finished upload. */
  state: string;
  upload?: string;
  sent: number;
  message?: string;
  /** The code of the error of a failed upload. */
  code?: string;
  added: number;
}

const AT_ONCE = 2;
const DONE = ["published", "pending", "duplicate"];

export class UploadQueue {
  readonly photos = new Map<string, QueuedPhoto>();
  /** Whether the queue survives a reload. */
  persistent = true;
  onChange: (photo: QueuedPhoto) => void = () => {};
  private database: IDBDatabase | null = null;
  private sending = 0;
  private pauseMs = 1_000;

  async open(): Promise<void> {
    try {
      this.database = await new Promise<IDBDatabase>((resolve, reject) => {
        const opening = indexedDB.open("thyme-gallery", 1);
        opening.onupgradeneeded = () => opening.result.createObjectStore("photos", { keyPath: "id" });
        opening.onsuccess = () => resolve(opening.result);
        opening.onerror = () => reject(opening.error);
      });
      const stored = await this.run<QueuedPhoto[]>("readonly", (store) => store.getAll());
      for (const photo of stored ?? []) {
        if (photo.state === "sending" || photo.state === "paused") photo.state = "waiting";
        this.photos.set(photo.id, photo);
      }
    } catch {
      this.persistent = false;
    }
    for (const photo of this.photos.values()) if (photo.state === "processing") void this.follow(photo);
    this.start();
  }

  private run<T>(mode: IDBTransactionMode, action: (store: IDBObjectStore) => IDBRequest): Promise<T | undefined> {
    const database = this.database;
    if (!database) return Promise.resolve(undefined);
    return new Promise((resolve, reject) => {
      const asked = action(database.transaction("photos", mode).objectStore("photos"));
      asked.onsuccess = () => resolve(asked.result as T);
      asked.onerror = () => reject(asked.error);
    });
  }

  private async store(photo: QueuedPhoto): Promise<void> {
    try {
      await this.run("readwrite", (store) => store.put(photo));
    } catch {
      this.persistent = false;
    }
    this.onChange(photo);
  }

  async add(world: string, files: File[]): Promise<QueuedPhoto[]> {
    const added = files.map((file, index): QueuedPhoto => {
      const bytes = crypto.getRandomValues(new Uint8Array(8));
      const id = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
      return { id, world, blob: file, name: file.name, tags: [], title: "", keepLocation: false, state: "draft", sent: 0, added: Date.now() + index / 1000 };
    });
    for (const photo of added) this.photos.set(photo.id, photo);
    for (const photo of added) await this.store(photo);
    return added;
  }

  async publish(ids: string[], details: { tags: string[]; title: string; keepLocation: boolean }): Promise<void> {
    for (const id of ids) {
      const photo = this.photos.get(id);
      if (photo && (photo.state === "draft" || photo.state === "failed")) {
        Object.assign(photo, details, { state: "waiting", message: undefined, code: undefined, upload: undefined, sent: 0 });
        await this.store(photo);
      }
    }
    this.start();
  }

  async remove(id: string): Promise<void> {
    const photo = this.photos.get(id);
    if (!photo || photo.state === "sending") return;
    this.photos.delete(id);
    await this.run("readwrite", (store) => store.delete(id)).catch(() => {});
    this.onChange(photo);
  }

  retry(id: string): void {
    const photo = this.photos.get(id);
    if (photo) void this.publish([id], { tags: photo.tags, title: photo.title, keepLocation: photo.keepLocation });
  }

  /** Sends what waits. */
  start(): void {
    for (const photo of this.photos.values()) {
      if (this.sending >= AT_ONCE) return;
      if (photo.state === "waiting") void this.sendOne(photo);
    }
  }

  private async sendOne(photo: QueuedPhoto): Promise<void> {
    this.sending++;
    photo.state = "sending";
    this.onChange(photo);
    const client = new GalleryClient(photo.world);
    try {
      const file = photo.blob instanceof File ? photo.blob : new File([photo.blob], photo.name, { type: photo.blob.type });
      photo.upload = await client.publish(file, {
        tags: photo.tags,
        title: photo.title,
        keepLocation: photo.keepLocation,
        still: file.type.startsWith("video/") && !photo.upload ? await makeStill(file) : null,
        resume: photo.upload,
        onCreated: (upload) => {
          photo.upload = upload;
          void this.store(photo);
        },
        onProgress: (sent) => {
          photo.sent = sent;
          this.onChange(photo);
        },
      });
      this.pauseMs = 1_000;
      photo.state = "processing";
      await this.store(photo);
      void this.follow(photo);
    } catch (error) {
      await this.onFailure(photo, error);
    } finally {
      this.sending--;
      this.start();
    }
  }

  private async onFailure(photo: QueuedPhoto, error: unknown): Promise<void> {
    const status = error instanceof GalleryError ? error.status : 0;
    const temporary = status === 0 || status === 409 || status === 423 || status === 429 || status === 503;
    photo.state = temporary ? "paused" : "failed";
    photo.message = error instanceof Error ? error.message : String(error);
    photo.code = error instanceof GalleryError ? error.code : undefined;
    await this.store(photo);
    if (temporary) {
      this.pauseMs = Math.min(this.pauseMs * 2, 30_000);
      window.setTimeout(() => {
        if (photo.state !== "paused") return;
        photo.state = "waiting";
        this.start();
      }, this.pauseMs);
    }
  }

  /** Learns what became of an upload, by events or by asking. */
  private async follow(photo: QueuedPhoto): Promise<void> {
    let pauseMs = 300;
    while (photo.state === "processing" && photo.upload) {
      await new Promise((resolve) => window.setTimeout(resolve, pauseMs));
      pauseMs = Math.min(pauseMs * 1.5, 10_000);
      try {
        this.settle(await new GalleryClient(photo.world).uploadState(photo.upload));
      } catch (error) {
        if (error instanceof GalleryError && error.status === 404) {
          photo.state = "waiting";
          photo.upload = undefined;
          this.start();
        }
      }
    }
  }

  /** Takes in the state of an upload. */
  settle(state: Pick<UploadState, "id" | "state" | "message" | "code">): void {
    const photo = [...this.photos.values()].find((one) => one.upload === state.id);
    if (!photo || photo.state !== "processing") return;
    if (DONE.includes(state.state)) {
      photo.state = state.state;
      this.photos.delete(photo.id);
      void this.run("readwrite", (store) => store.delete(photo.id)).catch(() => {});
      this.onChange(photo);
    } else if (state.state === "failed") {
      photo.state = "failed";
      photo.message = state.message;
      photo.code = state.code;
      void this.store(photo);
    }
  }
}
