import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NO_FENCE } from '../../../src/bridge/agents/agent-fence.ts';
import { createBackgroundCommands } from '../../../src/bridge/agents/builtin/background-commands.ts';
import {
  type BuiltinAgentOptions,
  createBuiltinAgent,
} from '../../../src/bridge/agents/builtin/create-builtin-agent.ts';
import { createConfinement } from '../../../src/bridge/agents/builtin/tools/confinement.ts';
import type { ToolContext } from '../../../src/bridge/agents/builtin/tools/tool.ts';
import { createPrivatePlaces } from '../../../src/bridge/sessions/private-places.ts';
import type { BuiltinConversationStore } from '../../../src/bridge/storage/builtin-conversation-store.ts';
import { startProcess } from '../../../src/platform/child-process/start-process.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import type { Scope } from '../running-program.ts';
import { createScriptedAnswers, type ScriptedAnswer } from '../scripted-answers.ts';
import { supervised } from './supervised.ts';

/** Roots with nothing private in them. */
export const confine = createConfinement({
  places: createPrivatePlaces({ folders: [], files: [] }),
  isScratch: () => false,
});

export const makeId = createSortableIds(systemClock, systemRandomness);
export const environment = { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: '/tmp', BRIDGE_AUTH_TOKEN: 'never-show-this' };

/** A working directory that is removed when the test ends. */
export async function workingDirectory(scope: Scope): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-builtin-')));
  scope.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Conversations in memory, with the rules of the real store. */
export function memoryStore(): BuiltinConversationStore & { readonly rows: Map<string, string[]> } {
  const rows = new Map<string, string[]>();
  return {
    rows,
    async append(id, position, bodies) {
      const kept = rows.get(id) ?? [];
      if (kept.length !== position) throw new Error(`position ${position} after ${kept.length} rows`);
      rows.set(id, [...kept, ...bodies]);
    },
    async read(id) {
      const bodies = rows.get(id);
      return bodies === undefined ? undefined : { bodies, nextPosition: bodies.length };
    },
    async copy(id, copyId) {
      const bodies = rows.get(id);
      if (bodies !== undefined) rows.set(copyId, [...bodies]);
      return bodies !== undefined;
    },
    has: async (id) => rows.has(id),
    async remove(id) {
      rows.delete(id);
    },
  };
}

/** An agent on a scripted model. */
export function scriptedAgent(
  answer: (index: number, request: Parameters<Parameters<typeof createScriptedAnswers>[0]>[0]) => ScriptedAnswer,
  more: Partial<BuiltinAgentOptions> = {},
) {
  const model = createScriptedAnswers((request, index) => answer(index, request));
  const store = memoryStore();
  return { agent: builtinAgent({ complete: model.complete, store, ...more }), store, requests: model.requests };
}

/** An agent on any model, with conversations in memory. */
export function builtinAgent(given: Partial<BuiltinAgentOptions> & Pick<BuiltinAgentOptions, 'complete'>) {
  const builtin = createBuiltinAgent({
    version: '1.2.3',
    model: 'scripted',
    store: memoryStore(),
    clock: systemClock,
    makeId,
    permissions: 'allow',
    confine,
    isOpenTo: async () => false,
    environment,
    processJournal: undefined,
    fence: NO_FENCE,
    maxRequests: 8,
    contextCharacters: 100_000,
    commandTimeoutMs: 20_000,
    backgroundTimeoutMs: 60_000,
    ...given,
  });
  return supervised(builtin);
}

/** What a tool gets when it is tried alone. */
export function toolContext(
  root: string,
  more: Partial<ToolContext['commands']> = {},
  signal?: AbortSignal,
): ToolContext {
  return {
    root: confine(root),
    signal: signal ?? new AbortController().signal,
    makeTemporaryName: () => makeId('.trestle-'),
    background: createBackgroundCommands({
      clock: systemClock,
      timeoutMs: 60_000,
      isKept: async () => true,
    }).of('conversation', { owner: 'main' }),
    commands: {
      start: (options) => startProcess(options),
      environment: { PATH: environment.PATH },
      journalFolder: undefined,
      timeoutMs: 20_000,
      clock: systemClock,
      ...more,
    },
  };
}
