import { useQuery } from '@tanstack/react-query';
import { type FormEvent, useEffect, useId, useRef, useState } from 'react';
import { useSearchParams } from 'wouter';
import { type ChatRequest, CODE } from '../../data/chat-code.ts';
import { findCall, NO_ANSWER, streamChat } from '../../data/chat-stream.ts';
import { listModels } from '../../data/completions.ts';
import { storedList } from '../../data/permission-choice.ts';
import { BASE, newId } from '../../data/request.ts';
import { CompareDialog } from '../../parts/diff.tsx';
import { CopyButton, Dialog, ErrorBox } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';

import { useConsole } from '../../shell/console-context.ts';
import { useShortcuts } from '../../shell/shortcuts.ts';
import { AttachedFiles, takesFiles } from '../session/attachments.tsx';
import type { DraftFile } from '../session/next-message.ts';
import { Column, type Exchange } from './column.tsx';
import {
  NO_OPTIONS,
  OptionFields,
  type Options,
  optionsFor,
  readImages,
  requestOf,
  toolsProblem,
} from './parameters.tsx';

const MAX_COLUMNS = 4;
const MAX_LISTED = 200;

/** Asks one model or several the same, side by side. Answers end with the page; questions are kept in the browser only. */
export default function Playground() {
  const [given, setGiven] = useSearchParams();
  const known = useQuery({ queryKey: ['models'], queryFn: listModels });
  const listId = useId();
  const [prompt, setPrompt] = useState('');
  const [options, setOptions] = useState(NO_OPTIONS);
  /** By the place of a model, what it has instead. */
  const [own, setOwn] = useState<readonly Options[]>([]);
  const [images, setImages] = useState<readonly DraftFile[]>([]);
  const [refusal, setRefusal] = useState<unknown>();
  const [shown, setShown] = useState<'code' | 'compare' | 'history'>();
  const [pinned, setPinned] = useState<number>();
  const history = useHistory();
  const chosen = given.getAll('model').slice(0, MAX_COLUMNS);
  const models = chosen.length > 0 ? chosen : [known.data?.[0]?.id ?? ''];
  const chats = useChats();
  const running = models.filter((_, column) => chats.at(column).at(-1)?.state === 'running').length;
  const problem = toolsProblem(models.map((_, column) => optionsFor(options, own[column])));
  const canAsk =
    prompt.trim() !== '' && running === 0 && problem === undefined && models.every((model) => model !== '');
  // Two dialogs may be closed by Escape one after the other.
  useShortcuts({ ...(running > 0 && { stop: () => chats.stop() }) });

  function change(next: readonly string[]): void {
    setGiven(new URLSearchParams(next.map((model) => ['model', model])), { replace: true });
  }
  const requests = () =>
    models.map((model, column) =>
      requestOf({ model, options: optionsFor(options, own[column]), before: chats.at(column), prompt, images }),
    );
  function ask(event?: FormEvent): void {
    event?.preventDefault();
    if (!canAsk) return;
    requests().forEach((request, column) => {
      chats.ask(column, request);
    });
    history.add({ prompt, models, options, own });
    setPrompt('');
    setImages([]);
    setRefusal(undefined);
  }
  function takeImages(files: readonly File[]): void {
    readImages(images, files).then((next) => {
      setImages(next);
      setRefusal(undefined);
    }, setRefusal);
  }
  const answered = models.flatMap((model, column) => {
    const text = chats.at(column).at(-1)?.answer.text ?? '';
    return text === '' ? [] : [{ name: `${column + 1} ${model}`, text }];
  });
  const hide = () => setShown(undefined);
  return (
    <>
      <header className="bar">
        <h1>Playground</h1>
        <span className="quiet">Calls count towards your budget; the conversation is not stored</span>
        {models.length < MAX_COLUMNS ? (
          <button type="button" disabled={running > 0} onClick={() => change([...models, models.at(-1) ?? ''])}>
            Add a model
          </button>
        ) : null}
        {answered.length < 2 ? null : (
          <button type="button" onClick={() => setShown('compare')}>
            Compare …
          </button>
        )}
        <button type="button" onClick={() => setShown('code')}>
          Code …
        </button>
        <button type="button" disabled={history.entries.length === 0} onClick={() => setShown('history')}>
          History …
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
            baseline={pinned === undefined || pinned === column ? undefined : chats.at(pinned).at(-1)}
            isPinned={pinned === column}
            onPin={models.length === 1 ? undefined : () => setPinned(pinned === column ? undefined : column)}
            onModel={(next) => change(models.with(column, next))}
            onAgain={() => chats.again(column, model)}
            onStop={() => chats.stop(column)}
            onRemove={
              models.length === 1 || running > 0
                ? undefined
                : () => {
                    chats.remove(column);
                    setPinned(undefined);
                    setOwn(own.toSpliced(column, 1));
                    change(models.toSpliced(column, 1));
                  }
            }
          />
        ))}
      </div>
      <form className="playground-form" onSubmit={ask} {...takesFiles(takeImages)}>
        <AttachedFiles
          files={images}
          isUploading={false}
          onRemove={(image) => setImages(images.filter((one) => one !== image))}
        />
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
        <OptionFields models={models} shared={options} own={own} onShared={setOptions} onOwn={setOwn} />
        <ErrorBox error={problem ?? refusal} />
      </form>
      <p className="hidden-label" role="status">
        {running > 0 ? `${running} of ${models.length} answer` : ''}
      </p>
      {shown === 'compare' ? <CompareDialog texts={answered} onClose={hide} /> : null}
      {shown === 'code' ? <CodeDialog requests={requests()} onClose={hide} /> : null}
      {shown === 'history' ? (
        <HistoryDialog
          history={history}
          onChoose={(entry) => {
            setPrompt(entry.prompt);
            setOptions({ ...NO_OPTIONS, ...entry.options });
            setOwn(entry.own ?? []);
            if (running === 0) change(entry.models);
            hide();
          }}
          onClose={hide}
        />
      ) : null}
    </>
  );
}

