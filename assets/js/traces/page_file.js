// One HTML file that shows a recording without any server: our own modules, styles and words, Plotly,
// and the records, all in it. Nothing of the records is ever part of its markup: they are base64.

import { base64, gather, importMapOf } from './bundle.js';
import { packed } from './downloads.js';

const ENTRY = 'js/traces/alone.js';
const STYLES = ['css/tokens.css', 'css/scope.css', 'css/traces.css', 'css/alone.css'];
const WORDS = /^(panel|state|traces|transport)\./;
const LANGUAGES = ['en', 'ko'];
const PLOTLY = '../vendor/plotly.min.js';

/**
 * @param {{name: string, title: string, blob: Blob}} recording
 * @param {{lang: string, theme: string, schema: object, read: (path: string) => Promise<string>}} options
 *   `schema`: of a record; `read` gives the text of a file under assets/
 * @returns {Promise<Blob>}
 */
export async function pageOf(recording, { lang, theme, schema, read }) {
  const [modules, styles, plotly, trace, words] = await Promise.all([
    gather(ENTRY, read),
    Promise.all(STYLES.map(read)),
    read(PLOTLY),
    packed(recording),
    Promise.all(LANGUAGES.map(async (language) => [language, wordsIn(JSON.parse(await read(`words/${language}.json`)))])),
  ]);
  const parts = {
    trace: await inBase64(trace),
    plotly: await inBase64(await packed({ blob: new Blob([plotly]) })),
    settings: inScript({ name: recording.name, title: recording.title, lang, theme, schema, words: Object.fromEntries(words) }),
  };
  const html = documentOf({ parts, importMap: importMapOf(modules), styles: styles.join('\n'), nonce: newNonce() });
  return new Blob([html], { type: 'text/html' });
}

const inBase64 = async (blob) => base64(new Uint8Array(await blob.arrayBuffer()));

/** JSON that cannot end the element it stands in, whatever is in it. */
export const inScript = (value) => JSON.stringify(value).replace(/</g, '\\u003c');

function wordsIn(words) {
  return Object.fromEntries(Object.entries(words).filter(([key]) => WORDS.test(key)));
}

/** Only our own scripts run, and none of them can reach anything outside the file. */
function policyOf(nonce) {
  return [
    "default-src 'none'",
    `script-src 'nonce-${nonce}' 'strict-dynamic'`,
    "style-src 'unsafe-inline'",
    'img-src data: blob:',
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

function documentOf({ parts, importMap, styles, nonce }) {
  return `<!doctype html>
<html>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policyOf(nonce)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Servescope</title>
<style>${styles}</style>
<script type="importmap" nonce="${nonce}">${importMap}</script>
</head>
<body>
<main id="traces-root"></main>
<script type="application/json" id="settings">${parts.settings}</script>
<script type="text/plain" id="plotly">${parts.plotly}</script>
<script type="text/plain" id="trace">${parts.trace}</script>
<script type="module" nonce="${nonce}">import '${ENTRY}';</script>
</body>
</html>
`;
}

function newNonce() {
  return base64(crypto.getRandomValues(new Uint8Array(18)));
}
