import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link } from 'wouter';
import { listAgents } from '../../data/bridge.ts';
import { listModels } from '../../data/completions.ts';
import { visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';

const DISMISSED = 'trestle.first-steps';
/** How often a step that is not done is looked at again: somebody may be doing it in a terminal. */
const LOOK_MS = 10_000;

/** What a new installation still lacks, for those who can change it. Each step goes away when it is done or dismissed. */
export function FirstSteps({ isEmpty }: { readonly isEmpty: boolean }) {
  const { system, person } = useConsole();
  const [dismissed, setDismissed] = useState(() => (localStorage.getItem(DISMISSED) ?? '').split(' '));
  const isOperator = person === undefined || person.permissions.includes('admin.bridge.read');
  const asks = (step: string) => isOperator && !dismissed.includes(step);
  const models = useQuery({
    queryKey: ['models'],
    queryFn: listModels,
    enabled: asks('model') && system.services.includes('completions'),
    refetchInterval: LOOK_MS,
  });
  const agents = useQuery({
    queryKey: ['agents'],
    queryFn: listAgents,
    enabled: asks('agent') && system.services.includes('bridge'),
    refetchInterval: LOOK_MS,
  });
  function dismiss(step: string): void {
    const next = [...dismissed, step];
    localStorage.setItem(DISMISSED, next.join(' '));
    setDismissed(next);
  }
  const lacksModel = asks('model') && models.data?.every(({ id }) => id.startsWith('demo/')) === true;
  const others = agents.data?.filter(({ providerId }) => providerId !== 'builtin') ?? [];
  const lacksAgent = asks('agent') && agents.data !== undefined && !others.some(({ state }) => state === 'ok');
  if (!lacksModel && !lacksAgent) return null;
  // Where there is work already, it comes first: the steps are lines.
  return (
    <section className={isEmpty ? 'first-steps' : 'first-steps small'} aria-label="First steps">
      {lacksModel ? (
        <Step title="Connect a model" onDismiss={() => dismiss('model')}>
          <p>
            Only <code>demo/echo</code> answers here, with your own words. Stop the server, set the key of a provider,
            and start it again:
          </p>
          <pre>
            <code>OPENAI_API_KEY=… npm start</code>
          </pre>
          <p>
            <Link href="/console/models">All model APIs and their variables</Link>
          </p>
        </Step>
      ) : null}
      {lacksAgent ? (
        <Step title="Install an agent" onDismiss={() => dismiss('agent')}>
          <p>The built-in agent works. Codex, Claude, OpenCode and others are one command away, for example:</p>
          <pre>
            <code>trestle agents install opencode</code>
          </pre>
          <p>
            <Link href="/console/agents">All agents and what to install</Link>
          </p>
        </Step>
      ) : null}
    </section>
  );
}

/** What someone sees instead of screens about agents, where none work for them. */
export function NoAgents() {
  const { system, person } = useConsole();
  const hasModels = system.services.includes('completions');
  return (
    <section className="page empty">
      <h1>{person === undefined ? 'No agents here' : `Welcome, ${visible(person.name)}`}</h1>
      {system.services.includes('bridge') ? (
        <p>
          Your plan does not include agents. Ask an administrator for a plan with agents, then load this page again.
        </p>
      ) : (
        <p>This server runs no agents.</p>
      )}
      {hasModels ? (
        <p>
          You can use models: try one in the <Link href="/console/playground">playground</Link>
          {person === undefined ? null : (
            <>
              , or create a <Link href="/console/keys">key</Link> for your programs
            </>
          )}
          .
        </p>
      ) : null}
    </section>
  );
}

function Step(props: { readonly title: string; readonly onDismiss: () => void; readonly children: ReactNode }) {
  const { title, onDismiss, children } = props;
  return (
    <article className="step">
      <header>
        <h2>{title}</h2>
        <button type="button" className="plain" onClick={onDismiss} aria-label={`Dismiss: ${title}`}>
          ✕
        </button>
      </header>
      {children}
    </article>
  );
}
