import { useQuery } from '@tanstack/react-query';
import { type FormEvent, useEffect, useId, useRef, useState } from 'react';
import { useSearchParams } from 'wouter';
import { type ChatRequest, findCall, NO_ANSWER, streamChat } from '../../data/chat-stream.ts';
import { listModels } from '../../data/completions.ts';
import { BASE } from '../../data/request.ts';
import { Dialog, ErrorBox, Field } from '../../parts/parts.tsx';
import { CopyButton } from '../../parts/work.tsx';
import { useShortcuts } from '../../shell/shortcuts.ts';
import { Column, type Exchange } from './column.tsx';

const MAX_COLUMNS = 4;
const MAX_LISTED = 200;
const EFFORTS = ['low', 'medium', 'high'] as const;
const NO_OPTIONS = { system: '', temperature: '', maxTokens: '', effort: '' };
type Options = typeof NO_OPTIONS;

/** Asks one model or several the same, side by side. Nothing of it is kept: neither here nor by the server. */
export default function Playground() {
  const [given, setGiven] = useSearchParams();
  const known = useQuery({ queryKey: ['models'], queryFn: listModels });
  const listId = useId();
  const [prompt, setPrompt] = useState('');
  const [options, setOptions] = useState(NO_OPTIONS);
  const [isCodeShown, setCodeShown] = useState(false);
  const chosen = given.getAll('model').slice(0, MAX_COLUMNS);
  const models = chosen.length > 0 ? chosen : [known.data?.[0]?.id ?? ''];
  const chats = useChats();
  const running = models.filter((_, column) => chats.at(column).at(-1)?.state === 'running').length;
  const canAsk = prompt.trim() !== '' && running === 0 && models.every((model) => model !== '');
  useShortcuts({ stop: () => chats.stop() });

  function change(next: readonly string[]): void {
    setGiven(new URLSearchParams(next.map((model) => ['model', model])), { replace: true });
  }
  function ask(event?: FormEvent): void {
    event?.preventDefault();
    if (!canAsk) return;
    models.forEach((model, column) => {
      chats.ask(column, requestOf(model, options, chats.at(column), prompt));
    });
    setPrompt('');
  }
  return (
    <>
      <header className="bar">
        <h1>Playground</h1>
        <span className="quiet">Calls count for your budget; the conversation ends with this page</span>
        {models.length < MAX_COLUMNS ? (
          <button type="button" disabled={running > 0} onClick={() => change([...models, models.at(-1) ?? ''])}>
            Add a model
          </button>
        ) : null}
        <button type="button" onClick={() => setCodeShown(true)}>
          As curl
        </button>
        <button type="button" disabled={running > 0 || chats.isEmpty} onClick={chats.clear}>
          Clear
        </button>
      </header>
      <ErrorBox error={known.error} />
      <datalist id={listId}>
        {known.data?.slice(0, MAX_LISTED).map(({ id }) => (
          <option key={id} value={id} />
        ))}
      </datalist>
      <div className="playground" data-columns={models.length}>
        {models.map((model, column) => (
          <Column
            // biome-ignore lint/suspicious/noArrayIndexKey: a column is its place; the model in it may change
            key={column}
            place={column}
            model={model}
            listId={listId}
            exchanges={chats.at(column)}
            onModel={(next) => change(models.with(column, next))}
            onAgain={() => chats.again(column, model)}
            onStop={() => chats.stop(column)}
            onRemove={
              models.length === 1 || running > 0
                ? undefined
                : () => {
                    chats.remove(column);
                    change(models.toSpliced(column, 1));
                  }
            }
          />
        ))}
      </div>
      <form className="playground-form" onSubmit={ask}>
        <textarea
          aria-label="Message"
          placeholder="Ask something"
          rows={3}
          value={prompt}
          onChange={({ target }) => setPrompt(target.value)}
          onKeyDown={(event) => {
            if (event.key === 'Enter' && !event.shiftKey && !event.nativeEvent.isComposing) {
              event.preventDefault();
              ask();
            }
          }}
        />
        <div className="sends">
          {running > 0 ? (
            <button type="button" className="danger" onClick={() => chats.stop()}>
              Stop {running === 1 ? '' : 'all'}
            </button>
          ) : null}
          <button type="submit" className="primary" disabled={!canAsk}>
            Send
          </button>
        </div>
        <OptionFields options={options} onChange={setOptions} />
      </form>
      <p className="hidden-label" role="status">
        {running > 0 ? `${running} of ${models.length} answer` : ''}
      </p>
      {isCodeShown ? (
        <Dialog title="As curl" onClose={() => setCodeShown(false)}>
          {models.map((model, column) => {
            const text = curlOf(requestOf(model, options, chats.at(column), prompt));
            return (
              // biome-ignore lint/suspicious/noArrayIndexKey: a column is its place
              <div key={column} className="shown-once">
                <pre>{text}</pre>
                <CopyButton key={text} text={text} />
              </div>
            );
          })}
        </Dialog>
      ) : null}
    </>
  );
}

interface OptionFieldsProps {
  readonly options: Options;
  readonly onChange: (options: Options) => void;
}

