import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { renderChart, SAMPLE_VALUES, storedRendering } from '../../scripts/render-chart.ts';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { freePort } from '../kit/free-port.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { runProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

interface Variable {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: { readonly secretKeyRef?: { readonly key: string }; readonly fieldRef?: object };
}

const PATIENCE_MS = 60_000;
const TOKEN = 'a-token-of-the-bridge-for-this-test';
const documents = documentsOf(storedRendering().text);

function documentsOf(text: string) {
  return parseAllDocuments(text)
    .map((document) => document.toJS())
    .filter((document) => document !== null);
}

function find(kind: string, name: string) {
  return documents.find((one) => one.kind === kind && one.metadata.name === name);
}

/** The variables of a pod as Kubernetes sets them, with its volumes and its configuration in a folder of this machine. */
async function podEnvironment(scope: Scope, name: string, secret: Readonly<Record<string, string>>, port = 0) {
  const folder = await temporaryFolder(scope);
  const places = { '/data': join(folder, 'data'), '/tmp': join(folder, 'tmp'), '/etc/trestle': join(folder, 'etc') };
  for (const place of Object.values(places)) await mkdir(place);
  await writeFile(join(places['/etc/trestle'], 'trestle.yaml'), find('ConfigMap', name).data['trestle.yaml']);
  const { spec } = find('StatefulSet', name).spec.template;
  const [{ env, args }] = spec.containers as [{ env: readonly Variable[]; args: readonly string[] }];
  const environment: Record<string, string> = { ...secret };
  for (const { name: variable, value = '', valueFrom } of env) {
    const key = valueFrom?.secretKeyRef?.key;
    if (key !== undefined) assert.ok(secret[key] !== undefined, `${key} is not in the secret of ${name}`);
    else if (valueFrom?.fieldRef !== undefined) environment[variable] = '127.0.0.1';
    else {
      const [start = '', to] =
        Object.entries(places).find(([from]) => value.startsWith(`${from}/`) || value === from) ?? [];
      environment[variable] = (to === undefined ? value : `${to}${value.slice(start.length)}`)
        .replaceAll(/\$\((\w+)\)/g, (_, other: string) => environment[other] ?? '')
        .replace(/:8787$/, `:${port}`);
    }
  }
  return {
    environment,
    args,
    dataDirectory: environment.TRESTLE_DATA_DIR ?? '',
    graceSeconds: spec.terminationGracePeriodSeconds,
  };
}

test('the chart renders to what its other tests read', { timeout: 300_000 }, (t) => {
  const { state, text } = renderChart(SAMPLE_VALUES);
  if (state === 'missing') return t.skip(text);
  assert.equal(state, 'rendered', text);
  assert.deepEqual(documentsOf(text), documents, 'write it again: node scripts/run.cjs scripts/render-chart.ts');
});

test('a value that is missing is named, and other values change what they are about', { timeout: 300_000 }, (t) => {
  const missing: readonly (readonly [object, RegExp])[] = [
    [{ image: { repository: '' } }, /image\.repository is missing/],
    [{ existingSecret: '' }, /existingSecret is missing: name the secret with TRESTLE_DATABASE_URL/],
    [{ runners: [{ name: 'far' }] }, /existingSecret of the runner far is missing/],
  ];
  for (const [change, reason] of missing) {
    const { state, text } = renderChart({ ...SAMPLE_VALUES, ...change });
    if (state === 'missing') return t.skip(text);
    assert.equal(state, 'refused');
    assert.match(text, reason);
  }
  const { text } = renderChart({
    ...SAMPLE_VALUES,
    runners: [],
    replicas: 5,
    cluster: { noticeSeconds: 15, drainSeconds: 300 },
    storage: { className: 'fast' },
    imagePullSecrets: [{ name: 'registry' }],
  });
  const found = documentsOf(text);
  const [{ spec }, ...others] = found.filter(({ kind }) => kind === 'StatefulSet');
  assert.deepEqual(others, []);
  assert.deepEqual([spec.replicas, spec.volumeClaimTemplates[0].spec.storageClassName], [5, 'fast']);
  assert.ok(spec.template.spec.terminationGracePeriodSeconds > 15 + 2 + 300);
  assert.deepEqual(spec.template.spec.imagePullSecrets, [{ name: 'registry' }]);
});

test('with what the chart gives them, an instance is ready, a runner works for it, and both end in time', {
  timeout: 300_000,
}, async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const port = await freePort();
  const pod = await podEnvironment(
    t,
    'trestle',
    {
      TRESTLE_DATABASE_URL: postgres.url,
      TRESTLE_SECRET_KEY: Buffer.alloc(32, 1).toString('base64'),
      BRIDGE_AUTH_TOKEN: TOKEN,
      COMPLETIONS_MASTER_KEY: 'a-master-key-for-this-test-alone',
    },
    port,
  );
  const listen = ['--listen', pod.environment.TRESTLE_LISTEN ?? ''];
  const instance = await startProgram(t, { ...pod, command: pod.args, args: listen });
  const url = `http://127.0.0.1:${port}`;
  const [container] = find('StatefulSet', 'trestle').spec.template.spec.containers;
  for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe']) {
    const { path, httpHeaders } = container[probe].httpGet;
    const headers = httpHeaders.map(({ name, value }: Variable) => [name, value]);
    const response = await fetch(`${url}${path}`, { headers });
    assert.equal(response.status, 200, `${probe}: ${await response.text()}`);
  }

  const made = await runProgram(['runner', 'create', 'builder', '--json'], pod);
  assert.equal(made.code, 0, made.stderr);
  const { key } = JSON.parse(made.stdout) as { key: string };
  const host = await podEnvironment(t, 'trestle-runner-builder', { RUNNER_KEY: key });
  const [command = '', ...args] = host.args.map((argument) => argument.replace('http://trestle:8787', url));
  const runner = await startProgram(t, { ...host, command: [command], args });
  let tries = 0;
  await until(
    'a turn on the runner',
    async () => {
      tries += 1;
      const params = { sessionId: `far-${tries}`, taskPrompt: 'hello', routing: { explicitProviderId: 'far' } };
      return (await callBridge(url, 'session.start', params, TOKEN).answer).result?.status === 'completed';
    },
    PATIENCE_MS,
  );
  for (const [program, { graceSeconds }] of [
    [runner, host],
    [instance, pod],
  ] as const) {
    const from = performance.now();
    assert.equal(await program.stop('SIGTERM'), 0, program.stderr());
    assert.ok(performance.now() - from < graceSeconds * 1000);
  }
});
