import { writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { systemClock } from '../platform/clock/clock.ts';
import { boundedFetch } from '../platform/http/bounded-fetch.ts';
import { SUGGESTED_MODELS } from '../system/agent-sandbox.ts';
import { dataFiles } from '../system/data-directory.ts';
import type { Finding } from '../system/doctor/findings.ts';
import { dataDirectory, settingsDeclaration } from '../system/settings.ts';
import {
  type CommandContext,
  CommandExit,
  EXIT_INTERRUPTED,
  EXIT_USAGE,
  fail,
  type Options,
} from './command-context.ts';
import { callFromCommand, loadSettings } from './load-settings.ts';

/** A model API that can be called: by a key, or because its server runs on this machine. */
interface FoundApi {
  readonly id: string;
  readonly from: string;
  /** Names of its models, without the API. */
  readonly models: readonly string[];
}

interface Surroundings {
  readonly apis: readonly FoundApi[];
  readonly agents: readonly Finding[];
  /** The agents of the catalog, installed or not. */
  readonly offered: readonly string[];
}

/** What the user decided. */
interface Answers {
  readonly model: string;
  /** Serves requests that name no agent. */
  readonly agent: string;
  /** A key that was typed in; its API is that of `model`. */
  readonly key: string;
  readonly folders: readonly string[];
  readonly permissions: 'allow' | 'deny';
}

const LOCAL_SERVER_MS = 1_000;
const DEMO_MODEL = 'demo/echo';

/** How the keys of some APIs begin, the longest first. */
const KEY_PREFIXES = [
  ['sk-ant-', 'anthropic'],
  ['sk-or-', 'openrouter'],
  ['AIza', 'google'],
  ['gsk_', 'groq'],
  ['xai-', 'xai'],
  ['sk-', 'openai'],
] as const;

/** `trestle init`. */
export function registerInit(program: Command, context: CommandContext): void {
  program
    .command('init')
    .summary('find keys, local models and agents, and write trestle.yaml')
    .description(
      'Looks for keys of model APIs in the environment, for model servers on this machine and for installed agents, asks for what is missing, and writes a commented trestle.yaml.',
    )
    .option('--yes', 'ask no questions; accept what was found')
    .option('--force', 'replace an existing file')
    .addHelpText('after', '\nExamples:\n  trestle init\n  trestle init --yes --config ./trestle.yaml')
    .action(async (_given: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const path = resolve(context.workingDirectory, String(options.config ?? settingsDeclaration.fileName));
      const isAsking = options.yes !== true;
      if (isAsking && !process.stdin.isTTY) {
        const advice = 'use --yes to accept what is found';
        fail(context, `init asks questions, but standard input is not a terminal; ${advice}`, EXIT_USAGE);
      }
      // A file that is about to be written cannot be read yet.
      const { config: _unread, ...rest } = options;
      const found = await lookAround(rest, context);
      context.stdout(describe(found));
      const answers = isAsking ? await ask(found, context) : accept(found);
      await write(path, configurationText(answers, found), options.force === true, context);
      await loadSettings({ ...rest, config: path }, context);
      context.stdout(`\nWrote ${path}. Start the server with: trestle serve\n`);
    });
}

async function lookAround(options: Options, context: CommandContext): Promise<Surroundings> {
  const { settings } = await loadSettings(options, context);
  const { environment, homeDirectory } = context;
  const files = dataFiles(dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME));
  const { agentFindings, knownAgents } = await import('../system/doctor/diagnose.ts');
  const { catalog } = settings.agents;
  const everyAgent = { ...settings.agents, catalog: [...new Set([...catalog, ...knownAgents])] };
  const [apis, findings] = await Promise.all([
    findApis(options, context),
    agentFindings({ ...settings, agents: everyAgent }, environment, homeDirectory, files, systemClock),
  ]);
  const agents = findings.filter(({ name }) => name.startsWith('agent ') && name !== 'agent builtin');
  return {
    apis,
    agents: agents.map((finding) => ({ ...finding, name: finding.name.slice('agent '.length) })),
    offered: catalog,
  };
}

