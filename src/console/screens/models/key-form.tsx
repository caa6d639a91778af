import { type FormEvent, useId, useState } from 'react';
import type { NewKey } from '../../../accounts/contract/own-data.ts';
import type { KeyChange, KeyInfo } from '../../../completions/contract/keys.ts';
import { Field } from '../../parts/parts.tsx';
import { dayText } from '../../parts/text.ts';
import { useWork, WorkNotes } from '../../parts/work.tsx';

const PERIODS = ['day', 'month', 'total'] as const;
/** Limits that are whole numbers. */
const LIMITS = [
  { name: 'requests_per_minute', label: 'Requests a minute' },
  { name: 'tokens_per_minute', label: 'Tokens a minute' },
  { name: 'max_parallel', label: 'Calls at the same time' },
] as const;

const STORED = [
  { value: '', label: 'as in the settings of the server' },
  { value: 'none', label: 'for no call' },
  { value: 'errors', label: 'for calls that fail' },
  { value: 'all', label: 'for all calls' },
] as const;

interface KeyFormProps {
  readonly action: string;
  /** The key to change. Undefined: a new one. */
  readonly before?: KeyInfo;
  /** Gets all terms of a new key, and of a key that is changed only those that are different. */
  readonly onSubmit: (terms: NewKey, changes: KeyChange) => Promise<void>;
}

/** What a key is called and what it may use. */
export function KeyForm({ action, before, onSubmit }: KeyFormProps) {
  const id = useId();
  const work = useWork();
  const [name, setName] = useState(before?.name ?? '');
  const [models, setModels] = useState(before?.models.join(', ') ?? '');
  const [usd, setUsd] = useState(`${before?.budget?.usd ?? ''}`);
  const [period, setPeriod] = useState<(typeof PERIODS)[number]>(before?.budget?.period ?? 'month');
  const [limits, setLimits] = useState(() => LIMITS.map((limit) => `${before?.[limit.name] ?? ''}`));
  const [stored, setStored] = useState<string>(before?.store_content ?? '');
  const [hasLimits] = useState(limits.some((limit) => limit !== ''));
  const oldDay = before?.expires_at ? dayText(Date.parse(before.expires_at)) : '';
  const [until, setUntil] = useState(oldDay);
  function submit(event: FormEvent): void {
    event.preventDefault();
    const all = {
      name: name.trim(),
      models: models.split(/[\s,]+/).filter((pattern) => pattern !== ''),
      budget: usd === '' ? null : { usd: Number(usd), period },
      ...Object.fromEntries(LIMITS.map((limit, place) => [limit.name, limits[place] ? Number(limits[place]) : null])),
      store_content: stored === '' ? null : stored,
      // A day that was not touched keeps its time of day.
      expires_at: until === oldDay ? (before?.expires_at ?? null) : until === '' ? null : endOfDay(until),
    };
    const entries = Object.entries(all);
    const terms = Object.fromEntries(entries.filter(([, value]) => value !== null)) as NewKey;
    const changes = Object.fromEntries(
      entries.filter(([field, value]) => !isSame(value, before?.[field as keyof KeyInfo])),
    ) as KeyChange;
    work.run(() => onSubmit(terms, changes));
  }
  return (
    <>
      <form className="stack" onSubmit={submit}>
        <Field
          label="Name"
          value={name}
          onChange={setName}
          required
          maxLength={200}
          autoComplete="off"
          hint="For example, “laptop”."
        />
        <Field
          label="Models"
          value={models}
          onChange={setModels}
          autoComplete="off"
          hint="Names or patterns such as openai/*, separated by commas. Leave empty for all models that you may use."
        />
        <div className="field">
          <label htmlFor={`${id}-usd`}>Budget in US dollars</label>
          <div className="with-button">
            <input
              id={`${id}-usd`}
              type="number"
              min={0.01}
              step={0.01}
              placeholder="none"
              value={usd}
              onChange={(event) => setUsd(event.target.value)}
            />
            <select
              aria-label="Period of the budget"
              value={period}
              onChange={(event) => setPeriod(PERIODS.find((one) => one === event.target.value) ?? 'month')}
            >
              {PERIODS.map((one) => (
                <option key={one} value={one}>
                  {one === 'total' ? 'in all' : `a ${one}`}
                </option>
              ))}
            </select>
          </div>
        </div>
        <details open={hasLimits}>
          <summary>Limits</summary>
          <div className="stack">
            {LIMITS.map(({ name: field, label }, place) => (
              <div key={field} className="field">
                <label htmlFor={`${id}-${field}`}>{label}</label>
                <input
                  id={`${id}-${field}`}
                  type="number"
                  min={1}
                  step={1}
                  placeholder="none"
                  value={limits[place]}
                  onChange={({ target }) => setLimits(limits.with(place, target.value))}
                />
              </div>
            ))}
          </div>
        </details>
        <div className="field">
          <label htmlFor={`${id}-stored`}>Requests and responses are stored</label>
          <select id={`${id}-stored`} value={stored} onChange={(event) => setStored(event.target.value)}>
            {STORED.map(({ value, label }) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </div>
        <div className="field">
          <label htmlFor={`${id}-until`}>Last day</label>
          <input id={`${id}-until`} type="date" value={until} onChange={(event) => setUntil(event.target.value)} />
        </div>
        <button type="submit" disabled={work.isBusy}>
          {action}
        </button>
      </form>
      <WorkNotes work={work} />
    </>
  );
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

function endOfDay(day: string): string {
  return new Date(`${day}T23:59:59`).toISOString();
}
