import { useQuery, useQueryClient } from '@tanstack/react-query';
import {
  Activity,
  Bell,
  BookOpen,
  Bot,
  Boxes,
  ChartColumn,
  CircleUser,
  CreditCard,
  History,
  KeyRound,
  ListTodo,
  LogOut,
  type LucideIcon,
  Menu,
  MessagesSquare,
  Network,
  Plus,
  ScrollText,
  Search,
  ShieldCheck,
  SquareKanban,
  Users,
  UsersRound,
  Workflow,
} from 'lucide-react';
import { Fragment, lazy, type ReactNode, Suspense, useEffect, useState } from 'react';
import { Link, Redirect, useLocation } from 'wouter';
import { forgetBearer, logOut, type Person, readPerson, readScopes, type SystemFacts } from '../data/accounts.ts';
import { listSessions, trestle } from '../data/bridge.ts';
import { BASE, hasToken, keepToken, Problem, whenSignedOut } from '../data/request.ts';
import { Dialog, ErrorBox, Field, useHere } from '../parts/parts.tsx';
import { visible } from '../parts/text.ts';
import { ConnectionNotice, useAttention } from './attention.tsx';
import { ConsoleContext, useConsole, useOwnName } from './console-context.ts';
import {
  type Action,
  activeActions,
  keysText,
  RowKeys,
  SHORTCUTS,
  tipOf,
  useActions,
  useShortcuts,
} from './shortcuts.ts';

const Palette = lazy(() => import('./palette.tsx'));

/** Everything behind the sign-in: navigation, the live socket, and the way back when the login ends. */
export function SignedIn({ system, children }: { readonly system: SystemFacts; readonly children: ReactNode }) {
  const [location, go] = useLocation();
  const here = useHere();
  const [isTokenGiven, setTokenGiven] = useState(hasToken());
  const needsLogin = system.signIn === 'session';
  // Where the bridge is open, a login still counts for what belongs to accounts: users, teams, keys of one's own.
  const mayBeLoggedIn = needsLogin || (system.signIn === 'open' && hasAccounts(system));
  const person = useQuery({ queryKey: ['person'], queryFn: readPerson, enabled: mayBeLoggedIn });
  const isOut = needsLogin && person.error instanceof Problem && person.error.status === 401;
  // At the same time as the person: one round less before the first screen.
  const scopes = useQuery({ queryKey: ['scopes'], queryFn: readScopes, enabled: needsLogin, retry: false });
  useEffect(() => {
    const leave = () => go(`/login?next=${encodeURIComponent(here)}`);
    whenSignedOut(() => {
      if (needsLogin) leave();
      else if (system.signIn === 'token') setTokenGiven(false);
    });
    if (isOut) leave();
    return () => whenSignedOut(() => undefined);
  }, [go, here, needsLogin, isOut, system.signIn]);
  if (system.signIn === 'token' && !isTokenGiven) {
    return (
      <TokenForm
        onGiven={(token) => {
          keepToken(token);
          setTokenGiven(true);
        }}
      />
    );
  }
  if (needsLogin && person.data === undefined && person.error !== null && !isOut)
    return <ErrorBox error={person.error} />;
  if (mayBeLoggedIn && person.data === undefined && (needsLogin || person.isPending))
    return <p className="quiet loading">Loading …</p>;
  if (needsLogin && scopes.isPending) return <p className="quiet loading">Loading …</p>;
  const isClosing = isBeingDeleted(person.data);
  // Nothing works for an account that is being deleted, other than keeping it.
  if (isClosing && location !== ME) return <Redirect to={ME} replace />;
  const hasAgents = !isClosing && system.services.includes('bridge') && scopes.data?.includes('bridge') !== false;
  // A browser cannot send a token with a socket: then lists and updates are read again and again.
  const live = system.signIn === 'token' || !hasAgents ? undefined : trestle(system.signIn).live;
  return (
    <ConsoleContext value={{ system, person: person.data, hasAgents, live }}>
      <Frame seen={{ system, person: person.data, hasAgents }}>{children}</Frame>
    </ConsoleContext>
  );
}

