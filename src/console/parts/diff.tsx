import { memo, useMemo, useState } from 'react';
import { CodeLine, useDiffColours } from './code.tsx';
import type { Piece } from './colour-lines.ts';
import { type FileChange, type Line, linesOf, pairsOf } from './diff-lines.ts';
import { Dialog } from './parts.tsx';
import { pathInside, visible } from './text.ts';

const NAMES = { '+': 'added', '-': 'removed', ' ': 'same' } as const;

interface DiffViewProps {
  readonly change: FileChange;
  /** Where the agent works. */
  readonly folder: string;
  readonly open?: boolean;
  /** Whether the old and the new lines are side by side. */
  readonly isSplit?: boolean;
  readonly onToggle?: (isOpen: boolean) => void;
  /** Takes the place of a line that somebody wants to say something about. */
  readonly onComment?: (place: string, text: string) => void;
}

/** One file of a change, folded unless it is short. */
export const DiffView = memo(function DiffView(props: DiffViewProps) {
  const { change, folder, open, isSplit = false, onToggle, onComment } = props;
  const { oldText, newText, unified } = change;
  const lines = useMemo(
    () =>
      linesOf({
        path: change.path,
        ...(oldText !== undefined && { oldText }),
        ...(newText !== undefined && { newText }),
        ...(unified !== undefined && { unified }),
      }),
    [change.path, oldText, newText, unified],
  );
  const colours = useDiffColours(lines, change.path);
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
        <table className={isSplit ? 'split' : ''}>
          <tbody>
            {isSplit
              ? pairsOf(lines).map(({ before, after }, index) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: lines of a text have no other name
                  <tr key={index}>
                    <Half line={before} side="before" {...{ path, colours, onComment }} />
                    <Half line={after} side="after" {...{ path, colours, onComment }} />
                  </tr>
                ))
              : lines.map((line, index) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: lines of a text have no other name
                  <tr key={index} className={NAMES[line.sign]}>
                    <td className="number">{line.oldLine}</td>
                    <td className="number">
                      {onComment === undefined ? (
                        line.newLine
                      ) : (
                        <LineNumber line={line} path={path} shown={line.newLine} onComment={onComment} />
                      )}
                    </td>
                    <Text line={line} pieces={colours.get(line)} />
                  </tr>
                ))}
          </tbody>
        </table>
      </div>
      {change.truncated ? <p className="quiet">The change is too large to be shown here.</p> : null}
    </details>
  );
});

interface TextProps {
  readonly line: Line;
  readonly pieces: readonly Piece[] | undefined;
  readonly name?: string;
}

function Text({ line, pieces, name = '' }: TextProps) {
  return (
    <td className={name}>
      <pre>
        <span aria-hidden="true">{line.sign} </span>
        <CodeLine text={visible(line.text)} pieces={pieces} />
      </pre>
    </td>
  );
}

interface HalfProps {
  readonly line: Line | undefined;
  readonly side: 'before' | 'after';
  readonly onComment: DiffViewProps['onComment'] | undefined;
  readonly path: string;
  readonly colours: ReadonlyMap<Line, readonly Piece[]>;
}

/** One side of a pair of lines. An unchanged line is commented on at its right side. */
function Half({ line, side, path, colours, onComment }: HalfProps) {
  if (line === undefined) return <td colSpan={2} className="absent" />;
  const number = side === 'before' ? line.oldLine : line.newLine;
  const isNamed = side === 'after' || line.sign === '-';
  return (
    <>
      <td className={`number ${NAMES[line.sign]}`}>
        {isNamed && onComment !== undefined ? (
          <LineNumber line={line} path={path} shown={number} onComment={onComment} />
        ) : (
          number
        )}
      </td>
      <Text line={line} pieces={colours.get(line)} name={NAMES[line.sign]} />
    </>
  );
}

interface LineNumberProps extends Required<Pick<DiffViewProps, 'onComment'>> {
  readonly line: Line;
  readonly path: string;
  readonly shown: number | undefined;
}

/** The number of a line, as the button that takes the line into the next message. */
function LineNumber({ line, path, shown, onComment }: LineNumberProps) {
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
      {shown ?? '−'}
    </button>
  );
}

interface Named {
  readonly name: string;
  readonly text: string;
}

/** The difference between two of several texts. */
export function CompareDialog({ texts, onClose }: { readonly texts: readonly Named[]; readonly onClose: () => void }) {
  const [[left, right], setPlaces] = useState<readonly [number, number]>([0, 1]);
  const [oldText, newText] = [texts[left]?.text ?? '', texts[right]?.text ?? ''];
  const lines = linesOf({ path: '', oldText: ended(oldText), newText: ended(newText) });
  const count = (sign: Line['sign']) => lines.filter((line) => line.sign === sign).length;
  const path = `${texts[left]?.name} → ${texts[right]?.name}`;
  const change = { path, oldText: ended(oldText), newText: ended(newText), truncated: false };
  return (
    <Dialog title="Compare" onClose={onClose}>
      <div className="line">
        <Place label="From" value={left} texts={texts} onChange={(place) => setPlaces([place, right])} />
        <Place label="To" value={right} texts={texts} onChange={(place) => setPlaces([left, place])} />
      </div>
      {oldText === newText ? (
        <p>Both are the same.</p>
      ) : (
        <DiffView change={{ ...change, added: count('+'), removed: count('-') }} folder="" open />
      )}
    </Dialog>
  );
}

/** Texts of models end without a line end, which a diff would mention. */
const ended = (text: string) => (text.endsWith('\n') ? text : `${text}\n`);

interface PlaceProps {
  readonly label: string;
  readonly value: number;
  readonly texts: readonly Named[];
  readonly onChange: (place: number) => void;
}

function Place({ label, value, texts, onChange }: PlaceProps) {
  return (
    <label>
      {label}{' '}
      <select value={value} onChange={({ target }) => onChange(Number(target.value))}>
        {texts.map(({ name }, place) => (
          <option key={name} value={place}>
            {visible(name)}
          </option>
        ))}
      </select>
    </label>
  );
}
