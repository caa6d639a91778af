import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type AgentPackage, agentFolder, agentPackages } from '../../scripts/agents/agent-packages.ts';
import { agentsRoot } from '../../scripts/agents/agents-root.ts';
import type { Scope } from '../kit/running-program.ts';

export type RealAgentId = 'codex' | 'opencode' | 'gemini' | 'claude';

/** An installed agent, set up to talk to a model on loopback and to nobody else. */
export interface RealAgent {
  readonly id: RealAgentId;
  readonly command: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

interface SetUp {
  readonly args: readonly string[];
  /** Files of the agent's home, by path. */
  files(modelUrl: string): Readonly<Record<string, string>>;
  environment(home: string, modelUrl: string): Readonly<Record<string, string>>;
}

const SET_UPS: Readonly<Record<RealAgentId, SetUp>> = {
  codex: {
    args: ['app-server'],
    files: (modelUrl) => ({
      'config.toml': [
        'model = "first-model"',
        'model_provider = "scripted"',
        'check_for_update_on_startup = false',
        '[model_providers.scripted]',
        'name = "Scripted"',
        `base_url = "${modelUrl}/v1"`,
        'env_key = "SCRIPTED_KEY"',
        'wire_api = "responses"',
        'request_max_retries = 0',
        'stream_max_retries = 0',
        'supports_websockets = false',
        '[analytics]',
        'enabled = false',
      ].join('\n'),
    }),
    // Its shells read the files of a home, and those of the user may take any time.
    environment: (home) => ({ HOME: home, CODEX_HOME: home, SCRIPTED_KEY: 'dummy' }),
  },
  claude: {
    args: [],
    files: () => ({}),
    environment: (home, modelUrl) => ({
      HOME: home,
      CLAUDE_CONFIG_DIR: home,
      ANTHROPIC_BASE_URL: modelUrl,
      ANTHROPIC_API_KEY: 'dummy',
      ANTHROPIC_MODEL: 'claude-sonnet-4-6',
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      DISABLE_AUTOUPDATER: '1',
      DISABLE_TELEMETRY: '1',
    }),
  },
  opencode: {
    args: ['acp'],
    files: (modelUrl) => ({ 'opencode.json': JSON.stringify(openCodeConfiguration(modelUrl)) }),
    environment: (home) => ({
      HOME: home,
      XDG_DATA_HOME: join(home, 'data'),
      XDG_CONFIG_HOME: join(home, 'config'),
      XDG_CACHE_HOME: join(home, 'cache'),
      XDG_STATE_HOME: join(home, 'state'),
      TMPDIR: home,
      OPENCODE_CONFIG: join(home, 'opencode.json'),
      OPENCODE_DISABLE_AUTOUPDATE: '1',
      OPENCODE_DISABLE_MODELS_FETCH: '1',
    }),
  },
  gemini: {
    args: ['--acp'],
    files: () => ({
      '.gemini/settings.json': JSON.stringify({
        security: { auth: { selectedType: 'gemini-api-key' }, folderTrust: { enabled: false } },
        privacy: { usageStatisticsEnabled: false },
        general: { enableAutoUpdate: false },
        model: { name: 'gemini-2.5-flash' },
      }),
    }),
    environment: (home, modelUrl) => ({
      HOME: home,
      GEMINI_CLI_HOME: home,
      GEMINI_API_KEY: 'dummy',
      GOOGLE_GEMINI_BASE_URL: modelUrl,
    }),
  },
};

function openCodeConfiguration(modelUrl: string): object {
  const model = { tool_call: true, limit: { context: 100_000, output: 8000 } };
  return {
    autoupdate: false,
    share: 'disabled',
    model: 'scripted/first-model',
    small_model: 'scripted/first-model',
    enabled_providers: ['scripted'],
    provider: {
      scripted: {
        npm: '@ai-sdk/openai-compatible',
        options: { baseURL: `${modelUrl}/v1`, apiKey: 'dummy' },
        models: { 'first-model': model, 'second-model': model },
      },
    },
    permission: { bash: 'ask', edit: 'ask' },
  };
}

/** Sets an agent up in a home of its own. An agent that is not installed fails by name. */
export async function setUpAgent(scope: Scope, id: RealAgentId, modelUrl: string): Promise<RealAgent> {
  const agent = agentPackages.find((row) => row.id === id) as AgentPackage;
  const command = join(agentFolder(agentsRoot(process.env), agent), agent.program);
  if (!existsSync(command)) {
    throw new Error(`${agent.name}@${agent.version} is not installed at ${command}: run "npm run test:agents"`);
  }
  const home = await realFolder(scope, `trestle-${id}-home-`);
  const { args, files, environment } = SET_UPS[id];
  for (const [path, text] of Object.entries(files(modelUrl))) {
    const file = join(home, path);
    await mkdir(join(file, '..'), { recursive: true });
    await writeFile(file, text);
  }
  return { id, command, args, environment: environment(home, modelUrl) };
}

/** What was set up last is taken down first: an agent before the folders that it writes into. */
export function newestFirst(scope: Scope): Scope {
  const endings: (() => unknown)[] = [];
  scope.after(async () => {
    for (const end of endings.reverse()) await end();
  });
  return { after: (run) => endings.push(run) };
}

/** A new folder by its real path; agents compare paths as text. */
export async function realFolder(scope: Scope, prefix: string): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), prefix)));
  // Agents write their last files while they end.
  scope.after(() => rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
  return folder;
}