async function findApis(options: Options, context: CommandContext): Promise<readonly FoundApi[]> {
  const listed = await callFromCommand({ optsWithGlobals: () => options }, context, 'completions', 'models.list', {});
  const modelsOf = (id: string) =>
    listed.models.filter((model) => model.id.startsWith(`${id}/`)).map((model) => model.id.slice(id.length + 1));
  const found = await Promise.all(
    listed.apis.map(async ({ id, usable, name = id, base_url = '', configured, key_from }): Promise<FoundApi[]> => {
      if (!usable || id === 'demo') return [];
      if (configured === true)
        return [{ id, from: key_from === undefined ? 'settings' : `key in ${key_from}`, models: modelsOf(id) }];
      const models = await localModels(base_url);
      return models === undefined ? [] : [{ id, from: `${name} at ${base_url}`, models }];
    }),
  );
  return found.flat().filter(({ models }) => models.length > 0);
}

/** The models of a server on this machine; undefined when none answers. */
async function localModels(baseUrl: string): Promise<readonly string[] | undefined> {
  try {
    const response = await boundedFetch(`${baseUrl}/models`, {}, { timeoutMs: LOCAL_SERVER_MS });
    const { data } = (await response.json()) as { readonly data?: unknown };
    if (!response.ok || !Array.isArray(data)) return undefined;
    return data.flatMap((entry) => (typeof entry?.id === 'string' ? [entry.id as string] : []));
  } catch {
    return undefined;
  }
}

function describe({ apis, agents, offered }: Surroundings): string {
  const working = agents.filter(({ state }) => state === 'ok');
  const others = agents.filter(({ name, state }) => state !== 'ok' && offered.includes(name));
  const lines = [
    ...apis.map(({ id, from, models }) => `  model API  ${id}: ${from}, ${models.length} models`),
    ...(apis.length === 0 ? ['  model API  none: no key in the environment, and no model server on this machine'] : []),
    ...working.map(({ name, text }) => `  agent      ${name} ${text}`),
    ...others.map(({ name, text }) => `  no agent   ${name}: ${text}`),
  ];
  return `${lines.join('\n')}\n\n`;
}

/** The model to offer: a suggested one of the first API that has one, otherwise the first model of the first API. */
function suggestedModel(apis: readonly FoundApi[]): string {
  for (const { id, models } of apis) {
    const model = SUGGESTED_MODELS[id]?.find((name) => models.includes(name));
    if (model !== undefined) return `${id}/${model}`;
  }
  const [first] = apis;
  return first === undefined ? DEMO_MODEL : `${first.id}/${first.models[0]}`;
}

/** The API that a key belongs to, as far as the key shows it. */
function apiOfKey(key: string): string | undefined {
  return KEY_PREFIXES.find(([prefix]) => key.startsWith(prefix))?.[1];
}

/** Prefers an installed agent if the built-in one has no model. */
function suggestedAgent({ apis, agents }: Surroundings): string {
  const installed = apis.length > 0 ? undefined : agents.find(({ state }) => state === 'ok');
  return installed?.name ?? 'builtin';
}

function accept(found: Surroundings): Answers {
  return {
    model: suggestedModel(found.apis),
    agent: suggestedAgent(found),
    key: '',
    folders: [],
    permissions: 'allow',
  };
}

