import { useQuery } from '@tanstack/react-query';
import { useEffect, useId, useState } from 'react';
import { useLocation, useSearchParams } from 'wouter';
import { keyOf, listFolders, trestle } from '../../data/bridge.ts';
import {
  keepPermissionChoice,
  PERMISSIONS,
  type PermissionChoice,
  routingOf,
  storedList,
} from '../../data/permission-choice.ts';
import { newId } from '../../data/request.ts';
import { ownerOfTeam } from '../../data/teams.ts';
import { AgentField, codeOf, ErrorBox, NotSentYet } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';
import { AttachButton, AttachedFiles, takesFiles } from '../session/attachments.tsx';
import { addFiles, changeDraft, useDraft } from '../session/next-message.ts';
import { rememberTurn, STARTED_MS } from '../session/running-turns.ts';
import { useOwnTeams } from '../teams/own-teams.ts';

/** `/console/new?prompt=…&agent=…&model=…&folder=…&team=…`: everything can be filled in by a link. */
export default function NewSession() {
  return (
    <section className="page">
      <h1>New session</h1>
      <NewSessionForm />
    </section>
  );
}

const FOLDERS = 'trestle.folders';
const MAX_FOLDERS = 8;

/** The folders of the last sessions that were started in this browser, the last one first. */
const recentFolders = () => storedList(FOLDERS).filter((one): one is string => typeof one === 'string');

function rememberFolder(folder: string): void {
  if (folder === '') return;
  const folders = [folder, ...recentFolders().filter((one) => one !== folder)].slice(0, MAX_FOLDERS);
  localStorage.setItem(FOLDERS, JSON.stringify(folders));
}

/** The task and the files are kept as those of a session that has no name yet. */
const UNNAMED = { sessionId: '' };

