import { useQuery } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { explainForward, listNodes, type NodeList } from '../../data/system.ts';
import { ErrorBox, Field, Part } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';

const REFRESH_MS = 30_000;

/** The other bridges, whether they answer, and where a call would go. Absent where this bridge has none. */
export function Nodes() {
  const { data, error } = useQuery({ queryKey: ['system', 'nodes'], queryFn: listNodes, refetchInterval: REFRESH_MS });
  if (error === null && (data === undefined || data.nodes.length === 0)) return null;
  return (
    <Part title="Nodes" text="Other bridges that this one forwards calls to, from distributed.nodes in the settings.">
      <ErrorBox error={error} />
      {data === undefined ? null : <Table data={data} />}
      <WhereTo />
    </Part>
  );
}

function Table({ data }: { readonly data: NodeList }) {
  const { nodes, local_node_id: own, hop_limit: hops, default_action: action } = data;
  return (
    <>
      <div className="scrolls">
        <table className="list stacks">
          <thead>
            <tr>
              {['Node', 'State', 'Role', 'Address', 'Next hop', 'Capabilities'].map((name) => (
                <th key={name}>{name}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {nodes.map(({ id, state, role, zone, endpoint, next_hop: nextHop, capabilities }) => (
              <tr key={id}>
                <td>
                  <strong>{visible(id)}</strong>
                </td>
                <td>
                  <span className={`chip ${state === 'up' ? 'completed' : 'failed'}`}>{visible(state)}</span>
                </td>
                <td data-name="Role">{visible([role, zone].filter(Boolean).join(' · '))}</td>
                <td data-name="Address">
                  <code>{visible(endpoint)}</code>
                </td>
                <td data-name="Next hop">{visible(nextHop)}</td>
                <td data-name="Capabilities">{visible(capabilities.join(', '))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p className="quiet">
        This node is <code>{visible(own)}</code>. A call passes at most {hops} nodes. Calls that no rule names:{' '}
        {visible(action)}.
      </p>
    </>
  );
}

const ACTIONS = {
  local: 'This node answers it.',
  forward: 'It is forwarded.',
  refuse: 'It is refused.',
} as const;

/** Where a call would go, and why. */
function WhereTo() {
  const [method, setMethod] = useState('session.start');
  const [session, setSession] = useState('');
  // Asked again, the same call may go elsewhere: a node may be down by then.
  const [asked, setAsked] = useState<{
    readonly call: { method: string; sessionId?: string };
    readonly count: number;
  }>();
  const { data, error, isFetching } = useQuery({
    queryKey: ['system', 'where to', asked],
    queryFn: () => explainForward(asked?.call ?? { method }),
    enabled: asked !== undefined,
    retry: false,
    gcTime: 0,
  });
  function submit(event: FormEvent): void {
    event.preventDefault();
    const sessionId = session.trim();
    const call = { method: method.trim(), ...(sessionId !== '' && { sessionId }) };
    setAsked({ call, count: (asked?.count ?? 0) + 1 });
  }
  return (
    <>
      <h3>Where would this call go?</h3>
      <form className="line" onSubmit={submit}>
        <Field label="Method" value={method} onChange={setMethod} required maxLength={128} autoComplete="off" />
        <Field label="Session (optional)" value={session} onChange={setSession} maxLength={256} autoComplete="off" />
        <button type="submit" disabled={isFetching}>
          Ask
        </button>
      </form>
      <ErrorBox error={error} />
      {data === undefined ? null : (
        <div role="status">
          <p>
            <strong>{ACTIONS[data.action]}</strong> {visible(data.reason)}{' '}
            {data.code === undefined ? null : <code>{visible(data.code)}</code>}
          </p>
          {data.candidates.length === 0 ? null : (
            <ol>
              {data.candidates.map(({ node_id: id, next_hop: nextHop, endpoint }) => (
                <li key={id}>
                  {visible(id)}
                  {nextHop === id ? '' : ` by ${visible(nextHop)}`} <code className="quiet">{visible(endpoint)}</code>
                </li>
              ))}
            </ol>
          )}
        </div>
      )}
    </>
  );
}
