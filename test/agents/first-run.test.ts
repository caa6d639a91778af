import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { runProgram, startProgram } from '../kit/running-program.ts';
import { startObedientModel } from './obedient-model.ts';
import { newestFirst, realFolder } from './real-agent.ts';

/** npm downloads a program of 150 MB. */
const LIMIT_MS = 200_000;

test('with one model key on a fresh home, an agent is installed and works', async (context) => {
  const t = newestFirst(context);
  const model = await startObedientModel();
  t.after(() => model.stop());
  const folder = await realFolder(t, 'trestle-first-run-');
  const [home, dataDirectory] = [join(folder, 'home'), join(folder, 'data')];
  const work = join(home, 'work');
  await mkdir(work, { recursive: true });
  const { PATH = '', HOME = '/root', NODE_EXTRA_CA_CERTS = '/etc/ssl/certs/ca-certificates.crt' } = process.env;
  const environment = {
    PATH,
    HOME: home,
    // Of the machine and not of its user: whom it trusts, and what npm has downloaded before.
    ...(existsSync(NODE_EXTRA_CA_CERTS) && { NODE_EXTRA_CA_CERTS }),
    npm_config_cache: join(HOME, '.npm'),
    OPENAI_API_KEY: 'sk-only-key-0123456789',
    OPENAI_BASE_URL: `${model.url}/v1`,
  };
  const options = { environment, workingDirectory: work, limitMs: LIMIT_MS };
  const program = await startProgram(t, { ...options, dataDirectory });
  const place = ['--data-dir', dataDirectory];

  const installed = await runProgram(['agents', 'install', 'opencode', ...place], options);
  assert.equal(installed.code, 0, installed.stderr);
  const ran = await runProgram(['run', '--agent', 'opencode', 'SAY hello', ...place], options);
  assert.equal(ran.code, 0, `${ran.stderr}\n${program.stderr()}`);
  assert.match(ran.stdout, /Here is hello from /);
});
