// The page's own small scripts: everything that is neither Gradio's nor a panel's.

import {
  keepChoicesTogether,
  keepEditsReadable,
  keepEndInView,
  keepFocusInChat,
  keepReadersWaiting,
  keepSettingsClosed,
  keepUnfinishedSyllables,
} from './chat.js';
import { keepEngineInAddress } from './engine.js';
import { keepHeader } from './header.js';
import { keepTheme } from './theme.js';

keepTheme();
keepHeader();
keepEngineInAddress();
keepChoicesTogether();
keepUnfinishedSyllables();
keepEditsReadable();
keepEndInView();
keepReadersWaiting();
keepSettingsClosed();
keepFocusInChat();
