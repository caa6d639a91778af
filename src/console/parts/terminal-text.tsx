import Anser from 'anser';
import { memo } from 'react';
import { countOf, countText, endOf, visible } from './text.ts';

const MAX_LINES = 200;

/** Output of a command with its colours. Nothing in it moves a cursor or becomes markup. */
export const TerminalText = memo(function TerminalText({ text }: { readonly text: string }) {
  const lines = text.split('\n');
  const hidden = lines.length - MAX_LINES;
  // A line has no end where a program prints without line breaks.
  const { shown, hidden: characters } = endOf(lines.slice(-MAX_LINES).join('\n'));
  return (
    <pre className="terminal">
      {hidden > 0 ? (
        <span className="quiet">
          {countOf(hidden, 'line')} before these{'\n'}
        </span>
      ) : null}
      {characters > 0 ? (
        <span className="quiet">
          {countText(characters)} characters before these{'\n'}
        </span>
      ) : null}
      {Anser.ansiToJson(shown, { use_classes: true, remove_empty: true }).map(
        ({ content, fg, bg, decorations }, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other name
          <span key={index} className={[fg, bg && `${bg}-bg`, ...decorations].filter(Boolean).join(' ') || undefined}>
            {visible(content)}
          </span>
        ),
      )}
    </pre>
  );
});