/** Whether anyone can be logged in: accounts are served, and there is one. */
const hasAccounts = ({ services, setupNeeded }: SystemFacts) => services.includes('accounts') && !setupNeeded;

const isBeingDeleted = (person: Person | undefined) => person?.deletesAt !== undefined;

function TokenForm({ onGiven }: { readonly onGiven: (token: string) => void }) {
  const [token, setToken] = useState('');
  return (
    <main className="alone">
      <h1>Trestle</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onGiven(token);
        }}
      >
        <Field
          label="Token of the bridge"
          type="password"
          value={token}
          onChange={setToken}
          autoComplete="off"
          required
          autoFocus
          hint="The value of BRIDGE_AUTH_TOKEN. It is kept until this page is closed."
        />
        <button type="submit" className="primary">
          Continue
        </button>
      </form>
    </main>
  );
}

interface Seen {
  readonly system: SystemFacts;
  readonly person: Person | undefined;
  readonly hasAgents: boolean;
}

/** Keys of the fields that texts are typed into. */
const TYPED = [
  { keys: 'Ctrl Enter', what: 'Start, in the field of the task' },
  { keys: 'Enter', what: 'Send the message, or open the row of a list' },
  { keys: '↑', what: 'Restore the last message, in an empty field' },
];

const GROUPS = ['Work', 'Models', 'Operate'] as const;
const BOARD = '/console';
const ME = '/console/me';

const hasAgents = (seen: Seen) => seen.hasAgents;
const hasModels = ({ system }: Seen) => system.services.includes('completions');
const mayAsk = (seen: Seen) => hasModels(seen) && seen.person?.role !== 'readonly';
const isPerson = ({ person }: Seen) => person !== undefined;
const hasKeys = (seen: Seen) => hasModels(seen) && isPerson(seen);
/** Where nobody logs in, everyone is an operator. */
const isOperator = ({ system, person }: Seen) =>
  system.services.includes('bridge') && (person === undefined || person.permissions.includes('admin.bridge.read'));
const may =
  (permission: string) =>
  ({ person }: Seen) =>
    person?.permissions.includes(permission) === true;

const hasProxyNodes = (seen: Seen) => seen.system.proxyNodes && may('admin.agents.status.read')(seen);

/** THE TABLE of the navigation: a row that the person may not use is absent. */
const ROWS: readonly {
  readonly group: (typeof GROUPS)[number];
  readonly path: string;
  readonly label: string;
  readonly icon: LucideIcon;
  /** The second key after `g`. */
  readonly key?: string;
  /** Phones show it in the bar at the bottom; the others are behind “More”. */
  readonly isInBar?: true;
  readonly isFor?: (seen: Seen) => boolean;
}[] = [
  { group: 'Work', path: BOARD, label: 'Board', icon: SquareKanban, key: 'b', isInBar: true, isFor: hasAgents },
  { group: 'Work', path: '/console/new', label: 'New session', icon: Plus, isInBar: true, isFor: hasAgents },
  { group: 'Work', path: '/console/runs', label: 'Runs', icon: Workflow, key: 'r', isFor: hasAgents },
  { group: 'Work', path: '/console/jobs', label: 'Jobs', icon: ListTodo, key: 'j', isInBar: true, isFor: hasAgents },
  { group: 'Work', path: '/console/agents', label: 'Agents', icon: Bot, key: 'a', isFor: hasAgents },
  { group: 'Work', path: '/console/teams', label: 'Teams', icon: UsersRound, key: 't', isFor: isPerson },
  {
    group: 'Models',
    path: '/console/playground',
    label: 'Playground',
    icon: MessagesSquare,
    key: 'p',
    isInBar: true,
    isFor: mayAsk,
  },
  { group: 'Models', path: '/console/models', label: 'Models', icon: Boxes, isFor: hasModels },
  { group: 'Models', path: '/console/keys', label: 'Keys', icon: KeyRound, key: 'k', isFor: hasKeys },
  { group: 'Models', path: '/console/usage', label: 'Usage', icon: ChartColumn, key: 'u', isFor: hasModels },
  { group: 'Models', path: '/console/calls', label: 'Calls', icon: ScrollText, key: 'c', isFor: hasModels },
  { group: 'Operate', path: '/console/users', label: 'Users', icon: Users, isFor: may('admin.users.list.read') },
  {
    group: 'Operate',
    path: '/console/subscriptions',
    label: 'Subscriptions',
    icon: CreditCard,
    isFor: may('admin.users.list.read'),
  },
  { group: 'Operate', path: '/console/roles', label: 'Roles', icon: ShieldCheck, isFor: may('admin.settings.read') },
  { group: 'Operate', path: '/console/proxy-nodes', label: 'Proxy nodes', icon: Network, isFor: hasProxyNodes },
  { group: 'Operate', path: '/console/audit', label: 'Audit', icon: History, isFor: may('admin.audit.read') },
  { group: 'Operate', path: '/console/system', label: 'System', icon: Activity, key: 's', isFor: isOperator },
];