async function ask(found: Surroundings, context: CommandContext): Promise<Answers> {
  const { apis, agents } = found;
  const { createInterface } = await import('node:readline/promises');
  const { Writable } = await import('node:stream');
  let isHidden = false;
  const output = new Writable({
    write(chunk, _encoding, done) {
      if (!isHidden) context.stdout(String(chunk));
      done();
    },
  });
  const terminal = createInterface({ input: process.stdin, output, terminal: true });
  terminal.on('SIGINT', () => terminal.close());
  const stopped = new Promise<never>((_resolve, reject) => {
    terminal.on('close', () => {
      context.stderr('\nStopped. Nothing was written.\n');
      reject(new CommandExit(EXIT_INTERRUPTED));
    });
  });
  stopped.catch(() => undefined);
  const question = async (text: string, fallback: string): Promise<string> =>
    (await Promise.race([terminal.question(`${text} [${fallback}]: `), stopped])).trim() || fallback;
  const hidden = async (text: string): Promise<string> => {
    const typed = terminal.question(text);
    isHidden = true;
    const answer = await Promise.race([typed, stopped]);
    isHidden = false;
    context.stdout('\n');
    return answer.trim();
  };
  try {
    let key = '';
    let model = suggestedModel(apis);
    if (apis.length === 0) {
      key = await hidden('Key of a model API (not shown; Enter: continue with the demo model): ');
      const api = key === '' ? undefined : (apiOfKey(key) ?? (await question('API of this key', 'openai')));
      if (api !== undefined) model = `${api}/${SUGGESTED_MODELS[api]?.[0] ?? ''}`;
    }
    model = await question('Model of the built-in agent', model);
    const installed = agents.filter(({ state }) => state === 'ok').map(({ name }) => name);
    const names = ['builtin', ...installed].join(', ');
    const fallback = key === '' ? suggestedAgent(found) : 'builtin';
    const agent = installed.length === 0 ? 'builtin' : await question(`Agent to use by default (${names})`, fallback);
    const folders = await question('Folders in which agents may work, separated by commas', 'home directory');
    const may = await question('May agents run commands and change files without asking? (y; n: they only read)', 'y');
    return {
      model,
      agent,
      key,
      folders:
        folders === 'home directory'
          ? []
          : folders
              .split(',')
              .map((folder) => folder.trim())
              .filter(Boolean),
      permissions: /^n/i.test(may) ? 'deny' : 'allow',
    };
  } finally {
    terminal.removeAllListeners('close');
    terminal.close();
  }
}

/** Writes a new file that only its owner can read, because it may hold a key. */
async function write(path: string, text: string, isForced: boolean, context: CommandContext): Promise<void> {
  try {
    await writeFile(path, text, { mode: 0o600, flag: isForced ? 'w' : 'wx' });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const advice = code === 'EEXIST' ? 'already exists; use --force to replace it' : `cannot be written (${code})`;
    fail(context, `${path} ${advice}`);
  }
}

/** The file: what was decided, each with its reason. JSON strings are YAML strings. */
function configurationText(answers: Answers, { apis, agents, offered }: Surroundings): string {
  const { model, agent, key, folders, permissions } = answers;
  const api = model.split('/', 1)[0] ?? '';
  const source = apis.find(({ id }) => id === api)?.from;
  const names = agents.filter(({ state }) => state === 'ok').map(({ name }) => name);
  const modelReason =
    model === DEMO_MODEL
      ? 'No model API was found: the demo model repeats its prompt. Set a key, such as OPENAI_API_KEY, and a model of that API.'
      : `The model that the built-in agent runs on${source === undefined ? '' : ` (${source})`}.`;
  const lines = [
    '# Written by `trestle init`. All settings: trestle config docs. The settings in force: trestle config print --sources',
    'agents:',
    `  # Agents on offer, in routing order. Installed here: ${names.join(', ') || 'none besides the built-in one'}.`,
    `  catalog: ${JSON.stringify([...new Set([...offered, ...names])])}`,
    '  # The agent that serves requests which name none.',
    `  default: ${JSON.stringify(agent)}`,
    '  builtin:',
    `    # ${modelReason}`,
    `    model: ${JSON.stringify(model)}`,
    'bridge:',
    '  # allow: agents run commands and change files without asking. deny: agents only read.',
    `  permissions: ${permissions}`,
    '  # Folders in which agents may work. Empty: the home directory and the folder for temporary files.',
    `  workspace_roots: ${JSON.stringify(folders)}`,
    ...(key === ''
      ? []
      : ['completions:', '  apis:', `    ${JSON.stringify(api)}:`, `      api_key: ${JSON.stringify(key)}`]),
    '# Before others may reach the server, set both tokens: BRIDGE_AUTH_TOKEN and COMPLETIONS_MASTER_KEY (trestle doctor checks it).',
  ];
  return `${lines.join('\n')}\n`;
}
