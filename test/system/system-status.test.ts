import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeInstance } from '../../src/bridge/instances/instance-registry.ts';
import { resolveSettings } from '../../src/platform/config/load-configuration.ts';
import { createHttpMetrics } from '../../src/platform/http/http-metrics.ts';
import type { Finding } from '../../src/system/doctor/findings.ts';
import { settingsDeclaration } from '../../src/system/settings.ts';
import { startSystemStatus } from '../../src/system/system-status.ts';
import { createFakeClock } from '../kit/fake-clock.ts';

const STEP_MS = 10_000;

interface Series {
  readonly to: string;
  readonly series: Readonly<Record<string, readonly number[]>>;
}

/** Settings that differ in one that is reloaded and one that needs a restart. */
function settingsOf(which: 'first' | 'second') {
  const given = {
    TRESTLE_METRICS_TOKEN: `token-of-the-${which}-reading`,
    TRESTLE_CONSOLE_ENABLED: String(which === 'first'),
  };
  return resolveSettings({
    ...{ declaration: settingsDeclaration, environment: given, flags: {} },
    ...{ homeDirectory: '/home/ada', workingDirectory: '/tmp' },
  }).settings;
}

function start(diagnose: () => Promise<readonly Finding[]> = async () => []) {
  const clock = createFakeClock();
  const metrics = createHttpMetrics();
  const meter = metrics.meter({ service: 'bridge', route: '/', method: 'GET' });
  metrics.watch({ requestsInFlight: () => 2, webSockets: () => 5 });
  const status = startSystemStatus({
    clock,
    bridge: {
      forOperators: () => assert.fail('no request is sent'),
      runners: async () => [],
      instances: async () => [
        {
          ...describeInstance({
            ...{ id: 'ins_1', version: '1', address: 'a:1', home: '', started_at: 0, heartbeat_at: 1000 },
            ...{ read_at: 4000, sessions: 3, report: JSON.stringify({ at: 900, sockets: 2, settingsDigest: 'd' }) },
          }),
          isThis: true,
        },
      ],
    },
    totals: metrics.totals,
    queued: () => 7,
    diagnose,
    inForce: () => ({
      settings: settingsOf('second'),
      started: settingsOf('first'),
      sources: { metrics_token: 'env M' },
    }),
    onError: (error) => assert.fail(String(error)),
  });
  const read = async <Value>(name: string): Promise<Value> => {
    const route = status.routes.find(({ path }) => path === `/api/system/${name}`);
    return (await route?.handle({} as Parameters<typeof route.handle>[0])) as Value;
  };
  return { clock, meter, status, read };
}

test('figures are taken every ten seconds: counts of that time, quantiles by their upper bound, and what is now', async () => {
  const { clock, meter, status, read } = start();
  await clock.advance(0);
  for (let request = 0; request < 9; request += 1) meter.observe(200, 0.002);
  meter.observe(503, 0.4);
  await clock.advance(STEP_MS);
  meter.observe(200, 90);
  await clock.advance(STEP_MS);
  const { series, to } = await read<Series>('series');
  assert.deepEqual(series.requests, [0, 10, 1]);
  assert.deepEqual(series.errors, [0, 1, 0]);
  assert.deepEqual(series.p50_ms, [0, 2.5, 60_000]);
  assert.deepEqual(series.p95_ms, [0, 500, 60_000]);
  assert.deepEqual([series.in_flight?.at(-1), series.sockets?.at(-1), series.db_queue?.at(-1)], [2, 5, 7]);
  assert.ok(Number(series.rss_mb?.at(-1)) > 0);
  assert.equal(to, new Date(clock.now()).toISOString());
  await clock.advance(400 * STEP_MS);
  assert.equal((await read<Series>('series')).series.requests?.length, 360, 'an hour is kept');
  await status.stop();
  assert.equal(clock.pending(), 0, 'nothing goes on after the stop');
});

test('the doctor runs once for all who ask within 30 seconds; a run that failed is not kept', async () => {
  let runs = 0;
  const { clock, status, read } = start(async () => {
    runs += 1;
    if (runs === 1) throw new Error('no');
    return [{ name: 'node', state: 'ok', text: `run ${runs}` }];
  });
  await assert.rejects(read('doctor'), /no/);
  const [first, second] = await Promise.all([read('doctor'), read('doctor')]);
  assert.deepEqual(first, second);
  await clock.advance(29_000);
  assert.deepEqual(await read('doctor'), first);
  await clock.advance(1000);
  assert.deepEqual((await read<{ findings: Finding[] }>('doctor')).findings[0]?.text, 'run 3');
  const { instances } = await read<{ instances: readonly Record<string, unknown>[] }>('instances');
  assert.deepEqual(instances, [
    {
      ...{ id: 'ins_1', version: '1', address: 'a:1', isThis: true, state: 'serving', settingsDigest: 'd' },
      ...{ startedAt: '1970-01-01T00:00:00.000Z', heartbeatAt: '1970-01-01T00:00:01.000Z' },
      ...{ leaseMs: 5000, clockDifferenceMs: -100, sessions: 3, sockets: 2 },
    },
  ]);
  await status.stop();
});

test('settings are listed with their sources and without secrets; one that counts only after a restart is marked', async () => {
  const { status, read } = start();
  const { settings } = await read<{ settings: { path: string; value: string; pending: boolean; source: string }[] }>(
    'settings',
  );
  const find = (path: string) => settings.find((one) => one.path === path);
  assert.equal(JSON.stringify(settings).includes('token-of-the'), false);
  assert.equal(find('metrics_token')?.source, 'env M');
  assert.deepEqual([find('console.enabled')?.value, find('console.enabled')?.pending], ['false', true]);
  assert.equal(find('listen')?.pending, false);
  assert.ok(settings.length > 100, `${settings.length} settings`);
  await status.stop();
});
