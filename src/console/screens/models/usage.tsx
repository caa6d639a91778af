import { keepPreviousData, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Link } from 'wouter';
import type { UsageReport } from '../../../completions/contract/keys.ts';
import { readUsage } from '../../data/completions.ts';
import { BarChart, MAX_SERIES, type Series } from '../../parts/chart.tsx';
import { ErrorBox, useFilters } from '../../parts/parts.tsx';
import { countText, dayText, moneyText, TIME_ZONE } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';
import { callsHref, hourOf } from './call-filters.ts';
import { usePersonNames } from './call-names.ts';

const GROUPS = ['model', 'key', 'api', 'day', 'team', 'owner'] as const;
const GROUP_NAMES: Readonly<Partial<Record<string, string>>> = { api: 'API', owner: 'person' };
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
type Row = Pick<UsageReport['data'][number], (typeof COLUMNS)[number]>;
/** What the chart can show. */
const METRICS = {
  cost: { label: 'Cost', read: (row: Row) => row.cost_usd, text: moneyText },
  tokens: { label: 'Tokens', read: (row: Row) => row.prompt_tokens + row.completion_tokens, text: countText },
  requests: { label: 'Requests', read: (row: Row) => row.requests, text: countText },
} as const;
type Metric = keyof typeof METRICS;
const METRIC_NAMES = Object.keys(METRICS) as Metric[];
const OTHERS = 'other';