export function NewSessionForm() {
  const { system } = useConsole();
  const [, go] = useLocation();
  const [given] = useSearchParams();
  const id = useId();
  const [agent, setAgent] = useState(given.get('agent') ?? '');
  const [model, setModel] = useState(given.get('model') ?? '');
  const [folder, setFolder] = useState(given.get('folder') ?? recentFolders()[0] ?? '');
  const [permissions, setPermissions] = useState<PermissionChoice>('ask');
  const [isApart, setApart] = useState(false);
  const [problem, setProblem] = useState<unknown>();
  const [isStarting, setStarting] = useState(false);
  const teams = useOwnTeams();
  const [team, setTeam] = useState(given.get('team') ?? '');
  const client = trestle(system.signIn, team);
  const { files, text } = useDraft(keyOf(UNNAMED));
  // A task that a link gives is not kept: the one that was being written stays for later.
  const [ofLink, setOfLink] = useState(given.get('prompt'));
  const prompt = ofLink ?? text;
  function setPrompt(next: string): void {
    if (ofLink === null) changeDraft(keyOf(UNNAMED), { text: next });
    else setOfLink(next);
  }
  const keepFiles = (kept: typeof files) => changeDraft(keyOf(UNNAMED), { files: kept });
  const [isUploading, setUploading] = useState(false);
  async function attach(given: readonly File[]): Promise<void> {
    setProblem(undefined);
    setUploading(true);
    await addFiles(UNNAMED, team === '' ? undefined : team, given).catch(setProblem);
    setUploading(false);
  }
  const capabilities = useQuery({ queryKey: ['capabilities'], queryFn: () => client.capabilities() });
  const agents = (capabilities.data?.providerCatalog ?? []).filter(({ providerId }) => providerId !== 'multi-agent');

  function chooseFolder(chosen: string): void {
    setFolder(chosen);
    if (isFolderRefused(problem)) setProblem(undefined);
  }
  function chooseTeam(chosen: string): void {
    setTeam(chosen);
    // They were uploaded for someone else.
    keepFiles([]);
  }
  async function start(): Promise<void> {
    if (prompt.trim() === '' || isUploading) return;
    setStarting(true);
    setProblem(undefined);
    const sessionId = `s-${newId()}`;
    const session = client.session(sessionId, {
      ...(folder !== '' && { workingDirectory: folder }),
      routing: {
        ...routingOf(permissions),
        ...(isApart && folder !== '' && { worktree: true }),
        ...chosenBy(agent, model),
      },
    });
    const attachments = files.map(({ attachmentId }) => ({ attachmentId }));
    const turn = session.start(prompt.trim(), { ...(attachments.length > 0 && { attachments }) });
    const key = keyOf({ sessionId, ...(team !== '' && { owner: ownerOfTeam(team) }) });
    try {
      await rememberTurn(key, turn, { waitMs: STARTED_MS });
      changeDraft(keyOf(UNNAMED), ofLink === null ? { text: '', files: [] } : { files: [] });
      keepPermissionChoice(key, permissions);
      rememberFolder(folder);
      const owner = team === '' ? '' : `?owner=${encodeURIComponent(ownerOfTeam(team))}`;
      go(`/console/sessions/${sessionId}${owner}`);
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
      {...takesFiles((given) => void attach(given))}
    >
      <div className="field">
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
      </div>
      <AttachedFiles
        files={files}
        isUploading={isUploading}
        onRemove={(removed) => keepFiles(files.filter((file) => file !== removed))}
      />
      <div className="row">
        <AgentField value={agent} onChange={setAgent} agents={agents} isOpen />
        <div className="field">
          <label htmlFor={`${id}-model`}>Model</label>
          <input
            id={`${id}-model`}
            value={model}
            maxLength={200}
            placeholder="The agent's default"
            spellCheck={false}
            autoComplete="off"
            onChange={({ target }) => setModel(target.value)}
          />
        </div>
        {teams.length === 0 ? null : (
          <div className="field">
            <label htmlFor={`${id}-team`}>For</label>
            <select id={`${id}-team`} value={team} onChange={(event) => chooseTeam(event.target.value)}>
              <option value="">Me</option>
              {teams.map((one) => (
                <option key={one.id} value={one.id}>
                  {visible(one.name)}
                </option>
              ))}
            </select>
          </div>
        )}
        <FolderField folder={folder} team={team} onChange={chooseFolder} problem={problem} />
      </div>
      {folder === '' ? null : (
        <label className="check">
          <input type="checkbox" checked={isApart} onChange={({ target }) => setApart(target.checked)} /> Work in a
          separate worktree: the checkout in this folder does not change until you merge
        </label>
      )}
      <PermissionField choice={permissions} onChange={setPermissions} />
      <WhoWould prompt={prompt} agent={agent} model={model} team={team} />
      {isFolderRefused(problem) ? null : <ErrorBox error={problem} />}
      <NotSentYet isWaiting={isStarting} />
      <div className="sends">
        <AttachButton isBusy={isUploading} onFiles={(given) => void attach(given)} />
        <button type="submit" className="primary" disabled={isStarting || isUploading}>
          {isStarting ? 'Starting …' : 'Start'} <kbd>Ctrl Enter</kbd>
        </button>
      </div>
    </form>
  );
}

/** What a person has chosen of agent and model, as the bridge takes it. */
const chosenBy = (agent: string, model: string) => ({
  ...(agent !== '' && { routingMode: 'explicit' as const, explicitProviderId: agent }),
  ...(model.trim() !== '' && { explicitModel: model.trim() }),
});

/** The server is asked when nobody has typed for this long. */
const TYPED_MS = 400;

interface WhoWouldProps {
  readonly prompt: string;
  readonly agent: string;
  readonly model: string;
  readonly team: string;
}

/** Says which agent would do the task, before it is started. */
function WhoWould(props: WhoWouldProps) {
  const { system } = useConsole();
  const [{ prompt, agent, model, team }, setAsked] = useState(props);
  const { prompt: newPrompt, agent: newAgent, model: newModel, team: newTeam } = props;
  useEffect(() => {
    const asked = { prompt: newPrompt, agent: newAgent, model: newModel, team: newTeam };
    const timer = setTimeout(() => setAsked(asked), TYPED_MS);
    return () => clearTimeout(timer);
  }, [newPrompt, newAgent, newModel, newTeam]);
  const { data } = useQuery({
    queryKey: ['resolve', prompt, agent, model, team],
    queryFn: () => trestle(system.signIn, team).resolve({ taskPrompt: prompt.trim(), routing: chosenBy(agent, model) }),
    enabled: prompt.trim() !== '',
    retry: false,
    placeholderData: (before) => before,
  });
  if (data === undefined || newPrompt.trim() === '') return null;
  const skills = data.resolvedSkills.length === 0 ? '' : `, with ${data.resolvedSkills.join(', ')}`;
  return (
    <p className={data.unavailable ? 'failed' : 'quiet'} role="status">
      {data.unavailable
        ? visible(data.unavailableMessage ?? 'No agent can do it now.')
        : visible(
            `${data.resolvedProviderId} would do it${data.resolvedModel === '' ? '' : `, with ${data.resolvedModel}`}${skills}.`,
          )}
    </p>
  );
}

interface FolderFieldProps {
  readonly folder: string;
  /** The id of the team that the work is for; empty: for no team. */
  readonly team: string;
  readonly onChange: (folder: string) => void;
  /** Why the form was refused: shown here when the reason is the folder. */
  readonly problem?: unknown;
}

/** Whether a form was refused because of its folder. */
export const isFolderRefused = (problem: unknown) => codeOf(problem) === 'WORKING_DIRECTORY_REFUSED';

/** Where the agents work; recent folders are offered, then the roots, then folders inside of the one that was typed. */
export function FolderField({ folder, team, onChange, problem }: FolderFieldProps) {
  const id = useId();
  const folders = useQuery({
    queryKey: ['folders', folder, team],
    queryFn: () => listFolders(folder === '' ? undefined : folder, team === '' ? undefined : team),
    retry: false,
    placeholderData: (before) => before,
  });
  const isRefused = isFolderRefused(problem);
  // A folder that is refused is not listed either: the roots are read by themselves.
  const all = useQuery({
    queryKey: ['folders', '', team],
    queryFn: () => listFolders(undefined, team === '' ? undefined : team),
    enabled: isRefused,
  });
  const { roots = all.data?.roots ?? [], entries = [], git } = folders.data ?? {};
  const offered = [...new Set([...recentFolders(), ...roots, ...entries.map(({ path }) => path)])];
  // While a folder is typed, the answer is still that for the one before.
  const state = folder === '' || folders.isPlaceholderData || folders.isError ? undefined : git;
  return (
    <div className="field grows">
      <label htmlFor={id}>Folder</label>
      <input
        id={id}
        value={folder}
        list={`${id}-folders`}
        aria-invalid={isRefused}
        aria-describedby={isRefused || state !== undefined ? `${id}-note` : undefined}
        placeholder="A private folder of the session"
        spellCheck={false}
        autoComplete="off"
        onChange={(event) => onChange(event.target.value)}
      />
      <datalist id={`${id}-folders`}>
        {offered.map((path) => (
          <option key={path} value={path} />
        ))}
      </datalist>
      {isRefused ? (
        <div id={`${id}-note`}>
          <ErrorBox error={problem}>
            {roots.length === 0 ? null : <p>Agents may work in {roots.map(visible).join(', ')}.</p>}
          </ErrorBox>
        </div>
      ) : state === undefined ? null : (
        <p id={`${id}-note`} className="quiet">
          {state.branch === '' ? 'A commit without a branch' : `Branch ${visible(state.branch)}`}
          {state.dirty === true ? ', with changes that are not committed' : ''}
        </p>
      )}
    </div>
  );
}

interface PermissionFieldProps {
  readonly choice: PermissionChoice;
  readonly onChange: (choice: PermissionChoice) => void;
}

export function PermissionField({ choice, onChange }: PermissionFieldProps) {
  return (
    <fieldset className="choice">
      <legend>Before it runs commands or changes files</legend>
      {PERMISSIONS.map(({ value, label }) => (
        <button key={value} type="button" aria-pressed={choice === value} onClick={() => onChange(value)}>
          {label}
        </button>
      ))}
    </fieldset>
  );
}
