import { useQuery } from '@tanstack/react-query';
import { type ComponentType, lazy, type ReactNode, Suspense } from 'react';
import { Link, Route, Switch } from 'wouter';
import { readSystem, systemOfPage } from './data/accounts.ts';
import { ErrorBox } from './parts/parts.tsx';
import { useConsole } from './shell/console-context.ts';
import { SignedIn } from './shell/shell.tsx';

/** THE TABLE of screens. A screen is loaded when it is first shown. */
interface Screen {
  readonly path: string;
  readonly title: string;
  readonly show: ComponentType;
  /** Shown before anyone has signed in, without navigation. */
  readonly isPublic?: true;
  /** About agents and their work: those for whom no agents work see the reason in its place. */
  readonly needsAgents?: true;
}

const SCREENS: readonly Screen[] = [
  { path: '/console', title: 'Board', show: lazy(() => import('./screens/board/board.tsx')), needsAgents: true },
  {
    path: '/console/new',
    title: 'New session',
    show: lazy(() => import('./screens/board/new-session.tsx')),
    needsAgents: true,
  },
  {
    path: '/console/sessions/:sessionId',
    title: 'Session',
    show: lazy(() => import('./screens/session/session.tsx')),
    needsAgents: true,
  },
  { path: '/console/runs', title: 'Runs', show: lazy(() => import('./screens/runs/runs.tsx')), needsAgents: true },
  {
    path: '/console/runs/new',
    title: 'New run',
    show: lazy(() => import('./screens/runs/new-run.tsx')),
    needsAgents: true,
  },
  {
    path: '/console/runs/:sessionId',
    title: 'Run',
    show: lazy(() => import('./screens/runs/run.tsx')),
    needsAgents: true,
  },
  { path: '/console/jobs', title: 'Jobs', show: lazy(() => import('./screens/jobs/jobs.tsx')), needsAgents: true },
  { path: '/console/jobs/:jobId', title: 'Job', show: lazy(() => import('./screens/jobs/job.tsx')), needsAgents: true },
  {
    path: '/console/schedules',
    title: 'Schedules',
    show: lazy(() => import('./screens/jobs/schedules.tsx')),
    needsAgents: true,
  },
  {
    path: '/console/agents',
    title: 'Agents',
    show: lazy(() => import('./screens/agents/agents.tsx')),
    needsAgents: true,
  },
  {
    path: '/console/playground',
    title: 'Playground',
    show: lazy(() => import('./screens/playground/playground.tsx')),
  },
  { path: '/console/models', title: 'Models', show: lazy(() => import('./screens/models/models.tsx')) },
  { path: '/console/keys', title: 'Keys', show: lazy(() => import('./screens/models/keys.tsx')) },
  { path: '/console/usage', title: 'Usage', show: lazy(() => import('./screens/models/usage.tsx')) },
  { path: '/console/calls', title: 'Calls', show: lazy(() => import('./screens/models/calls.tsx')) },
  { path: '/console/teams', title: 'Teams', show: lazy(() => import('./screens/teams/teams.tsx')) },
  { path: '/console/teams/:teamId', title: 'Team', show: lazy(() => import('./screens/teams/team.tsx')) },
  { path: '/console/users', title: 'Users', show: lazy(() => import('./screens/users/users.tsx')) },
  {
    path: '/console/subscriptions',
    title: 'Subscriptions',
    show: lazy(() => import('./screens/users/subscriptions.tsx')),
  },
  { path: '/console/roles', title: 'Roles', show: lazy(() => import('./screens/users/roles.tsx')) },
  { path: '/console/proxy-nodes', title: 'Proxy nodes', show: lazy(() => import('./screens/users/proxy-nodes.tsx')) },
  { path: '/console/audit', title: 'Audit', show: lazy(() => import('./screens/users/audit.tsx')) },
  { path: '/console/system', title: 'System', show: lazy(() => import('./screens/system/system.tsx')) },
  { path: '/console/me', title: 'My account', show: lazy(() => import('./screens/me/me.tsx')) },
  { path: '/login', title: 'Log in', show: lazy(() => import('./screens/sign-in/login.tsx')), isPublic: true },
  { path: '/register', title: 'Register', show: lazy(() => import('./screens/sign-in/register.tsx')), isPublic: true },
  { path: '/setup', title: 'Set up', show: lazy(() => import('./screens/sign-in/setup.tsx')), isPublic: true },
  {
    path: '/device',
    title: 'Log in a device',
    show: lazy(() => import('./screens/sign-in/device.tsx')),
    isPublic: true,
  },
  {
    path: '/accept-invitation',
    title: 'Accept the invitation',
    show: lazy(() => import('./screens/sign-in/accept-invitation.tsx')),
    isPublic: true,
  },
  ...['/reset-password', '/set-password', '/console/forgot'].map(
    (path): Screen => ({
      path,
      title: 'Password',
      show: lazy(() => import('./screens/sign-in/password.tsx')),
      isPublic: true,
    }),
  ),
];

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
