import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useId, useState } from 'react';
import type { AccessToken, NewAccessToken } from '../../../accounts/contract/tokens.ts';
import { createToken, listTokens, revokeToken } from '../../data/own-account.ts';
import { ALWAYS_STALE } from '../../data/request.ts';
import { ErrorBox, Field, Moment, Part, Since } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { Confirm, ShownOnce, useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';

type Scope = NewAccessToken['scopes'][number];

const SCOPES: readonly { readonly scope: Scope; readonly what: string }[] = [
  { scope: 'bridge', what: 'run agents' },
  { scope: 'completions', what: 'call models' },
  { scope: 'account', what: 'this account' },
  { scope: 'admin', what: 'administer, and see the work of others' },
];
const ADMINISTRATORS: ReadonlySet<string> = new Set(['root', 'admin', 'operator']);
const DAYS = [7, 30, 90, 365] as const;
const DEFAULT_DAYS = 90;

/** Tokens that programs use in the name of this person. */
export function AccessTokens() {
  const queries = useQueryClient();
  const tokens = useQuery({ queryKey: ['tokens'], queryFn: listTokens, ...ALWAYS_STALE });
  const work = useWork();
  const [made, setMade] = useState<string>();
  const [revoked, setRevoked] = useState<AccessToken>();
  const refresh = () => queries.invalidateQueries({ queryKey: ['tokens'] });
  const text = 'For programs that act for you: they send it as a bearer token. A token cannot be shown again later.';
  return (
    <Part title="Access tokens" text={text}>
      <ErrorBox error={tokens.error} />
      {tokens.data?.length === 0 ? <p>There are none yet.</p> : null}
      <ul className="rows">
        {(tokens.data ?? []).map((token) => (
          <li key={token.id}>
            <div>
              <b>{visible(token.name)}</b> <code>{token.hint}…</code>
              <p className="quiet">
                {token.scopes.join(', ')} · until <Moment at={token.expiresAt} shown="day" /> ·{' '}
                {token.lastUsedAt === null ? 'not used yet' : 'used '}
                {token.lastUsedAt === null ? null : <Since at={Date.parse(token.lastUsedAt)} />}
                {token.lastUsedAt === null ? '' : ' ago'}
              </p>
            </div>
            <button type="button" disabled={work.isBusy} onClick={() => setRevoked(token)}>
              Revoke …
            </button>
          </li>
        ))}
      </ul>
      {made === undefined ? (
        <NewToken
          onMade={(token) => {
            setMade(token);
            void refresh();
          }}
        />
      ) : (
        <div className="stack">
          <ShownOnce label="Copy the token now. It is not shown again." text={made} />
          <button type="button" onClick={() => setMade(undefined)}>
            I have stored it
          </button>
        </div>
      )}
      <WorkNotes work={work} />
      {revoked === undefined ? null : (
        <Confirm
          title={`Revoke “${visible(revoked.name)}”?`}
          text="Programs that use it are refused immediately."
          action="Revoke it"
          onClose={() => setRevoked(undefined)}
          onYes={() =>
            work.run(async () => {
              await revokeToken(revoked.id);
              await refresh();
            })
          }
        />
      )}
    </Part>
  );
}

function NewToken({ onMade }: { readonly onMade: (token: string) => void }) {
  const { person } = useConsole();
  const id = useId();
  const work = useWork();
  const [name, setName] = useState('');
  const [scopes, setScopes] = useState<ReadonlySet<Scope>>(new Set(['completions']));
  const [days, setDays] = useState<number>(DEFAULT_DAYS);
  const offered = SCOPES.filter(({ scope }) => scope !== 'admin' || ADMINISTRATORS.has(person?.role ?? ''));
  function toggle(scope: Scope): void {
    const next = new Set(scopes);
    if (!next.delete(scope)) next.add(scope);
    setScopes(next);
  }
  function submit(event: FormEvent): void {
    event.preventDefault();
    if (scopes.size === 0) {
      work.refuse('Choose at least one scope for the token.');
      return;
    }
    work.run(async () => {
      const input: NewAccessToken = { name: name.trim(), scopes: [...scopes], expires_in_days: days };
      onMade((await createToken(input)).token);
    });
  }
  return (
    <>
      <form className="stack" onSubmit={submit}>
        <Field
          label="Name of a new token"
          value={name}
          onChange={setName}
          required
          maxLength={200}
          autoComplete="off"
          hint="Such as “build server”."
        />
        <fieldset className="checks">
          <legend>What it is for</legend>
          {offered.map(({ scope, what }) => (
            <label key={scope} className="check">
              <input type="checkbox" checked={scopes.has(scope)} onChange={() => toggle(scope)} /> {scope}{' '}
              <span className="quiet">{what}</span>
            </label>
          ))}
        </fieldset>
        <div className="field">
          <label htmlFor={`${id}-days`}>Ends after</label>
          <select id={`${id}-days`} value={days} onChange={(event) => setDays(Number(event.target.value))}>
            {DAYS.map((count) => (
              <option key={count} value={count}>
                {count} days
              </option>
            ))}
          </select>
        </div>
        <button type="submit" disabled={work.isBusy}>
          Create the token
        </button>
      </form>
      <WorkNotes work={work} />
    </>
  );
}
