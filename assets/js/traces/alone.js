// The entry of a page that has no server: what it shows lies in its own document (page_file.js).

import { Replay } from './replay.js';
import { checkOf } from './check.js';
import { fromBase64 } from './bundle.js';
import { lookAtStep, openRecording } from './recording.js';
import { takePlotlyFrom } from '../panels/chart.js';
import { unpacked } from './reading.js';
import { wishOf } from './address.js';
import { wordsOf } from '../words.js';

const text = (id) => document.getElementById(id).textContent;
const blobOf = (id) => new Blob([fromBase64(text(id))]);
const oneOf = (allowed, ...wishes) => wishes.find((wish) => allowed.includes(wish));

const settings = JSON.parse(text('settings'));
const query = new URLSearchParams(location.search);
const root = document.documentElement;
root.lang = oneOf(['en', 'ko'], query.get('lang'), settings.lang);
root.dataset.theme = oneOf(['light', 'dark'], query.get('theme'), settings.theme);
root.dataset.view = oneOf(['full', 'panels'], query.get('view'), 'full');
document.title = `${settings.title} · Servescope`;

takePlotlyFrom(async () => {
  const script = await new Response(await unpacked(blobOf('plotly'))).blob();
  return URL.createObjectURL(script);
});
const recording = await openRecording({
  name: settings.name,
  title: settings.title,
  blob: blobOf('trace'),
  check: checkOf(settings.schema),
});
lookAtStep(recording.store, wishOf(location.search).step);
const replay = new Replay(recording, {
  words: wordsOf(settings.words[root.lang]),
  view: root.dataset.view,
});
document.getElementById('traces-root').append(replay.element);
