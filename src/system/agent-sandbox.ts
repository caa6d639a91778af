import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AccessModels } from '../bridge/agents/agent-launcher.ts';
import type { OfferedModels } from '../bridge/agents/agent-models.ts';
import { TOOLS_PATH } from '../bridge/tool-bridge/session-tools.ts';
import { DEMO_API } from '../completions/apis/demo-models.ts';
import { resolveApis } from '../completions/apis/resolve-apis.ts';
import type { Completions } from '../completions/create-completions.ts';
import { openSandbox, type Sandbox, type SandboxState } from '../platform/child-process/sandbox.ts';
import { relayThrough, SANDBOX_URL, type ServeOwn } from '../platform/child-process/sandbox-network.ts';
import type { Clock } from '../platform/clock/clock.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { type Payer, payerName, payerOf } from '../platform/identity/owner.ts';
import { type Environment, nodeHttp } from '../platform/runtime/runtime.ts';
import { broken, type Finding, fine, note } from './doctor/findings.ts';
import type { Settings } from './settings.ts';

interface AgentSandboxOptions {
  readonly settings: Pick<Settings, 'bridge' | 'plans'>;
  readonly environment: Environment;
  readonly clock: Pick<Clock, 'after'>;
  readonly serveOwn: ServeOwn;
}

/**
 * The sandbox of the settings. Undefined: agents run without one. Throws SANDBOX_UNAVAILABLE where it is required, and
 * PEOPLE_NEED_SANDBOX where a plan lets people use agents who are not trusted.
 */
export async function openAgentSandbox(options: AgentSandboxOptions): Promise<Sandbox | undefined> {
  const { sandbox: mode } = options.settings.bridge;
  if (mode === 'off') return undefined;
  const state = await findSandbox(options);
  if (state.works) return state.sandbox;
  if (mode === 'require') throw new AppError('SANDBOX_UNAVAILABLE', { reason: state.reason });
  const plan = untrustedPlan(options.settings);
  if (plan !== undefined) throw new AppError('PEOPLE_NEED_SANDBOX', { plan, reason: state.reason });
  return undefined;
}

/** A plan with the bridge, for people who are not trusted like users of this machine. */
function untrustedPlan({ bridge, plans }: Pick<Settings, 'bridge' | 'plans'>): string | undefined {
  if (bridge.trust_users) return undefined;
  return Object.keys(plans).find((name) => plans[name]?.bridge === true);
}

function findSandbox({ settings, environment, clock, serveOwn }: AgentSandboxOptions): Promise<SandboxState> {
  const { limits, sandbox_program: program, sandbox_hosts: hosts } = settings.bridge;
  return openSandbox({
    program,
    environment,
    hosts,
    limits: {
      processes: limits.sandbox_processes,
      memoryBytes: limits.sandbox_memory_bytes,
      cpuPercent: limits.sandbox_cpu_percent,
      temporaryBytes: limits.sandbox_temporary_bytes,
    },
    serveOwn,
    clock,
  });
}

/** Describes the sandbox in force, and why it is not a stronger one. */
export async function sandboxFinding(options: Omit<AgentSandboxOptions, 'serveOwn'>): Promise<Finding> {
  const { sandbox: mode } = options.settings.bridge;
  const name = 'sandbox';
  if (mode === 'off') return note(name, 'off (bridge.sandbox): agents can read and change whatever this user can');
  const state = await findSandbox({ ...options, serveOwn: refuseAll });
  if (state.works) {
    await state.sandbox.stop();
    return fine(name, `${state.sandbox.description}, turns with permissions "deny" only read their folder`);
  }
  if (mode === 'require') return broken(name, `required, and ${state.reason}`);
  const plan = untrustedPlan(options.settings);
  if (plan !== undefined) return broken(name, `plans.${plan}.bridge needs it, and ${state.reason}`);
  return note(name, `not in force: ${state.reason}; until then agents can read and change whatever this user can`);
}

/** For a sandbox in which agents are only probed. */
export function refuseAll(_name: string, _asked: IncomingMessage, response: ServerResponse): void {
  response.writeHead(404).end();
}

interface ModelGateOptions {
  /** The address of this program. */
  url(): string;
  /** A key that charges a payer. Undefined: there is no completions service here. */
  keyOf: ((payer: Payer) => string) | undefined;
  /** Keys of single programs in the sandbox. */
  readonly programs: FencedPrograms;
  /** The tools of sessions. Undefined: the bridge has not started yet. */
  tools(): ServeOwn | undefined;
}

/** By the word that a program in the sandbox has for a key, its real key, and the payer in whose network it counts. */
export type FencedPrograms = Map<string, { readonly payer: string; readonly key: string }>;

/** The paths of our models. Gemini's clients have one of their own. */
const MODELS = /^\/(?:v1\/|v1beta\/models(?:\/|$))/;
const SILENCE_MS = 15 * 60_000;
/** Credentials, and what is about one connection only. */
const DROPPED: ReadonlySet<string> = new Set(
  (
    'authorization x-api-key x-goog-api-key x-team cookie host connection keep-alive ' +
    'proxy-connection proxy-authorization upgrade'
  ).split(' '),
);

