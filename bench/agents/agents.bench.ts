import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, realpath, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { identityOf } from '../../src/bridge/agents/agent-fence.ts';
import { createConfinement } from '../../src/bridge/agents/builtin/tools/confinement.ts';
import { searchFilesTool } from '../../src/bridge/agents/builtin/tools/search-tools.ts';
import { createPrivatePlaces } from '../../src/bridge/sessions/private-places.ts';
import { type Fence, openSandbox } from '../../src/platform/child-process/sandbox.ts';
import { type RunningProcess, startProcess } from '../../src/platform/child-process/start-process.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { toolContext } from '../../test/kit/bridge/builtin-agent.ts';
import { createTestCheckpoints } from '../../test/kit/bridge/test-checkpoints.ts';
import { createScope } from '../../test/kit/create-scope.ts';
import { type Scope, temporaryFolder } from '../../test/kit/running-program.ts';

const PATH = process.env.PATH ?? '';

export interface SandboxCosts {
  /** Milliseconds from the start of a program to its first word. */
  readonly fencedMs: number[];
  readonly plainMs: number[];
  /** Lines per second from a program to us. */
  readonly fencedLines: number[];
  readonly plainLines: number[];
}

type Start = (args: readonly string[]) => Promise<RunningProcess>;

/** Starts the same program in the sandbox and without it, in turn, and reads lines as long as those of updates from both. */
export async function benchSandbox(
  program: string,
  { rounds, lines }: { readonly rounds: number; readonly lines: number },
): Promise<SandboxCosts> {
  const scope = createScope();
  try {
    const { fenced, plain } = await openStarts(scope, program);
    const costs: SandboxCosts = { fencedMs: [], plainMs: [], fencedLines: [], plainLines: [] };
    // The first start of an owner makes the network as well, which all later ones share: it is kept open by a program.
    const first = await fenced(['-c', 'echo ready; exec sleep 600']);
    await once(first.stdout, 'data');
    for (let round = 0; round < rounds; round += 1) {
      costs.plainMs.push(await timeToFirstWord(plain));
      costs.fencedMs.push(await timeToFirstWord(fenced));
      costs.plainLines.push(await linesPerSecond(plain, lines));
      costs.fencedLines.push(await linesPerSecond(fenced, lines));
    }
    await first.stop({ graceMs: 100 });
    return costs;
  } finally {
    await scope.end();
  }
}

async function openStarts(scope: Scope, program: string): Promise<{ readonly fenced: Start; readonly plain: Start }> {
  const state = await openSandbox({
    program,
    environment: { PATH },
    limits: { processes: 1000, memoryBytes: 2 ** 33, cpuPercent: 0, temporaryBytes: 2 ** 22 },
    hosts: [],
    serveOwn: (_name, _asked, response) => void response.end(),
    clock: systemClock,
  });
  if (!state.works) throw new Error(`there is no sandbox here: ${state.reason}`);
  scope.after(() => state.sandbox.stop());
  const folder = await realpath(await temporaryFolder(scope));
  const fence: Fence = {
    folder,
    identity: await identityOf(folder),
    isReadOnly: false,
    startIn: folder,
    home: { path: '/home/somebody' },
    readable: [],
    writable: [],
    hidden: { folders: [], files: [] },
    installation: [],
    network: 'somebody',
  };
  const given = (args: readonly string[]) => ({ command: '/bin/sh', args, cwd: folder, env: { PATH } });
  return { fenced: (args) => state.sandbox.start(given(args), fence), plain: (args) => startProcess(given(args)) };
}

async function timeToFirstWord(start: Start): Promise<number> {
  const before = performance.now();
  const running = await start(['-c', 'echo ready']);
  await once(running.stdout, 'data');
  const taken = performance.now() - before;
  running.stdout.resume();
  await running.exited;
  return taken;
}

const LINE = 'x'.repeat(200);

async function linesPerSecond(start: Start, lines: number): Promise<number> {
  const running = await start(['-c', `echo ready; yes ${LINE} | head -n ${lines}`]);
  await once(running.stdout, 'data');
  const before = performance.now();
  for await (const _chunk of running.stdout);
  const taken = performance.now() - before;
  await running.exited;
  return (lines * 1000) / taken;
}

