// Runs before anything is drawn: what the address asks for becomes attributes of <html>, which the
// styles and the other scripts read. A classic script, since modules wait for the document.
(() => {
  const root = document.documentElement;
  const asked = new URLSearchParams(location.search);
  const oneOf = (allowed, ...wishes) => wishes.find((wish) => allowed.includes(wish));

  // Language: the address, then the operator, then the browser. Gradio and everyone else asks the
  // browser, so the browser says it.
  const operator = document.currentScript.dataset.lang;
  const own = navigator.language.toLowerCase().startsWith('ko') ? 'ko' : 'en';
  const lang = oneOf(['en', 'ko'], asked.get('lang'), operator, own);
  Object.defineProperty(navigator, 'language', { configurable: true, get: () => lang });
  Object.defineProperty(navigator, 'languages', { configurable: true, get: () => [lang] });
  root.lang = lang;
  window.servescope = Object.assign(window.servescope ?? {}, { lang });

  const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  root.dataset.theme = oneOf(['light', 'dark'], asked.get('theme'), system);
  root.dataset.view = oneOf(['full', 'chat', 'panels'], asked.get('view'), 'full');
  root.dataset.tab = asked.get('tab') ?? (asked.has('trace') ? 'traces' : '');
})();
