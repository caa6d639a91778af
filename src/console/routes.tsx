import { useQuery } from '@tanstack/react-query';
import { type ComponentType, lazy, type ReactNode, Suspense, useState } from 'react';
import { Link, Route, Switch } from 'wouter';
import { readSystem, systemOfPage } from './data/accounts.ts';
import { ErrorBox } from './parts/parts.tsx';
import { useConsole } from './shell/console-context.ts';
import { SignedIn } from './shell/shell.tsx';

type Loaded = { readonly default: ComponentType };
type Later = ComponentType & { readonly load: () => Promise<Loaded> };

/**
 * As `lazy`, but what has been loaded is drawn without a pause: React waits for 300 ms between a screen that says “Loading” and
 * the one after it.
 */
function later(read: () => Promise<Loaded>): Later {
  let loaded: ComponentType | undefined;
  const load = () =>
    read().then((module) => {
      loaded = module.default;
      return module;
    });
  const Lazy = lazy(load);
  function Show() {
    // Another component would forget what the first one knew.
    const [Chosen] = useState<ComponentType>(() => loaded ?? Lazy);
    return <Chosen />;
  }
  return Object.assign(Show, { load });
}

/** THE TABLE of screens. A screen is loaded when it is first shown. */
interface Screen {
  readonly path: string;
  readonly title: string;
  readonly show: Later;
  /** Shown before anyone has signed in, without navigation. */
  readonly isPublic?: true;
  /** About agents and their work: those for whom no agents work see the reason in its place. */
  readonly needsAgents?: true;
}

const SCREENS: readonly Screen[] = [
  { path: '/console', title: 'Board', show: later(() => import('./screens/board/board.tsx')), needsAgents: true },
  {
    path: '/console/new',
    title: 'New session',
    show: later(() => import('./screens/board/new-session.tsx')),
    needsAgents: true,
  },
  {
    path: '/console/sessions/:sessionId',
    title: 'Session',
    show: later(() => import('./screens/session/session.tsx')),
    needsAgents: true,
  },
  { path: '/console/runs', title: 'Runs', show: later(() => import('./screens/runs/runs.tsx')), needsAgents: true },
  {
    path: '/console/runs/new',
    title: 'New run',
    show: later(() => import('./screens/runs/new-run.tsx')),
    needsAgents: true,
  },
  {
    path: '/console/runs/:sessionId',
    title: 'Run',
    show: later(() => import('./screens/runs/run.tsx')),
    needsAgents: true,
  },
  { path: '/console/jobs', title: 'Jobs', show: later(() => import('./screens/jobs/jobs.tsx')), needsAgents: true },
  {
    path: '/console/jobs/:jobId',
    title: 'Job',
    show: later(() => import('./screens/jobs/job.tsx')),
    needsAgents: true,
  },
  {
    path: '/console/schedules',
    title: 'Schedules',
    show: later(() => import('./screens/jobs/schedules.tsx')),
    needsAgents: true,
  },
  {
    path: '/console/agents',
    title: 'Agents',
    show: later(() => import('./screens/agents/agents.tsx')),
    needsAgents: true,
  },
  {
    path: '/console/playground',
    title: 'Playground',
    show: later(() => import('./screens/playground/playground.tsx')),
  },
  { path: '/console/models', title: 'Models', show: later(() => import('./screens/models/models.tsx')) },
  { path: '/console/keys', title: 'Keys', show: later(() => import('./screens/models/keys.tsx')) },
  { path: '/console/usage', title: 'Usage', show: later(() => import('./screens/models/usage.tsx')) },
  { path: '/console/calls', title: 'Calls', show: later(() => import('./screens/models/calls.tsx')) },
  { path: '/console/teams', title: 'Teams', show: later(() => import('./screens/teams/teams.tsx')) },
  { path: '/console/teams/:teamId', title: 'Team', show: later(() => import('./screens/teams/team.tsx')) },
  { path: '/console/users', title: 'Users', show: later(() => import('./screens/users/users.tsx')) },
  {
    path: '/console/subscriptions',
    title: 'Subscriptions',
    show: later(() => import('./screens/users/subscriptions.tsx')),
  },
  { path: '/console/roles', title: 'Roles', show: later(() => import('./screens/users/roles.tsx')) },
  { path: '/console/proxy-nodes', title: 'Proxy nodes', show: later(() => import('./screens/users/proxy-nodes.tsx')) },
  { path: '/console/audit', title: 'Audit', show: later(() => import('./screens/users/audit.tsx')) },
  { path: '/console/system', title: 'System', show: later(() => import('./screens/system/system.tsx')) },
  { path: '/console/me', title: 'My account', show: later(() => import('./screens/me/me.tsx')) },
  { path: '/login', title: 'Log in', show: later(() => import('./screens/sign-in/login.tsx')), isPublic: true },
  { path: '/register', title: 'Register', show: later(() => import('./screens/sign-in/register.tsx')), isPublic: true },
  { path: '/setup', title: 'Set up', show: later(() => import('./screens/sign-in/setup.tsx')), isPublic: true },
  {
    path: '/device',
    title: 'Log in a device',
    show: later(() => import('./screens/sign-in/device.tsx')),
    isPublic: true,
  },
  {
    path: '/accept-invitation',
    title: 'Accept the invitation',
    show: later(() => import('./screens/sign-in/accept-invitation.tsx')),
    isPublic: true,
  },
  ...['/reset-password', '/set-password', '/console/forgot'].map(
    (path): Screen => ({
      path,
      title: 'Password',
      show: later(() => import('./screens/sign-in/password.tsx')),
      isPublic: true,
    }),
  ),
];

