// Builds the pages of the gallery and of the map: node build.mjs [GALLERY_FOLDER MAP_FOLDER]
// The same sources always give the same bytes; tests/gallery/test_assets.py compares them.
import { cpSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../src/thyme/gallery/web/assets");
const map = process.argv[3] ?? join(here, "../src/thyme/map/assets");
const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  charset: "utf8",
  target: ["chrome100", "firefox102", "safari15.4"],
  legalComments: "none",
};

mkdirSync(out, { recursive: true });
await build({ ...common, entryPoints: ["src/main.ts"], format: "esm", outfile: join(out, "gallery.js") });
await build({ ...common, entryPoints: ["src/client.ts"], format: "esm", outfile: join(out, "client.js") });
await build({ ...common, entryPoints: ["src/gallery.css"], outfile: join(out, "gallery.css") });
for (const name of ["index.html", "icon.svg", "gallery.webmanifest"]) cpSync(join(here, "src", name), join(out, name));
await build({ ...common, entryPoints: ["src/map/main.ts"], format: "iife", outfile: join(map, "map.js") });
await build({ ...common, entryPoints: ["src/map/map.css"], outfile: join(map, "map.css") });
