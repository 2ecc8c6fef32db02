/** A grid of tiles that holds only the rows in sight: ten thousand photos scroll like a few. */

import { h } from "./dom.ts";

export interface GridItem {
  key: string;
}

export interface GridOptions<T extends GridItem> {
  label: string;
  tile: (item: T) => HTMLElement;
  /** Called when the end is near: it is not in sight yet when older photos have been loaded. */
  onEnd: () => void;
}

const TILE_PX_MIN = 150;
const TILE_PX_WIDE = 190;
const GAP_PX = 6;
const ROWS_BEYOND = 3;
/** How many rows before the end older photos are loaded: at full speed some seconds. */
const ROWS_AHEAD = 60;
/** Above this speed pictures wait until the page is slower: nobody sees them, and each costs a request. */
const FAST_PX_PER_MS = 2;
/** The speed is that of so much time: one late frame does not look slow. */
const SPEED_MS = 100;

export class Grid<T extends GridItem> {
  readonly element: HTMLElement;
  private items: T[] = [];
  private tiles = new Map<string, HTMLElement>();
  private columns = 1;
  private size = TILE_PX_MIN;
  private frame = 0;
  private top = 0;
  private readonly waiting = new Map<string, HTMLImageElement>();
  private seen = { y: 0, ms: 0 };
  private speed = 0;
  private timer = 0;
  private drawn = { first: 0, last: 0 };
  private readonly scrolled = () => this.schedule();

