/** Client of a Thyme gallery, for the page of the gallery and for other pages of the same origin.
 *
 *     import { GalleryClient } from "/assets/client.js";
 *     const gallery = new GalleryClient("lisbon");
 *     await gallery.publish(file, { tags: ["goal"] });
 *     for await (const photo of gallery.subscribe("goal & !replay")) console.log(photo.card.title);
 */

/** A photo as the server describes it. Instants are microseconds since 1970. */
export interface Card {
  key: string;
  published_us: number;
  owner: string;
  tags: string[];
  title?: string;
  by?: string;
  file_name?: string;
  type?: string;
  width?: number;
  height?: number;
  taken_us?: number;
  size?: number;
  has_thumbnail?: boolean;
}

export type Mark = "" | "downloaded" | "discarded" | "near";

/** A photo as this guest sees it. */
export interface Photo {
  card: Card;
  /** Whether this guest published it. */
  mine?: boolean;
  /** Whether the node of this gallery published it. */
  here?: boolean;
  mark?: Mark;
  /** Whether it matches a subscription of this guest. */
  wanted?: boolean;
  hidden?: boolean;
}

export interface PhotoPage {
  items: Photo[];
  next: string | null;
  event: string;
}

export interface Frame {
  start_us?: number | null;
  end_us?: number | null;
}

export interface PublishOptions {
  tags?: string[];
  title?: string;
  keepLocation?: boolean;
  /** A picture from a video, for its thumbnail: JPEG, PNG or WebP, up to 512 kB. */
  still?: Blob | null;
  /** The upload to continue, as `onCreated` named it. */
  resume?: string;
  onCreated?: (upload: string) => void;
  onProgress?: (sent: number, total: number) => void;
  signal?: AbortSignal;
}

/** What became of an upload. */
export interface UploadState {
  id: string;
  state: "receiving" | "processing" | "published" | "pending" | "duplicate" | "failed";
  message: string;
  /** The code of the error of a failed upload, else empty. */
  code: string;
  key: string;
}

/** A photo that waits for approval. */
export interface PendingPhoto {
  id: string;
  title: string;
  by: string;
  file_name: string;
  has_thumbnail: boolean;
  tags: string[];
  mine: boolean;
}

export interface GalleryEvent {
  kind: string;
  id: string;
  facts: Record<string, unknown>;
}

/** A request that the gallery refused. */
export class GalleryError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly position?: number,
  ) {
    super(message);
  }
}

const TUS = "1.0.0";
const SINGLE_BYTES_MAX = 8 * 2 ** 20;
const STEP_BYTES = 4 * 2 ** 20;
const KINDS = ["reset", "item", "gone", "upload", "status", "approval", "decision", "me", "galleries"];

/** Sends a request; raises a `GalleryError` unless it succeeds. */
export async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await fetch(path, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = response.status === 204 ? "" : await response.text();
  if (!response.ok) throw parseError(response.status, text);
  return (text ? JSON.parse(text) : undefined) as T;
}

function parseError(status: number, text: string): GalleryError {
  try {
    const found = JSON.parse(text);
    return new GalleryError(status, found.error, found.message, found.position);
  } catch {
    return new GalleryError(status, "error", `the gallery answered ${status}`);
  }
}

/** One stream of events for everything, which reconnects without losing or repeating events. */
export class EventFeed {
  private source: EventSource | null = null;
  private last = "";
  private timer = 0;
  private delayMs = 500;
  private closed = false;
  readonly listeners = new Set<(event: GalleryEvent) => void>();
  onState: (connected: boolean) => void = () => {};

  constructor() {
    document.addEventListener("visibilitychange", () => this.adapt());
    window.addEventListener("online", () => this.open());
    this.open();
  }

  /** Closes the stream of a hidden page after a while: browsers allow few connections. */
  private adapt(): void {
    window.clearTimeout(this.timer);
    if (document.hidden) this.timer = window.setTimeout(() => this.stop(), 30_000);
    else this.open();
  }

  private stop(): void {
    this.source?.close();
    this.source = null;
  }

