import assert from 'node:assert/strict';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { type LoadInput, loadConfiguration } from '../../../src/platform/config/load-configuration.ts';
import { ConfigurationError, formatProblem } from '../../../src/platform/config/problem.ts';
import { type Garden, garden } from './sample-declaration.ts';

async function folder(context: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'garden-'));
  context.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

const input = (workingDirectory: string, more: Partial<LoadInput<Garden>> = {}): LoadInput<Garden> => ({
  declaration: garden,
  environment: {},
  flags: {},
  homeDirectory: '/home/ann',
  workingDirectory,
  ...more,
});

async function problemsOf(given: LoadInput<Garden>): Promise<readonly string[]> {
  const error = await loadConfiguration(given).then(
    () => assert.fail('it loaded'),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ConfigurationError);
  return error.problems.map(formatProblem);
}

test('without a file the defaults and the environment count', async (t) => {
  const environment = { GARDEN_GATE_WIDTH: '4' };
  const { settings, file } = await loadConfiguration(input(await folder(t), { environment }));
  assert.equal(file, undefined);
  assert.equal(settings.gate.width, 4);
});

test('the file in the working directory is read, and paths in it start there', async (t) => {
  const directory = await folder(t);
  await writeFile(join(directory, 'garden.yaml'), '\uFEFFfolder: data\n');
  const { settings, file, sources } = await loadConfiguration(input(directory));
  assert.equal(file, join(directory, 'garden.yaml'));
  assert.equal(settings.folder, join(directory, 'data'));
  assert.equal(sources.folder, 'garden.yaml:1');
});

test('the flag wins over the variable, and this over the file in the working directory', async (t) => {
  const directory = await folder(t);
  await writeFile(join(directory, 'garden.yaml'), 'gate: { width: 1 }\n');
  await writeFile(join(directory, 'variable.yaml'), 'gate: { width: 2 }\n');
  await writeFile(join(directory, 'flag.yaml'), 'gate: { width: 3 }\n');
  const environment = { GARDEN_CONFIG: 'variable.yaml' };
  const width = async (more: Partial<LoadInput<Garden>>): Promise<number> =>
    (await loadConfiguration(input(directory, more))).settings.gate.width;
  assert.equal(await width({}), 1);
  assert.equal(await width({ environment }), 2);
  assert.equal(await width({ environment, configFile: join(directory, 'flag.yaml') }), 3);
  assert.equal(await width({ environment: { GARDEN_CONFIG: '' } }), 1);
});

test('a named file that does not exist is a problem, together with all others', async (t) => {
  const directory = await folder(t);
  const named = input(directory, { configFile: 'none.yaml', environment: { GARDEN_GATE_WIDTH: 'x' } });
  assert.deepEqual(await problemsOf(named), [
    'flag --config: the file none.yaml does not exist; check the path',
    'environment variable GARDEN_GATE_WIDTH: gate.width: "x" is not a whole number; expected a whole number from 1 to 9',
  ]);
  assert.deepEqual(await problemsOf(input(directory, { environment: { GARDEN_CONFIG: 'none.yaml' } })), [
    'environment variable GARDEN_CONFIG: the file none.yaml does not exist; check the path',
  ]);
});

test('a folder, a file of another encoding, a huge one and a device that never ends are problems', async (t) => {
  const directory = await folder(t);
  await mkdir(join(directory, 'garden.yaml'));
  assert.match((await problemsOf(input(directory)))[0] ?? '', /garden\.yaml is a folder/);
  await writeFile(join(directory, 'latin.yaml'), Buffer.from([0x61, 0x3a, 0x20, 0xe4]));
  await writeFile(join(directory, 'huge.yaml'), '#'.repeat(300_000));
  const first = async (configFile: string): Promise<string> =>
    (await problemsOf(input(directory, { configFile })))[0] ?? '';
  assert.match(await first('latin.yaml'), /is not UTF-8 text/);
  assert.match(await first('huge.yaml'), /is larger than 262144 bytes/);
  assert.match(await first('/dev/zero'), /is larger than 262144 bytes/);
});

test('O-07: a file with secrets that others may read is a warning, until its mode is 0600', async (t) => {
  const directory = await folder(t);
  const path = join(directory, 'garden.yaml');
  await writeFile(path, 'gate: { password: abc }\n');
  await chmod(path, 0o644);
  assert.equal((await loadConfiguration(input(directory))).warnings.length, 1);
  await chmod(path, 0o600);
  assert.deepEqual((await loadConfiguration(input(directory))).warnings, []);
});

test('the error’s message is one readable line for each problem', async (t) => {
  const directory = await folder(t);
  await writeFile(join(directory, 'garden.yaml'), 'listn: 1\nfoldr: 2\n');
  await assert.rejects(loadConfiguration(input(directory)), (error: Error) => error.message.split('\n').length === 2);
});
