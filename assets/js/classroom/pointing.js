// Pointing at a lane, by mouse, finger or arrow keys: its figures beside it, its student lit everywhere.

import { count, duration } from '../format.js';

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{tools: object, lanes: () => object[], laneAt: (y: number) => number|null,
 *   middleOf: (student: number) => number, onPoint: (student: number|null) => void}} options
 */
export function bindLanes(canvas, { tools, lanes, laneAt, middleOf, onPoint }) {
  const { tooltip, words } = tools;
  let current = null;

  const show = (student, at) => {
    current = student;
    onPoint(student);
    if (student === null) tooltip.hide();
    else tooltip.show(contentOf(lanes()[student], words), at);
  };
  const point = (event) => {
    const { top } = canvas.getBoundingClientRect();
    show(laneAt(event.clientY - top), { x: event.clientX, y: event.clientY });
  };
  const leave = () => show(null);

  canvas.addEventListener('pointermove', point);
  canvas.addEventListener('pointerdown', point);
  canvas.addEventListener('pointerleave', leave);
  canvas.addEventListener('blur', leave);
  canvas.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') return leave();
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by === undefined || lanes().length === 0) return;
    event.preventDefault();
    const next = current === null ? 0 : Math.max(0, Math.min(current + by, lanes().length - 1));
    const { left, top } = canvas.getBoundingClientRect();
    show(next, { x: left + 40, y: top + middleOf(next) });
  });
}

/** @param {object} lane of a result */
export function contentOf(lane, words) {
  const title = words('classroom.lane', { number: lane.student + 1 });
  if (lane.arrived === null) return { seat: lane.student, title, note: lane.error ?? '' };
  const since = (time) => (time === null || time === undefined ? null : time - lane.arrived);
  return {
    seat: lane.student,
    title,
    lines: [
      [words('classroom.lane.arrived'), duration(lane.arrived)],
      [words('classroom.lane.queue'), duration(since(lane.first_scheduled))],
      [words('classroom.lane.ttft'), duration(since(lane.token_times[0]))],
      [words('classroom.lane.tokens'), `${count(lane.num_tokens)} / ${count(lane.max_tokens)}`],
      [words('classroom.lane.ended'), duration(lane.ended)],
      ...(lane.preempted.length > 0
        ? [[words('classroom.lane.preempted'), `${lane.preempted.length}×`]]
        : []),
    ],
    note: lane.error ?? (lane.ended === null ? words('classroom.lane.unfinished') : undefined),
  };
}
