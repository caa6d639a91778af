import { useQuery } from '@tanstack/react-query';
import { type FormEvent, useId, useState } from 'react';
import { useLocation } from 'wouter';
import type { SubmitJobParams } from '../../../bridge/contract/jobs.ts';
import type { JobDetails } from '../../../client/trestle-client.ts';
import { jobAddress, listTurns, readSession, trestle } from '../../data/bridge.ts';
import { AgentField, Dialog, TaskField } from '../../parts/parts.tsx';
import { useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole, useOwnName } from '../../shell/console-context.ts';
import { FolderField } from '../board/new-session.tsx';

const PRIORITIES = ['high', 'normal', 'low'] as const;
/** A job has the first characters of its task only. */
const SHOWN_CHARACTERS = 200;
/** Runs have a form of their own. */
const MULTI_AGENT = 'multi-agent';

/** What the form of a job is filled in with. */
interface JobDraft {
  readonly task: string;
  readonly agent: string;
  readonly folder: string;
  readonly priority: (typeof PRIORITIES)[number];
  readonly retries: number;
}

/** An ended job that is run again. */
interface EarlierJob {
  readonly jobId: string;
  readonly draft: JobDraft;
  /** Its task and agent cannot be changed: the whole task is not known, or it is a run of several agents. */
  readonly isFixed: boolean;
}

const EMPTY: JobDraft = { task: '', agent: '', folder: '', priority: 'normal', retries: 0 };

/** What has to be submitted: the same job again where nothing but priority and retries differs, because that keeps everything else. */
function submitted(draft: JobDraft, earlier: EarlierJob | undefined): SubmitJobParams {
  const { priority, retries } = draft;
  if (earlier !== undefined && isSame(draft, earlier)) return { retryOf: earlier.jobId, priority, retries };
  return {
    taskPrompt: draft.task.trim(),
    priority,
    retries,
    ...(draft.agent !== '' && { providerId: draft.agent }),
    ...(draft.folder.trim() !== '' && { workingDirectory: draft.folder.trim() }),
  };
}

const isSame = (draft: JobDraft, { draft: before, isFixed }: EarlierJob) =>
  isFixed || (draft.task === before.task && draft.agent === before.agent && draft.folder.trim() === before.folder);

/** Reads the whole task and the folder of an ended job from its session, as far as that is stored. */
async function readEarlier(job: JobDetails, own: string): Promise<EarlierJob> {
  const name = { sessionId: job.sessionId, owner: job.owner === own ? undefined : job.owner };
  const read = Promise.all([readSession(name), listTurns(name)]);
  const [view, page] = await read.catch(() => []);
  const turn = page?.turns.find(({ turnId, prompt }) =>
    job.result?.turnId === undefined ? prompt.startsWith(job.taskPrompt) : turnId === job.result.turnId,
  );
  const isKnown = view !== undefined && turn !== undefined && !turn.truncated;
  return {
    jobId: job.jobId,
    isFixed: !isKnown || job.providerId === MULTI_AGENT,
    draft: {
      task: turn?.prompt ?? job.taskPrompt,
      agent: job.providerId,
      folder: view?.session.folder ?? '',
      priority: job.priority,
      retries: job.retries,
    },
  };
}

export function NewJob({ onClose }: { readonly onClose: () => void }) {
  return <JobForm title="New job" action="Submit" earlier={undefined} onClose={onClose} />;
}

/** The form of a job that has ended, filled in with what it was. */
export function RunAgain({ job, onClose }: { readonly job: JobDetails; readonly onClose: () => void }) {
  const own = useOwnName();
  const { data: earlier } = useQuery({ queryKey: ['job', job.jobId, 'again'], queryFn: () => readEarlier(job, own) });
  if (earlier === undefined) return null;
  return <JobForm title="Run the job again" action="Run again" earlier={earlier} onClose={onClose} />;
}

interface JobFormProps {
  readonly title: string;
  readonly action: string;
  readonly earlier: EarlierJob | undefined;
  readonly onClose: () => void;
}

function JobForm({ title, action, earlier, onClose }: JobFormProps) {
  const { system } = useConsole();
  const [, go] = useLocation();
  const id = useId();
  const work = useWork();
  const [draft, setDraft] = useState<JobDraft>(earlier?.draft ?? EMPTY);
  const change = (changed: Partial<JobDraft>) => setDraft((before) => ({ ...before, ...changed }));
  const client = trestle(system.signIn);
  const capabilities = useQuery({ queryKey: ['capabilities'], queryFn: () => client.capabilities() });
  const agents = (capabilities.data?.providerCatalog ?? []).filter(({ providerId }) => providerId !== MULTI_AGENT);
  const isFixed = earlier?.isFixed === true;
  function submit(event: FormEvent): void {
    event.preventDefault();
    work.run(async () => {
      const { jobId } = await client.jobs.submit(submitted(draft, earlier));
      onClose();
      go(jobAddress(jobId));
    });
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        {isFixed ? (
          <>
            <pre className="prompt">{shortTask(draft.task)}</pre>
            <p className="quiet">The task, the agent and the folder stay as they were.</p>
          </>
        ) : (
          <>
            <TaskField value={draft.task} onChange={(task) => change({ task })} />
            <AgentField value={draft.agent} onChange={(agent) => change({ agent })} agents={agents} isOpen />
            <FolderField folder={draft.folder} team="" onChange={(folder) => change({ folder })} />
          </>
        )}
        <div className="field">
          <label htmlFor={`${id}-priority`}>Priority</label>
          <select
            id={`${id}-priority`}
            value={draft.priority}
            onChange={(event) => change({ priority: PRIORITIES.find((one) => one === event.target.value) ?? 'normal' })}
          >
            {PRIORITIES.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </div>
        <div className="field">
          <label htmlFor={`${id}-retries`}>Retries if the agent fails</label>
          <input
            id={`${id}-retries`}
            type="number"
            min={0}
            max={10}
            value={draft.retries}
            onChange={(event) => change({ retries: event.target.valueAsNumber || 0 })}
          />
        </div>
        {earlier === undefined ? null : (
          <p className="quiet" role="status">
            {isSame(draft, earlier)
              ? 'The new job has the model, the files and the webhook of this one.'
              : 'The new job is a different one: it does not have the model, the files or the webhook of this one.'}
          </p>
        )}
        <button type="submit" className="primary" disabled={work.isBusy || draft.task.trim() === ''}>
          {action}
        </button>
      </form>
      <WorkNotes work={work} />
    </Dialog>
  );
}

const shortTask = (task: string) => (task.length < SHOWN_CHARACTERS ? task : `${task.slice(0, SHOWN_CHARACTERS)} …`);
