import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'wouter';
import type { KeyInfo } from '../../../completions/contract/keys.ts';
import { changeKey, createKey, listKeys, removeKey, rotateKey } from '../../data/completions.ts';
import { ALWAYS_STALE, BASE } from '../../data/request.ts';
import { BudgetBar } from '../../parts/budget-bar.tsx';
import { Dialog, ErrorBox, LogIn, Moment } from '../../parts/parts.tsx';
import { countText, visible } from '../../parts/text.ts';
import { Confirm, CopyCurl, ShownOnce, useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';
import { KeyForm } from './key-form.tsx';

/** How long a key stays valid after it was replaced, so that programs can be given the new one. */
const GRACE_SECONDS = 3600;

/** The own keys of the completions API. */
export default function Keys() {
  const { person } = useConsole();
  const queries = useQueryClient();
  const keys = useQuery({ queryKey: ['keys'], queryFn: listKeys, enabled: person !== undefined, ...ALWAYS_STALE });
  const work = useWork();
  const [made, setMade] = useState<string>();
  const [removed, setRemoved] = useState<KeyInfo>();
  const [rotated, setRotated] = useState<KeyInfo>();
  const [changed, setChanged] = useState<KeyInfo>();
  const refresh = () => queries.invalidateQueries({ queryKey: ['keys'] });
  if (person === undefined) {
    return (
      <section className="page">
        <h1>You are not logged in</h1>
        <p>
          Keys belong to people, and this server works without a login here. <LogIn />
        </p>
      </section>
    );
  }
  return (
    <>
      <header className="bar">
        <h1>Keys</h1>
        <span className="quiet">For programs that call models for you</span>
      </header>
      <ErrorBox error={keys.error} />
      {keys.data === undefined || keys.data.length === 0 ? null : (
        <Table
          keys={keys.data}
          onRemove={setRemoved}
          onRotate={setRotated}
          onChange={setChanged}
          onEnable={(key) =>
            work.run(async () => {
              await changeKey(key.id, { enabled: !key.enabled });
              await refresh();
            })
          }
        />
      )}
      <div className="page settings">
        {keys.data?.length === 0 ? <p>You have no keys yet.</p> : null}
        <WorkNotes work={work} />
        {made === undefined ? (
          <>
            <h2>New key</h2>
            <KeyForm
              action="Create the key"
              onSubmit={async (terms) => {
                setMade((await createKey(terms)).key);
                await refresh();
              }}
            />
          </>
        ) : (
          <div className="stack">
            <ShownOnce label="Copy the key now. It is not shown again." text={made} />
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
      {changed === undefined ? null : (
        <Dialog title={`Change “${visible(changed.name)}”`} onClose={() => setChanged(undefined)}>
          <KeyForm
            action="Save"
            before={changed}
            onSubmit={async (_terms, changes) => {
              if (Object.keys(changes).length > 0) await changeKey(changed.id, changes);
              setChanged(undefined);
              await refresh();
            }}
          />
          <CopyCurl path="/api/auth/keys" />
        </Dialog>
      )}
      {rotated === undefined ? null : (
        <Confirm
          title={`Replace “${visible(rotated.name)}”?`}
          text="The new key is shown once. The old key works for one more hour."
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
          text="Programs that use this key are refused immediately."
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
  readonly onChange: (key: KeyInfo) => void;
}

function Table(props: TableActions & { readonly keys: readonly KeyInfo[] }) {
  const { keys, onRemove, onRotate, onEnable, onChange } = props;
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {['Name', 'Begins with', 'Models', 'Limits', 'Budget', 'Last used', 'Created', 'Ends', ''].map((name) => (
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
              <td data-name="Budget">
                {key.budget === null ? 'none' : <BudgetBar spent={key.spent?.usd ?? 0} budget={key.budget} />}
              </td>
              <td data-name="Last used">{key.last_used_at === null ? 'not yet' : <Moment at={key.last_used_at} />}</td>
              <td data-name="Created">
                <Moment at={key.created_at} shown="day" />
              </td>
              <td data-name="Ends">
                {!key.enabled ? (
                  'disabled'
                ) : key.expires_at === null ? (
                  'never'
                ) : (
                  <Moment at={key.expires_at} shown="day" />
                )}
              </td>
              <td>
                <button type="button" onClick={() => onEnable(key)}>
                  {key.enabled ? 'Disable' : 'Enable'}
                </button>{' '}
                <button type="button" onClick={() => onChange(key)}>
                  Change …
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

function limitText(key: KeyInfo): string {
  const { requests_per_minute: requests, tokens_per_minute: tokens, max_parallel: parallel } = key;
  const parts = [
    requests === null ? '' : `${countText(requests)} requests a minute`,
    tokens === null ? '' : `${countText(tokens)} tokens a minute`,
    parallel === null ? '' : `${countText(parallel)} at the same time`,
  ].filter((part) => part !== '');
  return parts.length === 0 ? 'none' : parts.join(', ');
}
