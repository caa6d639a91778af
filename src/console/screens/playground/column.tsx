import { useEffect, useRef } from 'react';
import { Link } from 'wouter';
import type { ChatPart, ChatRequest } from '../../data/chat-code.ts';
import type { ChatAnswer } from '../../data/chat-stream.ts';
import type { Call } from '../../data/completions.ts';
import { Markdown } from '../../parts/markdown.tsx';
import { ErrorBox } from '../../parts/parts.tsx';
import { countText, moneyText, visible } from '../../parts/text.ts';

/** A question and its answer. */
export interface Exchange {
  readonly id: string;
  readonly request: ChatRequest;
  readonly answer: ChatAnswer;
  readonly state: 'running' | 'done' | 'stopped' | 'failed';
  readonly problem: unknown;
  /** What the server has recorded of the call. */
  readonly record?: Call | undefined;
}

interface ColumnProps {
  readonly place: number;
  readonly model: string;
  readonly listId: string;
  readonly exchanges: readonly Exchange[];
  /** The last answer of the model that the others are compared with; undefined: of none, or this is that model. */
  readonly baseline: Exchange | undefined;
  readonly isPinned: boolean;
  /** Undefined: there is nothing to compare with. */
  readonly onPin: (() => void) | undefined;
  readonly onModel: (model: string) => void;
  readonly onAgain: () => void;
  readonly onStop: () => void;
  /** Undefined: this column has to stay. */
  readonly onRemove: (() => void) | undefined;
}

/** One model and its conversation. */
export function Column(props: ColumnProps) {
  const { place, model, listId, exchanges, baseline, isPinned, onPin, onModel, onAgain, onStop, onRemove } = props;
  const log = useRef<HTMLDivElement>(null);
  const last = exchanges.at(-1);
  const isRunning = last?.state === 'running';
  const length = last?.answer.text.length ?? 0;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a longer answer is why it scrolls
  useEffect(() => {
    const { current } = log;
    if (current !== null) current.scrollTop = current.scrollHeight;
  }, [length, exchanges.length]);
  const name = `Model ${place + 1}`;
  return (
    <section className="playground-column" aria-label={name}>
      <div className="with-button">
        <input
          aria-label={name}
          list={listId}
          value={model}
          maxLength={200}
          spellCheck={false}
          disabled={isRunning}
          placeholder="demo/echo"
          onChange={({ target }) => onModel(target.value.trim())}
        />
        {onRemove === undefined ? null : (
          <button type="button" className="plain" aria-label={`Remove model ${place + 1}`} onClick={onRemove}>
            ✕
          </button>
        )}
      </div>
      <div
        className="exchanges"
        ref={log}
        role="log"
        aria-live="off"
        aria-label={`Answers of model ${place + 1}`}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls has to be reachable by keyboard
        tabIndex={0}
      >
        {exchanges.length === 0 ? <p className="quiet">Answers appear here.</p> : null}
        {exchanges.map((exchange) => (
          <ExchangeView key={exchange.id} exchange={exchange} baseline={exchange === last ? baseline : undefined} />
        ))}
      </div>
      {last === undefined ? null : (
        <div className="answers">
          {isRunning ? (
            <button type="button" onClick={onStop}>
              Stop
            </button>
          ) : (
            <button type="button" onClick={onAgain}>
              Ask again
            </button>
          )}
          {onPin === undefined ? null : (
            <button
              type="button"
              aria-pressed={isPinned}
              title="The other models show their difference from this one"
              onClick={onPin}
            >
              {isPinned ? 'Baseline' : 'Use as baseline'}
            </button>
          )}
        </div>
      )}
    </section>
  );
}

interface ExchangeProps {
  readonly exchange: Exchange;
  readonly baseline: Exchange | undefined;
}

