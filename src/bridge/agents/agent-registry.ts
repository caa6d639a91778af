import { open, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Static, Type } from 'typebox';
import { Check } from 'typebox/value';
import { errorCode } from '../../platform/errors/app-error.ts';
import { makeFolder } from '../../platform/files/make-folder.ts';
import { boundedFetch, readAtMost } from '../../platform/http/bounded-fetch.ts';
import { isShippedAgent } from './agent-catalog.ts';
import { agentProgramsFolder, type InstallableAgent, registryPackage, registryPreset } from './agent-packages.ts';

/** What a registry offers, as far as it can be installed with npm. */
export interface OfferedByRegistry {
  readonly packages: readonly InstallableAgent[];
  /** Why the registry could not be read now, in words; then `packages` are those of the last time that it could. */
  readonly problem?: string;
}

/** The registry of `agents.registry`, in the form of https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json. */
export interface AgentRegistry {
  read(signal?: AbortSignal): Promise<OfferedByRegistry>;
}

interface AgentRegistryOptions {
  /** A path or an address. Empty: there is none. */
  readonly source: string;
  readonly dataDirectory: string;
}

const MAX_BYTES = 4 * 1024 * 1024;
const MAX_AGENTS = 1000;
const TIMEOUT_MS = 15_000;
const MAX_REASON = 300;

/** Entries are checked one by one, so that one of a newer form does not take the others away. */
const RegistryFile = Type.Object({ agents: Type.Array(Type.Unknown(), { maxItems: MAX_AGENTS }) });
const RegistryEntry = Type.Object({
  id: Type.String({ pattern: '^[a-z][a-z0-9-]{0,63}$' }),
  name: Type.String({ minLength: 1, maxLength: 100 }),
  version: Type.String({ maxLength: 100 }),
  distribution: Type.Object({
    npx: Type.Object({
      package: Type.String({ maxLength: 300 }),
      cmd: Type.Optional(Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$' })),
      args: Type.Optional(registryPreset.properties.args),
      env: Type.Optional(registryPreset.properties.env),
    }),
  }),
});
const KeptFile = Type.Object({ source: Type.String(), text: Type.String() });

/** A name of npm's registry, with an exact version or none. Anything else, such as an address of a repository, is not installed. */
const PACKAGE = /^((?:@[a-z0-9][a-z0-9._~-]*\/)?[a-z0-9][a-z0-9._~-]*)(?:@([^@/]+))?$/;
const EXACT_VERSION = /^\d{1,10}\.\d{1,10}\.\d{1,10}(?:[-+][0-9A-Za-z.+-]{1,60})?$/;

export function createAgentRegistry({ source, dataDirectory }: AgentRegistryOptions): AgentRegistry {
  const folder = agentProgramsFolder(dataDirectory);
  const kept = join(folder, 'registry.json');

  /** The text of the last time, if it is of the same registry. */
  async function readKept(): Promise<string | undefined> {
    const text = await readFile(kept, 'utf8').catch(() => '');
    const parsed = parse(text);
    return Check(KeptFile, parsed) && parsed.source === source ? parsed.text : undefined;
  }

  async function keep(text: string): Promise<void> {
    await makeFolder(folder);
    const draft = `${kept}.${process.pid}`;
    await writeFile(draft, JSON.stringify({ source, text }), { mode: 0o600 });
    await rename(draft, kept);
  }

  return {
    async read(signal) {
      if (source === '') return { packages: [] };
      try {
        const text = await (isAddress(source) ? download(source, signal) : readFromDisk(source));
        const packages = packagesOf(text);
        if (text !== (await readKept())) await keep(text);
        return { packages };
      } catch (error) {
        const problem = (error instanceof Error ? reasonOf(error) : String(error)).slice(0, MAX_REASON);
        const text = await readKept();
        return { packages: text === undefined ? [] : packagesOf(text), problem };
      }
    },
  };
}

function isAddress(source: string): boolean {
  return /^https?:\/\//i.test(source);
}

function reasonOf(error: Error): string {
  const code = errorCode(error);
  if (code === 'ENOENT') return 'there is no such file';
  const { cause } = error;
  return cause instanceof Error && cause.message !== '' ? `${error.message} (${cause.message})` : error.message;
}

async function download(url: string, signal: AbortSignal | undefined): Promise<string> {
  const init = { headers: { accept: 'application/json' }, ...(signal !== undefined && { signal }) };
  const response = await boundedFetch(url, init, { maxBytes: MAX_BYTES, timeoutMs: TIMEOUT_MS });
  if (response.status !== 200) throw new Error(`it answered with status ${response.status}`);
  return response.text();
}

async function readFromDisk(path: string): Promise<string> {
  const file = await open(path, 'r');
  try {
    if (!(await file.stat()).isFile()) throw new Error('it is not a file');
    const bytes = await readAtMost(file.createReadStream({ autoClose: false }), MAX_BYTES);
    if (bytes === undefined) throw new Error(`it is larger than ${MAX_BYTES} bytes`);
    return bytes.toString('utf8');
  } finally {
    await file.close();
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Throws when the text is not a registry. Agents that this release knows itself, and those that are not packages of npm, are left out. */
function packagesOf(text: string): readonly InstallableAgent[] {
  const registry = parse(text);
  if (!Check(RegistryFile, registry)) {
    throw new Error(`it is not a registry of agents: an object with a list "agents" of at most ${MAX_AGENTS}`);
  }
  const found = new Map<string, InstallableAgent>();
  for (const entry of registry.agents) {
    const agent = Check(RegistryEntry, entry) ? packageIn(entry) : undefined;
    if (agent !== undefined && !isShippedAgent(agent.id) && !found.has(agent.id)) found.set(agent.id, agent);
  }
  return [...found.values()];
}

function packageIn({ id, name: label, version, distribution: { npx } }: Static<typeof RegistryEntry>) {
  const [, name = '', own = version] = PACKAGE.exec(npx.package) ?? [];
  if (name === '' || !EXACT_VERSION.test(own)) return undefined;
  const { cmd, args = [], env = {} } = npx;
  return registryPackage({ id, name, version: own, ...(cmd !== undefined && { cmd }), preset: { label, args, env } });
}
