// Bytes of a stream → its frames, each as it came. A frame ends with an empty line.

const END = /\r?\n\r?\n/;

export class FrameReader {
  #rest = '';

  /** @param {string} text as it arrived @returns {string[]} the frames that it completes, ends included */
  read(text) {
    this.#rest += text;
    const frames = [];
    for (let end = END.exec(this.#rest); end !== null; end = END.exec(this.#rest)) {
      const length = end.index + end[0].length;
      frames.push(this.#rest.slice(0, length));
      this.#rest = this.#rest.slice(length);
    }
    return frames;
  }

  /** What came after the last whole frame. */
  get rest() {
    return this.#rest;
  }
}

/** A frame in pieces, [text, is a line end]: line ends are written out, so that they can be seen. */
export function visible(frame) {
  return frame
    .split(/(\r?\n)/)
    .filter((piece) => piece !== '')
    .map((piece) => (/^\r?\n$/.test(piece) ? [piece.replace('\r', '\\r').replace('\n', '\\n'), true] : [piece, false]));
}

/** The JSON of a frame's `data:` line; `null` for a comment, the end of a stream, or what is no JSON. */
export function dataOf(frame) {
  const line = frame.split(/\r?\n/).find((part) => part.startsWith('data: '));
  if (line === undefined || line === 'data: [DONE]') return null;
  try {
    return JSON.parse(line.slice('data: '.length));
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