  constructor(private readonly options: GridOptions<T>) {
    this.element = h("div", { class: "grid", role: "list", "aria-label": options.label });
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.measure()).observe(this.element);
    window.addEventListener("scroll", this.scrolled, { passive: true });
    window.addEventListener("resize", this.scrolled);
  }

  close(): void {
    window.removeEventListener("scroll", this.scrolled);
    window.removeEventListener("resize", this.scrolled);
    this.element.remove();
  }

  /** Shows other items; tiles of items that stay are kept unless `fresh` names them. */
  show(items: T[], fresh: Iterable<string> = []): void {
    this.items = items;
    for (const key of fresh) {
      this.tiles.get(key)?.remove();
      this.tiles.delete(key);
    }
    const left = this.removeFocused();
    this.layout();
    this.draw();
    if (left !== null) this.focus(Math.min(left, items.length - 1));
  }

  /** Removes the tile with the focus if its item is gone; returns where it was. */
  private removeFocused(): number | null {
    const tile = document.activeElement?.closest<HTMLElement>(".tile");
    const key = tile?.dataset.key;
    if (!tile || !key || !this.tiles.has(key) || this.items.some((item) => item.key === key)) return null;
    tile.remove();
    this.tiles.delete(key);
    return Number(tile.dataset.index);
  }

  private focus(index: number): void {
    const item = this.items[index];
    if (item) this.tiles.get(item.key)?.querySelector<HTMLElement>("button, a")?.focus({ preventScroll: true });
  }

  /** Says whether older photos are on their way. */
  setBusy(busy: boolean): void {
    this.element.setAttribute("aria-busy", String(busy));
  }

  /** Draws all tiles anew. */
  refresh(): void {
    this.show(this.items, [...this.tiles.keys()]);
  }

  private measure(): void {
    const width = this.element.clientWidth;
    if (!width) return;
    const wanted = width < 600 ? Math.max(100, (width - 2 * GAP_PX) / 3 - 1) : Math.max(TILE_PX_MIN, TILE_PX_WIDE);
    const columns = Math.max(2, Math.floor((width + GAP_PX) / (wanted + GAP_PX)));
    const size = Math.floor((width - (columns - 1) * GAP_PX) / columns);
    if (columns === this.columns && size === this.size) return this.schedule();
    this.columns = columns;
    this.size = size;
    this.layout();
    for (const [index, item] of this.items.entries()) {
      const tile = this.tiles.get(item.key);
      if (tile) this.place(tile, index);
    }
    this.draw();
  }

  private layout(): void {
    const rows = Math.ceil(this.items.length / this.columns);
    this.element.style.height = `${Math.max(0, rows * (this.size + GAP_PX) - GAP_PX)}px`;
    this.top = this.element.getBoundingClientRect().top + window.scrollY;
  }

  private place(tile: HTMLElement, index: number): void {
    const row = Math.floor(index / this.columns);
    const column = index % this.columns;
    tile.style.width = tile.style.height = `${this.size}px`;
    tile.style.transform = `translate(${column * (this.size + GAP_PX)}px, ${row * (this.size + GAP_PX)}px)`;
    tile.setAttribute("aria-setsize", String(this.items.length));
    tile.setAttribute("aria-posinset", String(index + 1));
  }

  private schedule(): void {
    if (!this.frame) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.drawTiles(true);
        this.loadPictures();
      });
    }
  }

  private draw(): void {
    this.drawTiles();
    this.loadPictures();
  }

  /** Loads the pictures of tiles (`data-src`), or later while the page scrolls fast. */
  private loadPictures(): void {
    const now = { y: window.scrollY, ms: performance.now() };
    const passed = now.ms - this.seen.ms;
    if (passed > SPEED_MS || !this.waiting.size) {
      this.speed = Math.abs(now.y - this.seen.y) / Math.max(1, passed);
      this.seen = now;
    }
    window.clearTimeout(this.timer);
    if (this.speed > FAST_PX_PER_MS && this.waiting.size) {
      this.timer = window.setTimeout(() => this.schedule(), SPEED_MS + 20);
      return;
    }
    for (const image of this.waiting.values()) image.src = image.dataset.src!;
    this.waiting.clear();
  }

  /** Adds and removes tiles; after mere scrolling only if other rows are in sight. */
  private drawTiles(scrolled = false): void {
    const step = this.size + GAP_PX;
    const above = window.scrollY - this.top;
    const first = Math.max(0, (Math.floor(above / step) - ROWS_BEYOND) * this.columns);
    const last = Math.min(this.items.length, (Math.ceil((above + window.innerHeight) / step) + ROWS_BEYOND) * this.columns);
    if (scrolled && this.drawn.first === first && this.drawn.last === last) return;
    this.drawn = { first, last };
    const wanted = new Map<string, number>();
    for (let index = first; index < last; index++) wanted.set(this.items[index]!.key, index);
    const focused = document.activeElement?.closest<HTMLElement>(".tile")?.dataset.key;
    for (const [key, tile] of this.tiles) {
      if (!wanted.has(key) && key !== focused) {
        tile.remove();
        this.tiles.delete(key);
        this.waiting.delete(key);
      }
    }
    let before: HTMLElement | null = null;
    for (const [key, index] of wanted) {
      let tile = this.tiles.get(key);
      if (!tile) {
        tile = this.options.tile(this.items[index]!);
        tile.dataset.key = key;
        tile.setAttribute("role", "listitem");
        this.tiles.set(key, tile);
        const image = tile.querySelector<HTMLImageElement>("img[data-src]");
        if (image) this.waiting.set(key, image);
      }
      if (!tile.parentElement || tile.previousElementSibling !== before) this.insertAfter(tile, before);
      before = tile;
      if (tile.dataset.index !== String(index)) {
        tile.dataset.index = String(index);
        this.place(tile, index);
      }
    }
    if (last + ROWS_AHEAD * this.columns >= this.items.length) this.options.onEnd();
  }

  /** Tiles are in the page in their order, for the Tab key and for screen readers. */
  private insertAfter(tile: HTMLElement, before: HTMLElement | null): void {
    if (before) before.after(tile);
    else this.element.prepend(tile);
  }

  /** Arrow keys move between tiles as they are seen. */
  private onKey(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    const step = steps[event.key];
    const tile = (event.target as HTMLElement).closest<HTMLElement>(".tile");
    if (!step || !tile) return;
    const index = Number(tile.dataset.index) + step;
    const item = this.items[index];
    if (!item) return;
    event.preventDefault();
    const row = Math.floor(index / this.columns);
    const y = this.top + row * (this.size + GAP_PX);
    if (y < window.scrollY + 140 || y + this.size > window.scrollY + window.innerHeight) {
      window.scrollTo({ top: Math.max(0, y - window.innerHeight / 2) });
      this.draw();
    }
    this.focus(index);
  }
}
