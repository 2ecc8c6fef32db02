// Builds the page of the gallery: node build.mjs [FOLDER]
// The same sources always give the same bytes; tests/gallery/test_assets.py compares them.
import { cpSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../src/thyme/gallery/web/assets");
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
