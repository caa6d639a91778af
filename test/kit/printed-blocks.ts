import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The code blocks of all documents, and which of them cannot be run where tests run. */

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

export interface Block {
  readonly document: string;
  /** The line of the document on which the block begins. */
  readonly line: number;
  readonly language: string;
  readonly text: string;
  /** The file that the sentence before a YAML block names. */
  readonly file: string | undefined;
}

export interface PrintedDocument {
  readonly name: string;
  readonly page: string;
  readonly blocks: readonly Block[];
}

/** How a block is run: see `runDocument`. */
export type Way = 'server' | 'shell' | 'program' | 'settings' | 'request' | 'params' | 'data' | 'banner';

/** Blocks that are not run, by their document and a part of their text, and why. Any other block runs, or fails the test. */
export const LISTED: readonly (readonly [document: string, part: string, reason: string])[] = [
  ['README.md', 'npm install && npm test', 'this test is a part of it'],
  ['README.md', 'npx node examples/nothing-lost.ts', 'has a test of its own: test/e2e/nothing-lost.test.ts'],
  [
    'README.md',
    'trestle run --ask --model demo/agent',
    'needs a person at a terminal: test/e2e/readme-day.test.ts types',
  ],
  ['README.md', 'export OPENAI_API_KEY=sk-...', 'needs a key of a model API'],
  ['ARCHITECTURE.md', 'main -> commands', 'shows how imports run: test/architecture/program.test.ts checks it'],
  ['docs/accounts.md', '<script', 'needs a browser: test/pages/passkeys.test.ts runs it as printed'],
  ['docs/accounts.md', '$ trestle login https', 'needs a person at a browser; the next block is the same without one'],
  [
    'docs/agents.md',
    '[model_providers.local]',
    'settings of Codex: test/agents/real-agent.ts gives them to a real one',
  ],
  ['docs/builtin-agent.md', 'AGENT_TASKS_MODEL=groq/', 'needs a key of a model API: test/bench plays the tasks'],
  ['docs/clients.md', "from '@ai-sdk/openai-compatible'", 'runs in test/clients, which installs the package'],
  ['docs/clients.md', "from '@langchain/openai'", 'runs in test/clients, which installs the package'],
  ['docs/clients.md', "from '@anthropic-ai/sdk'", 'runs in test/clients, which installs the package'],
  ['docs/clients.md', "from '@google/genai'", 'runs in test/clients, which installs the package'],
  [
    'docs/clients.md',
    '[model_providers.trestle]',
    'settings of Codex: test/agents/real-agent.ts gives them to a real one',
  ],
  ['docs/clients.md', '\nclaude\n', 'needs a terminal program that is not part of Trestle'],
  ['docs/clients.md', 'qwen --auth-type openai', 'needs a terminal program that is not part of Trestle'],
  ['docs/command-line.md', '', 'help texts: test/docs compares them with the program, and has it take their examples'],
  ['docs/models.md', 'trestle models test groq/', 'needs a key of a model API'],
  ['docs/run-modes.md', 'trestle adapter opencode --listen 10.0.0.7', 'needs a second machine'],
  ['docs/several-machines.md', 'option httpchk', 'every HAProxy of test/kit/real-haproxy.ts is configured with it'],
  ['docs/several-machines.md', 'RUNNER_KEY=trk_...', 'needs a second machine: test/e2e/runners.test.ts plays both'],
  ['docs/upgrading.md', 'npx --package ./trestle-', 'has a test of its own: test/packaging/tarball.test.ts'],
  [
    'docs/workbench.md',
    '"values":{"place"',
    'needs an agent that asks with a form: test/e2e/run-permissions.test.ts plays one',
  ],
];

/** Every document that has code blocks, and those that may get some. */
export async function printedDocuments(): Promise<readonly PrintedDocument[]> {
  const docs = (await readdir(join(ROOT, 'docs'))).filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`);
  const top = (await readdir(ROOT)).filter((name) => name.endsWith('.md'));
  return Promise.all(
    [...top, ...docs].map(async (name) => {
      const page = await readFile(join(ROOT, name), 'utf8');
      return { name, page, blocks: blocksOf(name, page) };
    }),
  );
}

/** The block of a document that has this part, as printed. */
export async function printedBlock(document: string, part: string): Promise<string> {
  const page = await readFile(join(ROOT, document), 'utf8');
  const found = blocksOf(document, page).filter(({ text }) => text.includes(part));
  if (found.length !== 1) throw new Error(`${document} has ${found.length} blocks with ${part}`);
  return found[0]?.text ?? '';
}

function blocksOf(document: string, page: string): readonly Block[] {
  return [...page.matchAll(/(?:`([\w-]+\.yaml)`:\n+)?^```(\w*)[^\n]*\n(.*?)^```/gms)].map((match) => {
    const [whole, file, language = '', text = ''] = match;
    const line = page.slice(0, match.index + whole.indexOf('```')).split('\n').length;
    return { document, line, language, text, file };
  });
}

export function isListed({ document, text }: Block): boolean {
  return LISTED.some(([name, part]) => name === document && text.includes(part));
}

/** How a block is run; undefined for one that nothing here can run. */
export function wayOf(block: Block): Way | undefined {
  switch (block.language) {
    case 'sh':
    case 'console':
      return isServer(block) ? 'server' : 'shell';
    case 'js':
    case 'ts':
      return 'program';
    case 'yaml':
      return 'settings';
    case 'http':
      return 'request';
    case 'jsonc':
      return 'params';
    case 'json':
      return 'data';
    default:
      return block.language === '' && /^ {2}trestle \d/.test(block.text) ? 'banner' : undefined;
  }
}

/** A block that ends with a command that serves until it is interrupted. */
function isServer({ text }: Block): boolean {
  const last = text.trim().split('\n').at(-1) ?? '';
  return /(npm start|serve --(?:listen|workers)\b.*)(?: -- .*)?$|^ {2}First admin/.test(last);
}
