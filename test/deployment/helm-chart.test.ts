import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { parse, parseAllDocuments } from 'yaml';
import { chartDigest, SAMPLE_VALUES, storedRendering } from '../../scripts/render-chart.ts';
import { settingEntries, variablesOf } from '../../src/platform/config/setting-declaration.ts';
import { settingsDeclaration } from '../../src/system/settings.ts';
import { projectRoot } from '../architecture/source-file.ts';

interface Variable {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: { readonly secretKeyRef?: { readonly name: string; readonly key: string } };
}
interface Container {
  readonly env: readonly Variable[];
  readonly envFrom: readonly object[];
  readonly image: string;
  readonly args: readonly string[];
  readonly securityContext: object;
  readonly [probe: string]: unknown;
}

const SECRETS = ['TRESTLE_DATABASE_URL', 'TRESTLE_SECRET_KEY', 'BRIDGE_AUTH_TOKEN', 'COMPLETIONS_MASTER_KEY'];
const rendering = storedRendering();
const documents = parseAllDocuments(rendering.text)
  .map((document) => {
    assert.deepEqual([...document.errors, ...document.warnings], []);
    return document.toJS();
  })
  .filter((document) => document !== null);
const instances = find('StatefulSet', 'trestle').spec;
const runner = find('StatefulSet', 'trestle-runner-builder').spec;
const compose = parse(read('deploy/compose.yaml'), { merge: true }).services;
const variables = new Set(
  settingEntries(settingsDeclaration.schema).flatMap((entry) =>
    variablesOf(entry, settingsDeclaration.environmentPrefix),
  ),
);

function read(path: string): string {
  return readFileSync(`${projectRoot}${path}`, 'utf8');
}

function find(kind: string, name: string) {
  const found = documents.filter((one) => one.kind === kind && one.metadata.name === name);
  assert.equal(found.length, 1, `${kind} ${name}`);
  return found[0];
}

function containerOf({ template }: typeof instances): Container {
  assert.equal(template.spec.containers.length, 1);
  return template.spec.containers[0];
}

function valuesOf({ env }: Container): Readonly<Record<string, string | undefined>> {
  return Object.fromEntries(env.map(({ name, value }) => [name, value]));
}

test('what these tests read was rendered from the chart as it is', () => {
  const how = 'the chart has changed: node scripts/run.cjs scripts/render-chart.ts';
  assert.equal(rendering.digest, chartDigest(), how);
});

test('the chart is of this version, and has the instances and the secrets of compose.yaml', () => {
  const { version } = JSON.parse(read('package.json'));
  const chart = parse(read('deploy/helm/trestle/Chart.yaml'));
  assert.deepEqual([chart.appVersion, chart.version], [version, version]);
  const container = containerOf(instances);
  assert.equal(container.image, `${SAMPLE_VALUES.image.repository}:${version}`);
  const composed = Object.keys(compose).filter((name) => name.startsWith('trestle'));
  assert.equal(instances.replicas, composed.length);
  const names = new Set(container.env.map(({ name }) => name));
  for (const name of Object.keys(compose.trestle1.environment)) {
    // Which proxies are trusted is known to whoever installs the Ingress.
    if (name !== 'TRESTLE_TRUSTED_PROXIES') assert.ok(names.has(name), name);
  }
  assert.equal(valuesOf(container).TRESTLE_LISTEN, compose.trestle1.environment.TRESTLE_LISTEN);
});

test('every variable of the chart is one of a setting, or of the pod', () => {
  const ofPod = ['POD_IP', 'HOME', 'XDG_CACHE_HOME', 'TRESTLE_CONFIG', 'RUNNER_KEY'];
  for (const { env } of [containerOf(instances), containerOf(runner)]) {
    for (const { name } of env) assert.ok(variables.has(name) || ofPod.includes(name), name);
    assert.equal(new Set(env.map(({ name }) => name)).size, env.length);
  }
});

test('a variable is named before it is used in another', () => {
  const { env } = containerOf(instances);
  const place = (name: string) => env.findIndex((one) => one.name === name);
  assert.equal(valuesOf(containerOf(instances)).TRESTLE_CLUSTER_ADDRESS, 'http://$(POD_IP):8787');
  assert.ok(place('POD_IP') >= 0 && place('POD_IP') < place('TRESTLE_CLUSTER_ADDRESS'));
});

