import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';
import { NODE_FLAGS } from '../kit/start-command.ts';

const dockerfile = read('Dockerfile').replaceAll(/\\\n\s*/g, '');
const unit = read('deploy/trestle.service');
const { bin } = JSON.parse(read('package.json'));

function read(path: string): string {
  return readFileSync(`${projectRoot}${path}`, 'utf8');
}

/** The instructions of the last stage: what the image is. */
function imageInstructions(): string[] {
  const lines = dockerfile.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return lines.slice(lines.findLastIndex((line) => line.startsWith('FROM ')));
}

function directive(name: string): string[] {
  return [...unit.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map((match) => match[1] ?? '');
}

test('the image runs the command of the package as a user without rights, and gets its signals', () => {
  const image = imageInstructions();
  const entry = image.findIndex((line) => line.startsWith('ENTRYPOINT '));
  assert.equal(
    image[entry],
    `ENTRYPOINT ${JSON.stringify(['node', ...NODE_FLAGS, `/app/${bin.trestle}`]).replaceAll(',', ', ')}`,
  );
  assert.ok(image.includes('USER node') && image.indexOf('USER node') < entry);
  assert.ok(image.includes('CMD ["serve"]') && image.includes('STOPSIGNAL SIGTERM'));
});

test('the image keeps its data in a volume of that user and says whether it is healthy', () => {
  const image = imageInstructions();
  assert.ok(image.includes('VOLUME /data') && image.includes('EXPOSE 8787'));
  assert.ok(image.some((line) => line.startsWith('RUN ') && line.includes('chown node:node /data')));
  assert.ok(image.some((line) => line.startsWith('ENV ') && line.includes('TRESTLE_DATA_DIR=/data')));
  assert.match(image.find((line) => line.startsWith('HEALTHCHECK ')) ?? '', /CMD \["node", "-e", ".*\/healthz/);
});

test('the image holds no development dependency, and runs no install script', () => {
  const installs = dockerfile.match(/npm ci .*/g) ?? [];
  assert.ok(installs.some((line) => line.includes('--omit=dev')));
  for (const line of installs) assert.match(line, /--ignore-scripts/);
  assert.doesNotMatch(imageInstructions().join('\n'), /npm|COPY --from=build \/app\/node_modules/);
});

test('every file that the image is built from is there, and nothing else reaches the build', () => {
  const copies = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)];
  const copied = new Set(copies.flatMap((match) => (match[1] ?? '').split(' ')));
  const lines = read('.dockerignore').split('\n');
  const [first, ...allowed] = lines.filter((line) => line !== '' && !line.startsWith('#'));
  assert.equal(first, '*');
  assert.deepEqual(allowed.map((line) => line.replace(/^!/, '')).sort(), [...copied].sort());
  for (const path of copied) assert.ok(existsSync(`${projectRoot}${path}`), path);
});

test('O-08: the unit gives the program time to drain, reloads it by SIGHUP and restarts it when it fails', () => {
  assert.deepEqual(directive('ExecReload'), ['/bin/kill -HUP $MAINPID']);
  assert.ok(Number(directive('TimeoutStopSec')[0]) > 30);
  assert.deepEqual(directive('Restart'), ['on-failure']);
  assert.deepEqual(directive('RestartPreventExitStatus'), ['2 78']);
});

test('the unit gives Node the flags that `npm start` gives', () => {
  assert.ok(directive('Environment').includes(`"NODE_OPTIONS=${NODE_FLAGS.join(' ')}"`));
});

test('the unit closes what the program does not need', () => {
  const closed: Readonly<Record<string, string>> = {
    DynamicUser: 'yes',
    NoNewPrivileges: 'yes',
    ProtectSystem: 'strict',
    ProtectHome: 'yes',
    PrivateTmp: 'yes',
    PrivateDevices: 'yes',
    CapabilityBoundingSet: '',
    SystemCallFilter: '@system-service',
    RestrictAddressFamilies: 'AF_INET AF_INET6 AF_UNIX AF_NETLINK',
    StateDirectory: 'trestle',
    UMask: '0077',
    // V8 could not run otherwise.
    MemoryDenyWriteExecute: 'no',
  };
  for (const [name, value] of Object.entries(closed)) assert.deepEqual(directive(name), [value], name);
});
