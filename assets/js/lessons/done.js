// Which lessons this browser has done. A browser that keeps nothing forgets them with the page.

const KEY = 'servescope.lessons.done';

export function doneLessons(storage = ownStorage()) {
  const done = new Set(read(storage));
  return {
    has: (slug) => done.has(slug),
    add(slug) {
      done.add(slug);
      try {
        storage?.setItem(KEY, JSON.stringify([...done]));
      } catch {
        // full, or forbidden: it is known until the page is closed
      }
    },
  };
}

function ownStorage() {
  try {
    return window.localStorage;
  } catch {
    return null; // forbidden by the browser's settings
  }
}

/** Anything but a list of strings is not ours. */
function read(storage) {
  try {
    const kept = JSON.parse(storage?.getItem(KEY) ?? '[]');
    return Array.isArray(kept) ? kept.filter((slug) => typeof slug === 'string') : [];
  } catch {
    return [];
  }
}
