import { useQuery } from '@tanstack/react-query';
import { useId, useState } from 'react';
import { useLocation, useSearchParams } from 'wouter';
import { listFolders, trestle } from '../../data/bridge.ts';
import { keepPermissionChoice, PERMISSIONS, type PermissionChoice, routingOf } from '../../data/permission-choice.ts';
import { ErrorBox } from '../../parts/parts.tsx';
import { useConsole } from '../../shell/console-context.ts';
import { rememberTurn, STARTED_MS } from '../session/running-turns.ts';

/** `/console/new?prompt=…&agent=…&folder=…`: everything can be filled in by a link. */
export default function NewSession() {
  return (
    <section className="page">
      <h1>New session</h1>
      <NewSessionForm />
    </section>
  );
}

const LAST_FOLDER = 'trestle.folder';

export function NewSessionForm() {
  const { system } = useConsole();
  const [, go] = useLocation();
  const [given] = useSearchParams();
  const id = useId();
  const [prompt, setPrompt] = useState(given.get('prompt') ?? '');
  const [agent, setAgent] = useState(given.get('agent') ?? '');
  const [folder, setFolder] = useState(given.get('folder') ?? localStorage.getItem(LAST_FOLDER) ?? '');
  const [permissions, setPermissions] = useState<PermissionChoice>('ask');
  const [problem, setProblem] = useState<unknown>();
  const [isStarting, setStarting] = useState(false);
  const client = trestle(system.signIn);
  const capabilities = useQuery({ queryKey: ['capabilities'], queryFn: () => client.capabilities() });
  const folders = useQuery({
    queryKey: ['folders', folder],
    queryFn: () => listFolders(folder === '' ? undefined : folder),
    retry: false,
    placeholderData: (before) => before,
  });
  const agents = (capabilities.data?.providerCatalog ?? []).filter(({ providerId }) => providerId !== 'multi-agent');

  async function start(): Promise<void> {
    if (prompt.trim() === '') return;
    setStarting(true);
    setProblem(undefined);
    const sessionId = `s-${crypto.randomUUID().slice(0, 8)}`;
    const session = client.session(sessionId, {
      ...(folder !== '' && { workingDirectory: folder }),
      routing: {
        ...routingOf(permissions),
        ...(agent !== '' && { routingMode: 'explicit' as const, explicitProviderId: agent }),
      },
    });
    const turn = session.start(prompt.trim());
    try {
      await rememberTurn(sessionId, turn, STARTED_MS);
      keepPermissionChoice(sessionId, permissions);
      if (folder !== '') localStorage.setItem(LAST_FOLDER, folder);
      go(`/console/sessions/${sessionId}`);
    } catch (error) {
      setProblem(error);
      setStarting(false);
    }
  }

  return (
    <form
      className="new-session"
      onSubmit={(event) => {
        event.preventDefault();
        void start();
      }}
    >
      <label htmlFor={`${id}-prompt`}>What should be done?</label>
      <textarea
        id={`${id}-prompt`}
        rows={5}
        required
        value={prompt}
        onChange={(event) => setPrompt(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void start();
        }}
      />
      <div className="row">
        <div className="field">
          <label htmlFor={`${id}-agent`}>Agent</label>
          <select id={`${id}-agent`} value={agent} onChange={(event) => setAgent(event.target.value)}>
            <option value="">Chosen by the server</option>
            {agents.map(({ providerId, label }) => (
              <option key={providerId} value={providerId}>
                {label}
              </option>
            ))}
          </select>
        </div>
        <div className="field grows">
          <label htmlFor={`${id}-folder`}>Folder</label>
          <input
            id={`${id}-folder`}
            value={folder}
            list={`${id}-folders`}
            placeholder="A private folder of the session"
            spellCheck={false}
            autoComplete="off"
            onChange={(event) => setFolder(event.target.value)}
          />
          <datalist id={`${id}-folders`}>
            {[...(folders.data?.roots ?? []), ...(folders.data?.entries ?? []).map(({ path }) => path)].map((path) => (
              <option key={path} value={path} />
            ))}
          </datalist>
        </div>
      </div>
      <fieldset className="choice">
        <legend>Before it runs commands or changes files</legend>
        {PERMISSIONS.map(({ value, label }) => (
          <button key={value} type="button" aria-pressed={permissions === value} onClick={() => setPermissions(value)}>
            {label}
          </button>
        ))}
      </fieldset>
      <ErrorBox error={problem} />
      <button type="submit" className="primary" disabled={isStarting}>
        {isStarting ? 'Starting …' : 'Start'} <kbd>Ctrl Enter</kbd>
      </button>
    </form>
  );
}
