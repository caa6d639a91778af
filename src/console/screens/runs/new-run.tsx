import { useQuery } from '@tanstack/react-query';
import { type FormEvent, useId, useState } from 'react';
import { useLocation, useSearchParams } from 'wouter';
import { trestle } from '../../data/bridge.ts';
import { keepPermissionChoice, type PermissionChoice, routingOf } from '../../data/permission-choice.ts';
import { newId } from '../../data/request.ts';
import { isCutRun } from '../../live/fold-run.ts';
import { AgentField, ErrorBox, TaskField } from '../../parts/parts.tsx';
import { useConsole } from '../../shell/console-context.ts';
import { FolderField, isFolderRefused, PermissionField } from '../board/new-session.tsx';
import { rememberTurn, STARTED_MS } from '../session/running-turns.ts';
import { type EarlierRun, readEarlierRun } from './earlier-run.ts';

const MODES = [
  { value: 'sequence', label: 'Sequence', text: 'One step after the other, until one fails.' },
  { value: 'parallel', label: 'Parallel', text: 'All steps run at the same time, and all must succeed.' },
  {
    value: 'race',
    label: 'Race',
    text: 'All steps run at the same time; the first to complete wins, and the others are stopped.',
  },
  {
    value: 'conversation',
    label: 'Conversation',
    text: 'The agents speak in turn, and hear what the others have said.',
  },
] as const;

interface StepInput {
  readonly key: number;
  readonly providerId: string;
  readonly prompt: string;
  readonly outputAs: string;
}

const MAX_STEPS = 64;

/** Several agents for one task. `/console/runs/new?from=…&turn=…` begins with the task and the steps of an earlier run. */
export default function NewRun() {
  const [given] = useSearchParams();
  const [from, turn, owner] = ['from', 'turn', 'owner'].map((name) => given.get(name) ?? undefined);
  const before = useQuery({
    queryKey: ['earlier-run', from, turn, owner],
    queryFn: async () => (await readEarlierRun({ sessionId: from ?? '', owner }, turn ?? '')) ?? null,
    enabled: from !== undefined && turn !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });
  if (before.isLoading) return <p className="quiet loading">Loading …</p>;
  return (
    <section className="page">
      <h1>New run</h1>
      <ErrorBox error={before.error} />
      {before.data === null ? <p className="quiet">The steps of that run are not stored any more.</p> : null}
      {before.data && isCutRun(before.data.task, before.data.steps) ? (
        <p className="notice" role="status">
          Of long texts, only the beginning is stored: complete the task and the prompts before you start.
        </p>
      ) : null}
      <RunForm before={before.data ?? undefined} />
    </section>
  );
}

