// One theme for both: our styles read data-theme on <html>, Gradio's read the class dark on <body>.

import { setParameter } from './address.js';

const root = document.documentElement;

/** Whatever sets Gradio's class, ours decides. */
export function keepTheme() {
  const follow = () => {
    const dark = root.dataset.theme === 'dark';
    if (document.body.classList.contains('dark') !== dark) document.body.classList.toggle('dark', dark);
  };
  follow();
  new MutationObserver(follow).observe(document.body, { attributeFilter: ['class'] });
  new MutationObserver(follow).observe(root, { attributeFilter: ['data-theme'] });
}

/** The other theme, and the address says so. */
export function switchTheme() {
  root.dataset.theme = root.dataset.theme === 'dark' ? 'light' : 'dark';
  setParameter('theme', root.dataset.theme);
}
