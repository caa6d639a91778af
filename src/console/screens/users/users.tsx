import { keepPreviousData, useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useId, useState } from 'react';
import { Link } from 'wouter';
import type { User } from '../../../accounts/contract/conventions.ts';
import { actOnUser, listUsers, removeUser, setPlan, setRole, type UserAction } from '../../data/administration.ts';
import { Dialog, ErrorBox, Field, Moment, More, useFilters } from '../../parts/parts.tsx';
import { countText, visible } from '../../parts/text.ts';
import { CopyCurl, useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';
import { Invitations, ROLES, rolesFor } from './invitations.tsx';

/** The people of this server. */
export default function Users() {
  const [given, change] = useFilters();
  const [chosen, setChosen] = useState<string>();
  const search = given.get('search') ?? '';
  const role = given.get('role') ?? '';
  const pages = useInfiniteQuery({
    queryKey: ['users', search, role],
    queryFn: ({ pageParam }) =>
      listUsers({
        ...(search !== '' && { search }),
        ...(role !== '' && { role }),
        ...(pageParam !== '' && { cursor: pageParam }),
      }),
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }) => nextCursor,
    placeholderData: keepPreviousData,
  });
  const { data, error } = pages;
  const users = data?.pages.flatMap((page) => page.users) ?? [];
  const user = users.find(({ id }) => id === chosen);
  return (
    <>
      <header className="bar">
        <h1>Users</h1>
        <span className="quiet">{data === undefined ? '' : countText(data.pages[0]?.total ?? 0)}</span>
        <select aria-label="Role" value={role} onChange={(event) => change('role', event.target.value)}>
          <option value="">all roles</option>
          {ROLES.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
        <input
          type="search"
          aria-label="Search users"
          placeholder="Search"
          maxLength={254}
          value={search}
          onChange={(event) => change('search', event.target.value)}
        />
      </header>
      <ErrorBox error={error} />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {data !== undefined && users.length === 0 ? <p className="empty">No user matches.</p> : null}
      {users.length === 0 ? null : <Table users={users} onChoose={setChosen} />}
      <More of={pages}>More users</More>
      <Invitations />
      {user === undefined ? null : <UserDialog user={user} onClose={() => setChosen(undefined)} />}
    </>
  );
}

