import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { makeAgentHome, NO_FENCE } from '../../../src/bridge/agents/agent-fence.ts';
import { createAgentLauncher } from '../../../src/bridge/agents/agent-launcher.ts';
import { getsOurModels, type OfferedModels, withOurModels } from '../../../src/bridge/agents/agent-models.ts';
import { temporaryFolder } from '../../kit/running-program.ts';

const PRESETS = ['codex', 'opencode', 'gemini', 'claude', 'qwen', 'kimi', 'copilot', 'kilo', 'pi'];
const PERSON = 'user:usr_1';
const access = { url: 'http://127.0.0.1:8787', key: 'key-0123456789', end: () => undefined };
const offer = (more: Partial<OfferedModels> = {}): OfferedModels => ({
  use: 'auto',
  model: 'fast',
  names: ['fast', 'slow'],
  homeDirectory: '/nonexistent',
  ...more,
});
const program = (preset: string | undefined, environment: Record<string, string> = {}) => ({
  command: preset ?? 'mine',
  args: ['acp'],
  environment,
  preset,
});

test('agents of the operator get our models unless they have a login or settings of their own', async (t) => {
  const homeDirectory = await temporaryFolder(t);
  const offered = offer({ homeDirectory });
  const files: Readonly<Record<string, string>> = {
    codex: '.codex/auth.json',
    opencode: '.local/share/opencode/auth.json',
    gemini: '.gemini/oauth_creds.json',
    claude: '.claude/.credentials.json',
    qwen: '.qwen/oauth_creds.json',
    kimi: '.kimi-code/config.toml',
    copilot: '.copilot/config.json',
    kilo: '.local/share/kilo/auth.json',
    pi: '.pi/agent/auth.json',
  };
  for (const preset of PRESETS) {
    for (const owner of ['main', undefined]) {
      assert.equal(getsOurModels(program(preset), owner, true, offered), true, preset);
    }
    const file = join(homeDirectory, files[preset] ?? '');
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, '');
    assert.equal(getsOurModels(program(preset), 'main', true, offered), false, `${preset} is logged in`);
    assert.equal(getsOurModels(program(preset), 'main', false, { ...offered, use: 'ours' }), true);
    assert.equal(getsOurModels(program(preset), 'review', true, offered), true, 'an empty home in the sandbox');
    assert.equal(getsOurModels(program(preset), 'review', false, offered), false, 'the home of the operator');
  }
  const chosen = program('codex', { OPENAI_API_KEY: 'of the operator' });
  assert.equal(getsOurModels(chosen, 'main', true, offer({ use: 'ours' })), false, 'the operator has chosen');
});

test('people always get our models, except where agents have their own; the demo model is given to nobody unasked', () => {
  assert.equal(getsOurModels(program(undefined), PERSON, false, offer()), true);
  assert.equal(getsOurModels(program('codex'), PERSON, true, offer({ use: 'own' })), false);
  assert.equal(getsOurModels(program('codex'), 'main', true, offer({ use: 'own' })), false);
  assert.equal(getsOurModels(program(undefined), 'main', true, offer({ use: 'ours' })), false, 'not a preset');
  assert.equal(getsOurModels(program('codex'), 'main', true, offer({ model: 'demo/echo' })), false);
  assert.equal(getsOurModels(program('codex'), 'main', true, offer({ model: 'demo/echo', use: 'ours' })), true);
  assert.equal(getsOurModels(program('codex'), 'main', true, offer({ model: '' })), false);
});

test('every preset gets our address, the model and the key, and the key only as a variable', () => {
  for (const preset of PRESETS) {
    const { args, environment, files } = withOurModels(program(preset), access, offer(), '/home/settings');
    const all = JSON.stringify([args, environment, files]);
    assert.ok(!JSON.stringify(files).includes(access.key), 'files outlive the process');
    assert.ok(all.includes('http://127.0.0.1:8787') && all.includes('fast'), preset);
    assert.ok(Object.values(environment).includes(access.key), preset);
    assert.ok(!args.join(' ').includes(access.key), 'other users of the machine see arguments');
    assert.equal(args[0], 'acp');
  }
});

test('an API that the settings of an agent speak of is left to them', () => {
  const own = { OPENAI_API_KEY: 'own', GEMINI_API_KEY: 'own' };
  const { args, environment } = withOurModels(program('codex', own), access, offer(), '');
  assert.deepEqual(args, ['acp']);
  assert.deepEqual(environment, { ...own, ANTHROPIC_API_KEY: access.key, ANTHROPIC_BASE_URL: access.url });
  const gemini = withOurModels(program('gemini', { GEMINI_API_KEY: 'own' }), access, offer(), '');
  assert.equal(gemini.environment.GOOGLE_GEMINI_BASE_URL, undefined, 'their key is not sent to us');
  const qwen = { ...program('qwen'), args: ['--acp', '--auth-type', 'openai'] };
  assert.deepEqual(withOurModels(qwen, access, offer(), '').args, qwen.args, 'no option comes twice');
  assert.equal(withOurModels(program('codex'), undefined, offer(), '').args.length, 1);
});

test('settings are written into the home of the agent, also where the agent has put links', async (t) => {
  const folder = await temporaryFolder(t);
  const homes = join(folder, 'homes');
  const elsewhere = join(folder, 'elsewhere');
  await mkdir(elsewhere);
  const launch = createAgentLauncher({
    environment: { PATH: process.env.PATH ?? '' },
    folder: join(folder, 'agents'),
    journalFolder: join(folder, 'processes'),
    programs: join(folder, 'programs'),
    fence: NO_FENCE,
    homes,
    modelAccess: () => access,
    offered: offer(),
  });
  const own = join(await makeAgentHome(homes, PERSON, 'pi'), '.trestle-settings');
  const attacks = [
    () => symlink(elsewhere, own),
    async () => {
      await mkdir(own, { recursive: true });
      await rm(join(own, 'models.json'), { force: true });
      await symlink(join(elsewhere, 'models.json'), join(own, 'models.json'));
    },
    () => writeFile(own, 'no folder'),
  ];
  for (const attack of attacks) {
    await writeFile(join(elsewhere, 'models.json'), 'of somebody else');
    await rm(own, { recursive: true, force: true });
    await attack();
    const pi = { command: process.execPath, args: ['-e', ''], environment: {}, preset: 'pi' };
    const running = await launch(pi, { owner: PERSON, agent: 'pi', folder });
    await running?.exited;
    assert.deepEqual(await readdir(elsewhere), ['models.json']);
    assert.equal(await readFile(join(elsewhere, 'models.json'), 'utf8'), 'of somebody else');
    assert.match(await readFile(join(own, 'models.json'), 'utf8'), /trestle/);
    assert.deepEqual((await readdir(own)).toSorted(), ['models.json', 'settings.json']);
  }
});
