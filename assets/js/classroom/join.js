// How students join: a link and its QR code for phones, and the view for the projector.

import { h, setText } from '../dom.js';

const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

/** The page's own address with other parameters. @param {string} base @param {object} parameters */
export function linkTo(base, parameters) {
  const url = new URL(base);
  url.search = new URLSearchParams(parameters).toString();
  url.hash = '';
  return url.href;
}

/**
 * Where phones find this page: as the browser sees it, or, where the browser sits at the server, by
 * the server's own address; `null` where they cannot.
 */
export function phoneBase(base, { loopback_only: isLoopbackOnly, hosts }) {
  const url = new URL(base);
  if (!LOOPBACK.test(url.hostname)) return url.href;
  if (isLoopbackOnly || hosts.length === 0) return null;
  url.hostname = hosts[0];
  return url.href;
}

export class JoinCard {
  constructor({ words }) {
    this.words = words;
    this.code = h('img', { class: 'classroom-qr', alt: words('classroom.join.code'), hidden: true });
    this.link = h('a', { class: 'classroom-link mono', target: '_blank', rel: 'noopener', hidden: true });
    this.hint = h('p', { class: 'classroom-hint' });
    const projector = h(
      'a',
      {
        class: 'classroom-button',
        target: '_blank',
        rel: 'noopener',
        href: linkTo(document.baseURI, { tab: 'playground', view: 'panels' }),
      },
      words('classroom.join.projector'),
    );
    this.element = h(
      'section',
      { class: 'card classroom-join', id: 'classroom-join' },
      h('h2', {}, words('classroom.join')),
      h('div', { class: 'classroom-join-body' }, this.code, h('div', {}, this.hint, this.link)),
      projector,
    );
  }

  /** @param {{loopback_only: boolean, hosts: string[]}} told by the server */
  show(told) {
    const base = phoneBase(document.baseURI, told);
    const isReachable = base !== null;
    this.code.hidden = !isReachable;
    this.link.hidden = !isReachable;
    const why = told.loopback_only ? 'classroom.join.loopback' : 'classroom.join.unknown';
    setText(this.hint, this.words(isReachable ? 'classroom.join.hint' : why));
    if (!isReachable) return;
    const link = linkTo(base, { tab: 'playground', view: 'chat' });
    this.link.href = link;
    setText(this.link, link);
    const code = new URL('qr.svg', document.baseURI);
    code.search = new URLSearchParams({ link }).toString();
    this.code.src = code.href;
  }
}
