// The words of the screen, from assets/words/<language>.json.

const LANGUAGES = ['en', 'ko'];

/** @returns {Promise<(key: string, values?: Record<string, string|number>) => string>} */
export async function loadWords(lang) {
  const name = LANGUAGES.includes(lang) ? lang : 'en';
  const response = await fetch(new URL(`../words/${name}.json`, import.meta.url));
  if (!response.ok) throw new Error(`assets/words/${name}.json: ${response.status}`);
  return wordsOf(await response.json());
}

/** A missing key shows itself, so that it is seen; a test compares the keys of the languages. */
export function wordsOf(sentences) {
  return (key, values = {}) =>
    (sentences[key] ?? key).replace(/\{(\w+)\}/g, (whole, name) =>
      name in values ? String(values[name]) : whole,
    );
}