function RunForm({ before }: { readonly before: EarlierRun | undefined }) {
  const { system } = useConsole();
  const [, go] = useLocation();
  const id = useId();
  const client = trestle(system.signIn);
  const capabilities = useQuery({ queryKey: ['capabilities'], queryFn: () => client.capabilities() });
  const agents = (capabilities.data?.providerCatalog ?? []).filter(({ providerId }) => providerId !== 'multi-agent');
  const [task, setTask] = useState(before?.task ?? '');
  const [mode, setMode] = useState(MODES.find(({ value }) => value === before?.mode)?.value ?? 'sequence');
  const [steps, setSteps] = useState<readonly StepInput[]>(
    before?.steps.map(({ providerId, prompt, outputAs }, place) => ({
      key: place + 1,
      providerId,
      prompt,
      outputAs,
    })) ?? [newStep(1), newStep(2)],
  );
  const [rounds, setRounds] = useState(String(before?.rounds ?? 2));
  const [folder, setFolder] = useState(before?.folder ?? '');
  const [permissions, setPermissions] = useState<PermissionChoice>('ask');
  const [problem, setProblem] = useState<unknown>();
  const [isStarting, setStarting] = useState(false);
  function chooseFolder(chosen: string): void {
    setFolder(chosen);
    if (isFolderRefused(problem)) setProblem(undefined);
  }
  const change = (key: number, changes: Partial<StepInput>) =>
    setSteps(steps.map((step) => (step.key === key ? { ...step, ...changes } : step)));
  async function start(event: FormEvent): Promise<void> {
    event.preventDefault();
    setStarting(true);
    setProblem(undefined);
    const sessionId = `r-${newId()}`;
    const session = client.session(sessionId, {
      multiAgent: true,
      ...(folder !== '' && { workingDirectory: folder }),
      routing: {
        ...routingOf(permissions),
        orchestrationMode: mode,
        ...(mode === 'conversation' && { maxTurns: Number(rounds) * steps.length }),
        steps: steps.map(({ providerId, prompt, outputAs }) => ({
          providerId: providerId === '' ? (agents[0]?.providerId ?? '') : providerId,
          ...(prompt.trim() !== '' && { prompt: prompt.trim() }),
          ...(mode === 'sequence' && outputAs.trim() !== '' && { outputAs: outputAs.trim() }),
        })),
      },
    });
    try {
      await rememberTurn(sessionId, session.start(task.trim()), { waitMs: STARTED_MS });
      keepPermissionChoice(sessionId, permissions);
      go(`/console/runs/${sessionId}`);
    } catch (error) {
      setProblem(error);
      setStarting(false);
    }
  }
  return (
    <form className="new-session" onSubmit={(event) => void start(event)}>
      <TaskField value={task} onChange={setTask} />
      <fieldset className="choice">
        <legend>How the agents work together</legend>
        {MODES.map(({ value, label }) => (
          <button key={value} type="button" aria-pressed={mode === value} onClick={() => setMode(value)}>
            {label}
          </button>
        ))}
      </fieldset>
      <p className="quiet">{MODES.find(({ value }) => value === mode)?.text}</p>
      {steps.map((step, place) => (
        <fieldset key={step.key} className="step-input">
          <legend>Step {place + 1}</legend>
          <div className="row">
            <AgentField
              value={step.providerId}
              onChange={(providerId) => change(step.key, { providerId })}
              agents={agents}
              isOpen={false}
            />
            {mode === 'sequence' && place < steps.length - 1 ? (
              <div className="field">
                <label htmlFor={`${id}-name-${step.key}`}>Name of its output</label>
                <input
                  id={`${id}-name-${step.key}`}
                  value={step.outputAs}
                  maxLength={128}
                  spellCheck={false}
                  onChange={({ target }) => change(step.key, { outputAs: target.value })}
                />
              </div>
            ) : null}
            {steps.length > 2 ? (
              <button type="button" onClick={() => setSteps(steps.filter(({ key }) => key !== step.key))}>
                Remove step {place + 1}
              </button>
            ) : null}
          </div>
          <div className="field">
            <label htmlFor={`${id}-prompt-${step.key}`}>Prompt (the task unless given)</label>
            <textarea
              id={`${id}-prompt-${step.key}`}
              rows={2}
              value={step.prompt}
              onChange={({ target }) => change(step.key, { prompt: target.value })}
            />
          </div>
        </fieldset>
      ))}
      <p className="quiet">{hintOf(mode)}</p>
      <button
        type="button"
        disabled={steps.length >= MAX_STEPS}
        onClick={() => setSteps([...steps, newStep(Math.max(...steps.map(({ key }) => key)) + 1)])}
      >
        Add a step
      </button>
      {mode === 'conversation' ? (
        <div className="field">
          <label htmlFor={`${id}-rounds`}>Rounds</label>
          <input
            id={`${id}-rounds`}
            type="number"
            min={1}
            max={15}
            required
            value={rounds}
            onChange={({ target }) => setRounds(target.value)}
          />
        </div>
      ) : null}
      <FolderField folder={folder} team="" onChange={chooseFolder} problem={problem} />
      <PermissionField choice={permissions} onChange={setPermissions} />
      {isFolderRefused(problem) ? null : <ErrorBox error={problem} />}
      <button type="submit" className="primary" disabled={isStarting || agents.length === 0}>
        {isStarting ? 'Starting …' : 'Start the run'}
      </button>
    </form>
  );
}

function newStep(key: number): StepInput {
  return { key, providerId: '', prompt: '', outputAs: '' };
}

function hintOf(mode: string): string {
  const input = '{{input}} stands for the task';
  if (mode === 'sequence')
    return `In prompts ${input}, {{previousOutput}} for the output of the step before, and {{name}} for a named output.`;
  if (mode === 'conversation')
    return 'It ends with STATUS: DONE or STATUS: CONSENSUS in a speech, or after the last round.';
  return `In prompts ${input}.`;
}
