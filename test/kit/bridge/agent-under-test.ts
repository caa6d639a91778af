import { NO_FENCE } from '../../../src/bridge/agents/agent-fence.ts';
import { type AgentLimits, createAgentLauncher } from '../../../src/bridge/agents/agent-launcher.ts';
import type {
  AgentEvent,
  AgentTurn,
  AskPermission,
  PermissionPolicy,
  TurnEnd,
} from '../../../src/bridge/agents/agent-provider.ts';
import { createAgentProviders } from '../../../src/bridge/agents/create-agent-providers.ts';
import {
  type ProcessIdentity,
  readProcess,
  readProcessTree,
} from '../../../src/platform/child-process/process-table.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import type { Scope } from '../running-program.ts';
import { silentLogger } from '../silent-logger.ts';
import { type SupervisedProvider, supervised } from './supervised.ts';

export interface ProgramUnderTest {
  readonly id: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

export interface AgentUnderTest {
  readonly provider: SupervisedProvider;
  /** The processes that were started so far. */
  readonly started: readonly ProcessIdentity[];
  /** How many processes live that came from it. */
  living(): number;
  /** Runs a turn; `onEvent` sees each event as it comes. */
  run(turn: TurnInput): RunningTurn;
}

export interface TurnInput {
  readonly prompt: string;
  readonly folder: string;
  readonly owner?: string;
  readonly skills?: readonly string[];
  readonly model?: string;
  /** Continues that conversation instead of opening one. */
  readonly reference?: string;
  readonly ask?: AskPermission;
  readonly isReadOnly?: boolean;
  readonly steerable?: AgentTurn['steerable'];
  readonly mode?: string;
  readonly thinking?: string;
  readonly offers?: AgentTurn['offers'];
  readonly files?: AgentTurn['files'];
  readonly mcpServers?: AgentTurn['mcpServers'];
  onEvent?(event: AgentEvent): void;
  /** When the conversation is open and nothing has been done in it. */
  onOpened?(): void;
}

export interface RunningTurn {
  readonly turnId: string;
  readonly events: readonly AgentEvent[];
  readonly end: Promise<TurnEnd>;
  /** The model that the agent said it used. */
  usedModel(): string;
  /** The reference that was opened. */
  reference(): string;
  /** Resolves with the first event that fits, also if it came before. */
  until(fits: (event: AgentEvent) => boolean): Promise<AgentEvent>;
  text(): string;
}

export interface UnderTestOptions {
  readonly protocol: 'acp' | 'codex';
  readonly permissions?: PermissionPolicy;
  readonly folder: string;
  readonly limits?: Partial<AgentLimits>;
  /** What the bridge's own environment has beside PATH and HOME. */
  readonly ownEnvironment?: Readonly<Record<string, string>>;
  readonly clock?: typeof systemClock;
  readonly maxProcesses?: number;
  /** Each folder has processes of its own, as in the sandbox. */
  readonly isByFolder?: boolean;
  /** What the probe finds; false unless given. */
  readonly isInstalled?: boolean;
}

let turns = 0;

/** An agent's provider as the bridge makes it, with the real launcher. It is stopped when the test ends. */
export function startAgent(scope: Scope, program: ProgramUnderTest, options: UnderTestOptions): AgentUnderTest {
  const { PATH = '', HOME = '' } = process.env;
  const launch = createAgentLauncher({
    environment: { PATH, HOME, ...options.ownEnvironment },
    folder: options.folder,
    journalFolder: `${options.folder}/processes`,
    programs: `${options.folder}/programs`,
    fence: NO_FENCE,
  });
  const started: ProcessIdentity[] = [];
  const providers = createAgentProviders({
    catalog: [
      {
        id: program.id,
        label: program.id,
        category: 'protocol-adapter',
        place: { kind: 'program', protocol: options.protocol, ...program },
      },
    ],
    wrap: (provider) => provider,
    permissions: options.permissions ?? 'allow',
    version: '0.0.0',
    async launch(asked, owner) {
      const running = await launch(asked, owner);
      const identity = readProcess(running?.pid ?? 0);
      if (identity !== undefined) started.push(identity);
      return running;
    },
    probeEffects: {
      findProgram: async () => (options.isInstalled === true ? program.command : undefined),
      launch,
      folder: options.folder,
    },
    fence: { isFenced: () => options.isByFolder === true },
    maxProcesses: options.maxProcesses ?? 16,
    createBuiltin: never,
    createRemote: never,
    createOnRunner: never,
    ...(options.limits !== undefined && { limits: options.limits }),
    clock: options.clock ?? systemClock,
    logger: silentLogger,
  });
  const provider = supervised(providers.get(program.id) ?? never(), options.clock);
  scope.after(() => provider.stop());
  return {
    provider,
    started,
    living: () => started.flatMap((leader) => readProcessTree(leader)).length,
    run: (turn) => runTurn(provider, turn),
  };
}

function runTurn(provider: SupervisedProvider, input: TurnInput): RunningTurn {
  turns += 1;
  const turnId = `turn-${turns}`;
  const events: AgentEvent[] = [];
  let usedModel = '';
  const waiting = new Set<() => void>();
  let reference = input.reference ?? '';
  const turn: AgentTurn = {
    turnId,
    owner: input.owner ?? 'main',
    prompt: input.prompt,
    workingDirectory: input.folder,
    model: input.model ?? '',
    skills: input.skills ?? [],
    ...(input.mcpServers !== undefined && { mcpServers: input.mcpServers }),
    leftBehind: () => undefined,
    hop: 0,
    usedModel(model) {
      usedModel = model;
    },
    ...(input.ask !== undefined && { ask: input.ask }),
    ...(input.isReadOnly !== undefined && { isReadOnly: input.isReadOnly }),
    ...(input.steerable !== undefined && { steerable: input.steerable }),
    ...(input.mode !== undefined && { mode: input.mode }),
    ...(input.thinking !== undefined && { thinking: input.thinking }),
    ...(input.offers !== undefined && { offers: input.offers }),
    ...(input.files !== undefined && { files: input.files }),
    opened(opened) {
      reference = opened;
      input.onOpened?.();
    },
    report(event) {
      events.push(event);
      input.onEvent?.(event);
      for (const look of waiting) look();
    },
  };
  const end = input.reference === undefined ? provider.startTurn(turn) : provider.continueTurn(input.reference, turn);
  return {
    turnId,
    events,
    end,
    usedModel: () => usedModel,
    reference: () => reference,
    until: (fits) =>
      new Promise((resolve, reject) => {
        const look = () => {
          const found = events.find(fits);
          if (found === undefined) return;
          waiting.delete(look);
          resolve(found);
        };
        waiting.add(look);
        end.then((ended) => reject(new Error(`the turn ended first: ${JSON.stringify(ended)}`)), reject);
        look();
      }),
    text: () => events.flatMap((event) => (event.kind === 'text' ? [event.text] : [])).join(''),
  };
}

function never(): never {
  throw new Error('not part of this test');
}