function ExchangeView({ exchange, baseline }: ExchangeProps) {
  const { request, answer, state, problem } = exchange;
  const content = request.messages.at(-1)?.content ?? '';
  const parts: readonly ChatPart[] = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
  return (
    <article>
      <div className="prompt">
        {parts.map((part, place) =>
          part.type === 'text' ? (
            // biome-ignore lint/suspicious/noArrayIndexKey: what was asked does not change
            <pre key={place}>{visible(part.text)}</pre>
          ) : (
            // biome-ignore lint/suspicious/noArrayIndexKey: what was asked does not change
            <img key={place} src={part.image_url.url} alt={`Sent with the question, number ${place}`} />
          ),
        )}
      </div>
      {answer.thinking === '' ? null : (
        <details className="thinking">
          <summary>Thinking</summary>
          <Markdown text={answer.thinking} />
        </details>
      )}
      <Markdown text={answer.text} />
      {answer.tools === '' ? null : <pre className="terminal">{visible(answer.tools)}</pre>}
      <ErrorBox error={problem} />
      <Facts exchange={exchange} />
      {baseline === undefined ? null : <p className="quiet">{comparedText(exchange, baseline)}</p>}
      {state === 'running' ? <p className="quiet">…</p> : null}
    </article>
  );
}

/** Times, tokens and cost, as far as they are known. */
function Facts({ exchange: { answer, state, record } }: { readonly exchange: Exchange }) {
  const { firstMs, totalMs, usage, finish, servedBy, attempts, isCached, requestId } = answer;
  if (state === 'running') return null;
  const streamedMs = totalMs === undefined || firstMs === undefined ? 0 : totalMs - firstMs;
  const facts = [
    state === 'stopped' ? 'stopped' : '',
    firstMs === undefined ? '' : `first token after ${countText(firstMs)} ms`,
    totalMs === undefined ? '' : `${countText(totalMs)} ms in all`,
    usage === undefined ? '' : `${countText(usage.prompt_tokens)} + ${countText(usage.completion_tokens)} tokens`,
    usage === undefined || streamedMs < 1000
      ? ''
      : `${Math.round((usage.completion_tokens * 1000) / streamedMs)} tokens/s`,
    record === undefined ? '' : record.price_known ? moneyText(record.cost_usd) : 'price unknown',
    finish === '' || finish === 'stop' ? '' : `ended by ${finish}`,
    isCached ? 'from the cache' : '',
    servedBy === '' ? '' : `by ${servedBy}`,
    attempts === '' || attempts === '1' ? '' : `${attempts} attempts`,
  ].filter((fact) => fact !== '');
  return (
    <p className="quiet">
      {visible(facts.join(' · '))}{' '}
      {requestId === '' ? null : <Link href={`/console/calls?request_id=${encodeURIComponent(requestId)}`}>Call</Link>}
    </p>
  );
}

/** What is compared: the whole time, the tokens of the answer, and the cost. */
const MEASURES: readonly { readonly name: string; readonly of: (exchange: Exchange) => number | undefined }[] = [
  { name: 'time', of: ({ answer }) => answer.totalMs },
  { name: 'tokens', of: ({ answer }) => answer.usage?.completion_tokens },
  { name: 'cost', of: ({ record }) => (record?.price_known === true ? record.cost_usd : undefined) },
];

/** How far an answer is from the baseline: `compared with demo/echo: −20 % time · +50 % tokens`. */
function comparedText(exchange: Exchange, baseline: Exchange): string {
  if (exchange.state !== 'done' || baseline.state !== 'done') return '';
  const parts = MEASURES.flatMap(({ name, of }) => {
    const [value, base] = [of(exchange), of(baseline)];
    if (value === undefined || base === undefined || base === 0) return [];
    const percent = Math.round((value / base - 1) * 100);
    return [`${percent > 0 ? '+' : percent < 0 ? '−' : '±'}${Math.abs(percent)} % ${name}`];
  });
  return parts.length === 0 ? '' : `compared with ${visible(baseline.request.model)}: ${parts.join(' · ')}`;
}
