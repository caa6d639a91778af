import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useId, useState } from 'react';
import { Link } from 'wouter';
import type { NewKey } from '../../../accounts/contract/own-data.ts';
import type { KeyInfo } from '../../../completions/contract/keys.ts';
import { createKey, enableKey, listKeys, removeKey, rotateKey } from '../../data/completions.ts';
import { BASE } from '../../data/request.ts';
import { ErrorBox, Field } from '../../parts/parts.tsx';
import { countText, moneyText, visible } from '../../parts/text.ts';
import { Confirm, ShownOnce, useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';

/** How long a key stays valid after it was replaced, so that programs can be given the new one. */
const GRACE_SECONDS = 3600;
const PERIODS = ['day', 'month', 'total'] as const;

/** The own keys of the completions API. */
export default function Keys() {
  const { person } = useConsole();
  const queries = useQueryClient();
  const keys = useQuery({ queryKey: ['keys'], queryFn: listKeys, enabled: person !== undefined });
  const work = useWork();
  const [made, setMade] = useState<string>();
  const [removed, setRemoved] = useState<KeyInfo>();
  const [rotated, setRotated] = useState<KeyInfo>();
  const refresh = () => queries.invalidateQueries({ queryKey: ['keys'] });
  if (person === undefined) {
    return (
      <section className="page">
        <h1>Nobody is logged in</h1>
        <p>Keys belong to people, and this server works without a login here.</p>
      </section>
    );
  }
  return (
    <>
      <header className="bar">
        <h1>Keys</h1>
        <span className="quiet">For programs that call models in your name</span>
      </header>
      <ErrorBox error={keys.error} />
      {keys.data === undefined || keys.data.length === 0 ? null : (
        <Table
          keys={keys.data}
          onRemove={setRemoved}
          onRotate={setRotated}
          onEnable={(key) =>
            work.run(async () => {
              await enableKey(key.id, !key.enabled);
              await refresh();
            })
          }
        />
      )}
      <div className="page settings">
        {keys.data?.length === 0 ? <p>You have no keys yet.</p> : null}
        <WorkNotes work={work} />
        {made === undefined ? (
          <NewKeyForm
            onMade={(key) => {
              setMade(key);
              void refresh();
            }}
          />
        ) : (
          <div className="stack">
            <ShownOnce label="Copy the key now: it is shown only this once." text={made} />
            <ShownOnce
              label="Most programs read these variables:"
              text={`export OPENAI_BASE_URL=${location.origin}${BASE}/v1\nexport OPENAI_API_KEY=${made}`}
            />
            <button type="button" onClick={() => setMade(undefined)}>
              I have stored it
            </button>
          </div>
        )}
      </div>
      {rotated === undefined ? null : (
        <Confirm
          title={`Replace “${visible(rotated.name)}”?`}
          text="A new key is shown once. The old one is refused after an hour."
          action="Replace it"
          onClose={() => setRotated(undefined)}
          onYes={() =>
            work.run(async () => {
              setMade((await rotateKey(rotated.id, GRACE_SECONDS)).key);
              await refresh();
            })
          }
        />
      )}
      {removed === undefined ? null : (
        <Confirm
          title={`Remove “${visible(removed.name)}”?`}
          text="Programs that use this key are refused from now on."
          action="Remove it"
          onClose={() => setRemoved(undefined)}
          onYes={() =>
            work.run(async () => {
              await removeKey(removed.id);
              await refresh();
            })
          }
        />
      )}
    </>
  );
}

interface TableActions {
  readonly onRemove: (key: KeyInfo) => void;
  readonly onRotate: (key: KeyInfo) => void;
  readonly onEnable: (key: KeyInfo) => void;
}

function Table({ keys, onRemove, onRotate, onEnable }: TableActions & { readonly keys: readonly KeyInfo[] }) {
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {['Name', 'Begins with', 'Models', 'Limits', 'Created', 'Ends', ''].map((name) => (
              <th key={name}>{name === '' ? <span className="hidden-label">Actions</span> : name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {keys.map((key) => (
            <tr key={key.id}>
              <td>
                <Link href={`/console/calls?key=${encodeURIComponent(key.id)}`}>{visible(key.name)}</Link>
              </td>
              <td>
                <code>{key.hint}…</code>
              </td>
              <td data-name="Models">{key.models.length === 0 ? 'all' : visible(key.models.join(', '))}</td>
              <td data-name="Limits">{limitText(key)}</td>
              <td data-name="Created">{new Date(key.created_at).toLocaleDateString()}</td>
              <td data-name="Ends">
                {!key.enabled
                  ? 'disabled'
                  : key.expires_at === null
                    ? 'never'
                    : new Date(key.expires_at).toLocaleDateString()}
              </td>
              <td>
                <button type="button" onClick={() => onEnable(key)}>
                  {key.enabled ? 'Disable' : 'Enable'}
                </button>{' '}
                <button type="button" onClick={() => onRotate(key)}>
                  Replace …
                </button>{' '}
                <button type="button" onClick={() => onRemove(key)}>
                  Remove …
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function limitText({ budget, requests_per_minute: requests, tokens_per_minute: tokens }: KeyInfo): string {
  const parts = [
    budget === null ? '' : `${moneyText(budget.usd)} ${budget.period === 'total' ? 'in all' : `a ${budget.period}`}`,
    requests === null ? '' : `${countText(requests)} requests a minute`,
    tokens === null ? '' : `${countText(tokens)} tokens a minute`,
  ].filter((part) => part !== '');
  return parts.length === 0 ? 'none' : parts.join(', ');
}

function NewKeyForm({ onMade }: { readonly onMade: (key: string) => void }) {
  const id = useId();
  const work = useWork();
  const [name, setName] = useState('');
  const [models, setModels] = useState('');
  const [usd, setUsd] = useState('');
  const [period, setPeriod] = useState<(typeof PERIODS)[number]>('month');
  const [until, setUntil] = useState('');
  function submit(event: FormEvent): void {
    event.preventDefault();
    const patterns = models.split(/[\s,]+/).filter((pattern) => pattern !== '');
    const input: NewKey = {
      name: name.trim(),
      ...(patterns.length > 0 && { models: patterns }),
      ...(usd !== '' && { budget: { usd: Number(usd), period } }),
      ...(until !== '' && { expires_at: new Date(`${until}T23:59:59`).toISOString() }),
    };
    work.run(async () => onMade((await createKey(input)).key));
  }
  return (
    <>
      <form className="stack" onSubmit={submit}>
        <h2>New key</h2>
        <Field
          label="Name"
          value={name}
          onChange={setName}
          required
          maxLength={200}
          autoComplete="off"
          hint="Such as “laptop”."
        />
        <Field
          label="Models"
          value={models}
          onChange={setModels}
          autoComplete="off"
          hint="Names or patterns such as openai/*, separated by commas. Empty: all that you may use."
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
        <div className="field">
          <label htmlFor={`${id}-until`}>Last day</label>
          <input id={`${id}-until`} type="date" value={until} onChange={(event) => setUntil(event.target.value)} />
        </div>
        <button type="submit" disabled={work.isBusy}>
          Create the key
        </button>
      </form>
      <WorkNotes work={work} />
    </>
  );
}
