// Modules and everything they import, ready for a page that has no server: each becomes a data: URL in
// an import map, under its path as its name, since a relative name means nothing inside a data: URL.
//
//   import { h } from '../dom.js'   in js/panels/panel.js   →   import { h } from 'js/dom.js'

const IMPORT = /(\bfrom\s*|^import\s*)'(\.[^']+)'/gm;

/**
 * @param {string} entry path of a module, such as js/traces/alone.js
 * @param {(path: string) => Promise<string>} read
 * @returns {Promise<Map<string, string>>} path → source, with the names of what it imports made whole
 */
export async function gather(entry, read) {
  const modules = new Map();
  const visit = async (path) => {
    if (modules.has(path)) return;
    modules.set(path, null); // on its way
    const source = await read(path);
    const wanted = [];
    const rewritten = source.replace(IMPORT, (_, before, relative) => {
      const whole = resolve(relative, path);
      wanted.push(whole);
      return `${before}'${whole}'`;
    });
    modules.set(path, rewritten);
    await Promise.all(wanted.map(visit));
  };
  await visit(entry);
  return modules;
}

/** @param {Map<string, string>} modules @returns {string} the JSON of an import map */
export function importMapOf(modules) {
  const address = (source) => `data:text/javascript;charset=utf-8;base64,${base64(new TextEncoder().encode(source))}`;
  const imports = [...modules].sort().map(([path, source]) => [path, address(source)]);
  return JSON.stringify({ imports: Object.fromEntries(imports) });
}

/** @param {Uint8Array} bytes */
export function base64(bytes) {
  const PART = 0x8000; // as many arguments as a call takes for certain
  let binary = '';
  for (let start = 0; start < bytes.length; start += PART) {
    binary += String.fromCharCode(...bytes.subarray(start, start + PART));
  }
  return btoa(binary);
}

/** @param {string} text @returns {Uint8Array} */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function resolve(relative, from) {
  return new URL(relative, `file:///${from}`).pathname.slice(1);
}
