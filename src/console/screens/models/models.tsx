import { useQuery } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { Link, useSearchParams } from 'wouter';
import type { ApiList, ModelEntry, TargetList } from '../../../completions/contract/keys.ts';
import { type ChatAnswer, NO_ANSWER, streamChat } from '../../data/chat-stream.ts';
import { listApis, listModels, listTargets } from '../../data/completions.ts';
import { ErrorBox, Part } from '../../parts/parts.tsx';
import { countText, moneyText, visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';

/** Servers may offer thousands of models: only so many rows are drawn until more are wanted. */
const PAGE = 100;
const MILLION = 1_000_000;
/** How often the state of targets is read again while it is shown. */
const STATUS_MS = 5000;
const TEST_TOKENS = 64;

/** The models that the person may call, with what is known of each. The search is in the address. */
export default function Models() {
  const [given, setGiven] = useSearchParams();
  const [shown, setShown] = useState(PAGE);
  const models = useQuery({ queryKey: ['models'], queryFn: listModels });
  const targets = useQuery({ queryKey: ['targets'], queryFn: listTargets, refetchInterval: STATUS_MS });
  const { person } = useConsole();
  const isOperator = person === undefined || person.permissions.includes('admin.bridge.read');
  const apis = useQuery({ queryKey: ['apis'], queryFn: listApis, enabled: isOperator });
  const search = given.get('search') ?? '';
  const wanted = search.toLowerCase();
  const found = (models.data ?? []).filter(({ id, owned_by: api }) => `${id} ${api}`.toLowerCase().includes(wanted));
  return (
    <>
      <header className="bar">
        <h1>Models</h1>
        <span className="quiet">
          {models.data === undefined ? '' : `${countText(found.length)} of ${countText(models.data.length)}`} · prices
          in USD per million tokens
        </span>
        <input
          type="search"
          aria-label="Search models"
          placeholder="Search"
          maxLength={200}
          value={search}
          onChange={({ target }) => {
            setGiven(target.value === '' ? {} : { search: target.value }, { replace: true });
            setShown(PAGE);
          }}
        />
      </header>
      <ErrorBox error={models.error ?? targets.error ?? apis.error} />
      {targets.data === undefined ? null : <Aliases list={targets.data} />}
      {models.data === undefined && models.error === null ? <p className="quiet loading">Loading …</p> : null}
      {models.data !== undefined && found.length === 0 ? <p className="empty">No model matches.</p> : null}
      {found.length === 0 ? null : <Table models={found.slice(0, shown)} />}
      {found.length > shown ? (
        <p className="more">
          <button type="button" onClick={() => setShown(shown + PAGE)}>
            More models
          </button>
        </p>
      ) : null}
      {apis.data === undefined ? null : <Apis list={apis.data} search={wanted} />}
    </>
  );
}

/** Where models come from: the APIs that can be called, and what the others need. */
function Apis({ list: { data, prices_date }, search }: { readonly list: ApiList; readonly search: string }) {
  const named = data.filter(({ id, name = '' }) => `${id} ${name}`.toLowerCase().includes(search));
  const usable = named.filter((api) => api.usable);
  const others = named.filter((api) => !api.usable);
  return (
    <div className="apis">
      <Part title="Model APIs" text={`Sizes and prices of ${prices_date}.`}>
        <ul className="rows">
          {usable.map(({ id, name, base_url, key_from, configured }) => (
            <li key={id}>
              <div>
                <strong>{visible(name ?? id)}</strong> <code>{id}</code>{' '}
                <span className="quiet">
                  {visible(base_url ?? '')} {key_from === undefined ? '' : `· key from ${key_from}`}
                  {configured === true ? '' : ' · a local server, if one runs'}
                </span>
              </div>
            </li>
          ))}
        </ul>
        <details open={search !== ''}>
          <summary>{countText(others.length)} more APIs, each with what to set before the server starts</summary>
          <ul className="rows">
            {others.map(({ id, missing = [], key_variables: variables = [] }) => (
              <li key={id}>
                <div>
                  <code>{id}</code>{' '}
                  <span className="quiet">{(variables.length > 0 ? variables : missing).join(' or ')}</span>
                </div>
              </li>
            ))}
          </ul>
        </details>
      </Part>
    </div>
  );
}

const STATES: Readonly<Record<TargetList['data'][number]['state'], { className: string; text: string }>> = {
  closed: { className: 'completed', text: 'ok' },
  open: { className: 'failed', text: 'disabled after repeated failures' },
  probing: { className: 'in_progress', text: 'being retried' },
};

/** The own names for models: what is behind each, and which of it is out. */
function Aliases({ list: { data, aliases } }: { readonly list: TargetList }) {
  const statusOf = new Map(data.map((one) => [one.target, one]));
  const inAliases = new Set(aliases.flatMap(({ targets }) => targets.map(({ target }) => target)));
  const troubled = data.filter(({ target, state }) => state !== 'closed' && !inAliases.has(target));
  if (aliases.length === 0 && troubled.length === 0) return null;
  const stateOf = (target: string) => {
    const status = statusOf.get(target);
    if (status === undefined) return <span className="quiet">not used lately</span>;
    const { className, text } = STATES[status.state];
    return (
      <>
        <span className={`dot ${className}`} />
        {text}
        {status.in_flight === 0 ? '' : `, ${countText(status.in_flight)} in progress`}
      </>
    );
  };
  return (
    <div className="aliases">
      <Part title="Aliases">
        <ul className="rows">
          {aliases.map(({ name, strategy, targets, fallbacks }) => (
            <li key={name}>
              <div>
                <strong>{visible(name)}</strong> <span className="quiet">{strategy.replaceAll('_', ' ')}</span>
                <ul>
                  {targets.map(({ target, weight, priority }) => (
                    <li key={target}>
                      <code>{visible(target)}</code> {stateOf(target)}
                      <span className="quiet">
                        weight {weight}, priority {priority}
                      </span>
                    </li>
                  ))}
                </ul>
                {fallbacks.length === 0 ? null : <p className="quiet">then {visible(fallbacks.join(', '))}</p>}
              </div>
            </li>
          ))}
          {troubled.map(({ target }) => (
            <li key={target}>
              <div>
                <code>{visible(target)}</code> {stateOf(target)}
              </div>
            </li>
          ))}
        </ul>
      </Part>
    </div>
  );
}

/** Asks the model for a few words, as the person who is logged in. */
function TestModel({ model }: { readonly model: string }) {
  const { person } = useConsole();
  const call = useRef<AbortController>(undefined);
  const [isRunning, setRunning] = useState(false);
  const [result, setResult] = useState<{ readonly isOk: boolean; readonly text: string }>();
  useEffect(() => () => call.current?.abort(), []);
  if (person?.role === 'readonly') return null;
  async function run(): Promise<void> {
    call.current = new AbortController();
    setRunning(true);
    setResult(undefined);
    let answer: ChatAnswer = NO_ANSWER;
    try {
      const messages = [{ role: 'user' as const, content: 'Say hello.' }];
      await streamChat({ model, messages, max_tokens: TEST_TOKENS }, call.current.signal, (next) => {
        answer = next;
      });
      const { firstMs = 0, totalMs = 0 } = answer;
      setResult({ isOk: true, text: `first token after ${countText(firstMs)} ms, ${countText(totalMs)} ms in all` });
    } catch (error) {
      setResult({ isOk: false, text: error instanceof Error ? error.message : String(error) });
    }
    setRunning(false);
  }
  return (
    <>
      <button type="button" disabled={isRunning} aria-label={`Test ${model}`} onClick={() => void run()}>
        {isRunning ? 'Runs …' : 'Test'}
      </button>
      {result === undefined ? null : (
        <p className={result.isOk ? 'quiet' : 'failed'} role="status">
          {visible(result.text)}
        </p>
      )}
    </>
  );
}

const NAMES = ['Model', 'From', 'Context', 'Maximum output', 'Input', 'Output', 'Reads', ''] as const;

function Table({ models }: { readonly models: readonly ModelEntry[] }) {
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {NAMES.map((name) => (
              <th key={name}>{name === '' ? <span className="hidden-label">Actions</span> : name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {models.map((model) => (
            <tr key={model.id}>
              <td>
                <code>{visible(model.id)}</code>
              </td>
              <td data-name="From">{visible(model.owned_by)}</td>
              <td data-name="Context">{tokensText(model.context_window)}</td>
              <td data-name="Maximum output">{tokensText(model.max_output_tokens)}</td>
              <td data-name="Input">{priceText(model.pricing?.input)}</td>
              <td data-name="Output">{priceText(model.pricing?.output)}</td>
              <td data-name="Reads">{(model.input_modalities ?? []).join(', ')}</td>
              <td>
                <TestModel model={model.id} />{' '}
                <Link href={`/console/calls?model=${encodeURIComponent(model.id)}`}>Calls</Link>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function tokensText(count: number | undefined): string {
  return count === undefined ? '' : countText(count);
}

function priceText(perToken: number | undefined): string {
  return perToken === undefined ? 'unknown' : moneyText(perToken * MILLION);
}