export interface RepositoryCosts {
  readonly checkpointMs: number[];
  /** Empty where ripgrep is not installed. */
  readonly searchMs: number[];
  readonly ripgrepMs: number[];
}

const FILES_OF_A_FOLDER = 100;
/** In one file of a thousand. */
const NEEDLE = 'needle_in_a_haystack';
const NEEDLE_EVERY = 1000;

/** Saves a repository before turns that change one file, and searches it, with its files in the page cache. */
export async function benchRepository(
  ripgrep: string,
  { files, rounds }: { readonly files: number; readonly rounds: number },
): Promise<RepositoryCosts> {
  const scope = createScope();
  try {
    const top = await realpath(await temporaryFolder(scope));
    const folder = join(top, 'work');
    await makeRepository(folder, files);
    const places = createPrivatePlaces({ folders: [join(top, 'data')], files: [] });
    const confine = createConfinement({ places, isScratch: () => false });
    const settings = { enabled: true, timeout: 60_000, max_files: files * 2, max_bytes: 2 ** 32, turns: 50 };
    const checkpoints = createTestCheckpoints(join(top, 'data'), confine, settings);
    const costs: RepositoryCosts = { checkpointMs: [], searchMs: [], ripgrepMs: [] };
    const context = toolContext(folder, { environment: { PATH: `${ripgrep}:${PATH}` } });
    const { signal } = new AbortController();
    for (let round = -1; round < rounds; round += 1) {
      const turn = { sessionKey: 'session', turnId: `turn-${round + 1}`, folder };
      const before = performance.now();
      const why = await checkpoints.begin(turn, signal);
      const saved = performance.now() - before;
      if (why !== '') throw new Error(why);
      await writeFile(join(folder, 'changed.txt'), `round ${round}\n`);
      await checkpoints.end(turn);
      // The first round fills caches, and copies what git has.
      if (round < 0) continue;
      costs.checkpointMs.push(saved);
      if (ripgrep === '') continue;
      costs.searchMs.push(await timeOf(() => searchFilesTool.run({ text: NEEDLE }, context)));
      costs.ripgrepMs.push(await timeOf(() => runRipgrep(ripgrep, folder)));
    }
    await checkpoints.settle();
    return costs;
  } finally {
    await scope.end();
  }
}

async function timeOf(work: () => unknown): Promise<number> {
  const before = performance.now();
  await work();
  return performance.now() - before;
}

/** What a person would type, with the order of the files that our search has. */
function runRipgrep(ripgrep: string, folder: string): void {
  const { status } = spawnSync(join(ripgrep, 'rg'), ['-n', '-F', NEEDLE, '.'], { cwd: folder });
  if (status !== 0) throw new Error('ripgrep has found nothing');
}

async function makeRepository(folder: string, files: number): Promise<void> {
  const text = 'const answer = 42; // a line of source as long as others are\n'.repeat(20);
  for (let first = 0; first < files; first += FILES_OF_A_FOLDER) {
    const inner = join(folder, `part-${first}`);
    await mkdir(inner, { recursive: true });
    const names = Array.from({ length: Math.min(FILES_OF_A_FOLDER, files - first) }, (_, index) => index);
    await Promise.all(
      names.map(async (index) => {
        const file = join(inner, `file-${index}.ts`);
        await writeFile(file, (first + index) % NEEDLE_EVERY === 0 ? `${text}${NEEDLE}\n` : text);
        // Older than the index, as in real life: git trusts their times then.
        await utimes(file, 1_700_000_000, 1_700_000_000);
      }),
    );
  }
  const identity = ['-c', 'user.name=bench', '-c', 'user.email=bench@example.com'];
  const git = (...args: string[]) => execFileSync('git', [...identity, ...args], { cwd: folder, stdio: 'ignore' });
  git('init', '-q', '.');
  git('add', '-A');
  git('commit', '-qm', 'first');
}
