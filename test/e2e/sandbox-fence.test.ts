import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, readdir, realpath, rename, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { identityOf } from '../../src/bridge/agents/agent-fence.ts';
import { type Fence, openSandbox } from '../../src/platform/child-process/sandbox.ts';
import { findLimitEnforcement } from '../../src/platform/child-process/sandbox-limits.ts';
import { createSandboxNetworks } from '../../src/platform/child-process/sandbox-network.ts';
import { startProcess } from '../../src/platform/child-process/start-process.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { findBubblewrap } from '../kit/bubblewrap.ts';
import { freePort } from '../kit/free-port.ts';
import { temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const { program: BUBBLEWRAP, missing } = await findBubblewrap();
const options = { skip: missing };

async function openForTest(t: TestContext, hosts: readonly string[], program = BUBBLEWRAP, cpuPercent = 0) {
  const state = await openSandbox({
    program,
    environment: { PATH: process.env.PATH ?? '' },
    limits: { processes: 100, memoryBytes: 2 ** 33, cpuPercent, temporaryBytes: 2 ** 22 },
    hosts,
    serveOwn: (name, _asked, response) => void response.end(`for ${name}`),
    clock: systemClock,
  });
  assert.ok(state.works);
  t.after(() => state.sandbox.stop());
  const folder = await realpath(await temporaryFolder(t));
  const fence: Fence = {
    folder,
    identity: await identityOf(folder),
    isReadOnly: false,
    startIn: folder,
    home: { path: userInfo().homedir },
    readable: [],
    writable: [],
    hidden: { folders: [], files: [] },
    installation: [],
    network: 'somebody',
  };
  const run = async (line: string, more: Partial<Fence> = {}) => {
    const given = { command: 'sh', args: ['-c', line], cwd: '/', env: { PATH: process.env.PATH ?? '' } };
    const started = await state.sandbox.start(given, { ...fence, ...more });
    let said = '';
    started.stdout.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    // On a loaded machine the last of its output comes later than its end.
    const [{ code, stderrTail }] = await Promise.all([started.exited, once(started.stdout, 'close')]);
    return { code, said, stderrTail };
  };
  return { run, folder, sandbox: state.sandbox, fence };
}

test('a folder that was replaced after it was checked is not worked in', options, async (t) => {
  const { run, folder } = await openForTest(t, []);
  const other = await realpath(await temporaryFolder(t));
  await assert.rejects(run('echo ran', { identity: await identityOf(other) }), {
    code: 'PROCESS_NOT_STARTED',
    details: { command: 'sh', reason: 'the working directory was replaced' },
  });
  assert.equal((await run('pwd')).said, `${folder}\n`);
});

/** A bubblewrap that runs a line for the shell before each sandbox, and says in its help what the lines of `keeps` let through. */
async function wrapBubblewrap(t: TestContext, keeps: string, before: string): Promise<string> {
  const program = join(await realpath(await temporaryFolder(t)), 'bwrap');
  const lines = [
    '#!/bin/sh',
    `[ "$1" = --help ] && { ${BUBBLEWRAP} --help | ${keeps}; exit 0; }`,
    `case "$*" in *--chdir*) ${before};; esac`,
    `exec ${BUBBLEWRAP} "$@"`,
  ];
  await writeFile(program, `${lines.join('\n')}\n`, { mode: 0o755 });
  return program;
}

const ALL_HELP = 'cat';
const OLD_HELP = 'grep -v -e bind-fd';

test(
  'a bubblewrap that cannot mount what is held open works too, and the folder is checked inside',
  options,
  async (t) => {
    const { run, folder } = await openForTest(t, [], await wrapBubblewrap(t, OLD_HELP, ':'));
    assert.equal((await run('pwd')).said, `${folder}\n`);
    const other = await realpath(await temporaryFolder(t));
    const { code, said, stderrTail } = await run('echo ran', { identity: await identityOf(other) });
    assert.deepEqual([code, said, stderrTail], [125, '', 'the working directory was replaced']);
  },
);

for (const [name, help] of Object.entries({ new: ALL_HELP, old: OLD_HELP })) {
  test(
    `a folder that is put in the place of the checked one stays as it is, ${name} bubblewrap`,
    options,
    async (t) => {
      const top = await realpath(await temporaryFolder(t));
      const inTurn = join(top, 'work');
      await mkdir(inTurn);
      const replace = `[ ! -e ${inTurn} ] || { mv ${inTurn} ${inTurn}.before; mkdir ${inTurn}; }`;
      const { run } = await openForTest(t, [], await wrapBubblewrap(t, help, replace));
      await rm(inTurn, { recursive: true });
      await rename(`${inTurn}.before`, inTurn);
      const fence = { folder: inTurn, startIn: inTurn, identity: await identityOf(inTurn) };
      await run('touch written', fence);
      // A newer one finds the folder that was checked under its new name.
      assert.deepEqual(await readdir(inTurn), []);
      assert.ok(existsSync(`${inTurn}.before`));
    },
  );
}

test('programs find the names and certificates of the system, and no private key', options, async (t) => {
  const { run } = await openForTest(t, []);
  const sameAsHere = (path: string) => (existsSync(path) ? readFileSync(path, 'utf8') : '');
  for (const path of ['/etc/passwd', '/etc/group', '/etc/nsswitch.conf', '/etc/resolv.conf', '/etc/ssl/openssl.cnf']) {
    const { said, stderrTail } = await run(`cat ${path}`);
    assert.equal(said, sameAsHere(path), `${path}: ${stderrTail}`);
  }
  const { said } = await run('ls -A /etc/ssl /etc/pki/tls /etc/ca-certificates 2>/dev/null; ls /etc/ssl/certs | wc -l');
  assert.doesNotMatch(said, /private/);
  const certificates = existsSync('/etc/ssl/certs') ? readdirSync('/etc/ssl/certs').length : 0;
  assert.equal(Number(said.trim().split('\n').at(-1)), certificates);
  // What is copied belongs to the program alone.
  await run('rm -f /etc/passwd; echo changed >/etc/group');
  assert.match(sameAsHere('/etc/passwd'), /root/);
  assert.doesNotMatch(sameAsHere('/etc/group'), /changed/);
});

test('a program gets no more processor time than it may, where control groups can be used', options, async (t) => {
  if (findLimitEnforcement().cpu === 'none') {
    t.skip('THE LIMIT OF PROCESSOR TIME IS NOT TESTED: no control group for it can be made here');
    return;
  }
  const { sandbox, fence } = await openForTest(t, [], BUBBLEWRAP, 5);
  assert.match(sandbox.description, /at most 5 % of a core \(cgroup\)/);
  const given = { command: 'sh', args: ['-c', 'while :; do :; done'], cwd: '/', env: { PATH: process.env.PATH ?? '' } };
  const started = await sandbox.start(given, fence);
  t.after(() => started.stop({ graceMs: 0 }));
  const groups = () => readFileSync(`/proc/${started.pid}/cgroup`, 'utf8').split('\n');
  const timed = () => groups().find((line) => /trestle-/.test(line) && /:([^:]*,)?cpu[,:]|^0::/.test(line));
  await until('the program to join its group', () => timed() !== undefined);
  const [number, , path = ''] = timed()?.split(':') ?? [];
  const folder = join('/sys/fs/cgroup', number === '0' ? '' : 'cpu', path);
  await until('the program to be held back', () => {
    const [, times = '0'] = /^nr_throttled (\d+)$/m.exec(readFileSync(join(folder, 'cpu.stat'), 'utf8')) ?? [];
    return Number(times) > 0;
  });
  await started.stop({ graceMs: 0 });
  await until('the group to be gone', () => !existsSync(folder));
});

/** Where version 2 has the controllers, the test above is one of version 2. */
test('the control groups of this machine are of version 2', (t) => {
  const file = '/sys/fs/cgroup/cgroup.controllers';
  const found = existsSync(file) ? readFileSync(file, 'utf8').trim().split(' ') : [];
  const absent = ['pids', 'memory', 'cpu'].filter((controller) => !found.includes(controller));
  if (absent.length === 0) return;
  const why = `CONTROL GROUPS OF VERSION 2 ARE NOT TESTED: on this machine they are without ${absent.join(', ')}`;
  process.stderr.write(`\n${'='.repeat(100)}\n${why}\n${'='.repeat(100)}\n`);
  t.skip(why);
});

test('no process in the sandbox has a descriptor that leads out of it', options, async (t) => {
  const { run } = await openForTest(t, []);
  const { said } = await run('for link in /proc/[0-9]*/fd/*; do readlink "$link"; done');
  const links = said.trim().split('\n');
  assert.ok(links.length >= 3, said);
  assert.deepEqual(
    links.filter((link) => !/^(?:pipe:|socket:|anon_inode:|\/dev\/null$)/.test(link)),
    [],
  );
});

test('what is private in the working directory is hidden, and listed hosts only are reached', options, async (t) => {
  const { run, folder } = await openForTest(t, ['*.example.org']);
  await mkdir(join(folder, 'data'));
  await writeFile(join(folder, 'data', 'secret.key'), 'secret');
  await writeFile(join(folder, 'trestle.yaml'), 'secret');
  const hidden = { folders: [join(folder, 'data')], files: [join(folder, 'trestle.yaml')] };
  assert.equal((await run('cat data/secret.key trestle.yaml 2>/dev/null; ls data', { hidden })).said, '');
  const { said } = await run('curl -sS -m 5 http://elsewhere.example.com/; curl -sS http://127.0.0.1:47113/x');
  assert.match(said, /may not reach this host.*\nfor somebody/s);
});

test('programs of one owner do not see the network of another', options, async (t) => {
  const { run, sandbox, fence } = await openForTest(t, []);
  const code = 'require("net").createServer((s) => s.end("hi")).listen(40123, "127.0.0.1", () => console.log("up"))';
  const env = { PATH: process.env.PATH ?? '' };
  const given = { command: process.execPath, args: ['-e', code], cwd: '/', env };
  const listening = await sandbox.start(given, { ...fence, network: 'one', readable: [process.execPath] });
  await once(listening.stdout, 'data');
  const call = 'curl -s --http0.9 http://127.0.0.1:40123; echo $?';
  assert.equal((await run(call, { network: 'two' })).said, '7\n');
  assert.equal((await run(call, { network: 'one' })).said, 'hi0\n');
  await listening.stop({ graceMs: 0 });
});

test('the proxy of a sandbox reaches listed hosts, by request and by tunnel, and no others', options, async (t) => {
  const server = createServer((asked, response) => void response.end(`${asked.headers.host}${asked.url}`));
  t.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const asked: string[] = [];
  const networks = createSandboxNetworks({
    bubblewrap: BUBBLEWRAP,
    hosts: ['*.example.org', 'two.example.com'],
    serveOwn: () => undefined,
    clock: systemClock,
    async lookUp(name) {
      asked.push(name);
      return name.startsWith('mixed') ? ['127.0.0.1', '127.0.0.9'] : ['127.0.0.1'];
    },
    allowsAddress: (address) => address === '127.0.0.1',
  });
  t.after(() => networks.stop());
  const { pid, release } = await networks.hold('one');
  const curl = async (...more: readonly string[]) => {
    const join = [
      '--user',
      '--net',
      '--preserve-credentials',
      '--target',
      String(pid),
      '--',
      'curl',
      '-sS',
      '-m',
      '20',
    ];
    const args = [...join, '-x', 'http://127.0.0.1:47113', ...more];
    const started = await startProcess({ command: 'nsenter', args, cwd: '/', env: { PATH: process.env.PATH ?? '' } });
    let said = '';
    started.stdout.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    const { stderrTail } = await started.exited;
    return said + stderrTail;
  };
  assert.equal(await curl(`http://a.example.org:${port}/path?x=1`), `a.example.org:${port}/path?x=1`);
  assert.equal(await curl('-p', `http://TWO.example.com:${port}/tunnel`), `TWO.example.com:${port}/tunnel`);
  for (const host of ['example.org', 'one.example.com', 'mixed.example.org', '127.0.0.1', 'metadata.google.internal']) {
    assert.match(await curl(`http://${host}:${port}/`), /may not reach this host/, host);
    assert.match(await curl('-p', `http://${host}:${port}/`), /403/, host);
  }
  assert.match(await curl('-p', 'http://a.example.org:25/'), /403/);
  assert.match(await curl('-p', `http://a.example.org:${await freePort()}/`), /502/);
  assert.deepEqual([...new Set(asked)], ['a.example.org', 'two.example.com', 'mixed.example.org']);
  release();
});
