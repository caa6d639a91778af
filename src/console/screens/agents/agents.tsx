import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Link } from 'wouter';
import type { AgentEntry } from '../../../bridge/contract/surface.ts';
import { listAgents, trestle } from '../../data/bridge.ts';
import { ErrorBox } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';

const TEST_MS = 120_000;

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
            {['Agent', 'State', 'Version', 'Model', 'Modes', 'Takes', 'Try it'].map((name) => (
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

const FORKS: Readonly<Record<AgentEntry['fork'], string>> = { yes: 'forks', offered: 'forks, where it can', no: '' };

function Row({ agent }: { readonly agent: AgentEntry }) {
  const { providerId, label, state, advice, version, model, modes, steer, fork } = agent;
  const isUsable = state === 'ok';
  return (
    <tr>
      <td>
        <strong>{visible(label)}</strong> <code className="quiet">{visible(providerId)}</code>
      </td>
      <td>
        <span className={`chip ${isUsable ? 'completed' : 'pending'}`}>{visible(state.replaceAll('_', ' '))}</span>{' '}
        {advice === '' ? null : <span className="quiet">{visible(advice)}</span>}
      </td>
      <td data-name="Version">{visible(version)}</td>
      <td data-name="Model">{visible(model)}</td>
      <td data-name="Modes">{modes.map(({ name }) => visible(name)).join(', ')}</td>
      <td data-name="Takes">{[steer === 'yes' ? 'messages in a turn' : '', FORKS[fork]].filter(Boolean).join(', ')}</td>
      <td>{isUsable ? <TestTurn providerId={providerId} /> : null}</td>
    </tr>
  );
}

interface Measured {
  readonly isOk: boolean;
  readonly text: string;
}

/** Runs one turn, "Say OK", in a session that is removed afterwards. */
function TestTurn({ providerId }: { readonly providerId: string }) {
  const { system } = useConsole();
  const [isRunning, setRunning] = useState(false);
  const [measured, setMeasured] = useState<Measured>();
  async function run(): Promise<void> {
    setRunning(true);
    setMeasured(undefined);
    const session = trestle(system.signIn).session(`agent-test-${crypto.randomUUID().slice(0, 8)}`);
    const startedAt = performance.now();
    const elapsed = () => Math.round(performance.now() - startedAt);
    try {
      const turn = session.start('Say OK', {
        timeoutMs: TEST_MS,
        routing: { routingMode: 'explicit', explicitProviderId: providerId, permissions: 'deny' },
      });
      let firstMs: number | undefined;
      for await (const { delta } of turn) if (delta !== undefined) firstMs ??= elapsed();
      const { status, error } = await turn.result;
      const isOk = status === 'completed';
      const text = isOk ? `first text after ${firstMs ?? elapsed()} ms, ${elapsed()} ms in all` : (error ?? status);
      setMeasured({ isOk, text });
    } catch (error) {
      setMeasured({ isOk: false, text: error instanceof Error ? error.message : String(error) });
    }
    // A turn that took too long still runs, and a session that never began cannot be closed.
    await session.cancel().catch(() => undefined);
    await session.close().catch(() => undefined);
    setRunning(false);
  }
  return (
    <>
      <button type="button" disabled={isRunning} onClick={() => void run()}>
        {isRunning ? 'Runs …' : 'Test'}
      </button>{' '}
      <Link href={`/console/new?agent=${encodeURIComponent(providerId)}`}>New session</Link>
      {measured === undefined ? null : (
        <p className={measured.isOk ? 'quiet' : 'failed'} role="status">
          {visible(measured.text)}
        </p>
      )}
    </>
  );
}
