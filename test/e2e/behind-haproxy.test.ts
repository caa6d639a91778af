import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { freePort } from '../kit/free-port.ts';
import { startHaproxy } from '../kit/real-haproxy.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const CLIENTS = 4;
const BUILTIN = { explicitProviderId: 'builtin' };
const PATIENCE_MS = 60_000;

test('DS-8: instances behind HAProxy are restarted one after the other, and no call fails', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const ports = [await freePort(), await freePort(), await freePort()];
  const places = await Promise.all(ports.map(async (port) => ({ port, dataDirectory: await temporaryFolder(t) })));
  const start = ({ port, dataDirectory }: (typeof places)[number]) =>
    startProgram(t, { dataDirectory, args: ['--database', postgres.url, '--listen', `127.0.0.1:${port}`] });
  const programs = [];
  for (const place of places) programs.push(await start(place));
  const { url, log } = await startHaproxy(t, ports);

  const failures: string[] = [];
  let calls = 0;
  let isOver = false;
  async function post(path: string, body: object): Promise<void> {
    calls += 1;
    try {
      const headers = { 'content-type': 'application/json' };
      const response = await fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
      const text = await response.text();
      if (response.status !== 200) failures.push(`${path} ${response.status} ${text.slice(0, 300)}`);
    } catch (error) {
      failures.push(`${path} ${String(error)} ${String((error as Error).cause)}`);
    }
  }
  async function client(number: number): Promise<void> {
    for (let turn = 0; !isOver; turn += 1) {
      // Half of the turns belong to a session that has been used before, wherever it is.
      const sessionId = turn % 2 === 0 ? `stays-${number}` : `new-${number}-${turn}`;
      const params = { sessionId, taskPrompt: `hello ${turn}`, routing: BUILTIN };
      await post('/acp/rpc', { jsonrpc: '2.0', id: '1', method: 'session.start', params });
      const messages = [{ role: 'user', content: 'hello' }];
      await post('/v1/chat/completions', { model: 'demo/echo', messages });
      await pause(30);
    }
  }
  const clients = Array.from({ length: CLIENTS }, (_, number) => client(number));
  await until('the first calls', () => calls > 50, PATIENCE_MS);
  for (const [index, place] of places.entries()) {
    const from = performance.now();
    assert.equal(await programs[index]?.stop('SIGTERM'), 0);
    t.diagnostic(`stopped in ${Math.round(performance.now() - from)} ms`);
    const seen = calls;
    programs[index] = await start(place);
    await until('calls after the restart', () => calls > seen + 50, PATIENCE_MS);
    // Until HAProxy sends calls to it again, so that two are never away.
    await pause(2_500);
  }
  isOver = true;
  await Promise.all(clients);
  t.diagnostic(`${calls} calls`);
  assert.deepEqual(failures, [], log());
});