/** Whether an address is one of a screen: a part that begins with a colon stands for any text. */
function isAt(address: string, path: string): boolean {
  const [given, wanted] = [address.replace(/\/$/, '').split('/'), path.split('/')];
  return given.length === wanted.length && wanted.every((part, at) => part.startsWith(':') || part === given[at]);
}

/** Loads the screen of an address, so that it can be drawn first. Resolves if it cannot be loaded: drawing it says why. */
export async function loadScreen(address: string): Promise<void> {
  const screen = SCREENS.find(({ path }) => isAt(address, path));
  await screen?.show.load().catch(() => undefined);
}

const NoAgents = lazy(() => import('./screens/board/first-steps.tsx').then((module) => ({ default: module.NoAgents })));

function ForAgents({ children }: { readonly children: ReactNode }) {
  return useConsole().hasAgents ? children : <NoAgents />;
}

export function App() {
  const system = useQuery({ queryKey: ['system'], queryFn: readSystem, initialData: systemOfPage });
  if (system.data === undefined) {
    return (
      <main className="alone">
        {system.error === null ? <p className="quiet">Loading …</p> : <ErrorBox error={system.error} />}
      </main>
    );
  }
  const facts = system.data;
  return (
    <Switch>
      {SCREENS.map(({ path, title, show: Show, isPublic, needsAgents }) => (
        <Route key={path} path={path}>
          <title>{`${title} · Trestle`}</title>
          <Suspense fallback={<p className="quiet loading">Loading …</p>}>
            {isPublic ? (
              <main className="alone">
                <Show />
              </main>
            ) : !facts.console ? (
              <main className="alone">
                <h1>You are logged in</h1>
                <p>The console is switched off on this server.</p>
              </main>
            ) : (
              <SignedIn system={facts}>
                <Suspense fallback={<p className="quiet loading">Loading …</p>}>
                  {needsAgents ? (
                    <ForAgents>
                      <Show />
                    </ForAgents>
                  ) : (
                    <Show />
                  )}
                </Suspense>
              </SignedIn>
            )}
          </Suspense>
        </Route>
      ))}
      <Route>
        <main className="alone">
          <h1>There is no such page</h1>
          <p>
            <Link href="/console">To the board</Link>
          </p>
        </main>
      </Route>
    </Switch>
  );
}
