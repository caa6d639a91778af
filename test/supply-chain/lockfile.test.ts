import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';
import { isAllowedLicence } from './allowed-licences.ts';

interface LockedPackage {
  readonly version: string;
  readonly integrity?: string;
  readonly resolved?: string;
  readonly link?: boolean;
  readonly dev?: boolean;
  readonly hasInstallScript?: boolean;
  readonly optional?: boolean;
  readonly license?: string;
  readonly licenses?: undefined;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

const manifest = JSON.parse(readFileSync(`${projectRoot}package.json`, 'utf8'));
const lock = JSON.parse(readFileSync(`${projectRoot}package-lock.json`, 'utf8'));
const { '': root, ...locked }: Record<string, LockedPackage> = lock.packages;
const packages = Object.entries(locked);
const production = packages.filter(([, entry]) => entry.dev !== true);

test('O-16: nothing that production installs runs a script of its own', () => {
  assert.ok(production.length > 10, 'production has dependencies');
  const withScript = production.filter(([, entry]) => entry.hasInstallScript);
  assert.deepEqual(withScript, []);
});

test('O-16: every install script of development is approved by name, and no other is', () => {
  const withScript = packages.filter(([, entry]) => entry.hasInstallScript).map(([path]) => nameOf(path));
  assert.deepEqual(Object.keys(manifest.allowScripts).sort(), withScript.sort());
});

test('O-16: what production installs is under a permissive licence', () => {
  const refused = production.flatMap(([path, entry]) => {
    const file = `${projectRoot}${path}/package.json`;
    // What is for other machines is not here; the lockfile says what its licence is.
    const isElsewhere = entry.optional === true && !existsSync(file);
    const { license, licenses } = isElsewhere ? entry : JSON.parse(readFileSync(file, 'utf8'));
    const text = license?.type ?? license ?? licenses?.map(({ type }: { type: string }) => type).join(' OR ');
    return isAllowedLicence(text) ? [] : [`${path}: ${text}`];
  });
  assert.deepEqual(refused, []);
});

test('O-16: licences are judged as SPDX means them', () => {
  for (const licence of ['MIT', '(MIT OR GPL-3.0)', 'MIT AND Apache-2.0', 'BSD-3-Clause', '0BSD']) {
    assert.ok(isAllowedLicence(licence), licence);
  }
  for (const licence of ['GPL-3.0', 'MIT AND GPL-3.0', 'UNLICENSED', 'SEE LICENSE IN x', '', undefined]) {
    assert.ok(!isAllowedLicence(licence), licence);
  }
});

test('O-16: the lockfile pins every package to one content from the registry', () => {
  assert.equal(lock.lockfileVersion, 3);
  const unsound = packages.filter(
    ([, { version, integrity, resolved, link }]) =>
      link === true ||
      !/^\d+\.\d+\.\d+/.test(version) ||
      !/^sha512-/.test(integrity ?? '') ||
      (resolved !== undefined && !resolved.startsWith('https://registry.npmjs.org/')),
  );
  assert.deepEqual(unsound, []);
});

test('O-16: the lockfile belongs to package.json', () => {
  const fields = [
    'name',
    'version',
    'license',
    'bin',
    'engines',
    'dependencies',
    'devDependencies',
    'optionalDependencies',
  ] as const;
  const pick = (from: Readonly<Record<string, unknown>>) => fields.map((field) => [field, from[field]]);
  assert.deepEqual(pick({ ...root }), pick(manifest));
});

test('the lockfile names the packages of every platform, so that it serves every machine', () => {
  const missing = packages.flatMap(([path, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).filter((name) => {
      const nested = `${path}/node_modules/${name}`;
      return locked[`node_modules/${name}`] === undefined && locked[nested] === undefined;
    }),
  );
  assert.deepEqual(missing, []);
});

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
}

test('DU-18: packages that only one script needs come with that script, not with npm install', () => {
  for (const folder of ['clients', 'pages', 'patterns']) {
    const own = JSON.parse(readFileSync(`${projectRoot}test/${folder}/package.json`, 'utf8'));
    const ownLock = JSON.parse(readFileSync(`${projectRoot}test/${folder}/package-lock.json`, 'utf8'));
    for (const [name, version] of Object.entries(own.devDependencies)) {
      assert.equal(manifest.dependencies[name] ?? manifest.devDependencies[name], undefined, name);
      const entry: LockedPackage = ownLock.packages[`node_modules/${name}`];
      assert.equal(entry.version, version, `${name} is pinned`);
      assert.match(entry.integrity ?? '', /^sha512-/, name);
    }
  }
});
