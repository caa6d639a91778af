import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link, useSearchParams } from 'wouter';
import type { UsageReport } from '../../../completions/contract/keys.ts';
import { readUsage } from '../../data/completions.ts';
import { ErrorBox } from '../../parts/parts.tsx';
import { countText, moneyText, visible } from '../../parts/text.ts';

const GROUPS = ['model', 'key', 'api', 'day', 'team'] as const;
const RANGES = [1, 7, 30, 90] as const;
const DAY_MS = 86_400_000;
const COLUMNS = ['requests', 'errors', 'prompt_tokens', 'completion_tokens', 'cost_usd'] as const;
const LABELS = {
  requests: 'Requests',
  errors: 'Errors',
  prompt_tokens: 'Tokens in',
  completion_tokens: 'Tokens out',
  cost_usd: 'Cost',
} as const;

const dayText = (at: number) => new Date(at).toISOString().slice(0, 10);

/** What the calls to models have used and cost. The choice is in the address. */
export default function Usage() {
  const [given, setGiven] = useSearchParams();
  const group = GROUPS.find((one) => one === given.get('by')) ?? 'model';
  const days = RANGES.find((one) => `${one}` === given.get('days')) ?? 30;
  const { data, error } = useQuery({
    queryKey: ['usage', group, days],
    queryFn: () => readUsage({ group_by: group, from: dayText(Date.now() - (days - 1) * DAY_MS) }),
    placeholderData: keepPreviousData,
  });
  function change(name: string, value: string): void {
    const next = new URLSearchParams(given);
    next.set(name, value);
    setGiven(next, { replace: true });
  }
  return (
    <>
      <header className="bar">
        <h1>Usage</h1>
        <fieldset className="choice">
          <legend className="hidden-label">Days</legend>
          {RANGES.map((range) => (
            <button key={range} type="button" aria-pressed={days === range} onClick={() => change('days', `${range}`)}>
              {range === 1 ? 'today' : `${range} days`}
            </button>
          ))}
        </fieldset>
        <fieldset className="choice">
          <legend className="hidden-label">Grouped by</legend>
          {GROUPS.map((one) => (
            <button key={one} type="button" aria-pressed={group === one} onClick={() => change('by', one)}>
              {one === 'api' ? 'API' : one}
            </button>
          ))}
        </fieldset>
        {data === undefined ? null : (
          <a
            className="button"
            download={`usage-${data.from}-${data.to}.csv`}
            href={`data:text/csv;charset=utf-8,${encodeURIComponent(csvOf(data))}`}
          >
            CSV
          </a>
        )}
      </header>
      <ErrorBox error={error} />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {data === undefined ? null : <Report report={data} />}
    </>
  );
}

function Report({ report }: { readonly report: UsageReport }) {
  const { data, total, from, to, group_by: group } = report;
  return (
    <>
      <dl className="figures">
        {COLUMNS.map((name) => (
          <div key={name}>
            <dt>{LABELS[name]}</dt>
            <dd>{valueText(name, total[name])}</dd>
          </div>
        ))}
      </dl>
      <p className="quiet more">
        {from} to {to}, days in UTC.
      </p>
      {data.length === 0 ? (
        <p className="empty">No model was called in this time.</p>
      ) : (
        <div className="scrolls">
          <table className="list stacks">
            <thead>
              <tr>
                <th>{group}</th>
                {COLUMNS.map((name) => (
                  <th key={name} className="number">
                    {LABELS[name]}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {data.map((row) => (
                <tr key={row.group}>
                  <td>
                    <CallsLink group={group} value={row.group} from={from} to={to} />
                  </td>
                  {COLUMNS.map((name) => (
                    <td key={name} className="number" data-name={LABELS[name]}>
                      {valueText(name, row[name])}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

interface CallsLinkProps {
  readonly group: string;
  readonly value: string;
  readonly from: string;
  readonly to: string;
}

/** Leads to the calls that a row counts, where the list of calls can be filtered by it. */
function CallsLink({ group, value, from, to }: CallsLinkProps) {
  const filter =
    group === 'day'
      ? { from: value, to: value }
      : ['model', 'key', 'api'].includes(group)
        ? { [group]: value, from, to }
        : undefined;
  if (filter === undefined) return visible(value);
  return <Link href={`/console/calls?${new URLSearchParams(filter)}`}>{visible(value)}</Link>;
}

function valueText(name: (typeof COLUMNS)[number], value: number): string {
  return name === 'cost_usd' ? moneyText(value) : countText(value);
}

/** A cell that begins with `=` or the like is a formula in some programs: a quote in front keeps it a text. */
function csvOf({ group_by: group, data }: UsageReport): string {
  const cell = (text: string) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const lines = data.map((row) => [cell(row.group), ...COLUMNS.map((name) => `${row[name]}`)].join(','));
  return `${[[group, ...COLUMNS].join(','), ...lines].join('\r\n')}\r\n`;
}
