import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { BASE } from '../../data/request.ts';
import {
  readFindings,
  readInstances,
  readSeries,
  readSettings,
  type SystemFindings,
  type SystemInstances,
  type SystemSeries,
  type SystemSettings,
} from '../../data/system.ts';
import { LineChart } from '../../parts/chart.tsx';
import { CopyButton, ErrorBox, Moment, Part, Since } from '../../parts/parts.tsx';
import { countOf, countText, spanText, visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';
import { Nodes } from './nodes.tsx';

/** How often the figures are read again while they are shown: as often as they are taken. */
const SERIES_MS = 10_000;
const INSTANCES_MS = 30_000;

/** Health, version and instances of the program, and its last hour. */
export default function System() {
  const { system } = useConsole();
  const series = useQuery({
    queryKey: ['system', 'series'],
    queryFn: readSeries,
    refetchInterval: SERIES_MS,
    placeholderData: keepPreviousData,
  });
  const findings = useQuery({ queryKey: ['system', 'doctor'], queryFn: readFindings, staleTime: INSTANCES_MS });
  const instances = useQuery({
    queryKey: ['system', 'instances'],
    queryFn: readInstances,
    refetchInterval: INSTANCES_MS,
  });
  const settings = useQuery({ queryKey: ['system', 'settings'], queryFn: readSettings });
  return (
    <>
      <header className="bar">
        <h1>System</h1>
        <span className="quiet">
          Trestle {system.version} · {system.services.join(', ')}
        </span>
        <button type="button" disabled={findings.isFetching} onClick={() => void findings.refetch()}>
          {findings.isFetching ? 'Checks …' : 'Check again'}
        </button>
      </header>
      <ErrorBox error={series.error ?? findings.error ?? instances.error ?? settings.error} />
      <div className="page system">
        <Part title="The last hour">{series.data === undefined ? <Wait /> : <LastHour data={series.data} />}</Part>
        <Part title="Health" text="The findings of trestle doctor on this machine.">
          {findings.data === undefined ? <Wait /> : <Health data={findings.data} />}
        </Part>
        <Part title="Instances">{instances.data === undefined ? <Wait /> : <Instances data={instances.data} />}</Part>
        <Nodes />
        <Part title="Settings" text="The current values and where they come from. Secrets are masked.">
          {settings.data === undefined ? <Wait /> : <SettingList data={settings.data} />}
        </Part>
        <Upkeep />
      </div>
    </>
  );
}

const BACKUP = 'npx trestle backup ./trestle-backup';

/** What is done outside of the console: copies of the data, and what other programs read. */
function Upkeep() {
  return (
    <Part title="Backup and monitoring" text="Run this where the server runs. The folder must not exist yet.">
      <p>
        <code>{BACKUP}</code> <CopyButton text={BACKUP} />
      </p>
      <p className="quiet">
        The backup has the data, but not the secret key: keep that in another place. <code>--key-passphrase-stdin</code>{' '}
        adds it, encrypted.
      </p>
      <p>
        <a href={`${BASE}/metrics`}>Metrics for Prometheus</a>{' '}
        <span className="quiet">(with metrics_token, or on this machine)</span> ·{' '}
        <a href={`${BASE}/docs`}>API reference</a>
      </p>
    </Part>
  );
}

function Wait() {
  return <p className="quiet">Reading …</p>;
}

const MILLISECONDS = (value: number) => `${countText(value)} ms`;
const MEGABYTES = (value: number) => `${countText(value)} MB`;
/** THE TABLE of the small charts. */
const CHARTS: readonly {
  readonly name: keyof SystemSeries['series'];
  readonly label: string;
  readonly text: (value: number) => string;
}[] = [
  { name: 'requests', label: 'Requests in ten seconds', text: countText },
  { name: 'errors', label: 'Errors (5xx) in ten seconds', text: countText },
  { name: 'p95_ms', label: '95 of 100 requests took less than', text: MILLISECONDS },
  { name: 'in_flight', label: 'Running requests', text: countText },
  { name: 'sockets', label: 'Open WebSockets', text: countText },
  { name: 'loop_busy', label: 'Event loop busy', text: (value) => `${Math.round(value * 100)} %` },
  { name: 'rss_mb', label: 'Memory', text: MEGABYTES },
  { name: 'db_queue', label: 'Waiting database writes', text: countText },
];

function LastHour({ data: { series, step_s: step, to } }: { readonly data: SystemSeries }) {
  const span = spanText((series.requests.length - 1) * step * 1000);
  return (
    <>
      <dl className="small-charts">
        {CHARTS.map(({ name, label, text }) => {
          const values = series[name];
          const highest = text(Math.max(...values, 0));
          return (
            <div key={name}>
              <dt>{label}</dt>
              <dd>
                {text(values.at(-1) ?? 0)} <small>highest {highest}</small>
                <LineChart label={`${label}: ${text(values.at(-1) ?? 0)} now, highest ${highest}`} values={values} />
              </dd>
            </div>
          );
        })}
      </dl>
      <p className="quiet">
        {span} until <Moment at={to} shown="time" />, of the instance that serves this page.
      </p>
    </>
  );
}

const ORDER = { broken: 0, note: 1, ok: 2 } as const;
const DOTS = { broken: 'failed', note: 'in_progress', ok: 'completed' } as const;

/** What needs work comes first. */
function Health({ data: { findings, ranAt } }: { readonly data: SystemFindings }) {
  const sorted = findings.toSorted((a, b) => ORDER[a.state] - ORDER[b.state]);
  const count = (state: keyof typeof ORDER) => findings.filter((finding) => finding.state === state).length;
  return (
    <>
      <p>
        {count('broken') === 0 ? 'Nothing is broken' : `${count('broken')} broken`}, {count('note')} to look at,{' '}
        {count('ok')} fine; checked <Since at={Date.parse(ranAt)} /> ago.
      </p>
      <ul className="rows">
        {sorted.map(({ name, state, text }) => (
          <li key={`${name} ${text}`}>
            <div>
              <span className={`dot ${DOTS[state]}`} />
              <strong>{visible(name)}</strong> {visible(text)}
            </div>
            <span className={state === 'broken' ? 'failed' : 'quiet'}>{state}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

function Instances({ data: { instances } }: { readonly data: SystemInstances }) {
  return (
    <ul className="rows">
      {instances.map(({ id, version, address, state, startedAt, heartbeatAt, isThis, ...load }) => (
        <li key={id}>
          <div>
            <strong>{visible(address)}</strong> {isThis ? '(this one)' : ''}{' '}
            <code className="quiet">{visible(id)}</code> {state === 'serving' ? '' : state}
          </div>
          <span className="quiet">
            {visible(version)} · settings {visible(load.settingsDigest)} · {countOf(load.sessions, 'session')} at work ·{' '}
            {countOf(load.sockets, 'socket')} · clock {load.clockDifferenceMs} ms · runs for{' '}
            <Since at={Date.parse(startedAt)} />
            {isThis ? '' : ', seen at '}
            {isThis ? null : <Moment at={heartbeatAt} shown="time" />}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** Only what somebody has set, until all are wanted or one is searched for. */
function SettingList({ data: { settings } }: { readonly data: SystemSettings }) {
  const [search, setSearch] = useState('');
  const [showsAll, setShowsAll] = useState(false);
  const wanted = search.toLowerCase();
  const found = settings.filter(({ path, source }) =>
    wanted === '' ? showsAll || source !== 'default' : path.toLowerCase().includes(wanted),
  );
  return (
    <>
      <input
        type="search"
        aria-label="Search settings"
        placeholder="Search"
        maxLength={200}
        value={search}
        onChange={({ target }) => setSearch(target.value)}
      />
      {found.length === 0 ? (
        <p className="quiet">{wanted === '' ? 'Everything has its default.' : 'No setting matches.'}</p>
      ) : null}
      <ul className="rows">
        {found.map(({ path, value, source, reloaded, pending, description }) => (
          <li key={path}>
            <div title={description}>
              <code>{path}</code> <code className="quiet">{visible(value)}</code>
            </div>
            <span className="quiet">
              {visible(source)}
              {pending ? ' · counts after a restart' : reloaded ? ' · changed by SIGHUP' : ' · needs a restart'}
            </span>
          </li>
        ))}
      </ul>
      {wanted === '' ? (
        <button type="button" aria-pressed={showsAll} onClick={() => setShowsAll(!showsAll)}>
          {showsAll ? 'Only what is set' : `All ${settings.length} settings`}
        </button>
      ) : null}
    </>
  );
}