function Table({ users, onChoose }: { readonly users: readonly User[]; readonly onChoose: (id: string) => void }) {
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {['Name', 'E-mail address', 'Role', 'State', 'Second factor', 'Since'].map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {users.map((user) => (
            <tr key={user.id}>
              <td>
                <button type="button" className="link" onClick={() => onChoose(user.id)}>
                  {visible(user.name)}
                </button>
              </td>
              <td>
                {visible(user.email)} {user.emailVerified ? '' : <span className="quiet">not verified</span>}
              </td>
              <td data-name="Role">{user.role}</td>
              <td>
                <UserState user={user} />
              </td>
              <td data-name="Second factor">{user.mfaEnabled ? 'on' : 'off'}</td>
              <td data-name="Since">
                <Moment at={user.createdAt} shown="day" />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function UserState({ user }: { readonly user: User }) {
  if (!user.active) return <span className="chip failed">paused</span>;
  if (user.deletesAt !== undefined) {
    return (
      <span className="chip needs_you">
        deleted on <Moment at={user.deletesAt} shown="day" />
      </span>
    );
  }
  return <span className="chip running">active</span>;
}

const DONE: Readonly<Record<UserAction, string>> = {
  pause: 'Paused: all logins have ended.',
  resume: 'May log in again.',
  'end-sessions': 'All logins have ended.',
  'reset-mfa': 'The second factor is removed; the user gets a mail.',
};

/** What an administrator may do with one person. */
function UserDialog({ user, onClose }: { readonly user: User; readonly onClose: () => void }) {
  const { person } = useConsole();
  const queries = useQueryClient();
  const id = useId();
  const work = useWork();
  const [done, setDone] = useState('');
  const may = (permission: string) => person?.permissions.includes(permission) === true;
  const isAdmin = person?.role === 'root' || person?.role === 'admin';
  const isSelf = user.id === person?.id;
  const act = (action: () => Promise<unknown>, text: string) => {
    setDone('');
    work.run(async () => {
      await action();
      await queries.invalidateQueries({ queryKey: ['users'] });
      setDone(text);
    });
  };
  const button = (action: UserAction, label: string, isDanger = false) => (
    <button
      type="button"
      className={isDanger ? 'danger' : ''}
      disabled={work.isBusy}
      onClick={() => act(() => actOnUser(user.id, action), DONE[action])}
    >
      {label}
    </button>
  );
  return (
    <Dialog title={visible(user.name)} onClose={onClose}>
      <div className="stack">
        <p>
          {visible(user.email)} <UserState user={user} />
        </p>
        <p className="quiet">
          <code>{user.id}</code> · teams: {user.groups.length === 0 ? 'none' : visible(user.groups.join(', '))}
        </p>
        {may('admin.users.role.write') && !isSelf && user.role !== 'root' ? (
          <div className="field">
            <label htmlFor={`${id}-role`}>Role</label>
            <select
              id={`${id}-role`}
              value={user.role}
              disabled={work.isBusy}
              onChange={(event) => act(() => setRole(user.id, event.target.value), 'The role was changed.')}
            >
              {rolesFor(person?.role ?? '').map((role) => (
                <option key={role}>{role}</option>
              ))}
            </select>
          </div>
        ) : (
          <p>Role: {user.role}</p>
        )}
        {isAdmin ? (
          <PlanForm
            isBusy={work.isBusy}
            onGive={(plan) => act(() => setPlan(user.id, plan), 'The plan was changed.')}
          />
        ) : null}
        {isSelf ? (
          <p>
            This is you: see <Link href="/console/me">your account</Link>.
          </p>
        ) : (
          <div className="answers">
            {user.active && may('admin.users.pause.write') ? button('pause', 'Pause', true) : null}
            {!user.active && may('admin.users.resume.write') ? button('resume', 'Resume') : null}
            {user.active && may('admin.users.pause.write') ? button('end-sessions', 'End all logins') : null}
            {user.mfaEnabled && isAdmin ? button('reset-mfa', 'Remove the second factor', true) : null}
          </div>
        )}
        {may('admin.audit.read') ? (
          <p>
            <Link href={`/console/audit?subject=${encodeURIComponent(user.id)}`}>Audit entries of this account</Link>
          </p>
        ) : null}
        <p>
          <CopyCurl path={`/api/auth/admin/users?search=${encodeURIComponent(user.email)}`} />
        </p>
        {done === '' ? null : <p role="status">{done}</p>}
        <WorkNotes work={work} />
        {may('admin.users.delete.write') && !isSelf ? <Removal user={user} onRemoved={onClose} /> : null}
      </div>
    </Dialog>
  );
}

/** Administrators give plans by name: the settings have them. */
function PlanForm({ isBusy, onGive }: { readonly isBusy: boolean; readonly onGive: (plan: string) => void }) {
  const [plan, setPlanName] = useState('');
  return (
    <form
      className="line"
      onSubmit={(event) => {
        event.preventDefault();
        onGive(plan.trim());
      }}
    >
      <Field
        label="New plan"
        value={plan}
        onChange={setPlanName}
        maxLength={64}
        autoComplete="off"
        hint="A plan from the settings. Leave empty for the plan of a subscription, or the default."
      />
      <button type="submit" disabled={isBusy}>
        Give
      </button>
    </form>
  );
}

/** The address is typed, because nothing brings a removed account back. */
function Removal({ user, onRemoved }: { readonly user: User; readonly onRemoved: () => void }) {
  const queries = useQueryClient();
  const work = useWork();
  const [typed, setTyped] = useState('');
  function submit(event: FormEvent): void {
    event.preventDefault();
    work.run(async () => {
      await removeUser(user.id);
      await queries.invalidateQueries({ queryKey: ['users'] });
      onRemoved();
    });
  }
  return (
    <details>
      <summary className="failed">Remove this account …</summary>
      <form className="stack" onSubmit={submit}>
        <Field
          label="Type the e-mail address of the account"
          value={typed}
          onChange={setTyped}
          autoComplete="off"
          hint="Removes the account, its keys and its logins. This cannot be undone."
        />
        <button type="submit" className="danger" disabled={work.isBusy || typed !== user.email}>
          Remove it
        </button>
      </form>
      <WorkNotes work={work} />
    </details>
  );
}
