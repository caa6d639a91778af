import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { parse } from 'yaml';
import { settingEntries, variablesOf } from '../../src/platform/config/setting-declaration.ts';
import { settingsDeclaration } from '../../src/system/settings.ts';
import { projectRoot } from '../architecture/source-file.ts';

interface Service {
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes?: readonly string[];
  readonly stop_grace_period?: string;
  readonly init?: boolean;
}
interface Compose {
  readonly services: Readonly<Record<string, Service>>;
}

const HAPROXY = '/usr/sbin/haproxy';
const INSTANCES = ['trestle1', 'trestle2', 'trestle3'];
const compose = readCompose('deploy/compose.yaml');
const pooled = readCompose('deploy/compose.pgbouncer.yaml');
const variables = new Set(
  settingEntries(settingsDeclaration.schema).flatMap((entry) =>
    variablesOf(entry, settingsDeclaration.environmentPrefix),
  ),
);

function read(path: string): string {
  return readFileSync(`${projectRoot}${path}`, 'utf8');
}

function readCompose(path: string): Compose {
  return parse(read(path), { merge: true }) as Compose;
}

test('the three instances of compose.yaml differ only in their data and in where the others reach them', () => {
  const found = INSTANCES.map((name) => ({ name, ...compose.services[name] }));
  for (const { name, environment = {}, volumes, stop_grace_period: grace, init } of found) {
    assert.equal(init, true, 'Node collects no children of agents');
    const { TRESTLE_CLUSTER_ADDRESS: address, ...same } = environment;
    assert.equal(address, `http://${name}:8787`);
    assert.deepEqual(same, omitAddress(found[0]?.environment));
    assert.equal(volumes?.length, 1);
    // Five seconds of notice, two for WebSockets, and the drain.
    assert.ok(Number.parseInt(grace ?? '', 10) >= 5 + 2 + 30, grace);
  }
  assert.equal(new Set(found.flatMap(({ volumes = [] }) => volumes)).size, INSTANCES.length);
});

test('every variable of the compose files is one of a setting, and behind PgBouncer each instance knows the server itself', () => {
  for (const { services } of [compose, pooled]) {
    for (const name of INSTANCES) {
      const names = Object.keys(services[name]?.environment ?? {});
      assert.ok(names.length > 0, name);
      for (const variable of names) assert.ok(variables.has(variable), `${variable} of ${name} is not a setting`);
    }
  }
  for (const name of INSTANCES) {
    const { TRESTLE_DATABASE_URL: url, TRESTLE_DATABASE_LISTEN_URL: direct } = pooled.services[name]?.environment ?? {};
    assert.match(url ?? '', /@pgbouncer:6432\/trestle$/);
    assert.equal(direct, compose.services[name]?.environment?.TRESTLE_DATABASE_URL);
  }
});

test('HAProxy checks /readyz of every instance, and accepts its configuration', (t) => {
  const text = read('deploy/haproxy.cfg');
  const servers = [...text.matchAll(/^ {2}server (\S+) (\S+)$/gm)].map(([, name, address]) => [name, address]);
  assert.deepEqual(
    servers,
    INSTANCES.map((name) => [name, `${name}:8787`]),
  );
  assert.match(text, /http-check send meth GET uri \/readyz /);
  if (!existsSync(HAPROXY)) return t.skip('HAProxy did not check deploy/haproxy.cfg: apt-get install haproxy');
  const { status, stderr } = spawnSync(HAPROXY, ['-c', '-f', `${projectRoot}deploy/haproxy.cfg`], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
});

test('the unit of one instance among several is the unit of a single one, with a port and a folder of its own', () => {
  const lines = (path: string) =>
    read(path)
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'));
  const single = lines('deploy/trestle.service');
  const one = lines('deploy/trestle@.service');
  assert.deepEqual(
    one.filter((line) => !single.includes(line)),
    [
      'Description=Trestle instance on port %i',
      'Environment=TRESTLE_LISTEN=127.0.0.1:%i',
      'EnvironmentFile=-/etc/trestle/%i.environment',
      'Environment=TRESTLE_DATA_DIR=%S/trestle/%i',
      'Environment=XDG_CACHE_HOME=%C/trestle/%i',
      'TimeoutStopSec=50',
      'StateDirectory=trestle/%i',
      'CacheDirectory=trestle/%i',
    ],
  );
});

function omitAddress(environment: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> {
  const { TRESTLE_CLUSTER_ADDRESS: _, ...same } = environment;
  return same;
}
