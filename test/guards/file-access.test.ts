import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { constants } from 'node:fs';
import { mkdir, mkdtemp, open, readdir, readFile, realpath, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { toolTable } from '../../src/bridge/agents/builtin/create-builtin-agent.ts';
import { describeSkills, readRules } from '../../src/bridge/agents/builtin/system-prompt.ts';
import { createConfinement } from '../../src/bridge/agents/builtin/tools/confinement.ts';
import { createArtifactLinks } from '../../src/bridge/artifacts/artifact-links.ts';
import { createArtifacts } from '../../src/bridge/artifacts/create-artifacts.ts';
import { createGit } from '../../src/bridge/checkpoints/run-git.ts';
import { createCheckpoints } from '../../src/bridge/checkpoints/turn-checkpoints.ts';
import { createPrivatePlaces } from '../../src/bridge/sessions/private-places.ts';
import { createOwnerRoots, createWorkingDirectories } from '../../src/bridge/sessions/working-directory.ts';
import type { ArtifactStore } from '../../src/bridge/storage/file-stores.ts';
import { branchOf, createFileReader } from '../../src/bridge/workbench/folders.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { readSources } from '../architecture/source-file.ts';
import { makeId, toolContext } from '../kit/bridge/builtin-agent.ts';
import { createTestFolderList } from '../kit/bridge/test-checkpoints.ts';
import { inTime } from '../kit/in-time.ts';
import { silentLogger } from '../kit/silent-logger.ts';
import { until } from '../kit/until.ts';
import { attacks, makeWorld, SECRET, type Target, type World } from './attack-world.ts';

/** Everything that the bridge has for opening a path, as the program wires it. */
function openers({ home, data, configuration }: World) {
  const places = createPrivatePlaces({ folders: [data], files: [configuration] });
  const defaults = { dataDirectory: data, places };
  const roots = createOwnerRoots({ listed: [], fallback: [home, '/'] });
  const directories = createWorkingDirectories({ roots, ...defaults });
  const listed = createWorkingDirectories({ roots: createOwnerRoots({ listed: [home] }), ...defaults });
  const confine = createConfinement({ places, isScratch: directories.isScratch });
  return { directories, listed, confine, places, folders: createTestFolderList(data, confine, roots, places) };
}

type Door = (world: World, target: Target) => Promise<string>;
const tool =
  (name: string, input: (target: Target) => unknown): Door =>
  async (world, target) => {
    const found = toolTable.find((candidate) => candidate.name === name);
    const context = toolContext('/');
    return (await found?.run(input(target), { ...context, root: openers(world).confine(target.root) }))?.text ?? '';
  };

const artifactsOf = (world: World) =>
  createArtifacts({
    folder: join(world.home, 'kept'),
    confine: openers(world).confine,
    store: new Proxy({} as ArtifactStore, { get: (_store, name) => async () => (name === 'find' ? undefined : []) }),
    ...{ maxBytes: 2 ** 40, maxBytesOfOwner: 2 ** 40 },
    links: createArtifactLinks([new Uint8Array(32)]),
    clock: systemClock,
    makeId,
    logger: silentLogger,
  });

const EMPTY_TREE = '4b825dc642cb6eb9a060e54bf8d69288fbee4904';

/** Each returns whatever a caller gets to see. */
const doors: Readonly<Record<string, Door>> = {
  read_file: tool('read_file', ({ file: path }) => ({ path })),
  write_file: tool('write_file', ({ file: path }) => ({ path, content: 'overwritten' })),
  'write_file, a new file': tool('write_file', ({ folder }) => ({ path: `${folder}/new.txt`, content: 'new' })),
  edit_file: tool('edit_file', ({ file: path }) => ({ path, old_text: SECRET, new_text: 'x' })),
  list_files: tool('list_files', ({ folder: path }) => ({ path, recursive: true })),
  'list_files of the whole root': tool('list_files', ({ root }) => ({ recursive: root !== '/' })),
  search_files: tool('search_files', ({ folder: path }) => ({ text: SECRET.slice(0, 6), path })),
  'search_files by a pattern': tool('search_files', ({ folder: path }) => ({
    pattern: '.+',
    path,
    include_ignored: true,
  })),
  find_files: tool('find_files', ({ folder: path }) => ({ pattern: '*', path, include_ignored: true })),
  update_plan: tool('update_plan', () => ({ steps: [] })),
  run_command: tool('run_command', ({ folder }) => ({
    command: 'sh',
    args: ['-c', 'cat secret.key mail.txt environ; true'],
    working_directory: folder,
  })),
  start_command: async (world, { root, folder }) => {
    const context = { ...toolContext('/'), root: openers(world).confine(root) };
    const input = { command: 'sh', args: ['-c', 'cat secret.key mail.txt environ; true'], working_directory: folder };
    const { text = '' } = (await toolTable.find(({ name }) => name === 'start_command')?.run(input, context)) ?? {};
    const command = context.background.all()[0];
    await until('the command to end', () => command?.isRunning() === false);
    return `${text}\n${command?.read(true).output}`;
  },
  read_command: tool('read_command', () => ({})),
  fetch_url: tool('fetch_url', ({ root, file }) => ({ url: `file://${join(root, file)}` })),
  stop_command: tool('stop_command', () => ({ id: 1 })),
  skills: async (world, { root }) => describeSkills(openers(world).confine(root), ['own', 'linked']),
  rules: async (world, { root, folder }) => {
    const { confine, directories } = openers(world);
    const isOpen = (path: string) =>
      directories.check(path).then(
        () => true,
        () => false,
      );
    const places = [root, join(root, folder)];
    return (await Promise.all(places.map((place) => readRules(place, { confine, isOpen }).catch(() => '')))).join('\n');
  },
  'artifact collection': async (world, { root, file }) => {
    const turn = { owner: 'main', sessionKey: 's', turnId: 't', workingDirectory: root };
    await artifactsOf(world).keep(turn, [file, join(root, file)], []);
    const folder = join(world.home, 'kept');
    const kept = await Promise.all((await readdir(folder)).map((name) => readFile(join(folder, name), 'utf8')));
    await rm(folder, { recursive: true });
    return kept.join('\n');
  },
  'artifact route': async (world, { root, file }) =>
    JSON.stringify(await artifactsOf(world).find(`/artifacts/${join(root, file)}`)),
  'GET files': async (world, { root, file }) => {
    const { directories, confine } = openers(world);
    const readFileOf = createFileReader(directories, confine);
    return JSON.stringify(await readFileOf({ key: 'ses_1', owner: 'main', working_directory: root }, file));
  },
  'GET folders': async (world, { root, folder }) => {
    const { entries } = await openers(world).folders.list(join(root, folder), 'main');
    return entries.map(({ path }) => path).join('\n');
  },
  'changes of a turn': async (world, { root }) => {
    const folder = join(world.home, 'checkpoints');
    const { confine, places, directories } = openers(world);
    await directories.check(root);
    const settings = { enabled: true, timeout: 60_000, max_files: 1000, max_bytes: 2 ** 30, turns: 10 };
    const git = createGit({ path: process.env.PATH ?? '', clock: systemClock });
    const parts = { folder, settings, git, confine, places, clock: systemClock, logger: silentLogger };
    const checkpoints = createCheckpoints(parts);
    try {
      const state = checkpoints.state('ses_1', root);
      const signal = AbortSignal.timeout(60_000);
      const { tree } = await state.save(undefined, signal);
      const files = await state.compare(EMPTY_TREE, tree, signal);
      const texts = await state.read(
        files.flatMap(({ after }) => (after === null || after.mode === '120000' ? [] : [after.oid])),
        signal,
      );
      return [...files.map(({ path }) => join(root, path)), ...[...texts.values()].map(String)].join('\n');
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
  'working directory': async (world, { root, folder }) => {
    const path = await openers(world).directories.check(join(root, folder));
    if (path === world.project) return '';
    return (await readdir(path, { recursive: path !== '/' })).map((name) => join(path, name)).join('\n');
  },
};

/** Everything below the data directory, with its content. */
async function contentOf(folder: string): Promise<string> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return (await Promise.all(files.sort().map(async (file) => `${file}: ${await readFile(file, 'utf8')}`))).join('\n');
}

function assertNothingSeen(seen: string, { data }: World, row: string): void {
  assert.ok(!seen.includes(SECRET), `${row}: the secret was shown`);
  assert.ok(!/(^|\/)(?:bridge\.db|gateway-device\.pem|mail\.txt)$/m.test(seen), `${row}: names were shown: ${seen}`);
  assert.ok(!seen.includes(`${data}/`), `${row}: paths of the data directory were shown`);
  assert.ok(!/^PATH=|\0/m.test(seen), `${row}: an environment was shown`);
}

for (const [attack, prepare] of Object.entries(attacks)) {
  test(`DB-1: ${attack} gives no access to the data directory, by whatever door`, async (context) => {
    const world = await makeWorld(context);
    const targets = await prepare(world);
    if (typeof targets === 'string') {
      context.diagnostic(`NOT TESTED: ${attack}: ${targets}. Run the tests as a user who may.`);
      context.skip(targets);
      return;
    }
    const before = await contentOf(world.data);
    for (const target of targets) {
      for (const [name, door] of Object.entries(doors)) {
        const row = `${attack}, ${name}, ${target.root} ${target.file} ${target.folder}`;
        // A refusal is as good as an empty answer; an error of our own is neither.
        const seen = await door(world, target).catch((error: { code?: string; message: string }) => {
          assert.match(
            error.code ?? error.message,
            /^(?:TOOL_CALL_REFUSED|WORKING_DIRECTORY_REFUSED|FILE_REFUSED|FILE_NOT_FOUND|FOLDER_REFUSED|CHECKPOINT_FAILED|GIT_FAILED|ARTIFACT_LINK_INVALID|E[A-Z]+)$/,
            row,
          );
          return '';
        });
        assertNothingSeen(seen, world, row);
        assert.equal(await contentOf(world.data), before, `${row}: the data directory was changed`);
        assert.match(
          await readFile(world.configuration, 'utf8'),
          /TOP-SECRET/,
          `${row}: the configuration was changed`,
        );
      }
    }
  });
}

test('DB-1: a working directory above the data directory is refused, and the refusal says what to do', async (context) => {
  const world = await makeWorld(context);
  const { directories } = openers(world);
  for (const folder of ['/', world.home, join(world.home, 'share')]) {
    await assert.rejects(directories.check(folder), (error: { code: string; details: { reason: string } }) => {
      assert.equal(error.code, 'WORKING_DIRECTORY_REFUSED');
      assert.match(error.details.reason, /list exactly this folder in bridge\.workspace_roots/, folder);
      return true;
    });
  }
  assert.equal(await directories.check(world.project), world.project);
});

test('DB-1: an operator can list a folder above the data directory, whose tools do not see the data directory', async (context) => {
  const world = await makeWorld(context);
  const { listed, confine } = openers(world);
  assert.equal(await listed.check(world.home), world.home);
  await assert.rejects(listed.check(join(world.home, 'share')), { code: 'WORKING_DIRECTORY_REFUSED' });
  const root = confine(world.home);
  const run = (name: string, input: unknown) =>
    toolTable.find((found) => found.name === name)?.run(input, { ...toolContext('/'), root });
  assert.equal(
    (await run('list_files', { recursive: true }))?.text,
    'project/\nproject/.agents/\nproject/.agents/skills/\nproject/.agents/skills/linked\nproject/.agents/skills/own/\nproject/.agents/skills/own/SKILL.md\nproject/AGENTS.md\nproject/CLAUDE.md\nproject/own.txt\nproject/trestle.yaml\nshare/',
  );
  assert.equal((await run('search_files', { text: SECRET }))?.text, '[nothing found]');
  assert.equal((await run('read_file', { path: 'project/own.txt' }))?.text, 'harmless');
});

test('DB-1: while a folder is swapped for a link to the data directory all the time, no door leads there', async (context) => {
  const world = await makeWorld(context);
  const swapped = join(world.project, 'swapped');
  await mkdir(join(swapped, 'inner'), { recursive: true });
  const before = await contentOf(world.data);
  let isOver = false;
  const swapper = (async () => {
    while (!isOver) {
      await rename(swapped, join(world.project, 'aside')).catch(() => undefined);
      await symlink(world.data, swapped).catch(() => undefined);
      await rm(swapped, { recursive: true, force: true }).catch(() => undefined);
      await rename(join(world.project, 'aside'), swapped).catch(() => undefined);
    }
  })();
  const targets = [
    { root: world.project, file: 'swapped/secret.key', folder: 'swapped' },
    { root: swapped, file: 'secret.key', folder: '.' },
    // A folder of the same name is in the data directory: the path above the working directory changes its meaning.
    { root: join(swapped, 'outbox'), file: 'mail.txt', folder: '.' },
  ];
  try {
    for (let round = 0; round < 25; round += 1) {
      for (const target of targets) {
        for (const [name, door] of Object.entries(doors)) {
          if (name === 'working directory' || name === 'artifact route') continue;
          const seen = await door(world, target).catch(() => '');
          assertNothingSeen(seen, world, `${name}, ${target.root}`);
        }
        const checked = await openers(world)
          .directories.check(join(target.root, target.folder))
          .catch(() => '');
        assert.ok(!checked.startsWith(world.data), `${checked} was allowed`);
      }
    }
  } finally {
    isOver = true;
    await swapper;
  }
  assert.equal(await contentOf(world.data), before);
});

/** Every file of the bridge that can open a path, and the doors above that go through it, or why no caller's path gets there. */
const OPENING_FILES: Readonly<Record<string, readonly string[] | string>> = {
  'agents/agent-fence.ts':
    'makes homes inside the data directory, and hands folders that were checked to the sandbox; its attacks are test/e2e/sandbox.test.ts',
  'agents/agent-launcher.ts': 'makes the folder that programs are started in, inside the data directory',
  'agents/agent-models.ts': 'looks whether files of a table are in the home of the operator, and opens none',
  'agents/agent-packages.ts':
    'installs, finds and removes programs inside the data directory, by the names of a table, with a lock for each',
  'agents/agent-probe.ts': 'looks at the programs that the operator configured',
  'agents/agent-registry.ts':
    'reads the file that the operator configured, and keeps one file in the data directory; test/bridge/agents/agent-registry.test.ts',
  'agents/builtin/conversation.ts': ['read_file'],
  'agents/builtin/run-turn.ts': Object.keys(doors).filter((name) => toolTable.some((row) => name.startsWith(row.name))),
  'agents/builtin/system-prompt.ts': ['skills', 'rules'],
  'agents/builtin/tools/confinement.ts': ['read_file', 'write_file', 'edit_file', 'list_files', 'artifact collection'],
  'agents/builtin/tools/file-tools.ts': ['read_file', 'write_file', 'write_file, a new file', 'edit_file'],
  'agents/builtin/tools/text-search.ts':
    'names files, which search_files opens by confinement; test/bridge/agents/builtin/ripgrep.test.ts',
  'agents/builtin/tools/run-command.ts': ['run_command', 'start_command'],
  'agents/builtin/tools/walk-folder.ts': ['list_files', 'find_files', 'search_files'],
  'agents/builtin/tools/search-tools.ts': ['list_files', 'list_files of the whole root', 'search_files'],
  'artifacts/artifact-route.ts': ['artifact route'],
  'artifacts/create-artifacts.ts': ['artifact collection', 'artifact route'],
  'attachments/create-attachments.ts':
    'by our own ids, and by confinement; test/bridge/attachments/attachments.test.ts',
  'checkpoints/folder-state.ts': ['changes of a turn'],
  'checkpoints/restore-files.ts':
    'writes what `changes of a turn` shows, by confinement; test/bridge/workbench/file-changes.test.ts',
  'checkpoints/turn-checkpoints.ts': ['changes of a turn'],
  'create-bridge.ts': ['working directory'],
  'editor/editor-sessions.ts': ['working directory'],
  'editor/rpc-over-stdio.ts': ['working directory'],
  'gateway/gateway-messages.ts': 'reads and writes one file of the data directory',
  'instances/create-relay.ts': 'reads artifacts and uploads by our own ids; test/e2e/any-instance.test.ts',
  'instances/open-instance.ts': 'reads and writes one file of the data directory',
  'jobs/create-jobs.ts': ['working directory'],
  'jobs/submit-job.ts': ['working directory'],
  'sessions/private-places.ts': ['working directory', 'read_file'],
  'sessions/housekeeping.ts': 'measures and removes private folders of the data directory; follows no links',
  'sessions/turn-runner.ts': ['working directory'],
  'sessions/working-directory.ts': ['working directory'],
  'workbench/create-workbench.ts': ['GET files', 'GET folders'],
  'workbench/file-changes.ts': ['changes of a turn'],
  'workbench/folders.ts': ['GET files', 'GET folders'],
  'workbench/permission-rules.ts':
    'resolves links to compare paths with rules, and opens none; test/bridge/workbench/permission-rules.test.ts',
  'worktrees/create-worktrees.ts':
    'makes and removes folders of sessions by confinement; test/bridge/worktrees/hostile-worktrees.test.ts',
  'worktrees/repository.ts':
    'reads and moves references by confinement; test/bridge/worktrees/hostile-worktrees.test.ts',
  'worktrees/worktree-files.ts':
    'writes into folders that were just made, and into the data directory; test/bridge/worktrees/hostile-worktrees.test.ts',
  'wire-bridge.ts': 'resolves the paths that the operator configured',
};

test('DB-1: every place of the bridge that can open a path is in the table of attacks', () => {
  const opens =
    /\b(?:checkDirectory|confine|withFile|openFolder|openEntry|replaceFile|walkFolder|holdFolder)\b|directories\.check\(/;
  const found = readSources(['src/bridge'])
    .filter(({ imports, text }) => {
      const usesFiles = imports.some(
        ({ specifier, isTypeOnly }) => /^(?:node:)?fs(?:\/|$)/.test(specifier) && !isTypeOnly,
      );
      return usesFiles || opens.test(text.replaceAll(/^import [^;]*;$/gms, ''));
    })
    .map(({ path }) => path.replace('src/bridge/', ''));
  const unlisted = found.filter(
    (path) => OPENING_FILES[path] === undefined && !path.endsWith('create-builtin-agent.ts'),
  );
  assert.deepEqual(unlisted, [], 'opens paths and has no row: add its door to the attacks, or say why none is needed');
  assert.deepEqual(
    Object.keys(OPENING_FILES).filter((path) => !found.includes(path)),
    [],
    'listed, but opens nothing',
  );
  for (const rows of Object.values(OPENING_FILES)) {
    if (typeof rows === 'string') continue;
    assert.ok(rows.length > 0);
    for (const row of rows) assert.ok(doors[row] !== undefined, `no such door: ${row}`);
  }
  const missing = toolTable.filter(({ name }) => doors[name] === undefined).map(({ name }) => name);
  assert.deepEqual(missing, [], 'a tool without a row');
});

/** These read files of the data directory alone, into which no agent writes. */
const READING_BY_PATH: readonly string[] = [
  ...['agents/agent-packages.ts', 'agents/agent-registry.ts', 'artifacts/artifact-route.ts'],
  ...['attachments/create-attachments.ts', 'checkpoints/folder-state.ts', 'checkpoints/turn-checkpoints.ts'],
  ...['gateway/gateway-messages.ts', 'instances/create-relay.ts', 'instances/open-instance.ts'],
  'worktrees/create-worktrees.ts',
];

test('nothing waits for a pipe that an agent has put in the place of a file', async (t) => {
  const byPath = readSources(['src/bridge']).filter(({ text }) =>
    /^import \{[^}]*\b(?:readFile|readFileSync|createReadStream)\b[^}]*\} from '(?:node:)?fs(?:\/promises)?'/m.test(
      text,
    ),
  );
  const places = byPath.map(({ path }) => path.replace('src/bridge/', ''));
  assert.deepEqual(
    places.toSorted(),
    READING_BY_PATH,
    'opens with O_NONBLOCK, or reads only what no agent can replace',
  );
  const git = join(await realpath(await mkdtemp(join(tmpdir(), 'trestle-pipe-'))), '.git');
  await mkdir(git);
  await writeFile(join(git, 'file'), 'ref: refs/heads/main\n');
  execFileSync('mkfifo', [join(git, 'pipe')]);
  await symlink('file', join(git, 'HEAD'));
  // Puts the file and the pipe there in turn, as fast as it can.
  const swapping = `const { renameSync, symlinkSync } = require('node:fs');
    for (let turn = 0; ; turn += 1) {
      symlinkSync(turn % 2 === 0 ? 'pipe' : 'file', ${JSON.stringify(join(git, 'next'))});
      renameSync(${JSON.stringify(join(git, 'next'))}, ${JSON.stringify(join(git, 'HEAD'))});
    }`;
  const worker = new Worker(swapping, { eval: true });
  t.after(async () => {
    await worker.terminate();
    // Gives back the threads that wait, if there are any.
    await (await open(join(git, 'pipe'), constants.O_RDWR | constants.O_NONBLOCK)).close();
    await rm(dirname(git), { recursive: true });
  });
  const found = new Set<string>();
  for (let call = 0; call < 200; call += 1) found.add(await inTime('the branch of a folder', branchOf(dirname(git))));
  assert.ok([...found].every((branch) => branch === 'main' || branch === ''));
});
