// What an empty panel shows above its sentence: the kind of picture that will be there.

const SVG = 'http://www.w3.org/2000/svg';

const bar = (x, y, width, height, opacity = 1) => ({ x, y, width, height, opacity });
const range = (length) => Array.from({ length }, (_, index) => index);

const MOTIFS = {
  batch: [
    ...range(3).flatMap((lane) => [
      bar(6 + lane * 13, 3 + lane * 13, 4, 10),
      ...range(9 - lane * 3 + (lane === 2 ? 1 : 0)).map((step) =>
        bar(12 + lane * 13 + step * 5, 5.5 + lane * 13, 4, 5, 0.6),
      ),
    ]),
  ],
  kv: range(21).map((block) =>
    bar(
      4 + (block % 7) * 8,
      4 + Math.floor(block / 7) * 12,
      6.5,
      10,
      block < 9 ? 1 : block < 12 ? 0.55 : 0.22,
    ),
  ),
  queues: [
    bar(4, 4, 10, 6, 0.35),
    bar(14, 4, 32, 6),
    bar(12, 17, 16, 6, 0.35),
    bar(28, 17, 26, 6),
    bar(24, 30, 22, 6, 0.35),
    bar(46, 30, 14, 6),
  ],
  latency: [
    ...[24, 20, 23, 19, 22, 8, 21, 20, 23, 19, 21].map((y, index) => bar(6 + index * 5, y, 3, 3)),
    bar(3, 36, 58, 1, 0.4),
  ],
};

/** @param {'batch'|'kv'|'queues'|'latency'} panel */
export function motif(panel) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 64 40');
  svg.setAttribute('class', 'scope-motif');
  svg.setAttribute('aria-hidden', 'true');
  for (const shape of MOTIFS[panel]) {
    const rect = document.createElementNS(SVG, 'rect');
    for (const [name, value] of Object.entries({ ...shape, rx: 1 })) rect.setAttribute(name, String(value));
    svg.append(rect);
  }
  return svg;
}
