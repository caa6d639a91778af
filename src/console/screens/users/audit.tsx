import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import type { AuditQuery } from '../../../accounts/contract/administration.ts';
import { type AuditPage, listAudit } from '../../data/administration.ts';
import { ErrorBox, Moment, More, useFilters } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';

const FILTERS = [
  { name: 'event', label: 'Event', placeholder: 'login.failed' },
  { name: 'actor', label: 'Who', placeholder: 'Id of a user' },
  { name: 'subject', label: 'Whom', placeholder: 'Id of a user' },
  { name: 'address', label: 'Address', placeholder: '203.0.113.7' },
  { name: 'request', label: 'Request', placeholder: 'Id of a request' },
] as const;

/** What happened to accounts, newest first. The filters are in the address. */
export default function Audit() {
  const [given, change] = useFilters();
  const filter: AuditQuery = Object.fromEntries(
    FILTERS.flatMap(({ name }) => (given.get(name) ? [[name, given.get(name)]] : [])),
  );
  const pages = useInfiniteQuery({
    queryKey: ['audit', filter],
    queryFn: ({ pageParam }) => listAudit({ ...filter, ...(pageParam !== '' && { cursor: pageParam }) }),
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }) => nextCursor,
    placeholderData: keepPreviousData,
  });
  const { data, error } = pages;
  const entries = data?.pages.flatMap((page) => page.entries) ?? [];
  return (
    <>
      <header className="bar">
        <h1>Audit</h1>
        <search className="filter-fields">
          {FILTERS.map(({ name, label, placeholder }) => (
            <label key={name}>
              {label}
              <input
                value={given.get(name) ?? ''}
                placeholder={placeholder}
                maxLength={100}
                spellCheck={false}
                onChange={(event) => change(name, event.target.value.trim())}
              />
            </label>
          ))}
        </search>
      </header>
      <ErrorBox error={error} />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {data !== undefined && entries.length === 0 ? <p className="empty">No entry matches.</p> : null}
      {entries.length === 0 ? null : <Table entries={entries} onFilter={change} />}
      <More of={pages}>Older entries</More>
    </>
  );
}

interface TableProps {
  readonly entries: AuditPage['entries'];
  readonly onFilter: (name: string, value: string) => void;
}

function Table({ entries, onFilter }: TableProps) {
  const filtering = (name: (typeof FILTERS)[number]['name'], value: string) =>
    value === '' ? null : (
      <button
        type="button"
        className="link unbroken"
        title={`Only ${visible(value)}`}
        onClick={() => onFilter(name, value)}
      >
        {shortId(visible(value))}
      </button>
    );
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {['Event', 'When', 'Who', 'Whom', 'Address', 'Details'].map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {entries.map(({ id, at, event, actor, subject, address, requestId, details }) => (
            <tr key={id}>
              <td>{filtering('event', event)}</td>
              <td>
                <Moment at={at} note={requestId === '' ? '' : `request ${requestId}`} />
              </td>
              <td data-name="Who">{filtering('actor', actor)}</td>
              <td data-name="Whom">{filtering('subject', subject)}</td>
              <td data-name="Address">{filtering('address', address)}</td>
              <td className="quiet">{detailText(details)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** `usr_…8fzqqs`: ids are long, and differ in their last letters. The whole id is shown on hover. */
function shortId(text: string): string {
  const [, kind, end] = /^([a-z]+_)[0-9a-z]{20}([0-9a-z]{6})$/.exec(text) ?? [];
  return kind === undefined ? text : `${kind}…${end}`;
}

/** `role: user → admin`: one line for what is small, and is shown as text whatever it is. */
function detailText(details: Readonly<Record<string, unknown>>): string {
  return Object.entries(details)
    .map(([name, value]) => visible(`${name}: ${typeof value === 'string' ? shortId(value) : JSON.stringify(value)}`))
    .join(' · ');
}
