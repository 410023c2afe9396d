// The line under the chat: this visitor's last request as the engine saw it, all from the feed.

import { duration, count, rate } from './format.js';
import { latencyOf } from './latency.js';
import { seatBadge } from './tooltip.js';
import { setText } from './dom.js';

/** Fills #chat-meta, which the page provides. */
export function showChatMeta(store, words) {
  const host = document.getElementById('chat-meta');
  if (host === null) return;
  const request = store.lastMine === null ? undefined : store.history.live.requests.get(store.lastMine);
  const note = isPlainChat(store) ? words('meta.plain_chat') : '';
  if (request === undefined) {
    if (host.textContent !== note) host.replaceChildren(note);
    return;
  }
  if (host.dataset.request !== request.id || host.childNodes.length === 0) {
    host.dataset.request = request.id;
    host.replaceChildren(seatBadge(request.seat), document.createElement('span'));
  }
  setText(host.lastChild, [...sentencesOf(request, words), note].filter(Boolean).join(' · '));
}

/** The model has no chat template: messages reach it as plain text. */
function isPlainChat(store) {
  return store.history.live.header?.notes?.chat !== undefined;
}

/** It decodes, and whoever asked has nothing yet: a blocking call keeps its tokens until its end. */
function isUndelivered({ status, phase, firstTokenTime }) {
  return status === 'running' && phase === 'decode' && firstTokenTime === null;
}

const cameAtOnce = ({ numGaps, numZeroGaps }) => numGaps > 0 && numZeroGaps === numGaps;

function sentencesOf(request, words) {
  const latency = latencyOf(request);
  const parts = [];
  if (latency.ttft === null) parts.push(words(`meta.${isUndelivered(request) ? 'undelivered' : request.status}`));
  else if (cameAtOnce(latency)) parts.push(words('meta.at_once', { time: duration(latency.ttft) }));
  else parts.push(words('meta.first_token', { time: duration(latency.ttft) }));
  if (latency.numTokens > 0) parts.push(words('meta.tokens', { number: count(latency.numTokens) }));
  if (latency.tokensPerSecond !== null)
    parts.push(words('meta.rate', { rate: rate(latency.tokensPerSecond) }));
  if (request.numCachedTokens > 0) {
    parts.push(
      words('meta.cached', {
        cached: count(request.numCachedTokens),
        prompt: count(request.numPromptTokens),
      }),
    );
  }
  if (request.finishReason === 'abort' || request.finishReason === 'error')
    parts.push(words(`meta.${request.finishReason}`));
  return parts;
}
