import type { UpdatePage } from '../../bridge/contract/workbench.ts';

type Update = UpdatePage['updates'][number];

/** One planned step of a run. */
export interface RunStep {
  readonly index: number;
  readonly providerId: string;
  readonly prompt: string;
  /** The name of its output for later steps; empty without one. */
  readonly outputAs: string;
}

/** What an agent does in a run: a step, or in a conversation one speech. */
export interface RunPart {
  readonly index: number;
  readonly providerId: string;
  readonly conversationTurn: number | undefined;
  readonly status: 'running' | 'completed' | 'failed' | 'cancelled' | 'timed_out';
  readonly startedAt: number;
  readonly endedAt: number | undefined;
  readonly output: string;
  readonly error: string;
}

/** A multi-agent run: one turn of a session. */
export interface Run {
  readonly turnId: string;
  readonly mode: string;
  /** Of a conversation; undefined where its start does not say it. */
  readonly rounds: number | undefined;
  readonly startedAt: number;
  readonly endedAt: number | undefined;
  /** Why it ended; empty while it runs. */
  readonly stopReason: string;
  readonly steps: readonly RunStep[];
  readonly parts: readonly RunPart[];
}

/** The longest task and prompt of a step that are stored whole. */
const MAX_TASK = 16_384;
const MAX_PROMPT = 1024;

/** Whether of the task of a run, or of a prompt, maybe only the beginning is stored. A character of two units is not cut apart. */
export function isCutRun(task: string, steps: readonly Pick<RunStep, 'prompt'>[]): boolean {
  return task.length >= MAX_TASK - 1 || steps.some(({ prompt }) => prompt.length >= MAX_PROMPT - 1);
}

/** The kinds of updates that a run is drawn from. */
export const RUN_KINDS: readonly string[] = [
  'multi_agent_started',
  'multi_agent_step_started',
  'multi_agent_step_completed',
  'multi_agent_completed',
  'completed',
  'failed',
  'cancelled',
];

/** The members of the updates above, of which each has some. */
interface Members {
  readonly kind: string;
  readonly at: number;
  readonly turnId: string;
  readonly stepIndex?: number;
  readonly providerId?: string;
  readonly orchestrationMode?: string;
  readonly maxTurns?: number;
  readonly stopReason?: string;
  readonly steps?: readonly Partial<StepMembers>[];
}
interface StepMembers {
  readonly index: number;
  readonly providerId: string;
  readonly prompt: string;
  readonly outputAs: string;
  readonly status: RunPart['status'];
  readonly durationMs: number;
  readonly output: string;
  readonly error: string;
  readonly conversationTurn: number;
}

/** The runs of a session, oldest first. Updates have to be in order; those of other kinds are ignored. */
export function foldRuns(updates: readonly Update[]): readonly Run[] {
  const runs = new Map<string, Run>();
  for (const update of updates as readonly (Members & Partial<StepMembers>)[]) {
    const { kind, at, turnId } = update;
    const run = runs.get(turnId);
    if (kind === 'multi_agent_started') runs.set(turnId, begun(update));
    else if (run === undefined) continue;
    else if (kind === 'multi_agent_step_started') {
      runs.set(turnId, { ...run, parts: [...run.parts, partOf({ ...update, index: update.stepIndex ?? 0 }, at)] });
    } else if (kind === 'multi_agent_step_completed') {
      runs.set(turnId, withEnd(run, { ...update, index: update.stepIndex ?? 0 }, at));
    } else if (kind === 'multi_agent_completed') {
      // A run that went on after a restart reports here what it had done before.
      const known = (update.steps ?? []).reduce((before, step) => withEnd(before, step, at), run);
      runs.set(turnId, { ...known, stopReason: update.stopReason ?? '', endedAt: at });
    } else if (RUN_KINDS.includes(kind)) runs.set(turnId, ended(run, kind, at));
  }
  return [...runs.values()];
}

function begun({ turnId, at, orchestrationMode = 'sequence', maxTurns, steps = [] }: Members): Run {
  const planned = steps.map(({ index = 0, providerId = '', prompt = '', outputAs = '' }) => ({
    index,
    providerId,
    prompt,
    outputAs,
  }));
  return {
    turnId,
    mode: orchestrationMode,
    // A round in which not everyone speaks counts as one.
    rounds: maxTurns === undefined || steps.length === 0 ? undefined : Math.ceil(maxTurns / steps.length),
    startedAt: at,
    endedAt: undefined,
    stopReason: '',
    steps: planned,
    parts: [],
  };
}

function partOf({ index = 0, providerId = '', conversationTurn }: Partial<StepMembers>, startedAt: number): RunPart {
  return {
    index,
    providerId,
    conversationTurn,
    status: 'running',
    startedAt,
    endedAt: undefined,
    output: '',
    error: '',
  };
}

/** Ends the part that a record is about, once. Updates are stored together, so the duration tells more than their times. */
function withEnd(run: Run, record: Partial<StepMembers>, at: number): Run {
  const { status = 'completed', durationMs = 0, output = '', error = '' } = record;
  const index = run.parts.findIndex(
    (part) => part.index === record.index && part.conversationTurn === record.conversationTurn,
  );
  const before = run.parts[index] ?? partOf(record, run.startedAt);
  if (before.endedAt !== undefined) return run;
  const startedAt = Math.max(run.startedAt, Math.min(before.startedAt, at - durationMs));
  const part = { ...before, status, output, error, startedAt, endedAt: startedAt + durationMs };
  return { ...run, parts: index === -1 ? [...run.parts, part] : run.parts.with(index, part) };
}

/** The turn has ended. After a crash its parts have no ends of their own. */
function ended(run: Run, kind: string, at: number): Run {
  const parts = run.parts.map((part) =>
    part.endedAt === undefined ? { ...part, status: 'cancelled' as const, endedAt: at } : part,
  );
  return { ...run, parts, endedAt: run.endedAt ?? at, stopReason: run.stopReason === '' ? kind : run.stopReason };
}