  private open(): void {
    if (this.source || this.closed) return;
    const since = this.last ? `?since=${encodeURIComponent(this.last)}` : "";
    const source = (this.source = new EventSource(`/api/events${since}`));
    source.onopen = () => {
      this.delayMs = 500;
      this.onState(true);
    };
    source.onerror = () => {
      this.stop();
      this.onState(false);
      this.delayMs = Math.min(this.delayMs * 2, 10_000);
      window.clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.open(), this.delayMs * (0.5 + Math.random()));
    };
    for (const kind of KINDS) source.addEventListener(kind, (event) => this.receive(kind, event));
  }

  private receive(kind: string, event: MessageEvent): void {
    this.last = event.lastEventId;
    const facts = JSON.parse(event.data);
    for (const listener of this.listeners) listener({ kind, id: this.last, facts });
  }

  close(): void {
    this.closed = true;
    this.stop();
  }
}

let shared: EventFeed | null = null;

/** The stream of events of this page; all clients of a page share it. */
export function eventFeed(): EventFeed {
  return (shared ??= new EventFeed());
}

/** The photos of one world. */
export class GalleryClient {
  constructor(readonly world: string) {}

  private path(rest: string): string {
    return `/api/w/${encodeURIComponent(this.world)}/${rest}`;
  }

  thumbnailUrl(key: string): string {
    return this.path(`thumbnails/${encodeURIComponent(key)}`);
  }

  pendingUrl(id: string): string {
    return this.path(`pending/${encodeURIComponent(id)}`);
  }

  objectUrl(key: string, save = false): string {
    return this.path(`objects/${encodeURIComponent(key)}${save ? "?save" : ""}`);
  }

  /** One page of a view, newest first. */
  list(view: string, options: { query?: string; by?: string; before?: string | null; limit?: number } = {}): Promise<PhotoPage> {
    const parameters = new URLSearchParams({ view });
    for (const [name, value] of Object.entries(options)) if (value) parameters.set(name, String(value));
    return request("GET", this.path(`items?${parameters}`));
  }

  get<T>(rest: string): Promise<T> {
    return request("GET", this.path(rest));
  }

  send<T>(method: string, rest: string, body?: unknown): Promise<T> {
    return request(method, this.path(rest), body);
  }

  setMark(keys: string[], mark: Mark): Promise<void> {
    return this.send("POST", "marks", { keys, mark });
  }

  delete(key: string): Promise<void> {
    return this.send("DELETE", `items/${encodeURIComponent(key)}`);
  }

  /** The bytes of a photo. */
  async retrieve(key: string): Promise<Blob> {
    const response = await fetch(this.objectUrl(key, true));
    if (!response.ok) throw parseError(response.status, await response.text());
    return response.blob();
  }

