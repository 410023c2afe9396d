// Pointing into a picture, by mouse, finger or keyboard: what is under it lights up everywhere.

/**
 * @typedef {{id: string|null, ordinal: number|null, content: object|null, seek?: boolean}} Found
 * @param {HTMLCanvasElement} canvas
 * @param {{tools: object, store: object, find: (x: number, y: number) => Found|null,
 *   neighbour: (id: string|null, by: number) => string|null, detailsOf?: (id: string|null) => object|null}}
 *   options  `detailsOf`: of the request that the keys have come to, at the step that is looked at
 */
export function bindPointing(canvas, { tools, store, find, neighbour, detailsOf = () => null }) {
  const { signal, tooltip } = tools;
  const on = (type, listener) => canvas.addEventListener(type, listener, { signal });

  const point = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    const found = find(event.clientX - left, event.clientY - top);
    canvas.style.cursor = found !== null && (found.id !== null || found.seek) ? 'pointer' : 'default';
    store.set({ pointed: found?.id ?? null, crosshair: found?.ordinal ?? null });
    if (found?.content) tooltip.show(found.content, { x: event.clientX, y: event.clientY });
    else tooltip.hide();
    return found;
  };
  const leave = () => {
    tooltip.hide();
    store.set({ pointed: null, crosshair: null });
  };

  on('pointermove', point);
  on('pointerdown', point);
  on('pointerleave', leave);
  on('blur', leave);
  on('click', (event) => {
    const found = point(event);
    if (found?.seek && found.ordinal !== null) store.lookAt(found.ordinal);
    else if (found?.id) store.togglePin(found.id);
    else store.set({ pinned: null });
  });
  on('keydown', (event) => {
    const act = KEYS[event.key];
    if (act === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(store, neighbour);
    const content = event.key === 'Escape' ? null : detailsOf(store.pinned);
    const { left, bottom } = canvas.getBoundingClientRect();
    if (content === null) tooltip.hide();
    else tooltip.show(content, { x: left, y: bottom });
  });
}

const KEYS = {
  ArrowUp: (store, neighbour) => store.set({ pinned: neighbour(store.pinned, -1) }),
  ArrowDown: (store, neighbour) => store.set({ pinned: neighbour(store.pinned, 1) }),
  ArrowLeft: (store) => store.lookAt(store.shown - 1),
  ArrowRight: (store) => store.lookAt(store.shown + 1),
  Home: (store) => store.lookAt(store.history.first),
  End: (store) => store.goLive(),
  Escape: (store) => store.set({ pinned: null, pointed: null, crosshair: null }),
};
