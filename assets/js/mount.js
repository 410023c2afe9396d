// Parts of the page that Gradio may take away and put anew, and that are built when first looked at.

/**
 * Keep a tab's part in `#<name>-root` for as long as there is one. It is made when its tab is shown.
 * @param {string} name of the tab
 * @param {() => Promise<{create: Function}>} load  `create(root, tools)` returns `{unmount(), reopened?()}`
 * @param {object} tools handed to `create`
 */
export function keepTab(name, load, tools) {
  let shown = null; // {root, part}
  let loading = null;
  let wasOpen = false;
  const check = async () => {
    if (shown !== null && !shown.root.isConnected) {
      shown.part.unmount();
      shown = null;
    }
    const opens = isOpen(name) && !wasOpen;
    wasOpen = isOpen(name);
    if (opens) shown?.part.reopened?.();
    if (shown !== null || !wasOpen) return;
    loading ??= load();
    const { create } = await loading;
    const root = document.getElementById(`${name}-root`);
    if (shown !== null || root === null) return;
    shown = { root, part: create(root, tools) };
  };
  new MutationObserver(check).observe(document.documentElement, {
    attributeFilter: ['data-tab'],
    childList: true,
    subtree: true,
  });
  check();
}

function isOpen(name) {
  return document.documentElement.dataset.tab === name && document.getElementById(`${name}-root`) !== null;
}
