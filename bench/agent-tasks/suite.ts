import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { CompleteChat } from '../../src/bridge/agents/builtin/complete-chat.ts';
import { createCompleteOverHttp } from '../../src/bridge/agents/builtin/complete-over-http.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { builtinAgent } from '../../test/kit/bridge/builtin-agent.ts';
import { createScriptedAnswers } from '../../test/kit/scripted-answers.ts';
import type { Figure, Table } from '../report/figure.ts';
import type { AgentTask } from './task.ts';
import { agentTasks } from './tasks.ts';

/** How a task went. */
export interface TaskResult {
  readonly name: string;
  readonly isDone: boolean;
  /** Why it counts as not done; empty when it is. */
  readonly why: string;
  readonly requests: number;
  readonly tokens: number;
  readonly seconds: number;
}

export interface TaskModel {
  readonly name: string;
  /** For one task. */
  complete(task: AgentTask): CompleteChat;
}

const TASK_MS = 10 * 60_000;
const MAX_REQUESTS = 50;
const TRESTLE = 'http://127.0.0.1:8787/v1';

/** Plays the solutions of the tasks: this shows that the loop of the agent, its tools and the checks work, and nothing about a model. */
export const scriptedSolutions: TaskModel = {
  name: 'scripted solutions',
  complete: ({ solution }) =>
    createScriptedAnswers((_request, index) => solution[index] ?? { text: ['Done.'] }).complete,
};

/** Runs the tasks, with the model of the environment where there is one. */
export async function agentTasksSuite(): Promise<readonly Table[]> {
  const model = modelOf(process.env);
  const results: TaskResult[] = [];
  for (const task of agentTasks) results.push(await runTask(task, model));
  return [tableOf(model.name, results)];
}

function modelOf({ AGENT_TASKS_MODEL: model = '', AGENT_TASKS_URL: baseUrl = TRESTLE, AGENT_TASKS_KEY: apiKey = '' }) {
  if (model === '') return scriptedSolutions;
  const complete = createCompleteOverHttp({ baseUrl, apiKey, clock: systemClock, randomness: systemRandomness });
  return { name: model, complete: () => complete };
}

export function tableOf(model: string, results: readonly TaskResult[]): Table {
  const done = results.filter(({ isDone }) => isDone).length;
  return { title: `Agent tasks: ${done} of ${results.length} done by ${model}`, figures: results.map(figureOf) };
}

function figureOf({ name, isDone, why, requests, tokens, seconds }: TaskResult): Figure {
  return {
    name,
    value: isDone ? 'done' : `not done: ${why.replaceAll(/[\s|]+/g, ' ').slice(0, 200)}`,
    bound: '',
    result: `${requests} requests, ${tokens} tokens, ${seconds.toFixed(1)} s`,
    goal: 'done',
    met: isDone,
    amounts: { ours: isDone ? 1 : 0, goal: 1 },
  };
}

/** Has the built-in agent work on a task in a new folder, and checks what it has done. */
export async function runTask(task: AgentTask, model: TaskModel): Promise<TaskResult> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-task-')));
  let requests = 0;
  const complete = model.complete(task);
  const agent = builtinAgent({
    model: model.name,
    maxRequests: MAX_REQUESTS,
    complete(...given) {
      requests += 1;
      return complete(...given);
    },
    // The Node of this run, so that tasks need no other.
    environment: { PATH: `${dirname(process.execPath)}:${process.env.PATH ?? ''}`, HOME: folder },
  });
  const started = performance.now();
  try {
    for (const [path, content] of Object.entries(task.files)) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      await writeFile(join(folder, path), content);
    }
    const stopTimer = systemClock.after(TASK_MS, () => void agent.cancel('task'));
    const end = await agent.startTurn({
      turnId: 'task',
      owner: 'main',
      prompt: task.prompt,
      workingDirectory: folder,
      model: '',
      skills: [],
      hop: 0,
      opened: () => undefined,
      usedModel: () => undefined,
      leftBehind: () => undefined,
      report: () => undefined,
    });
    stopTimer();
    const seconds = (performance.now() - started) / 1000;
    const tokens = (end.kind === 'lost' ? undefined : end.usage?.totalTokens) ?? 0;
    const ending = end.kind === 'failed' ? `the turn failed: ${end.error}` : `the turn was ${end.kind}`;
    const why = end.kind === 'completed' ? await failureOf(task, folder) : ending;
    return { name: task.name, isDone: why === '', why, requests, tokens, seconds };
  } finally {
    await agent.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function failureOf(task: AgentTask, folder: string): Promise<string> {
  try {
    await task.check(folder);
    return '';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
