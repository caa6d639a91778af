import { fillTemplate, type MultiAgentPlan, type OrchestrationMode } from './multi-agent-plan.ts';
import type { RunningStep, StepEnd } from './run-step.ts';

/** What a mode has made of its steps. */
export interface RunEnd {
  /** In the order in which they ended; of a conversation each speech. */
  readonly steps: readonly StepEnd[];
  /** The final text; empty when the run has none. */
  readonly output: string;
  readonly stopReason: string;
  /** The step that the run failed with, if it did. */
  readonly failed?: StepEnd;
}

/** The order in which the agents are asked, and the prompt of each: contract/bridge 6. */
export const runModes: Readonly<
  Record<OrchestrationMode, (plan: MultiAgentPlan, steps: readonly RunningStep[]) => Promise<RunEnd>>
> = { sequence, parallel, race, conversation };

async function sequence(plan: MultiAgentPlan, steps: readonly RunningStep[]): Promise<RunEnd> {
  const ends: StepEnd[] = [];
  const outputs = new Map<string, string>();
  let previous = '';
  for (const [index, step] of steps.entries()) {
    const planned = plan.steps[index];
    // The names of the contract are not to be had for an output.
    const values = new Map([...outputs, ['previousOutput', previous], ['input', plan.input]]);
    const end = await step.ask(fillTemplate(planned?.prompt ?? '', values));
    ends.push(end);
    if (!isCompleted(end)) return { steps: ends, output: '', stopReason: 'step_failed', failed: end };
    previous = end.output;
    if (planned !== undefined && planned.outputAs !== '') outputs.set(planned.outputAs, end.output);
  }
  return { steps: ends, output: previous, stopReason: 'completed' };
}

async function parallel(plan: MultiAgentPlan, steps: readonly RunningStep[]): Promise<RunEnd> {
  const ends = await Promise.all(askAll(plan, steps));
  const failed = ends.find((end) => !isCompleted(end));
  const output = ends
    .filter(isCompleted)
    .map(({ record, output: text }) => spoken(record.providerId, text))
    .join('\n\n');
  return failed === undefined
    ? { steps: ends, output, stopReason: 'completed' }
    : { steps: ends, output, stopReason: 'step_failed', failed };
}

async function race(plan: MultiAgentPlan, steps: readonly RunningStep[]): Promise<RunEnd> {
  const asked = askAll(plan, steps);
  const winner = await firstCompleted(asked);
  await Promise.all(steps.map((step) => step.cancel()));
  const ends = await Promise.all(asked);
  if (winner !== undefined) return { steps: ends, output: winner.output, stopReason: 'won' };
  const [failed] = ends;
  return { steps: ends, output: '', stopReason: 'step_failed', ...(failed === undefined ? {} : { failed }) };
}

async function conversation(plan: MultiAgentPlan, steps: readonly RunningStep[]): Promise<RunEnd> {
  const ends: StepEnd[] = [];
  const values = new Map([['input', plan.input]]);
  const heardUpTo = steps.map(() => 0);
  const speeches: { readonly speaker: number; readonly text: string }[] = [];
  for (let count = 1; count <= plan.maxTurns; count += 1) {
    const speaker = (count - 1) % steps.length;
    const heard = speeches.slice(heardUpTo[speaker]).filter((speech) => speech.speaker !== speaker);
    const task = count <= steps.length ? [fillTemplate(plan.steps[speaker]?.prompt ?? '', values)] : [];
    const end = await (steps[speaker] as RunningStep).ask(
      [...task, ...heard.map(({ text }) => text)].join('\n\n'),
      count,
    );
    ends.push(end);
    if (!isCompleted(end)) return { steps: ends, output: '', stopReason: 'step_failed', failed: end };
    speeches.push({ speaker, text: spoken(end.record.providerId, end.output) });
    heardUpTo[speaker] = speeches.length;
    const text = end.output.toLowerCase();
    if (plan.stopConditions.some((condition) => condition !== '' && text.includes(condition))) {
      return { steps: ends, output: end.output, stopReason: 'stop_condition' };
    }
  }
  return { steps: ends, output: ends.at(-1)?.output ?? '', stopReason: 'max_turns' };
}

function askAll(plan: MultiAgentPlan, steps: readonly RunningStep[]): Promise<StepEnd>[] {
  const values = new Map([['input', plan.input]]);
  return steps.map((step, index) => step.ask(fillTemplate(plan.steps[index]?.prompt ?? '', values)));
}

/** Undefined when all ended otherwise. */
function firstCompleted(asked: readonly Promise<StepEnd>[]): Promise<StepEnd | undefined> {
  const { promise, resolve } = Promise.withResolvers<StepEnd | undefined>();
  for (const one of asked) void one.then((end) => (isCompleted(end) ? resolve(end) : undefined));
  void Promise.all(asked).then(() => resolve(undefined));
  return promise;
}

function isCompleted({ record }: StepEnd): boolean {
  return record.status === 'completed';
}

function spoken(providerId: string, text: string): string {
  return `[${providerId}]: ${text}`;
}