function OptionFields({ options, onChange }: OptionFieldsProps) {
  const id = useId();
  const set = (name: keyof Options) => (value: string) => onChange({ ...options, [name]: value });
  return (
    <details className="options">
      <summary>Parameters</summary>
      <div className="line">
        <Field label="System prompt" value={options.system} onChange={set('system')} autoComplete="off" />
        <div className="field">
          <label htmlFor={`${id}-temperature`}>Temperature</label>
          <input
            id={`${id}-temperature`}
            type="number"
            min="0"
            max="2"
            step="0.1"
            value={options.temperature}
            onChange={({ target }) => set('temperature')(target.value)}
          />
        </div>
        <div className="field">
          <label htmlFor={`${id}-tokens`}>Longest answer, in tokens</label>
          <input
            id={`${id}-tokens`}
            type="number"
            min="1"
            step="1"
            value={options.maxTokens}
            onChange={({ target }) => set('maxTokens')(target.value)}
          />
        </div>
        <div className="field">
          <label htmlFor={`${id}-effort`}>Reasoning</label>
          <select id={`${id}-effort`} value={options.effort} onChange={({ target }) => set('effort')(target.value)}>
            <option value="">as the model does</option>
            {EFFORTS.map((effort) => (
              <option key={effort}>{effort}</option>
            ))}
          </select>
        </div>
      </div>
    </details>
  );
}

/** The conversation of a column so far, and the next message. An answer that failed is left out with its question. */
function requestOf(model: string, options: Options, before: readonly Exchange[], prompt: string): ChatRequest {
  const { system, temperature, maxTokens, effort } = options;
  return {
    model,
    messages: [
      ...(system === '' ? [] : [{ role: 'system' as const, content: system }]),
      ...before
        .filter(({ answer }) => answer.text !== '')
        .flatMap(({ prompt: asked, answer }) => [
          { role: 'user' as const, content: asked },
          { role: 'assistant' as const, content: answer.text },
        ]),
      { role: 'user' as const, content: prompt },
    ],
    ...(temperature !== '' && { temperature: Number(temperature) }),
    ...(maxTokens !== '' && { max_tokens: Number(maxTokens) }),
    ...(effort !== '' && { reasoning_effort: effort }),
  };
}

/** Within single quotes a shell changes nothing; a quote itself is written outside of them. */
function curlOf(request: ChatRequest): string {
  const body = JSON.stringify({ ...request, stream: true }, undefined, 2).replaceAll("'", "'\\''");
  return `curl -N ${location.origin}${BASE}/v1/chat/completions \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d '${body}'`;
}

/** The conversations of the columns, and the calls that run. They end with the page. */
function useChats() {
  const [chats, setChats] = useState<readonly (readonly Exchange[])[]>([]);
  const running = useRef(new Map<number, AbortController>());
  useEffect(() => {
    const calls = running.current;
    return () => {
      for (const call of calls.values()) call.abort();
    };
  }, []);

  async function run(column: number, request: ChatRequest): Promise<void> {
    const call = new AbortController();
    const id = crypto.randomUUID();
    running.current.set(column, call);
    const prompt = String(request.messages.at(-1)?.content);
    const first: Exchange = { id, prompt, request, answer: NO_ANSWER, state: 'running', problem: undefined };
    setChats((all) => replaced(all, column, [...(all[column] ?? []), first]));
    const update = (changes: Partial<Exchange>) =>
      setChats((all) => all.map((exchanges) => exchanges.map((one) => (one.id === id ? { ...one, ...changes } : one))));
    let latest = NO_ANSWER;
    let frame = 0;
    const paint = () => {
      frame = 0;
      update({ answer: latest });
    };
    let end: Partial<Exchange> = { state: 'done' };
    try {
      await streamChat(request, call.signal, (answer) => {
        latest = answer;
        // Pieces come faster than they can be seen: one change for each picture of the screen.
        if (frame === 0) frame = requestAnimationFrame(paint);
      });
    } catch (problem) {
      end = call.signal.aborted ? { state: 'stopped' } : { state: 'failed', problem };
    }
    cancelAnimationFrame(frame);
    running.current.delete(column);
    update({ ...end, answer: latest });
    if (latest.requestId === '') return;
    const record = await findCall(latest.requestId).catch(() => undefined);
    update({ record });
  }

  return {
    isEmpty: chats.every((exchanges) => exchanges.length === 0),
    at: (column: number): readonly Exchange[] => chats[column] ?? [],
    ask: (column: number, request: ChatRequest) => void run(column, request),
    /** Asks the last question once more, in the place of its answer. */
    again(column: number, model: string) {
      const last = chats[column]?.at(-1);
      if (last === undefined) return;
      setChats((all) => replaced(all, column, (all[column] ?? []).slice(0, -1)));
      void run(column, { ...last.request, model });
    },
    stop(column?: number) {
      for (const [place, call] of running.current) if (column === undefined || column === place) call.abort();
    },
    remove: (column: number) => setChats((all) => all.toSpliced(column, 1)),
    clear: () => setChats([]),
  };
}

function replaced<Value>(all: readonly (readonly Value[])[], place: number, next: readonly Value[]) {
  return Array.from({ length: Math.max(all.length, place + 1) }, (_, index) =>
    index === place ? next : (all[index] ?? []),
  );
}