/**
 * Lets programs in the sandbox use our models with the key of their owner, the tools of their session with the token of the session,
 * and nothing else of this program: whatever other credential they send is replaced.
 */
export function createModelGate({ url, keyOf, programs, tools }: ModelGateOptions): ServeOwn {
  /** The word says which of the programs calls; in the network of another payer it says nothing. */
  function keyOfProgram(payer: string, { headers }: IncomingMessage): string | undefined {
    const given = headers['x-api-key'] ?? headers['x-goog-api-key'] ?? headers.authorization?.replace(/^Bearer /i, '');
    const program = programs.get(String(given));
    return program?.payer === payer ? program.key : undefined;
  }

  return (payer, asked, response) => {
    const target = URL.parse(asked.url ?? '', 'http://127.0.0.1');
    const serveTools = target?.pathname === TOOLS_PATH ? tools() : undefined;
    if (serveTools !== undefined) return serveTools(payer, asked, response);
    if (target === null || keyOf === undefined || !MODELS.test(target.pathname) || url() === '') {
      const message = 'Programs in the sandbox can call /v1 and /v1beta/models of this address, and nothing else.';
      response.writeHead(404, { 'content-type': 'application/json' }).end(JSON.stringify({ error: { message } }));
      return;
    }
    const { hostname, port } = new URL(url());
    const headers = Object.fromEntries(Object.entries(asked.headers).filter(([name]) => !DROPPED.has(name)));
    const onward = nodeHttp.request({
      host: hostname.replace(/^\[|\]$/g, ''),
      port,
      method: asked.method,
      path: `${target.pathname}${target.search}`,
      headers: { ...headers, authorization: `Bearer ${keyOfProgram(payer, asked) ?? keyOf(payerOf(payer))}` },
      timeout: SILENCE_MS,
    });
    relayThrough(onward, asked, response);
  };
}

/**
 * How agents call our models: without a sandbox at our own address, with a key that ends with the program. In the sandbox the gate
 * puts in the key of the owner, whatever the program sends. A program that is only looked at calls none, and gets no key.
 */
export function createModelAccess(
  { url, planned }: { url(): string; readonly planned: string },
  completions: Pick<Completions, 'keyForProgram'> | undefined,
  programs: FencedPrograms,
): AccessModels {
  return (payer, isFenced) => {
    if (completions === undefined) return undefined;
    if (payer === undefined) return looking(isFenced ? SANDBOX_URL : planned);
    if (url() === '') return undefined;
    const program = completions.keyForProgram(payer);
    if (!isFenced) return { url: url(), ...program };
    const word = `${WORD_IN_SANDBOX}-${randomUUID()}`;
    programs.set(word, { payer: payerName(payer), key: program.key });
    const end = () => {
      programs.delete(word);
      program.end();
    };
    return { ...program, url: SANDBOX_URL, key: word, end };
  };
}

/** For agents that are probed while no server runs. */
export function modelAccessOfProbes({ host, port }: { readonly host: string; readonly port: number }): AccessModels {
  return (_payer, isFenced) => looking(isFenced ? SANDBOX_URL : `http://${host}:${port}`);
}

/** A placeholder for a key, which gives no access. */
const WORD_IN_SANDBOX = 'key-of-the-owner';

/** The key of a program that needs none. */
function looking(url: string): ReturnType<AccessModels> {
  return { url, key: WORD_IN_SANDBOX, end: () => undefined };
}

/** Models that are good at using tools, the best first. */
export const SUGGESTED_MODELS: Readonly<Record<string, readonly [string, ...string[]]>> = {
  anthropic: ['claude-sonnet-4-6', 'claude-sonnet-4-5'],
  openai: ['gpt-5.1', 'gpt-5', 'gpt-4.1'],
  google: ['gemini-3-pro-preview', 'gemini-2.5-pro'],
  openrouter: ['anthropic/claude-sonnet-4.5', 'openai/gpt-5.1'],
};

/**
 * The models that agents get. The built-in agent's is one of ours unless it calls another API. Where that is a demo model only, a
 * key for a model is enough: agents get a suggested model of the first API that has one.
 */
export function offeredModels(
  { agents, completions }: Pick<Settings, 'agents' | 'completions'>,
  { homeDirectory, environment }: { readonly homeDirectory: string; readonly environment: Environment },
) {
  const { model, base_url: elsewhere } = agents.builtin;
  const own = agents.model || (elsewhere === '' ? model : '');
  const isDemo = agents.model === '' && own.startsWith(`${DEMO_API}/`);
  const apis = isDemo ? resolveApis({ settings: completions, environment }) : undefined;
  const suggested = Object.entries(SUGGESTED_MODELS).find(([id]) => apis?.get(id)?.usable === true);
  return {
    use: agents.models,
    model: suggested === undefined ? own : `${suggested[0]}/${suggested[1][0]}`,
    names: completions.models.map(({ name }) => name),
    homeDirectory,
  } satisfies OfferedModels;
}
