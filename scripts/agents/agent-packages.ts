import { join } from 'node:path';

/** An agent as npm has it. */
export interface AgentPackage {
  readonly id: 'codex' | 'opencode' | 'gemini';
  readonly name: string;
  readonly version: string;
  /** The package that holds the program for this machine; undefined where one package serves all machines. */
  readonly platformPackage: string | undefined;
  /** The program, from the folder of the installation. */
  readonly program: string;
}

const MACHINE = `${process.platform}-${process.arch}`;

/** Newer than what the registry has for some machines: there the last one it has is taken, and the run says so. */
const OPENCODE_VERSION = '1.18.33';
const OPENCODE_VERSIONS: Readonly<Record<string, string>> = { 'linux-arm64': '1.18.18' };

const openCodePlatform = `opencode-${MACHINE.replace('win32', 'windows')}`;

/** The pinned agents that the tests run against. */
export const agentPackages: readonly AgentPackage[] = [
  {
    id: 'codex',
    name: '@openai/codex',
    version: '0.166.0',
    platformPackage: `@openai/codex-${MACHINE}`,
    program: join('node_modules', '.bin', 'codex'),
  },
  {
    id: 'opencode',
    name: 'opencode-ai',
    version: OPENCODE_VERSIONS[MACHINE] ?? OPENCODE_VERSION,
    platformPackage: openCodePlatform,
    // The package's own entry works only after its install script, which has nothing to do but to find this file.
    program: join('node_modules', openCodePlatform, 'bin', 'opencode'),
  },
  {
    id: 'gemini',
    name: '@google/gemini-cli',
    version: '0.61.0',
    platformPackage: undefined,
    program: join('node_modules', '.bin', 'gemini'),
  },
];

/** Where an agent is installed. */
export function agentFolder(root: string, { id, version }: AgentPackage): string {
  return join(root, `${id}-${version}`);
}
