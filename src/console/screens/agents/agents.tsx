import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Link } from 'wouter';
import type { AgentEntry, AgentLogin } from '../../../bridge/contract/surface.ts';
import { installAgent, listAgents, logInAgent, testAgent } from '../../data/bridge.ts';
import { CopyButton, ErrorBox, Since } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { CopyCurl, useWork, type Work, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';

/** The agents of the server: which can be used, what to do about the others, and what each can do. */
export default function Agents() {
  const { live } = useConsole();
  const queries = useQueryClient();
  const agents = useQuery({ queryKey: ['agents'], queryFn: listAgents });
  useEffect(
    () => live?.watch(['agents'], () => void queries.invalidateQueries({ queryKey: ['agents'] })),
    [live, queries],
  );
  return (
    <>
      <header className="bar">
        <h1>Agents</h1>
        <span className="quiet">Programs that work on tasks for this server</span>
        <CopyCurl path="/api/bridge/agents" />
      </header>
      <ErrorBox error={agents.error} />
      {agents.data === undefined && agents.error === null ? <p className="quiet loading">Loading …</p> : null}
      {agents.data?.length === 0 ? <p className="empty">The server has no agents. See agents.catalog.</p> : null}
      {agents.data === undefined ? null : <Table agents={agents.data} />}
    </>
  );
}

function Table({ agents }: { readonly agents: readonly AgentEntry[] }) {
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {['Agent', 'State', 'Version', 'Model', 'Modes', 'Takes', 'Use it'].map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {agents.map((agent) => (
            <Row key={agent.providerId} agent={agent} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

const FORKS: Readonly<Record<AgentEntry['fork'], string>> = { yes: 'forks', offered: 'some forks', no: '' };

function Row({ agent }: { readonly agent: AgentEntry }) {
  const { providerId, label, state, advice, version, model, modes, steer, fork } = agent;
  return (
    <tr>
      <td>
        <strong>{visible(label)}</strong> <code className="quiet">{visible(providerId)}</code>
      </td>
      <td>
        <span className={`chip ${state === 'ok' ? 'completed' : 'pending'}`}>
          {visible(state.replaceAll('_', ' '))}
        </span>{' '}
        {advice === '' ? null : <span className="quiet">{visible(advice)}</span>}
      </td>
      <td data-name="Version">{visible(version)}</td>
      <td data-name="Model">{visible(model)}</td>
      <td data-name="Modes">{modes.map(({ name }) => visible(name)).join(', ')}</td>
      <td data-name="Takes">{[steer === 'yes' ? 'messages in a turn' : '', FORKS[fork]].filter(Boolean).join(', ')}</td>
      <td>
        <Care agent={agent} />
      </td>
    </tr>
  );
}

/** What the server advises for agents that it can install by itself. */
const INSTALLABLE = /\btrestle agents install\b/;
const MANAGERS: ReadonlySet<string> = new Set(['root', 'admin']);

/** What can be done about an agent in its state: install it, log in, try it. One thing at a time. */
function Care({ agent }: { readonly agent: AgentEntry }) {
  const { providerId, state, advice } = agent;
  const { person } = useConsole();
  const queries = useQueryClient();
  const work = useWork();
  const [doing, setDoing] = useState<{ readonly what: string; readonly at: number }>();
  const [outcome, setOutcome] = useState<{ readonly isOk: boolean; readonly text: string }>();
  const [login, setLogin] = useState<AgentLogin>();
  const mayManage = person === undefined || MANAGERS.has(person.role);
  function begin(what: string, action: () => Promise<void>): void {
    setOutcome(undefined);
    setLogin(undefined);
    setDoing({ what, at: Date.now() });
    work.run(async () => {
      await action();
      await queries.invalidateQueries({ queryKey: ['agents'] });
    });
  }
  const test = () =>
    begin('Running a turn', async () => {
      const { status, error, firstMs, durationMs } = await testAgent(providerId);
      const isOk = status === 'completed';
      setOutcome({ isOk, text: isOk ? `first text after ${firstMs} ms, ${durationMs} ms in all` : error || status });
    });
  const install = () =>
    begin('Installing with npm', async () => {
      const { version, offered } = await installAgent(providerId);
      const when = offered ? '' : '; the server offers it after a restart';
      setOutcome({ isOk: true, text: `Version ${version} is installed${when}.` });
    });
  const logIn = (methodId?: string) =>
    begin('Logging in', async () => {
      const report = await logInAgent(providerId, methodId);
      setOutcome({ isOk: report.loggedIn, text: report.text });
      if (!report.loggedIn) setLogin(report);
    });
  return (
    <>
      {state === 'ok' ? (
        <>
          <button type="button" disabled={work.isBusy} onClick={test}>
            Test
          </button>{' '}
          <Link className="unbroken" href={`/console/new?agent=${encodeURIComponent(providerId)}`}>
            New session
          </Link>{' '}
          <Link className="unbroken" href={`/console?agent=${encodeURIComponent(providerId)}`}>
            Sessions
          </Link>
        </>
      ) : null}
      {mayManage && state === 'not_installed' && INSTALLABLE.test(advice) ? (
        <button type="button" disabled={work.isBusy} onClick={install}>
          Install
        </button>
      ) : null}
      {mayManage && state === 'not_logged_in' ? (
        <button type="button" disabled={work.isBusy} onClick={() => logIn()}>
          Log in
        </button>
      ) : null}
      <Progress work={work} doing={doing} />
      {outcome === undefined ? null : (
        <p className={outcome.isOk ? 'quiet' : 'failed'} role="status">
          {visible(outcome.text)}
        </p>
      )}
      {login === undefined ? null : <LoginWays login={login} isBusy={work.isBusy} onChoose={logIn} />}
      <WorkNotes work={work} />
    </>
  );
}

interface ProgressProps {
  readonly work: Work;
  readonly doing: { readonly what: string; readonly at: number } | undefined;
}

function Progress({ work, doing }: ProgressProps) {
  if (!work.isBusy || doing === undefined) return null;
  return (
    <p className="quiet" role="status">
      {doing.what} … <Since at={doing.at} />
    </p>
  );
}

interface LoginWaysProps {
  readonly login: AgentLogin;
  readonly isBusy: boolean;
  readonly onChoose: (methodId: string) => void;
}

/** The ways to log in that are left, and the command for a terminal. */
function LoginWays({ login, isBusy, onChoose }: LoginWaysProps) {
  const ways = login.methods.filter(({ terminal }) => !terminal);
  return (
    <div className="answers">
      {ways.length < 2
        ? null
        : ways.map(({ id, name, description }) => (
            <button key={id} type="button" title={visible(description)} disabled={isBusy} onClick={() => onChoose(id)}>
              {visible(name)}
            </button>
          ))}
      {login.command === '' ? null : (
        <>
          <code>{visible(login.command)}</code> <CopyButton text={login.command} />
        </>
      )}
    </div>
  );
}