/** Screens that are not below the address of their entry. */
const BELONGS: readonly (readonly [place: string, entry: string])[] = [
  ['/console/sessions/', BOARD],
  ['/console/schedules', '/console/jobs'],
];

/** Whether an entry of the navigation is the screen that is shown, or has it below. */
function currentOf(path: string, location: string): 'page' | 'true' | undefined {
  if (location === path) return 'page';
  const isBelow = path !== BOARD && location.startsWith(`${path}/`);
  return isBelow || BELONGS.some(([place, entry]) => entry === path && location.startsWith(place)) ? 'true' : undefined;
}

function Frame({ seen, children }: { readonly seen: Seen; readonly children: ReactNode }) {
  const { system, person } = seen;
  const [location, go] = useLocation();
  const here = useHere();
  const { live } = useConsole();
  const queries = useQueryClient();
  const [isHelpShown, setHelpShown] = useState(false);
  /** What can be done on the page, while the palette is open. */
  const [paletteActions, setPaletteActions] = useState<readonly Action[]>();
  const own = useOwnName();
  const attention = useAttention(live, own);
  /** On a phone: where the sheet with the whole navigation was opened. Another place closes it. */
  const [openedAt, setOpenedAt] = useState<string>();
  const isOpen = openedAt === location;
  const counts = useQuery({
    queryKey: ['counts'],
    queryFn: () => listSessions({ limit: 1 }),
    enabled: seen.hasAgents,
  }).data?.counts;
  const needsYou = counts?.needsYou ?? 0;
  useEffect(
    () =>
      live?.watch(['sessions', 'permissions'], () => {
        void queries.invalidateQueries({ queryKey: ['counts'] });
        void queries.invalidateQueries({ queryKey: ['sessions'] });
      }),
    [live, queries],
  );
  // The browser shows it while another page is in front.
  useEffect(() => {
    document.title = `${needsYou > 0 ? `(${needsYou}) ` : ''}${document.title.replace(/^\(\d+\) /, '')}`;
  });
  const rows = isBeingDeleted(person) ? [] : ROWS.filter(({ isFor }) => isFor?.(seen) ?? true);
  const chords = [
    ...rows.flatMap(({ key, label, path }) => (key === undefined ? [] : [{ keys: `g ${key}`, what: label, path }])),
    ...(person === undefined ? [] : [{ keys: 'g m', what: 'My account', path: ME }]),
  ];
  const findSearch = () => document.querySelector<HTMLInputElement>('input[type=search]');
  useActions(chords.map(({ keys, what, path }) => ({ keys, what, run: () => go(path) })));
  useShortcuts({
    palette: () => setPaletteActions(activeActions()),
    ...(seen.hasAgents && { newSession: () => go('/console/new') }),
    help: () => setHelpShown(true),
    ...(isOpen && { close: () => setOpenedAt(undefined) }),
    search: () => findSearch()?.focus(),
  });
  async function leave() {
    await logOut().catch(() => undefined);
    forgetBearer();
    go('/login');
    queries.clear();
  }
  return (
    <div className="frame">
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <nav aria-label="Console" className={isOpen ? 'open' : ''}>
        <p className="brand">
          Trestle <small>{person === undefined ? 'local' : ''}</small>
        </p>
        <button
          type="button"
          className="plain"
          title={tipOf('palette')}
          onClick={() => setPaletteActions(activeActions())}
        >
          <Search aria-hidden="true" /> Go to <kbd>{keysText(SHORTCUTS.palette.keys)}</kbd>
        </button>
        {GROUPS.map((group) => {
          const inGroup = rows.filter((row) => row.group === group);
          return inGroup.length === 0 ? null : (
            <Fragment key={group}>
              <h2>{group}</h2>
              <ul>
                {inGroup.map(({ path, label, icon: Icon, isInBar }) => (
                  <li key={path} className={isInBar ? 'in-bar' : ''}>
                    <Link href={path} aria-current={currentOf(path, location)}>
                      <Icon aria-hidden="true" /> {label}
                      {path === BOARD && needsYou > 0 ? <span className="badge">{needsYou}</span> : null}
                    </Link>
                  </li>
                ))}
              </ul>
            </Fragment>
          );
        })}
        <h2>Reference</h2>
        <ul>
          <li>
            <a href={`${BASE}/docs`}>
              <BookOpen aria-hidden="true" /> API
            </a>
          </li>
        </ul>
        {person === undefined ? (
          hasAccounts(system) ? (
            <div className="me">
              <Link href={`/login?next=${encodeURIComponent(here)}`}>
                <CircleUser aria-hidden="true" /> Log in
              </Link>
            </div>
          ) : null
        ) : (
          <div className="me">
            <Link href={ME} aria-current={location === ME ? 'page' : undefined}>
              <CircleUser aria-hidden="true" />
              <span>
                {visible(person.name)} <small>{person.role}</small>
              </span>
            </Link>
            <button type="button" className="plain" onClick={() => void leave()}>
              <LogOut aria-hidden="true" /> Log out
            </button>
          </div>
        )}
        {attention.isOffered ? (
          <button
            type="button"
            className="plain"
            aria-pressed={attention.isOn}
            title="Notifies you about questions of agents while this page is hidden"
            onClick={() => void attention.toggle()}
          >
            <Bell aria-hidden="true" /> {attention.isOn ? 'Notifications are on' : 'Notify me'}
          </button>
        ) : null}
        <p className="quiet version">{system.version}</p>
        <button
          type="button"
          className="plain more-screens"
          aria-expanded={isOpen}
          onClick={() => setOpenedAt(isOpen ? undefined : location)}
        >
          <Menu aria-hidden="true" /> {isOpen ? 'Close' : 'More'}
        </button>
      </nav>
      <main id="main" tabIndex={-1}>
        <ConnectionNotice />
        <RowKeys />
        {children}
      </main>
      {paletteActions === undefined ? null : (
        <Suspense>
          <Palette
            screens={[
              ...rows.map(({ path, label, key }) => ({ path, label, keys: key === undefined ? '' : `g ${key}` })),
              ...(person === undefined ? [] : [{ path: ME, label: 'My account', keys: 'g m' }]),
            ]}
            actions={paletteActions}
            own={own}
            onClose={() => setPaletteActions(undefined)}
          />
        </Suspense>
      )}
      {isHelpShown ? (
        <Dialog title="Keys" onClose={() => setHelpShown(false)}>
          <dl className="keys">
            {[...chords, ...Object.values(SHORTCUTS), ...TYPED].map(({ keys, what }) => (
              <div key={`${keys} ${what}`}>
                <dt>
                  <kbd>{keysText(keys)}</kbd>
                </dt>
                <dd>{what}</dd>
              </div>
            ))}
          </dl>
        </Dialog>
      ) : null}
    </div>
  );
}
