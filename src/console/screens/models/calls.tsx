import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { CallsQuery } from '../../../completions/contract/calls.ts';
import { type Call, listCalls, readCall } from '../../data/completions.ts';
import { Dialog, ErrorBox, Moment, More, useFilters } from '../../parts/parts.tsx';
import { countText, moneyText, TIME_ZONE, visible } from '../../parts/text.ts';
import { CopyCurl } from '../../parts/work.tsx';
import { momentOf } from './call-filters.ts';
import { type CallNames, useCallNames } from './call-names.ts';

const OUTCOMES = ['ok', 'error', 'aborted', 'partial', 'cached'] as const;
const TEXTS = ['model', 'api', 'key', 'owner', 'request_id', 'from', 'to'] as const;
const LABELS: Readonly<Record<(typeof TEXTS)[number], string>> = {
  model: 'Model',
  api: 'API',
  key: 'Key',
  owner: 'Owner',
  request_id: 'Request',
  from: 'From',
  to: 'To',
};

const isDay = (name: string) => name === 'from' || name === 'to';

/** A filter by hours, which a chart leads to, is kept as it is. */
const typeOf = (name: string, value: string) =>
  !isDay(name) ? 'text' : value.includes('T') ? 'datetime-local' : 'date';

/** Each call to a model, newest first. The filters are in the address. */
export default function Calls() {
  const [given, change] = useFilters();
  const [chosen, setChosen] = useState<string>();
  const outcome = OUTCOMES.find((one) => one === given.get('outcome'));
  const filter: CallsQuery = {
    ...Object.fromEntries(TEXTS.flatMap((name) => (given.get(name) ? [[name, given.get(name)]] : []))),
    ...(outcome !== undefined && { outcome }),
    ...momentOf('from', given.get('from')),
    ...momentOf('to', given.get('to')),
  };
  const pages = useInfiniteQuery({
    queryKey: ['calls', filter],
    queryFn: ({ pageParam }) => listCalls({ ...filter, ...(pageParam !== '' && { before: pageParam }) }),
    initialPageParam: '',
    getNextPageParam: ({ has_more: hasMore, data: rows }) => (hasMore ? (rows.at(-1)?.id ?? null) : null),
    placeholderData: keepPreviousData,
  });
  const { data, error } = pages;
  const calls = data?.pages.flatMap((page) => page.data) ?? [];
  const names = useCallNames(calls.map(({ owner }) => owner));
  return (
    <>
      <header className="bar">
        <h1>Calls</h1>
        <search className="filter-fields">
          <label>
            Outcome
            <select value={outcome ?? ''} onChange={(event) => change('outcome', event.target.value)}>
              <option value="">all</option>
              {OUTCOMES.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
          {TEXTS.map((name) => (
            <label key={name} title={isDay(name) ? `A day in ${TIME_ZONE}` : undefined}>
              {LABELS[name]}
              <input
                type={typeOf(name, given.get(name) ?? '')}
                value={given.get(name) ?? ''}
                spellCheck={false}
                onChange={(event) => change(name, event.target.value.trim())}
              />
            </label>
          ))}
        </search>
      </header>
      <ErrorBox error={error} />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {data !== undefined && calls.length === 0 ? <p className="empty">No call matches.</p> : null}
      {calls.length === 0 ? null : <Table calls={calls} names={names} onChoose={setChosen} />}
      <More of={pages}>Older calls</More>
      {chosen === undefined ? null : <CallDialog id={chosen} names={names} onClose={() => setChosen(undefined)} />}
    </>
  );
}

const COLUMNS = [
  'When',
  'Person',
  'Key',
  'Model',
  'Outcome',
  'Attempts',
  'First token',
  'Duration',
  'Tokens',
  'Cost',
] as const;

interface TableProps {
  readonly calls: readonly Call[];
  readonly names: CallNames;
  readonly onChoose: (id: string) => void;
}

function Table({ calls, names, onChoose }: TableProps) {
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {COLUMNS.map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {calls.map((call) => (
            <tr key={call.id}>
              <td>
                <button type="button" className="link" onClick={() => onChoose(call.id)}>
                  <Moment at={call.at} />
                </button>
              </td>
              <td data-name="Person">{names.person(call.owner)}</td>
              <td data-name="Key">{names.key(call.key)}</td>
              <td>{visible(call.model)}</td>
              <td className={call.outcome === 'error' ? 'failed' : ''}>
                {call.outcome} {call.status}
              </td>
              <td data-name="Attempts">{call.attempts}</td>
              <td data-name="First token">{call.first_token_ms} ms</td>
              <td data-name="Duration">{call.duration_ms} ms</td>
              <td data-name="Tokens">
                {countText(call.usage.prompt_tokens)} + {countText(call.usage.completion_tokens)}
              </td>
              <td data-name="Cost">{costText(call)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function costText({ price_known: isKnown, cost_usd: cost }: Pick<Call, 'price_known' | 'cost_usd'>): string {
  return isKnown ? moneyText(cost) : 'price unknown';
}

interface CallDialogProps {
  readonly id: string;
  readonly names: CallNames;
  readonly onClose: () => void;
}

function CallDialog({ id, names, onClose }: CallDialogProps) {
  const { data: call, error } = useQuery({ queryKey: ['call', id], queryFn: () => readCall(id) });
  const rows =
    call === undefined
      ? []
      : ([
          ['Request', call.request_id],
          ['Model', call.model],
          ['Served by', `${call.api}/${call.upstream_model}`],
          ['Operation', call.operation],
          ['Outcome', `${call.outcome} ${call.status}`],
          ['Key', names.key(call.key) === call.key ? call.key : `${names.key(call.key)} (${call.key})`],
          ['Person', names.person(call.owner) === call.owner ? '' : names.person(call.owner)],
          ['Owner', call.owner],
          ['Team', call.team ?? ''],
          [
            'Tokens in',
            `${countText(call.usage.prompt_tokens)}, ${countText(call.usage.cached_tokens)} from the cache`,
          ],
          [
            'Tokens out',
            `${countText(call.usage.completion_tokens)}, ${countText(call.usage.reasoning_tokens)} for reasoning`,
          ],
          ['Cost', costText(call)],
          ['First token', `${countText(call.first_token_ms)} ms`],
          ['Duration', `${countText(call.duration_ms)} ms`],
          ['Attempts', `${call.attempts}`],
        ] as const);
  return (
    <Dialog title="Call" onClose={onClose}>
      <ErrorBox error={error} />
      <dl className="facts-list">
        {rows.map(([name, value]) =>
          value === '' ? null : (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{visible(value)}</dd>
            </div>
          ),
        )}
      </dl>
      {call === undefined || call.failed_attempts.length === 0 ? null : (
        <ol className="rows" aria-label="Attempts">
          {call.failed_attempts.map(({ target, code, duration_ms: ms }, place) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: what was tried does not change
            <li key={place}>
              <div className="failed">
                {place + 1}. {visible(target)}: {visible(code)}
              </div>
              {countText(ms)} ms
            </li>
          ))}
          {call.outcome === 'error' ? null : (
            <li>
              <div>
                {call.failed_attempts.length + 1}. {visible(`${call.api}/${call.upstream_model}`)}: {call.outcome}
              </div>
            </li>
          )}
        </ol>
      )}
      {call?.content === null || call === undefined ? null : (
        <>
          <h3>Asked</h3>
          <pre className="terminal">{visible(call.content.request)}</pre>
          <h3>Answered</h3>
          <pre className="terminal">{visible(call.content.response)}</pre>
        </>
      )}
      <CopyCurl path={`/v1/usage/calls/${encodeURIComponent(id)}`} />
    </Dialog>
  );
}
