import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { START_ARGUMENTS } from '../kit/start-command.ts';
import { until } from '../kit/until.ts';

const run = promisify(execFile);
const AGENT = fileURLToPath(new URL('../kit/scripted-acp-agent.ts', import.meta.url));
const TOKEN = 'a-token-of-the-instances-4711-xyz';
const PATIENCE_MS = 90_000;
/** Of this process alone, so that two runs do not meet. */
const NAME = `tr${process.pid % 100_000}`;
const NET = `10.${200 + (process.pid % 50)}.${(process.pid >> 3) % 250}`;
const ip = (...args: readonly string[]) => run('ip', args);

/** Undefined when namespaces can be made here, otherwise why not. */
function whyNot(): string | undefined {
  const probe = spawnSync('ip', ['netns', 'add', `${NAME}p`], { encoding: 'utf8' });
  if (probe.error !== undefined) return `there is no program "ip": ${probe.error.message}`;
  if (probe.status !== 0) return `"ip netns add" is not allowed here: ${probe.stderr.trim()}`;
  spawnSync('ip', ['netns', 'del', `${NAME}p`]);
  return undefined;
}

/** A namespace that has one way out: a cable to this one. */
async function makeNamespace(t: TestContext): Promise<void> {
  t.after(() => spawnSync('ip', ['netns', 'del', NAME]));
  await ip('netns', 'add', NAME);
  await ip('link', 'add', `${NAME}a`, 'type', 'veth', 'peer', 'name', `${NAME}b`, 'netns', NAME);
  await ip('addr', 'add', `${NET}.1/24`, 'dev', `${NAME}a`);
  await ip('link', 'set', `${NAME}a`, 'up');
  await ip('-n', NAME, 'addr', 'add', `${NET}.2/24`, 'dev', `${NAME}b`);
  await ip('-n', NAME, 'link', 'set', `${NAME}b`, 'up');
  await ip('-n', NAME, 'link', 'set', 'lo', 'up');
}

test('a runner in another network namespace serves sessions of three instances', { timeout: 400_000 }, async (t) => {
  const reason = whyNot();
  if (reason !== undefined) {
    process.stderr.write(`NOT SHOWN: a runner in another network namespace, because ${reason}\n`);
    t.skip(reason);
    return;
  }
  await makeNamespace(t);
  const postgres = await startPostgres();
  after(() => postgres.stop());
  const folder = await temporaryFolder(t);
  const configure = async (name: string, custom: readonly object[]) => {
    await writeFile(join(folder, name), JSON.stringify({ agents: { catalog: ['builtin'], custom } }));
    return ['--config', join(folder, name)];
  };
  const database = ['--database', postgres.url];
  const ofInstances = await configure('instance.yaml', [{ id: 'far', runner_agent: 'scripted' }]);
  const instances = await Promise.all(
    [1, 2, 3].map(() =>
      startProgram(t, {
        args: [...ofInstances, ...database, '--listen', `${NET}.1:0`],
        environment: { BRIDGE_AUTH_TOKEN: TOKEN, COMPLETIONS_MASTER_KEY: `sk-${TOKEN}` },
      }),
    ),
  );
  const made = await runProgram(['runner', 'create', 'far', '--json', ...database, '--data-dir', folder]);
  assert.equal(made.code, 0, made.stderr);
  const { key } = JSON.parse(made.stdout) as { key: string };
  const [first] = instances as [(typeof instances)[number]];
  const runner = await startProgram(t, {
    starter: ['ip', 'netns', 'exec', NAME, process.execPath, ...START_ARGUMENTS],
    command: ['runner'],
    args: [
      ...(await configure('runner.yaml', [{ id: 'scripted', command: process.execPath, args: [AGENT] }])),
      ...['--url', first.url],
    ],
    environment: { RUNNER_KEY: key },
  });

  await assert.rejects(fetch(`${runner.url}/healthz`), 'nothing of the runner can be reached from here');
  for (const [index, { url }] of instances.entries()) {
    const headers = { authorization: `Bearer ${TOKEN}` };
    const isKnown = async () => (await (await fetch(`${url}/api/bridge/agents`, { headers })).text()).includes('"ok"');
    await until('the runner to be known', isKnown, PATIENCE_MS);
    const params = { sessionId: `s-${index}`, taskPrompt: 'say over there', routing: { explicitProviderId: 'far' } };
    const { result } = await until(
      'the agent to be there',
      async () => {
        const answer = await callBridge(url, 'session.start', params, TOKEN).answer;
        return answer.result?.status !== 'unavailable' && answer;
      },
      PATIENCE_MS,
    );
    assert.equal(result?.output, 'over there', JSON.stringify(result));
    const next = await callBridge(url, 'session.message', { sessionId: `s-${index}`, taskPrompt: 'recall' }, TOKEN)
      .answer;
    assert.equal(next.result?.output, 'say over there|recall');
  }
});
