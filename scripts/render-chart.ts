import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/**
 * `node scripts/run.cjs scripts/render-chart.ts`: renders the Helm chart with values that use all of it, and writes the result
 * where tests read it, with the digest of the chart.
 */

const PROJECT = join(import.meta.dirname, '..');
const CHART = join(PROJECT, 'deploy/helm/trestle');
const RENDERED = join(PROJECT, 'test/deployment/rendered-chart.yaml');
const DEBIAN_PACKAGES = '/usr/share/gocode';
const NEEDED = 'apt-get install golang-go golang-github-masterminds-sprig-dev golang-k8s-sigs-yaml-dev';
const LIMIT_MS = 100_000;

/** Every part of the chart has something to render. */
export const SAMPLE_VALUES = {
  image: { repository: 'registry.example.org/trestle' },
  existingSecret: 'trestle',
  config: { agents: { catalog: ['builtin'], custom: [{ id: 'far', runner_agent: 'builtin' }] } },
  runners: [
    {
      name: 'builder',
      existingSecret: 'trestle-runner-builder',
      slots: 2,
      config: { agents: { catalog: ['builtin'] } },
    },
  ],
};

interface Rendering {
  /** `missing`: Go or a package of it is not installed, and `text` says what is needed. */
  readonly state: 'rendered' | 'refused' | 'missing';
  readonly text: string;
}

export function renderChart(values: object): Rendering {
  const found = spawnSync('go', ['run', join(import.meta.dirname, 'render-chart.go'), CHART], {
    input: JSON.stringify(values),
    env: { ...process.env, GO111MODULE: 'off', GOPATH: DEBIAN_PACKAGES },
    encoding: 'utf8',
    timeout: LIMIT_MS,
  });
  const { status, stdout, stderr, error } = found;
  const isMissing =
    (error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT' || /cannot find package/.test(stderr);
  if (isMissing) return { state: 'missing', text: `The chart was not rendered: this needs ${NEEDED}` };
  return status === 0 ? { state: 'rendered', text: stdout } : { state: 'refused', text: `${stderr}${error ?? ''}` };
}

/** What changes whenever a file of the chart does. */
export function chartDigest(): string {
  const digest = createHash('sha256');
  const files = globSync('**/*.{yaml,tpl,txt}', { cwd: CHART }).sort();
  for (const file of files) digest.update(`${file}\n${readFileSync(join(CHART, file), 'utf8')}\n`);
  return digest.digest('hex');
}

export function storedRendering(): { readonly digest: string; readonly text: string } {
  const text = readFileSync(RENDERED, 'utf8');
  return { digest: /^# chart ([0-9a-f]{64})$/m.exec(text)?.[1] ?? '', text };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const { state, text } = renderChart(SAMPLE_VALUES);
  if (state !== 'rendered') throw new Error(text);
  const head = '# Written by scripts/render-chart.ts from deploy/helm/trestle.';
  writeFileSync(RENDERED, `${head}\n# chart ${chartDigest()}\n${text}`);
}
