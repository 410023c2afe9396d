// Building elements. Text is always a text node: nothing from a feed is ever parsed as HTML.

const SVG = 'http://www.w3.org/2000/svg';

/** h('button', { class: 'x', onclick: f, 'aria-label': 'Go', disabled: true }, 'Go', child) */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) setProp(element, name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function setProp(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === 'function') element[name] = value;
  else element.setAttribute(name, value === true ? '' : value);
}

/** Change text only when it differs, so that selections and screen readers are left in peace. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set or remove an attribute, only when it differs. */
export function setAttribute(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Text that only screen readers see. */
export const hidden = (props = {}, ...children) =>
  h('span', { class: 'scope-hidden', ...props }, ...children);

const ICONS = {
  pause: 'M4 3h3v10H4zM9 3h3v10H9z',
  resume: 'M4.5 2.8v10.4L13 8z',
  step: 'M3 3v10l6.5-5zM11 3h2.2v10H11z',
  back: 'M13 3v10l-6.5-5zM2.8 3H5v10H2.8z',
  more: 'M3.2 6.6a1.4 1.4 0 1 0 0 2.8a1.4 1.4 0 0 0 0-2.8M8 6.6a1.4 1.4 0 1 0 0 2.8a1.4 1.4 0 0 0 0-2.8M12.8 6.6a1.4 1.4 0 1 0 0 2.8a1.4 1.4 0 0 0 0-2.8',
};

/** What a button with an icon and a word shows, changed only when it is another. */
export function setFace(button, name, text) {
  if (button.dataset.face === name) return;
  button.dataset.face = name;
  button.querySelector('svg').replaceWith(icon(name));
  setText(button.querySelector('span'), text);
}

export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', 'scope-icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}
