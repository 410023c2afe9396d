// The header: which tab, language and theme; what runs and how many watch, as the server says it.

import { setParameter, withParameter } from './address.js';
import { switchTheme } from './theme.js';
import { whenever } from './whenever.js';
import { loadWords } from '../words.js';

const LOOK_INTERVAL = 5000;

const root = document.documentElement;

export function keepHeader() {
  whenever('#page-tabs', drawTabs);
  whenever('#page-language', drawLanguages);
  whenever('#page-theme', (button) => button.addEventListener('click', switchTheme));
  keepFacts();
}

function showIfChosen(tab) {
  tab.hidden = tab.id !== `tab-${root.dataset.tab}`;
}

function drawTabs(nav) {
  const links = [...nav.querySelectorAll('a')];
  const show = (name) => {
    const chosen = links.find((link) => link.dataset.tab === name) ?? links[0];
    root.dataset.tab = chosen.dataset.tab;
    for (const link of links) {
      if (link === chosen) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    document.querySelectorAll('.tab').forEach(showIfChosen);
  };
  nav.addEventListener('click', (event) => {
    const link = event.target.closest('a');
    if (link === null || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    setParameter('tab', link.dataset.tab);
    show(link.dataset.tab);
  });
  show(root.dataset.tab);
  whenever('.tab', showIfChosen);
}

function drawLanguages(nav) {
  for (const link of nav.querySelectorAll('a')) {
    if (link.dataset.lang === root.lang) link.setAttribute('aria-current', 'true');
    link.addEventListener('click', (event) => {
      event.preventDefault(); // the address may have changed since the link was drawn
      location.assign(withParameter('lang', link.dataset.lang));
    });
  }
}

/** Ask the server now and then, while someone looks. */
async function keepFacts() {
  const words = await loadWords(root.lang);
  const look = async () => {
    if (document.visibilityState !== 'visible') return;
    const response = await fetch(new URL('health', document.baseURI)).catch(() => null); // away: the panels say so
    if (response?.ok) showFacts((await response.json()).backends, words);
  };
  whenever('#header-model', look);
  window.addEventListener('servescope:backend', look);
  document.addEventListener('visibilitychange', look);
  setInterval(look, LOOK_INTERVAL);
}

function showFacts(backends, words) {
  const chosen = document.querySelector('#backend-choice input:checked')?.value;
  const { model, dtype, device } = backends[chosen] ?? {};
  const runs = [model, dtype, device].filter(Boolean);
  const chip = document.getElementById('header-model');
  if (runs.length > 0) chip.textContent = runs.join(' · ');
  const count = Object.values(backends).reduce((sum, backend) => sum + backend.viewers, 0);
  const watching = document.getElementById('header-watching');
  watching.textContent = words('page.watching', { count });
  watching.hidden = count === 0;
}
