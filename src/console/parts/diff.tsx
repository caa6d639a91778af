import { memo } from 'react';
import { type FileChange, linesOf } from './diff-lines.ts';
import { pathInside, visible } from './text.ts';

const NAMES = { '+': 'added', '-': 'removed', ' ': 'same' } as const;

/** One file of a change, folded unless it is short. */
export const DiffView = memo(function DiffView(props: { change: FileChange; folder: string; open?: boolean }) {
  const { change, folder, open } = props;
  const lines = linesOf(change);
  return (
    <details className="diff" open={open ?? lines.length <= 40}>
      <summary>
        <span className="path">{visible(pathInside(change.path, folder))}</span> <ins>+{change.added}</ins>{' '}
        <del>-{change.removed}</del>
      </summary>
      <div className="scrolls">
        <table>
          <tbody>
            {lines.map(({ sign, text, oldLine, newLine }, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: lines of a text have no other name
              <tr key={index} className={NAMES[sign]}>
                <td className="number">{oldLine}</td>
                <td className="number">{newLine}</td>
                <td>
                  <pre>
                    <span aria-hidden="true">{sign} </span>
                    {visible(text)}
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
