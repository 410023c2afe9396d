// What the chat needs and Gradio does not do.

import { whenever } from './whenever.js';

/** Enter that ends a syllable of an input method must not send half a word. */
export function keepUnfinishedSyllables() {
  document.addEventListener(
    'keydown',
    (event) => {
      if (event.key === 'Enter' && event.isComposing && event.target.closest?.('#chat-input')) {
        event.stopImmediatePropagation();
      }
    },
    { capture: true },
  );
}

/** Messages are escaped, since the log parses them as HTML; whoever edits one sees what was written. */
export function keepEditsReadable() {
  whenever('#chat-log .edit-textarea', (area) => {
    area.value = unescapeText(area.value);
    area.dispatchEvent(new Event('input', { bubbles: true }));
    area.focus();
  });
}

/** @param {string} text */
export function unescapeText(text) {
  const decoder = document.createElement('textarea');
  decoder.innerHTML = text;
  return decoder.value;
}

/** Gradio gives each option of a choice a group of its own; as one, the arrow keys move in it. */
export function keepChoicesTogether() {
  for (const id of ['backend-choice', 'backend-mode']) {
    whenever(`#${id} input[type=radio]`, (input) => {
      const join = () => { if (input.name !== id) input.name = id; };
      join();
      new MutationObserver(join).observe(input, { attributeFilter: ['name'] }); // named anew with each choice
    });
    whenever(`#${id}`, (group) => {
      group.setAttribute('role', 'radiogroup');
      group.setAttribute('aria-label', group.querySelector('[data-testid=block-info]').textContent);
    });
  }
}

/** The settings open and close under their title; they are there all the time, and keep what is written. */
export function keepSettingsClosed() {
  whenever('#settings-title', (title) => {
    const open = (on) => title.setAttribute('aria-expanded', String(on));
    title.setAttribute('aria-controls', 'settings-parts');
    title.addEventListener('click', () => open(title.ariaExpanded !== 'true'));
    open(false);
  });
}

/**
 * The log follows the answer while its end is in view, and every new question brings it there.
 * Gradio's own following gives up when more than a few lines come at once.
 */
export function keepEndInView() {
  whenever('#chat-log .message-wrap', (messages) => {
    const log = messages.parentElement;
    let following = true;
    let lastTop = 0;
    const follow = () => { if (following) log.scrollTo(0, log.scrollHeight); };
    log.addEventListener('scroll', () => {
      if (log.scrollHeight - log.scrollTop - log.clientHeight < 40) following = true;
      else if (log.scrollTop < lastTop) following = false; // only a reader scrolls up
      lastTop = log.scrollTop;
    });
    new ResizeObserver(follow).observe(messages);
    new MutationObserver((changes) => {
      const asked = changes.some((change) => [...change.addedNodes].some((node) => node.matches?.('.user-row')));
      if (asked) { following = true; follow(); }
    }).observe(messages, { childList: true });
  });
}

/** A screen reader reads an answer when it is whole, not ten times a second. */
export function keepReadersWaiting() {
  whenever('#chat-stop', (stop) => {
    const tell = () => {
      document.querySelector('#chat-log [role=log]')?.setAttribute('aria-busy', String(!stop.disabled));
    };
    new MutationObserver(tell).observe(stop, { attributeFilter: ['disabled'] });
  });
}

/** A button that goes off drops the focus of the keyboard: then the next question can be written. */
export function keepFocusInChat() {
  whenever('#chat-send, #chat-stop', (button) => {
    const pass = () => {
      if (!button.disabled || !button.matches(':focus-visible')) return; // a finger wants no keyboard on the screen
      document.querySelector('#chat-input textarea').focus();
    };
    new MutationObserver(pass).observe(button, { attributeFilter: ['disabled'] });
  });
}
