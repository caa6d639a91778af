import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { agentFolder, agentPackages } from '../../scripts/agents/agent-packages.ts';
import { agentsRoot } from '../../scripts/agents/agents-root.ts';

/** Models of the story, which are aliases in Trestle's settings: one responds immediately, one slowly. */
export const QUICK_MODEL = 'quick';
export const PATIENT_MODEL = 'patient';

type Environment = Readonly<Record<string, string | undefined>>;

export type StoryAgentId = 'opencode' | 'codex' | 'builtin';

export interface StoryAgent {
  readonly id: StoryAgentId;
  /** Empty for the built-in agent, which is not a program. */
  readonly command: string;
}

/** The variable of Trestle's environment that holds the key of the completions API. */
export const KEY_VARIABLE = 'STORY_KEY';
/** The same key in the environment of the agent. */
const AGENT_KEY_VARIABLE = 'TRESTLE_KEY';

interface AgentSetUp {
  readonly args: readonly string[];
  readonly file: string;
  content(baseUrl: string): string;
  environment(home: string): Readonly<Record<string, string>>;
}

/** Settings that make each agent use only our own /v1, in order of preference. */
const SET_UPS: Readonly<Record<Exclude<StoryAgentId, 'builtin'>, AgentSetUp>> = {
  opencode: {
    args: ['acp'],
    file: 'opencode.json',
    content: (baseUrl) => {
      const model = { tool_call: true, limit: { context: 100_000, output: 8000 } };
      return JSON.stringify({
        autoupdate: false,
        share: 'disabled',
        model: `trestle/${QUICK_MODEL}`,
        small_model: `trestle/${QUICK_MODEL}`,
        enabled_providers: ['trestle'],
        provider: {
          trestle: {
            npm: '@ai-sdk/openai-compatible',
            options: { baseURL: baseUrl, apiKey: `{env:${AGENT_KEY_VARIABLE}}` },
            models: { [QUICK_MODEL]: model, [PATIENT_MODEL]: model },
          },
        },
      });
    },
    environment: (home) => ({
      HOME: home,
      XDG_DATA_HOME: join(home, 'data'),
      XDG_CONFIG_HOME: join(home, 'config'),
      XDG_CACHE_HOME: join(home, 'cache'),
      XDG_STATE_HOME: join(home, 'state'),
      OPENCODE_CONFIG: join(home, 'opencode.json'),
      OPENCODE_DISABLE_AUTOUPDATE: '1',
      OPENCODE_DISABLE_MODELS_FETCH: '1',
    }),
  },
  codex: {
    args: ['app-server'],
    file: 'config.toml',
    content: (baseUrl) =>
      [
        `model = "${QUICK_MODEL}"`,
        'model_provider = "trestle"',
        'check_for_update_on_startup = false',
        '[model_providers.trestle]',
        'name = "Trestle"',
        `base_url = "${baseUrl}"`,
        `env_key = "${AGENT_KEY_VARIABLE}"`,
        'wire_api = "responses"',
        'supports_websockets = false',
        '[analytics]',
        'enabled = false',
      ].join('\n'),
    environment: (home) => ({ HOME: home, CODEX_HOME: home }),
  },
};

/** The agent that was asked for, or the first that is installed; undefined when the one asked for is not. */
export function findAgent(asked: string | undefined, environment: Environment): StoryAgent | undefined {
  if (asked === 'builtin') return { id: 'builtin', command: '' };
  for (const id of ['opencode', 'codex'] as const) {
    if (asked !== undefined && asked !== id) continue;
    const command = programsOf(id, environment).find((program) => existsSync(program));
    if (command !== undefined) return { id, command };
  }
  return asked === undefined ? { id: 'builtin', command: '' } : undefined;
}

/** Where it may be: in a folder of PATH, or where `npm run test:agents` puts it. */
function programsOf(id: 'opencode' | 'codex', environment: Environment): readonly string[] {
  const folders = (environment.PATH ?? '').split(delimiter).filter((folder) => folder !== '');
  const row = agentPackages.find((agent) => agent.id === id);
  return [
    ...folders.map((folder) => join(folder, id)),
    ...(row === undefined ? [] : [join(agentFolder(agentsRoot(environment), row), row.program)]),
  ];
}

/** Writes the agent's own settings into a home for the story, and returns the part of Trestle's settings about agents. */
export async function setUpAgent({ id, command }: StoryAgent, home: string, baseUrl: string): Promise<object> {
  const key = `\${env:${KEY_VARIABLE}}`;
  const builtin = { model: QUICK_MODEL, base_url: baseUrl, api_key: key };
  if (id === 'builtin') return { catalog: ['builtin'], default: id, builtin };
  const { args, file, content, environment } = SET_UPS[id];
  await mkdir(home, { recursive: true, mode: 0o700 });
  await writeFile(join(home, file), content(baseUrl));
  const env = { ...environment(home), [AGENT_KEY_VARIABLE]: key };
  return { catalog: [id, 'builtin'], default: id, builtin, [id]: { command, args, env } };
}
