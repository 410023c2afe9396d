// Gradio draws late and may draw again: whoever needs one of its elements says what to do with it.

/**
 * Call `act` with every element that matches, now and whenever one is added.
 * @param {string} selector
 * @param {(element: Element) => void} act
 */
export function whenever(selector, act) {
  const look = (node) => {
    if (!(node instanceof Element)) return;
    if (node.matches(selector)) act(node);
    node.querySelectorAll(selector).forEach(act);
  };
  look(document.documentElement);
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach(look))).observe(
    document.documentElement,
    { childList: true, subtree: true },
  );
}