test('secrets come from a secret that the chart does not hold, and a runner gets its own alone', () => {
  assert.deepEqual(
    documents.filter(({ kind }) => kind === 'Secret'),
    [],
  );
  for (const secret of SECRETS) {
    const { value, valueFrom } = containerOf(instances).env.find(({ name }) => name === secret) ?? {};
    assert.equal(value, undefined);
    assert.deepEqual(valueFrom?.secretKeyRef, { name: 'trestle', key: secret });
  }
  assert.deepEqual(containerOf(instances).envFrom, [{ secretRef: { name: 'trestle' } }]);
  const { env, envFrom } = containerOf(runner);
  const refs = env.flatMap(({ valueFrom }) => valueFrom?.secretKeyRef ?? []);
  assert.deepEqual(refs, [{ name: 'trestle-runner-builder', key: 'RUNNER_KEY' }]);
  assert.deepEqual(envFrom, [{ secretRef: { name: 'trestle-runner-builder' } }]);
  const values = parse(read('deploy/helm/trestle/values.yaml'));
  assert.deepEqual([values.existingSecret, values.config, values.runners], ['', {}, []]);
});

test('a pod that ends has time for the notice, the closing of sockets and the drain', () => {
  const { TRESTLE_CLUSTER_NOTICE: notice = '', TRESTLE_CLUSTER_DRAIN: drain = '' } = valuesOf(containerOf(instances));
  const seconds = [notice, drain].map((text) => Number(/^(\d+)s$/.exec(text)?.[1]));
  const [noticed = Number.NaN, drained = Number.NaN] = seconds;
  assert.ok(instances.template.spec.terminationGracePeriodSeconds >= noticed + 2 + drained + 10);
  assert.ok(runner.template.spec.terminationGracePeriodSeconds >= 25 + 10);
  // Two failed looks at /readyz, each a second after the other, are over before the notice is.
  const { periodSeconds, failureThreshold } = containerOf(instances).readinessProbe as Record<string, number>;
  assert.ok(Number(periodSeconds) * Number(failureThreshold) < noticed);
});

test('Kubernetes asks /readyz who gets calls, and /healthz who is started again, by a name that is always allowed', () => {
  const container = containerOf(instances);
  const asked = ['startupProbe', 'readinessProbe', 'livenessProbe'].map(
    (probe) => (container[probe] as { httpGet: { path: string; port: string; httpHeaders: object[] } }).httpGet,
  );
  assert.deepEqual(
    asked.map(({ path }) => path),
    ['/healthz', '/readyz', '/healthz'],
  );
  for (const { port, httpHeaders } of asked) {
    assert.deepEqual([port, httpHeaders], ['http', [{ name: 'Host', value: 'localhost' }]]);
  }
  assert.deepEqual(container.ports, [{ name: 'http', containerPort: 8787 }]);
});

test('no pod runs as root, gains rights, writes outside its volumes or gets a token of the cluster', () => {
  for (const spec of [instances, runner]) {
    const { securityContext, automountServiceAccountToken, volumes } = spec.template.spec;
    assert.equal(securityContext.runAsNonRoot, true);
    assert.ok(securityContext.runAsUser > 0);
    assert.deepEqual(securityContext.seccompProfile, { type: 'RuntimeDefault' });
    assert.equal(automountServiceAccountToken, false);
    assert.deepEqual(containerOf(spec).securityContext, {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
    const mounts = containerOf(spec).volumeMounts as { name: string; mountPath: string; readOnly?: boolean }[];
    const given = [...volumes, ...spec.volumeClaimTemplates.map((claim: { metadata: object }) => claim.metadata)];
    assert.deepEqual(mounts.map(({ name }) => name).sort(), given.map(({ name }) => name).sort());
    const writable = mounts.filter(({ readOnly }) => readOnly !== true).map(({ mountPath }) => mountPath);
    for (const name of ['HOME', 'XDG_CACHE_HOME', 'TRESTLE_DATA_DIR']) {
      const folder = valuesOf(containerOf(spec))[name] ?? '';
      assert.ok(
        writable.some((path) => folder === path || folder.startsWith(`${path}/`)),
        `${name}=${folder}`,
      );
    }
  }
});

test('services, the disruption budget and the spread choose instances, and the runner calls their service', () => {
  const { labels } = instances.template.metadata;
  const service = find('Service', 'trestle').spec;
  const budget = find('PodDisruptionBudget', 'trestle').spec;
  const [spread] = instances.template.spec.topologySpreadConstraints;
  for (const chosen of [
    service.selector,
    budget.selector.matchLabels,
    instances.selector.matchLabels,
    spread.labelSelector.matchLabels,
  ]) {
    assert.deepEqual({ ...labels, ...chosen }, labels);
    // Without the component they would choose runners, too.
    assert.notDeepEqual({ ...runner.template.metadata.labels, ...chosen }, runner.template.metadata.labels);
  }
  assert.equal(budget.maxUnavailable, 1);
  assert.deepEqual(
    { ...runner.template.metadata.labels, ...runner.selector.matchLabels },
    runner.template.metadata.labels,
  );
  for (const { serviceName } of [instances, runner]) assert.equal(find('Service', serviceName).spec.clusterIP, 'None');
  assert.deepEqual(containerOf(runner).args, [
    'runner',
    '--url',
    `http://trestle:${service.ports[0].port}`,
    '--slots',
    '2',
  ]);
});
