/** The language of a page, and settings that the browser remembers. */

export const LANGUAGES = { en: "English", pt: "Português" } as const;
export type Language = keyof typeof LANGUAGES;

export function chosenLanguage(): Language {
  const stored = readSetting("language");
  if (stored === "en" || stored === "pt") return stored;
  return navigator.languages.some((name) => name.startsWith("pt")) && !navigator.language.startsWith("en") ? "pt" : "en";
}

/** The language in use. */
export let language: Language = "en";

export function useLanguage(name: Language): void {
  language = name;
  document.documentElement.lang = name;
}

/** A text with the names in braces replaced. */
export function fill(text: string, values: Record<string, string | number>): string {
  return text.replace(/\{(\w+)\}/g, (_, key: string) => String(values[key] ?? ""));
}

export function readSetting(name: string): string | null {
  try {
    return localStorage.getItem(`thyme-${name}`);
  } catch {
    return null;
  }
}

export function writeSetting(name: string, value: string): void {
  try {
    localStorage.setItem(`thyme-${name}`, value);
  } catch {
    // a browser without storage forgets the setting
  }
}
