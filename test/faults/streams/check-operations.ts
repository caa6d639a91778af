import { createHash } from 'node:crypto';
import { quantile } from '../../kit/samples.ts';
import { countFigure, type FaultFigure, neverFigure, workFigure } from '../fault-suite.ts';
import { wordOf } from '../numbered-words.ts';

/** What was done and seen, one line of the log each. */
export type Operation =
  | {
      readonly kind: 'stream';
      /** Around us, to the model API itself: what the first word is compared with. */
      readonly isDirect: boolean;
      readonly outcome: 'ok' | 'fail' | 'unknown';
      readonly asked: number;
      /** Of all the words that came, in the order in which they came. */
      readonly digest: string;
      readonly isDone: boolean;
      readonly firstMs: number;
    }
  /** What the program holds in memory. */
  | { readonly kind: 'memory'; readonly bytes: number };

type StreamOperation = Extract<Operation, { kind: 'stream' }>;

const FIRST_WORD_P95_MS = 10;
const digests = new Map<number, string>();

/** What a stream of so many words comes to, when none is lost, changed or out of order. */
export function digestOf(words: number): string {
  const known = digests.get(words);
  if (known !== undefined) return known;
  const hash = createHash('sha256');
  for (let index = 0; index < words; index += 1) hash.update(wordOf(index));
  const digest = hash.digest('hex');
  digests.set(words, digest);
  return digest;
}

/** Judges a whole run by its log. */
export function checkOperations(operations: readonly Operation[]): string[] {
  const streams = operations.filter((one) => one.kind === 'stream');
  return [
    ...(streams.length === 0 ? ['no stream was read'] : []),
    ...streams.filter(isNoAnswer).map(({ asked }) => `a stream of ${asked} words did not end well`),
    ...streams.filter(isDamaged).map(({ asked }) => `of a stream of ${asked} words something was lost or out of order`),
  ];
}

/** What the run came to, by its log. */
export function figuresOf(operations: readonly Operation[]): FaultFigure[] {
  const streams = operations.filter((one) => one.kind === 'stream');
  const ours = streams.filter(({ isDirect }) => !isDirect);
  const p95 = (of: readonly StreamOperation[]) =>
    quantile(
      of.map(({ firstMs }) => firstMs),
      0.95,
    );
  const [through, direct] = [p95(ours), p95(streams.filter(({ isDirect }) => isDirect))];
  const memory = Math.max(0, ...operations.flatMap((one) => (one.kind === 'memory' ? [one.bytes] : [])));
  return [
    workFigure('streams', ours.length),
    countFigure(
      'words in them',
      ours.reduce((sum, { asked }) => sum + asked, 0),
    ),
    neverFigure('streams that did not end well', streams.filter(isNoAnswer).length),
    neverFigure('streams with something lost or out of order', streams.filter(isDamaged).length),
    { name: 'first word from the model API itself, p95', value: `${direct.toFixed(1)} ms`, goal: '', met: true },
    {
      name: 'first word later than that, p95',
      value: `${(through - direct).toFixed(1)} ms`,
      goal: `≤ ${FIRST_WORD_P95_MS} ms`,
      met: through - direct <= FIRST_WORD_P95_MS,
    },
    { name: 'memory (RSS), at most', value: `${Math.round(memory / 1_000_000)} MB`, goal: '', met: true },
  ];
}

function isNoAnswer({ outcome, isDone }: StreamOperation): boolean {
  return outcome !== 'ok' || !isDone;
}

function isDamaged(stream: StreamOperation): boolean {
  return !isNoAnswer(stream) && stream.digest !== digestOf(stream.asked);
}
