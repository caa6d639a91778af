import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import type { Agent, AgentStatus } from '../../../accounts/contract/proxy-node.ts';
import { createProxyNode, listProxyNodes, removeProxyNode } from '../../data/administration.ts';
import { Dialog, ErrorBox, Field, Since } from '../../parts/parts.tsx';
import { countText, visible } from '../../parts/text.ts';
import { Confirm, ShownOnce, useWork, WorkNotes } from '../../parts/work.tsx';
import { useIsAdmin } from '../teams/teams.tsx';

/** Nodes report once a minute. */
const POLL_MS = 10_000;

/** The proxy nodes: how they stand, and their tokens. */
export default function ProxyNodes() {
  const queries = useQueryClient();
  const isAdmin = useIsAdmin();
  const work = useWork();
  const [isNew, setNew] = useState(false);
  const [removed, setRemoved] = useState<Agent>();
  const { data, error } = useQuery({ queryKey: ['proxy-nodes'], queryFn: listProxyNodes, refetchInterval: POLL_MS });
  const refresh = () => queries.invalidateQueries({ queryKey: ['proxy-nodes'] });
  return (
    <>
      <header className="bar">
        <h1>Proxy nodes</h1>
        {isAdmin ? (
          <button type="button" className="button primary" onClick={() => setNew(true)}>
            New node
          </button>
        ) : null}
      </header>
      <ErrorBox error={error} />
      <WorkNotes work={work} />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {data?.length === 0 ? (
        <section className="empty">
          <h2>No proxy nodes yet</h2>
          <p>
            A proxy node lets users in by their own UUID, and reports its state. Its program sends the token that you
            create here to <code>/api/agent-server/v1</code>.
          </p>
        </section>
      ) : null}
      {data === undefined || data.length === 0 ? null : (
        <div className="scrolls">
          <table className="list stacks">
            <thead>
              <tr>
                {['Name', 'State', 'Users', 'Clients', 'Groups', 'Heard', 'Token', ...(isAdmin ? ['Action'] : [])].map(
                  (name) => (
                    <th key={name}>{name}</th>
                  ),
                )}
              </tr>
            </thead>
            <tbody>
              {data.map(({ agent, status }) => (
                <tr key={agent.id}>
                  <td>
                    {visible(agent.name)} {agent.name === agent.id ? null : <code className="quiet">{agent.id}</code>}
                  </td>
                  <td>
                    <NodeState status={status} />
                  </td>
                  <td data-name="Users">{status === undefined ? '' : countText(status.users)}</td>
                  <td data-name="Clients">{status === undefined ? '' : countText(status.xray.clients)}</td>
                  <td data-name="Groups">{visible(agent.groups.join(', '))}</td>
                  <td data-name="Heard">
                    {status?.updatedAt ? (
                      <>
                        <Since at={Date.parse(status.updatedAt)} /> ago
                      </>
                    ) : null}
                  </td>
                  <td data-name="Token">{tokenText(agent)}</td>
                  {isAdmin ? (
                    <td>
                      {agent.createdAt === null ? null : (
                        <button type="button" disabled={work.isBusy} onClick={() => setRemoved(agent)}>
                          {agent.configured ? 'Revoke the token …' : 'Remove …'}
                        </button>
                      )}
                    </td>
                  ) : null}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {isNew ? <NewNode onClose={() => setNew(false)} onMade={refresh} /> : null}
      {removed === undefined ? null : (
        <Confirm
          title={`Remove ${visible(removed.name)}?`}
          text="Its token stops working immediately: the node can no longer read users or report."
          action="Remove it"
          onClose={() => setRemoved(undefined)}
          onYes={() =>
            work.run(async () => {
              await removeProxyNode(removed.id);
              await refresh();
            })
          }
        />
      )}
    </>
  );
}

function tokenText({ configured, hasToken, createdAt }: Agent): string {
  if (!hasToken) return 'none';
  return configured && createdAt === null ? 'in the settings' : 'issued here';
}

function NodeState({ status }: { readonly status: AgentStatus | undefined }) {
  if (status === undefined || status.updatedAt === null) return <span className="chip">never heard</span>;
  if (status.stale) return <span className="chip needs_you">stale</span>;
  if (status.healthy) return <span className="chip running">healthy</span>;
  return (
    <span className="chip failed" title={visible(status.message)}>
      not healthy
    </span>
  );
}

function NewNode({ onClose, onMade }: { readonly onClose: () => void; readonly onMade: () => Promise<void> }) {
  const work = useWork();
  const [id, setId] = useState('');
  const [name, setName] = useState('');
  const [address, setAddress] = useState('');
  const [groups, setGroups] = useState('');
  const [token, setToken] = useState<string>();
  function submit(event: FormEvent): void {
    event.preventDefault();
    work.run(async () => {
      const names = groups
        .split(',')
        .map((group) => group.trim())
        .filter((group) => group !== '');
      const made = await createProxyNode({
        id: id.trim(),
        ...(name.trim() !== '' && { name: name.trim() }),
        ...(address.trim() !== '' && { address: address.trim() }),
        ...(names.length > 0 && { groups: names }),
      });
      setToken(made.token);
      await onMade();
    });
  }
  return (
    <Dialog title="New node" onClose={onClose}>
      {token === undefined ? (
        <form className="stack" onSubmit={submit}>
          <Field
            label="Id"
            value={id}
            onChange={setId}
            required
            maxLength={64}
            autoComplete="off"
            autoFocus
            hint="Letters, digits, “.”, “_” and “-”. A node of the settings gets its token by its id."
          />
          <Field label="Name" value={name} onChange={setName} maxLength={200} autoComplete="off" />
          <Field
            label="Address"
            value={address}
            onChange={setAddress}
            maxLength={253}
            autoComplete="off"
            hint="The address that clients connect to. The id unless given."
          />
          <Field
            label="Groups"
            value={groups}
            onChange={setGroups}
            autoComplete="off"
            hint="Names of groups of nodes, separated by commas."
          />
          <button type="submit" className="primary" disabled={work.isBusy}>
            Create
          </button>
          <WorkNotes work={work} />
        </form>
      ) : (
        <div className="stack">
          <ShownOnce label="The token of the node. It is not shown again." text={token} />
          <button type="button" onClick={onClose}>
            Done
          </button>
        </div>
      )}
    </Dialog>
  );
}
