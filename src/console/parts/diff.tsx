import { memo } from 'react';
import { type FileChange, type Line, linesOf } from './diff-lines.ts';
import { pathInside, visible } from './text.ts';

const NAMES = { '+': 'added', '-': 'removed', ' ': 'same' } as const;

interface DiffViewProps {
  readonly change: FileChange;
  /** Where the agent works. */
  readonly folder: string;
  readonly open?: boolean;
  readonly onToggle?: (isOpen: boolean) => void;
  /** Takes the place of a line that somebody wants to say something about. */
  readonly onComment?: (place: string, text: string) => void;
}

/** One file of a change, folded unless it is short. */
export const DiffView = memo(function DiffView({ change, folder, open, onToggle, onComment }: DiffViewProps) {
  const lines = linesOf(change);
  const path = pathInside(change.path, folder);
  return (
    <details
      className="diff"
      open={open ?? lines.length <= 40}
      onToggle={({ currentTarget }) => onToggle?.(currentTarget.open)}
    >
      <summary>
        <span className="path">{visible(path)}</span> <ins>+{change.added}</ins> <del>-{change.removed}</del>
      </summary>
      <div className="scrolls">
        <table>
          <tbody>
            {lines.map((line, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: lines of a text have no other name
              <tr key={index} className={NAMES[line.sign]}>
                <td className="number">{line.oldLine}</td>
                <td className="number">
                  {onComment === undefined ? (
                    line.newLine
                  ) : (
                    <LineNumber line={line} path={path} onComment={onComment} />
                  )}
                </td>
                <td>
                  <pre>
                    <span aria-hidden="true">{line.sign} </span>
                    {visible(line.text)}
                  </pre>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {change.truncated ? <p className="quiet">The change is too large to be shown here.</p> : null}
    </details>
  );
});

interface LineNumberProps extends Required<Pick<DiffViewProps, 'onComment'>> {
  readonly line: Line;
  readonly path: string;
}

/** The number of a line, as the button that takes the line into the next message. */
function LineNumber({ line, path, onComment }: LineNumberProps) {
  const number = line.newLine ?? line.oldLine;
  const name = `Comment on ${line.sign === '-' ? 'removed ' : ''}line ${number}`;
  return (
    <button
      type="button"
      className="plain line-number"
      title={name}
      aria-label={name}
      onClick={() => onComment(`${path}:${number}${line.sign === '-' ? ' (removed)' : ''}`, line.text)}
    >
      {line.newLine ?? '−'}
    </button>
  );
}
