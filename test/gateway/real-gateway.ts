import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gatewayFolder, gatewayProgram } from '../../scripts/gateway/gateway-package.ts';
import { freePort } from '../kit/free-port.ts';
import type { Scope } from '../kit/running-program.ts';

export interface RealGateway {
  /** `ws://...` */
  readonly url: string;
  readonly token: string;
  stop(): Promise<void>;
}

const TOKEN = 'real-gateway-token-71c0';
/** On a busy machine it takes more than a minute. */
const START_MS = 300_000;

/** Starts the installed OpenClaw with a home of its own and one model, on loopback. */
export async function startRealGateway(scope: Scope, modelUrl: string): Promise<RealGateway> {
  const program = gatewayProgram(gatewayFolder(process.env));
  if (!existsSync(program)) throw new Error(`openclaw is not installed at ${program}: run "npm run test:gateway"`);
  const home = await realpath(await mkdtemp(join(tmpdir(), 'trestle-openclaw-')));
  scope.after(() => rm(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 }));
  const port = await freePort();
  const configuration = join(home, 'openclaw.json');
  await mkdir(join(home, 'workspace'));
  await writeFile(configuration, JSON.stringify(configure(home, port, modelUrl)));
  const child = spawn(process.execPath, [program, 'gateway', 'run', '--port', String(port), '--token', TOKEN], {
    cwd: home,
    env: {
      PATH: process.env.PATH ?? '',
      HOME: home,
      TMPDIR: home,
      OPENCLAW_HOME: home,
      OPENCLAW_STATE_DIR: join(home, 'state'),
      OPENCLAW_CONFIG_PATH: configuration,
      OPENCLAW_SKIP_CHANNELS: '1',
    },
    stdio: ['ignore', 'ignore', 'ignore'],
    detached: true,
  });
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= end();
    return stopped;
  };
  async function end(): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGTERM');
    // The group goes with it: it is one that we started, and holds nothing else.
    const timer = setTimeout(() => process.kill(-(child.pid ?? 0), 'SIGKILL'), 20_000);
    await exited;
    clearTimeout(timer);
  }
  scope.after(stop);
  const deadline = Date.now() + START_MS;
  for (;;) {
    const isReady = await fetch(`http://127.0.0.1:${port}/readyz`).then(
      (response) => response.ok,
      () => false,
    );
    if (isReady) return { url: `ws://127.0.0.1:${port}`, token: TOKEN, stop };
    if (child.exitCode !== null || Date.now() > deadline) {
      const log = await readFile(join(home, 'openclaw.log'), 'utf8').catch(() => '');
      throw new Error(`openclaw did not start: ${log.slice(-2000)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

function configure(home: string, port: number, modelUrl: string): object {
  const model = {
    id: 'scripted-model',
    name: 'Scripted',
    reasoning: false,
    input: ['text'],
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
    contextWindow: 100_000,
    maxTokens: 8000,
  };
  const provider = { baseUrl: `${modelUrl}/v1`, apiKey: 'dummy', api: 'openai-completions', models: [model] };
  return {
    gateway: { mode: 'local', port, bind: 'loopback', auth: { mode: 'token', token: TOKEN } },
    models: { mode: 'replace', providers: { scripted: provider } },
    agents: {
      defaults: {
        workspace: join(home, 'workspace'),
        model: { primary: 'scripted/scripted-model' },
        skipBootstrap: true,
      },
    },
    logging: { file: join(home, 'openclaw.log') },
    plugins: { enabled: false },
  };
}
