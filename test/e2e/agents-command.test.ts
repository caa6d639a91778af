import assert from 'node:assert/strict';
import { chmod, lstat, mkdir, readdir, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { agentPackages } from '../../src/bridge/agents/agent-packages.ts';
import { runProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';

const ACP_AGENT = join(import.meta.dirname, '../kit/scripted-acp-agent.ts');

/** An npm that puts a scripted agent where npm would put the real one, and fails for packages named in NPM_BROKEN. */
async function folderWithNpm(scope: Scope) {
  const folder = await temporaryFolder(scope);
  const bin = join(folder, 'bin');
  await mkdir(bin);
  const programs = agentPackages.map(({ name, version, program }) => `${name}@${version}) place '${program}' ;;`);
  const script = `#!/bin/sh
env > "${folder}/npm-environment"
echo "$*" >> "${folder}/npm-calls"
place() { mkdir -p "$(dirname "$1")"; printf '#!/bin/sh\\necho start >> "${folder}/agent-starts"\\nexec "${process.execPath}" "${ACP_AGENT}"\\n' > "$1"; chmod 755 "$1"; }
for last; do :; done
case "$last" in @qwen*) echo "no such version" >&2; exit 7 ;; @github*) exit 0 ;; ${programs.join(' ')} esac
`;
  await writeFile(join(bin, 'npm'), script);
  await chmod(join(bin, 'npm'), 0o755);
  return { folder, data: join(folder, 'data'), path: `${bin}:/usr/bin:/bin` };
}

test('agents installs a preset in the data directory, offers it, tries it and removes it', async (t) => {
  const { folder, data, path } = await folderWithNpm(t);
  const environment = {
    PATH: path,
    BRIDGE_AUTH_TOKEN: 'a-secret-of-the-server-0123456789',
    npm_config_registry: 'http://npm.test',
  };
  const agents = (...args: string[]) =>
    runProgram(['agents', ...args, '--data-dir', data], { environment, workingDirectory: folder });

  const before = await agents();
  assert.match(before.stdout, /- +claude +not installed: trestle agents install claude/, before.stderr);
  const installed = await agents('install', 'claude');
  assert.equal(installed.code, 0, installed.stderr);
  assert.match(installed.stdout, /^Installed claude \d+\.\d+\.\d+\.\n$/);
  const call = await readFile(join(folder, 'npm-calls'), 'utf8');
  assert.match(
    call,
    /^install --ignore-scripts .*--save-exact .*@agentclientprotocol\/claude-agent-acp@\d+\.\d+\.\d+\n$/,
  );
  const npmEnvironment = await readFile(join(folder, 'npm-environment'), 'utf8');
  assert.match(npmEnvironment, /npm_config_registry=http:\/\/npm\.test/);
  assert.doesNotMatch(npmEnvironment, /a-secret-of-the-server/);

  const current = await agents('update');
  assert.deepEqual([current.code, current.stdout], [0, 'All installed agents are up to date.\n']);
  const link = join(data, 'agent-programs/bin/claude-agent-acp');
  const old = (await readlink(link)).replace(/claude-[\d.]+/, 'claude-0.0.1');
  await rm(link);
  await symlink(old, link);
  const updated = await agents('update');
  assert.match(updated.stdout, /^Installed claude \d+\.\d+\.\d+\.\n$/, updated.stderr);

  const server = await startProgram(t, { dataDirectory: data, environment, workingDirectory: folder });
  const ids = (server.summary.agents as { id: string; status: string }[]).map(({ id }) => id);
  assert.deepEqual(ids.slice(0, 5), ['builtin', 'codex', 'opencode', 'gemini', 'claude']);
  const starts = () => readFile(join(folder, 'agent-starts'), 'utf8').catch(() => '');
  const startsBefore = await starts();
  assert.match(startsBefore, /start/, 'the server has started the agent to learn its state');
  const served = await agents();
  assert.match(served.stdout, /- +qwen +not installed: trestle agents install qwen\n/, served.stderr);
  assert.match(served.stdout, /ok +builtin +\d+\.\d+\.\d+, model demo\/echo\n/);
  assert.match(served.stdout, /ok +claude .* \(installed \d+\.\d+\.\d+\)\n/);
  assert.equal(await starts(), startsBefore, 'the server has told the states: no agent was started');
  await agents('install', 'kimi');
  assert.match(
    (await agents()).stdout,
    /- +kimi +installed; the running server offers it after a restart {2}\(installed/,
  );
  await agents('remove', 'kimi');
  // The scripted agent takes its prompt for a script, and says so: the turn has reached it.
  const tried = await agents('test', 'claude');
  assert.deepEqual([tried.code, tried.stdout], [1, '']);
  assert.match(tried.stderr, /^trestle: claude: Internal error: cannot Say \(AGENT_FAILED\)\n$/);
  const builtin = await agents('test', 'builtin');
  assert.match(builtin.stdout, /^ok {2}builtin: first text after \d+ ms, \d+ ms in all\n$/);

  const removed = await agents('remove', 'claude');
  assert.match(removed.stdout, /Removed claude/);
  assert.deepEqual(await readdir(join(data, 'agent-programs')), ['bin']);
  await assert.rejects(lstat(join(data, 'agent-programs/bin/claude-agent-acp')));
});

test('agents install leaves nothing behind when npm fails, when there is no program, and for unknown names', async (t) => {
  const { folder, data, path } = await folderWithNpm(t);
  const install = (name: string) =>
    runProgram(['agents', 'install', name, '--data-dir', data], {
      environment: { PATH: path },
      workingDirectory: folder,
    });
  for (const [name, message] of [
    ['qwen', /npm could not install the agent: no such version/],
    ['copilot', /@github\/copilot@\S+ has no program for this machine/],
    ['nobody', /There is no agent "nobody"\. Known agents: codex, opencode/],
  ] as const) {
    const { code, stderr, stdout } = await install(name);
    assert.equal(code, 1, name);
    assert.match(stderr, message);
    assert.equal(stdout, '');
  }
  const { stdout } = await runProgram(['agents', '--json', '--data-dir', data], { environment: { PATH: path } });
  assert.ok(JSON.parse(stdout).agents.every((line: object) => !('installed' in line)));
  const missing = await runProgram(['agents', 'install', 'claude', '--data-dir', data], {
    environment: { PATH: '/nowhere' },
  });
  assert.match(missing.stderr, /Installing agents needs npm, which is not in PATH/);
});