  /** Photos that match a formula: those stored, oldest first, then new ones as they are published. */
  async *subscribe(query: string, frame: Frame = {}): AsyncGenerator<Photo> {
    const subscription = await this.send<{ id: string; query: string }>("POST", "subscriptions", { query, ...frame });
    const waiting: Photo[] = [];
    const seen = new Set<string>();
    let wake = () => {};
    let asked = 0;
    let loading: Promise<void> | null = null;
    const inside = ({ published_us }: Card) =>
      (frame.start_us == null || published_us >= frame.start_us) && (frame.end_us == null || published_us <= frame.end_us);
    /** Reads matching photos, newest first, up to a page without a new one. */
    const read = async () => {
      const found: Photo[] = [];
      let before: string | null = null;
      let fresh: Photo[];
      do {
        const page: PhotoPage = await this.list("wall", { query: subscription.query, before, limit: 200 });
        fresh = page.items.filter((photo) => !seen.has(photo.card.key));
        found.push(...fresh);
        before = page.next;
      } while (before && fresh.length);
      for (const photo of found.reverse()) {
        if (!seen.has(photo.card.key) && inside(photo.card)) waiting.push(photo);
        seen.add(photo.card.key);
      }
      wake();
    };
    /** Many events while it reads make it read once more. */
    const load = (): Promise<void> => {
      asked++;
      loading ??= (async () => {
        for (let done = 0; done < asked; ) {
          done = asked;
          await read();
        }
      })().finally(() => (loading = null));
      return loading;
    };
    const feed = eventFeed();
    const listener = (event: GalleryEvent) => {
      if (event.facts.world !== this.world && event.kind !== "reset") return;
      if (event.kind === "item" || event.kind === "reset") void load().catch(() => {});
    };
    feed.listeners.add(listener);
    try {
      await load();
      for (;;) {
        while (waiting.length) yield waiting.shift()!;
        await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      feed.listeners.delete(listener);
      await this.send("DELETE", `subscriptions/${subscription.id}`).catch(() => {});
    }
  }

  /** Uploads a file in resumable steps (tus 1.0); resolves once all its bytes have arrived. */
  async publish(file: Blob & { name?: string }, options: PublishOptions = {}): Promise<string> {
    let upload = options.resume ?? "";
    let offset = 0;
    if (upload) {
      const head = await fetch(`/api/uploads/${upload}`, { method: "HEAD", headers: { "Tus-Resumable": TUS } });
      if (head.ok) offset = Number(head.headers.get("Upload-Offset"));
      else if (head.status === 404) upload = "";
      else throw new GalleryError(head.status, "error", `the gallery answered ${head.status}`);
    }
    if (!upload) {
      const single = file.size <= SINGLE_BYTES_MAX && !options.still;
      const reply = await send("POST", this.path("uploads"), single ? file : null, options, 0, file.size, {
        "Upload-Length": String(file.size),
        "Upload-Metadata": encodeMetadata(file, options),
      });
      upload = (reply.getResponseHeader("Location") ?? "").split("/").pop() ?? "";
      offset = Number(reply.getResponseHeader("Upload-Offset"));
      options.onCreated?.(upload);
      if (options.still) await fetch(`/api/uploads/${upload}/still`, { method: "PUT", body: options.still });
    }
    while (offset < file.size) {
      const step = file.slice(offset, Math.min(file.size, offset + STEP_BYTES));
      const reply = await send("PATCH", `/api/uploads/${upload}`, step, options, offset, file.size, {
        "Upload-Offset": String(offset),
      });
      offset = Number(reply.getResponseHeader("Upload-Offset"));
    }
    return upload;
  }

  uploadState(upload: string): Promise<UploadState> {
    return request("GET", `/api/uploads/${upload}`);
  }
}

function encodeMetadata(file: Blob & { name?: string }, options: PublishOptions): string {
  const fields: Record<string, string> = { filename: file.name ?? "" };
  if (options.tags?.length) fields.tags = options.tags.join(",");
  if (options.title) fields.title = options.title;
  if (options.keepLocation) fields.location = "keep";
  const encode = (text: string) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
  return Object.entries(fields)
    .map(([name, value]) => `${name} ${encode(value)}`)
    .join(",");
}

/** XMLHttpRequest, because fetch does not tell how much of a body was sent. */
function send(
  method: string,
  path: string,
  body: Blob | null,
  options: PublishOptions,
  offset: number,
  total: number,
  headers: Record<string, string>,
): Promise<XMLHttpRequest> {
  return new Promise((resolve, reject) => {
    const http = new XMLHttpRequest();
    http.open(method, path);
    http.setRequestHeader("Tus-Resumable", TUS);
    for (const [name, value] of Object.entries(headers)) http.setRequestHeader(name, value);
    if (body) http.setRequestHeader("Content-Type", "application/offset+octet-stream");
    http.upload.onprogress = (event) => options.onProgress?.(offset + event.loaded, total);
    http.onload = () =>
      http.status < 300 ? resolve(http) : reject(parseError(http.status, http.responseText));
    http.onerror = () => reject(new GalleryError(0, "offline", "the gallery cannot be reached"));
    http.onabort = () => reject(new GalleryError(0, "aborted", "the upload was stopped"));
    options.signal?.addEventListener("abort", () => http.abort());
    http.send(body);
  });
}