interface CodeDialogProps {
  readonly requests: readonly ChatRequest[];
  readonly onClose: () => void;
}

/** The next call of each column, to be run elsewhere. */
function CodeDialog({ requests, onClose }: CodeDialogProps) {
  const [language, setLanguage] = useState<keyof typeof CODE>('curl');
  return (
    <Dialog title="Code" onClose={onClose}>
      <fieldset className="choice">
        <legend className="hidden-label">Language</legend>
        {(Object.keys(CODE) as (keyof typeof CODE)[]).map((name) => (
          <button key={name} type="button" aria-pressed={language === name} onClick={() => setLanguage(name)}>
            {name}
          </button>
        ))}
      </fieldset>
      {requests.map((request, column) => {
        const text = CODE[language](request, `${location.origin}${BASE}/v1`);
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: a column is its place
          <div key={column} className="shown-once">
            <pre>{text}</pre>
            <CopyButton key={text} text={text} />
          </div>
        );
      })}
    </Dialog>
  );
}

/** A question that was asked. */
interface Asked {
  readonly prompt: string;
  readonly models: readonly string[];
  readonly options: Options;
  readonly own?: readonly Options[];
}

const isAsked = (entry: unknown): entry is Asked =>
  typeof entry === 'object' && entry !== null && 'prompt' in entry && 'models' in entry && 'options' in entry;
const MAX_HISTORY = 50;

/** The last questions of the person, newest first. Only this browser has them: the server stores no prompts. */
function useHistory() {
  const { person } = useConsole();
  const place = `trestle.playground.${person?.id ?? ''}`;
  const [entries, setEntries] = useState<readonly Asked[]>(() => storedList(place).filter(isAsked));
  function keep(next: readonly Asked[]): void {
    setEntries(next);
    try {
      localStorage.setItem(place, JSON.stringify(next));
    } catch {
      // The browser has no room: the questions end with the page.
    }
  }
  return {
    entries,
    add: (asked: Asked) => keep([asked, ...entries].slice(0, MAX_HISTORY)),
    clear: () => keep([]),
  };
}

type HistoryDialogProps = { history: ReturnType<typeof useHistory>; onChoose(asked: Asked): void; onClose(): void };

function HistoryDialog({ history, onChoose, onClose }: HistoryDialogProps) {
  return (
    <Dialog title="History" onClose={onClose}>
      <p className="quiet">The last {MAX_HISTORY} questions, in this browser only.</p>
      <ul className="asked-before">
        {history.entries.map((asked, place) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the same may be asked twice
          <li key={place}>
            <button type="button" className="link" onClick={() => onChoose(asked)}>
              {visible(asked.prompt.slice(0, 200))}
            </button>{' '}
            <span className="quiet">{visible(asked.models.join(', '))}</span>
          </li>
        ))}
      </ul>
      <button
        type="button"
        className="danger"
        onClick={() => {
          history.clear();
          onClose();
        }}
      >
        Clear
      </button>
    </Dialog>
  );
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
    const id = newId();
    running.current.set(column, call);
    const first: Exchange = { id, request, answer: NO_ANSWER, state: 'running', problem: undefined };
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