/** What the calls to models have used and cost. The choice is in the address. */
export default function Usage() {
  const [given, change] = useFilters();
  const { person } = useConsole();
  const group = GROUPS.find((one) => one === given.get('by')) ?? 'model';
  const wanted = METRIC_NAMES.find((one) => one === given.get('metric')) ?? 'cost';
  const days = RANGES.find((one) => `${one}` === given.get('days')) ?? 30;
  const from = dayText(Date.now() - (days - 1) * DAY_MS);
  const { data, error } = useQuery({
    queryKey: ['usage', group, days],
    queryFn: () => readUsage({ group_by: group, from, tz: TIME_ZONE }),
    placeholderData: keepPreviousData,
  });
  const daily = useQuery({
    queryKey: ['usage', group, days, 'daily'],
    queryFn: () => readUsage({ group_by: group, then_by: days === 1 ? 'hour' : 'day', from, tz: TIME_ZONE }),
    placeholderData: keepPreviousData,
  });
  const before = useQuery({
    queryKey: ['usage', group, days, 'before'],
    queryFn: () =>
      readUsage({
        group_by: group,
        from: dayText(Date.now() - (2 * days - 1) * DAY_MS),
        to: dayText(Date.now() - days * DAY_MS),
        tz: TIME_ZONE,
      }),
  });
  const metric = shownMetric(wanted, data?.total);
  const personOf = usePersonNames(group === 'owner' ? (data?.data ?? []).map((row) => row.group) : []);
  const nameOf = (value: string) => (value === '' ? 'nobody' : personOf(value));
  // Others' calls are for those who see the work of others; where nobody logs in, that is everyone.
  const seesOthers = person === undefined || person.permissions.includes('admin.bridge.read');
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
          {GROUPS.filter((one) => one !== 'owner' || seesOthers).map((one) => (
            <button key={one} type="button" aria-pressed={group === one} onClick={() => change('by', one)}>
              {GROUP_NAMES[one] ?? one}
            </button>
          ))}
        </fieldset>
        <fieldset className="choice">
          <legend className="hidden-label">Shown in the chart</legend>
          {METRIC_NAMES.map((one) => (
            <button key={one} type="button" aria-pressed={metric === one} onClick={() => change('metric', one)}>
              {one}
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
      <ErrorBox error={error ?? daily.error} />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {data === undefined ? null : (
        <Report
          report={data}
          before={before.data?.total}
          nameOf={nameOf}
          chart={
            daily.data === undefined ? null : (
              <>
                {metric === wanted ? null : (
                  <p className="quiet more">
                    The calls cost nothing: these models are free or have no price. The chart shows {metric} instead.
                  </p>
                )}
                <DailyChart report={daily.data} metric={metric} nameOf={nameOf} />
              </>
            )
          }
        />
      )}
    </>
  );
}

/** A chart without costs would be empty: it shows tokens then, or calls where no tokens were counted. */
function shownMetric(wanted: Metric, total: UsageReport['total'] | undefined): Metric {
  if (wanted !== 'cost' || total === undefined || total.requests === 0 || total.cost_usd > 0) return wanted;
  return METRICS.tokens.read(total) > 0 ? 'tokens' : 'requests';
}

type NameOf = (value: string) => string;

const HOURS = Array.from({ length: 24 }, (_, hour) => `${`${hour}`.padStart(2, '0')}:00`);

function daysOf(from: string, to: string): readonly string[] {
  const days: string[] = [];
  for (let at = Date.parse(from); at <= Date.parse(to); at += DAY_MS)
    days.push(new Date(at).toISOString().slice(0, 10));
  return days;
}

interface DailyChartProps {
  readonly report: UsageReport;
  readonly metric: Metric;
  readonly nameOf: NameOf;
}

/** The groups with most of what is shown, for each day, or each hour of a single day; the others are one. */
function DailyChart({ report, metric, nameOf }: DailyChartProps) {
  const { data, from, to, group_by: group } = report;
  const me = useOwnId();
  const { label, read, text } = METRICS[metric];
  const isOneDay = report.then_by === 'hour';
  const axis = isOneDay ? HOURS : daysOf(from, to);
  /** Where a row belongs on the axis: an hour is named by its beginning. */
  const placeOf = ({ group: name, bucket = '' }: UsageReport['data'][number]) =>
    isOneDay ? `${bucket.slice(11, 13)}:00` : group === 'day' ? name : bucket;
  if (data.length === 0) return null;
  const sums = new Map<string, number>();
  for (const row of data) {
    const name = group === 'day' ? label : row.group;
    sums.set(name, (sums.get(name) ?? 0) + read(row));
  }
  const ranked = [...sums.keys()].sort((a, b) => (sums.get(b) ?? 0) - (sums.get(a) ?? 0));
  const shown = ranked.length > MAX_SERIES ? ranked.filter((name) => name !== OTHERS).slice(0, MAX_SERIES - 1) : ranked;
  const valuesOf = (isIn: (name: string) => boolean) =>
    axis.map((place) =>
      data
        .filter((row) => placeOf(row) === place && (group === 'day' || isIn(row.group)))
        .reduce((sum, row) => sum + read(row), 0),
    );
  const periodOf = (place: string) => (isOneDay ? hourOf(from, place) : { from: place, to: place });
  const series: Series[] = shown.map((name) => ({
    name: nameOf(name),
    values: valuesOf((one) => one === name),
    hrefOf: (place) => callsHref({ group, value: name, ...periodOf(place), me }),
  }));
  if (shown.length < ranked.length) series.push({ name: OTHERS, values: valuesOf((one) => !shown.includes(one)) });
  const each = isOneDay ? 'hour' : 'day';
  const span = isOneDay ? from : `${from} to ${to}`;
  const by = group === 'day' ? '' : ` by ${GROUP_NAMES[group] ?? group}`;
  return <BarChart label={`${label} for each ${each}${by}, ${span}`} axis={axis} series={series} valueText={text} />;
}

interface ReportProps {
  readonly report: UsageReport;
  /** Of as many days before; undefined while it is read. */
  readonly before: UsageReport['total'] | undefined;
  readonly nameOf: NameOf;
  readonly chart: ReactNode;
}

function Report({ report, before, nameOf, chart }: ReportProps) {
  const { data, total, from, to, group_by: group } = report;
  return (
    <>
      <dl className="figures">
        {COLUMNS.map((name) => (
          <div key={name}>
            <dt>{LABELS[name]}</dt>
            <dd>
              {valueText(name, total[name])}{' '}
              {before === undefined ? null : <small>{changeText(total[name], before[name])}</small>}
            </dd>
          </div>
        ))}
      </dl>
      <p className="quiet more">
        <span title={`Days in ${TIME_ZONE}`}>
          {from} to {to}
        </span>
        ; compared with the same number of days before.
      </p>
      {chart}
      {data.length === 0 ? (
        <p className="empty">No model was called in this time.</p>
      ) : (
        <div className="scrolls">
          <table className="list stacks">
            <thead>
              <tr>
                <th>{GROUP_NAMES[group] ?? group}</th>
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
                    <CallsLink group={group} value={row.group} name={nameOf(row.group)} from={from} to={to} />
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
  readonly name: string;
  readonly from: string;
  readonly to: string;
}

/** Leads to the calls that a row counts, where the list of calls can be filtered by it. */
function CallsLink({ group, value, name, from, to }: CallsLinkProps) {
  const me = useOwnId();
  const isDay = group === 'day';
  const href = callsHref({ group, value, from: isDay ? value : from, to: isDay ? value : to, me });
  return href === undefined ? name : <Link href={href}>{name}</Link>;
}

function useOwnId(): string | undefined {
  const { person } = useConsole();
  return person === undefined ? undefined : `user:${person.id}`;
}

/** `+12 %`; nothing where there was nothing before. */
function changeText(now: number, before: number): string {
  if (before === 0) return '';
  const percent = Math.round(((now - before) / before) * 100);
  return `${percent > 0 ? '+' : ''}${percent} %`;
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
