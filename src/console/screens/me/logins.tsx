import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import type { Credential } from '../../../accounts/contract/login.ts';
import {
  addPasskey,
  endLogin,
  endOtherLogins,
  listCredentials,
  listLogins,
  removeCredential,
} from '../../data/own-account.ts';
import { ALWAYS_STALE, Problem } from '../../data/request.ts';
import { ErrorBox, Field, Moment, Part, Since } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { Confirm, useWork, WorkNotes } from '../../parts/work.tsx';

/** Where someone is logged in to this account. */
export function Logins() {
  const queries = useQueryClient();
  const logins = useQuery({ queryKey: ['logins'], queryFn: listLogins, ...ALWAYS_STALE });
  const work = useWork();
  const end = (action: () => Promise<void>) =>
    work.run(async () => {
      await action();
      await queries.invalidateQueries({ queryKey: ['logins'] });
    });
  const all = logins.data ?? [];
  return (
    <Part title="Logins" text="Browsers and programs that are logged in to your account.">
      <ErrorBox error={logins.error} />
      <ul className="rows">
        {all.map(({ id, current, address, userAgent, createdAt, lastSeenAt }) => (
          <li key={id}>
            <div>
              <b>{deviceName(userAgent)}</b> {current ? <span className="chip running">this one</span> : null}
              <p className="quiet" title={visible(userAgent)}>
                {visible(address)} · since <Moment at={createdAt} /> · used <Since at={Date.parse(lastSeenAt)} /> ago
              </p>
            </div>
            {current ? null : (
              <button type="button" disabled={work.isBusy} onClick={() => end(() => endLogin(id))}>
                End
              </button>
            )}
          </li>
        ))}
      </ul>
      {all.length > 1 ? (
        <div className="answers">
          <button type="button" disabled={work.isBusy} onClick={() => end(endOtherLogins)}>
            End all others
          </button>
        </div>
      ) : null}
      <WorkNotes work={work} />
    </Part>
  );
}

const PROGRAMS = ['Edg', 'OPR', 'Firefox', 'Chrome', 'Safari', 'curl', 'node'] as const;
const NAMES: Readonly<Record<string, string>> = { Edg: 'Edge', OPR: 'Opera', node: 'Node.js' };
const SYSTEMS = ['Windows', 'Android', 'iPhone', 'iPad', 'Macintosh', 'Linux'] as const;

/** A few words for the header of a browser, which can be anything. */
function deviceName(userAgent: string): string {
  const program = PROGRAMS.find((name) => userAgent.includes(name));
  const system = SYSTEMS.find((name) => userAgent.includes(name));
  if (program === undefined) return userAgent === '' ? 'Unknown program' : visible(userAgent.slice(0, 40));
  return [NAMES[program] ?? program, system].filter(Boolean).join(' on ');
}

/** Passkeys and accounts elsewhere that log in to this one. They are shown after a fresh login only. */
export function Passkeys() {
  const queries = useQueryClient();
  const credentials = useQuery({ queryKey: ['credentials'], queryFn: listCredentials, retry: false, ...ALWAYS_STALE });
  const work = useWork();
  const [name, setName] = useState('');
  const [removed, setRemoved] = useState<Credential>();
  const isHidden = credentials.error instanceof Problem && credentials.error.code === 'reauthentication_required';
  const linked = (credentials.data ?? []).filter(({ kind }) => kind === 'passkey' || kind === 'oauth');
  const refresh = () =>
    Promise.all(['credentials', 'logins'].map((key) => queries.invalidateQueries({ queryKey: [key] })));
  function add(event: FormEvent): void {
    event.preventDefault();
    work.run(async () => {
      await addPasskey(name.trim()).catch((error: unknown) => {
        throw passkeyProblem(error);
      });
      setName('');
      await refresh();
    });
  }
  const text = 'A passkey logs you in with the screen lock of a phone or computer, without a password.';
  return (
    <Part title="Passkeys and linked logins" text={text}>
      <ErrorBox error={isHidden ? undefined : credentials.error} />
      {isHidden ? (
        <div className="answers">
          <button
            type="button"
            onClick={() =>
              work.run(async () => {
                queries.setQueryData(['credentials'], await listCredentials());
              })
            }
          >
            Show them …
          </button>
        </div>
      ) : null}
      {credentials.data !== undefined && linked.length === 0 ? <p>There are none yet.</p> : null}
      <ul className="rows">
        {linked.map((credential) => (
          <li key={credential.id}>
            <div>
              <b>{nameOf(credential)}</b>
              <p className="quiet">
                {credential.kind === 'passkey' ? 'passkey' : 'linked login'} · added{' '}
                <Moment at={credential.createdAt} shown="day" />
                {credential.lastUsedAt === null ? ' · not used yet' : ' · used '}
                {credential.lastUsedAt === null ? null : <Since at={Date.parse(credential.lastUsedAt)} />}
                {credential.lastUsedAt === null ? '' : ' ago'}
              </p>
            </div>
            <button type="button" disabled={work.isBusy} onClick={() => setRemoved(credential)}>
              Remove …
            </button>
          </li>
        ))}
      </ul>
      <form className="line" onSubmit={add}>
        <Field
          label="Name of a new passkey"
          value={name}
          onChange={setName}
          required
          maxLength={64}
          autoComplete="off"
          hint="Such as “laptop”. This browser then asks you to unlock it."
        />
        <button type="submit" disabled={work.isBusy}>
          Add a passkey
        </button>
      </form>
      <WorkNotes work={work} />
      {removed === undefined ? null : (
        <Confirm
          title={`Remove “${nameOf(removed)}”?`}
          text="It can no longer log in, and your other logins end."
          action="Remove it"
          onClose={() => setRemoved(undefined)}
          onYes={() =>
            work.run(async () => {
              await removeCredential(removed.id);
              await refresh();
            })
          }
        />
      )}
    </Part>
  );
}

function nameOf({ name, provider, email }: Credential): string {
  if (name !== undefined && name !== '') return visible(name);
  return visible([provider ?? 'Passkey', email ?? ''].filter((part) => part !== '').join(' · '));
}

/** What browsers say when the person says no, or has one already, in our words. */
function passkeyProblem(error: unknown): unknown {
  if (!(error instanceof DOMException)) return error;
  if (error.name === 'InvalidStateError') return new Error('This device already has a passkey for your account.');
  if (error.name === 'NotAllowedError')
    return new Error('No passkey was created: the request was cancelled or took too long.');
  return error;
}
