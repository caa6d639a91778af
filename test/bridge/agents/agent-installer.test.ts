import assert from 'node:assert/strict';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { createAgentInstaller, packageOf } from '../../../src/bridge/agents/agent-packages.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { until } from '../../kit/until.ts';

/** An installer whose npm places the program when the file `go` is there. */
async function createInstaller(t: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-install-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const bin = join(folder, 'bin');
  await mkdir(bin);
  const { program } = packageOf('claude');
  const place = `mkdir -p "$(dirname '${program}')"; echo '#!/bin/sh' > '${program}'; chmod 755 '${program}'`;
  const script = `#!/bin/sh\necho $$ > "${folder}/npm-pid"\nwhile [ ! -e "${folder}/go" ]; do sleep 0.05; done\n${place}\n`;
  await writeFile(join(bin, 'npm'), script);
  await chmod(join(bin, 'npm'), 0o755);
  const installer = createAgentInstaller({
    dataDirectory: join(folder, 'data'),
    environment: { PATH: `${bin}:/usr/bin:/bin` },
    journalFolder: join(folder, 'processes'),
    clock: systemClock,
  });
  const programs = join(folder, 'data', 'agent-programs');
  const hasStarted = () =>
    until('npm runs', () => readFile(join(folder, 'npm-pid'), 'utf8').then(Number, () => undefined));
  return { folder, installer, programs, hasStarted, go: () => writeFile(join(folder, 'go'), '') };
}

const call = { timeoutMs: 60_000 };

test('a second install of the same agent at the same time is refused, and one of another process too', async (t) => {
  const { installer, programs, hasStarted, go } = await createInstaller(t);
  const first = installer.install('claude', call);
  await hasStarted();
  await assert.rejects(installer.install('claude', call), { code: 'AGENT_INSTALLING' });
  await go();
  assert.equal(await first, packageOf('claude').version);
  assert.equal(await installer.install('claude', call), packageOf('claude').version, 'the lock is released');
  const lock = join(programs, '.claude.installing');
  const { ppid } = process;
  const started = (await readFile(`/proc/${ppid}/stat`, 'latin1')).replace(/^.*\) /, '').split(' ')[19];
  await writeFile(lock, `${ppid} ${started}`);
  await assert.rejects(installer.install('claude', call), { code: 'AGENT_INSTALLING' });
  // A later process with the number of one that has ended does not hold it.
  await writeFile(lock, `${ppid} 1`);
  await installer.install('claude', call);
  assert.deepEqual(
    (await readdir(programs)).filter((name) => name.startsWith('.')),
    [],
  );
});

test('an install that takes too long, or whose server stops, ends npm and leaves no lock', async (t) => {
  const { folder, installer, programs, hasStarted } = await createInstaller(t);
  await assert.rejects(installer.install('claude', { timeoutMs: 300 }), {
    code: 'NPM_FAILED',
    details: { reason: 'it took longer than 0.005 minutes' },
  });
  await rm(join(folder, 'npm-pid'), { force: true });
  const stop = new AbortController();
  const stopped = installer.install('claude', { ...call, signal: stop.signal });
  const pid = await hasStarted();
  stop.abort();
  await assert.rejects(stopped, { code: 'NPM_FAILED', details: { reason: 'the server was stopped' } });
  assert.throws(() => process.kill(pid, 0), { code: 'ESRCH' });
  assert.deepEqual(
    (await readdir(programs)).filter((name) => name.startsWith('.')),
    [],
  );
});
