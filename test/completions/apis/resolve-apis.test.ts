import assert from 'node:assert/strict';
import { test } from 'node:test';
import { apiTable } from '../../../src/completions/apis/api-table.ts';
import type { UsableApi } from '../../../src/completions/apis/model-api.ts';
import { resolveApis } from '../../../src/completions/apis/resolve-apis.ts';
import type { CompletionsSettings } from '../../../src/completions/settings.ts';
import { settingsOf } from '../../kit/completions/start-completions.ts';

type ApiSettings = CompletionsSettings['apis'][string];

const api = (changes: Partial<ApiSettings> = {}): ApiSettings => {
  const usual = settingsOf({ apis: { it: {} } }).apis.it;
  assert.ok(usual !== undefined);
  return { ...usual, ...changes };
};

function resolve(environment: Record<string, string>, apis: Record<string, ApiSettings> = {}) {
  const resolved = resolveApis({ settings: { apis }, environment });
  return {
    usable: (id: string): UsableApi => {
      const found = resolved.get(id);
      assert.ok(found?.usable === true, `${id}: ${JSON.stringify(found)}`);
      return found.api;
    },
    missing: (id: string): readonly string[] => {
      const found = resolved.get(id);
      assert.ok(found?.usable === false, id);
      return found.missing;
    },
    all: resolved,
  };
}

test('on a fresh machine only local servers can be called, and none counts as configured', () => {
  const { all } = resolve({});
  const usable = [...all.values()].flatMap((resolved) => (resolved.usable ? [resolved.api] : []));
  assert.ok(usable.length > 5 && usable.every(({ local, configured }) => local === true && !configured));
});

test('every row of the table becomes usable by its key variable and the variables of its address', () => {
  for (const row of apiTable.values()) {
    const names = [...row.baseUrl.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name);
    for (const keyVariable of row.keyVariables) {
      const environment = Object.fromEntries([
        ...names.map((name) => [name, name.includes('BASE') ? 'https://host.example' : 'value']),
        [keyVariable, 'the-key'],
      ]);
      const found = resolve(environment).usable(row.id);
      assert.equal(found.credentials.key, 'the-key', row.id);
      assert.equal(found.configured, true);
      assert.doesNotMatch(found.baseUrl, /[{}]/);
    }
  }
});

test('the first key variable that is set counts, and an empty one does not', () => {
  const { usable } = resolve({ GOOGLE_API_KEY: '', GEMINI_API_KEY: 'second', GOOGLE_GENERATIVE_AI_API_KEY: 'third' });
  assert.equal(usable('google').credentials.key, 'second');
});

test('what is missing is named', () => {
  const { missing } = resolve({ AZURE_API_KEY: 'k' });
  assert.deepEqual(missing('groq'), ['GROQ_API_KEY']);
  assert.deepEqual(missing('azure'), ['AZURE_RESOURCE_NAME']);
  assert.deepEqual(missing('amazon-bedrock'), ['AWS_REGION', 'AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY']);
  assert.deepEqual(missing('google-vertex'), [
    'GOOGLE_VERTEX_LOCATION',
    'GOOGLE_VERTEX_PROJECT',
    'GOOGLE_APPLICATION_CREDENTIALS',
  ]);
});

test('settings win over the table and the environment, and add APIs of their own', () => {
  const { usable, missing } = resolve(
    { GROQ_API_KEY: 'from-environment' },
    {
      groq: api({ base_url: 'http://127.0.0.1:9000/v1' }),
      openai: api({ api_key: 'from-settings' }),
      lab: api({ base_url: 'http://127.0.0.1:9001/v1' }),
      claude: api({ dialect: 'anthropic', base_url: 'https://claude.example/v1', api_key: 'c' }),
      nowhere: api(),
    },
  );
  assert.equal(usable('groq').baseUrl, 'http://127.0.0.1:9000/v1');
  assert.equal(usable('groq').credentials.key, 'from-environment');
  assert.deepEqual(usable('groq').refuses, ['logit_bias', 'logprobs', 'top_logprobs']);
  assert.equal(usable('openai').credentials.key, 'from-settings');
  assert.equal(usable('lab').dialect, 'openai');
  assert.equal(usable('lab').credentials.key, '');
  assert.equal(usable('claude').dialect, 'anthropic');
  assert.deepEqual(missing('nowhere'), ['base_url']);
});

test('P-37: AWS and Vertex take their credentials from the environment or from variables of the settings', () => {
  const aws = { AWS_ACCESS_KEY_ID: 'AKIA', AWS_SECRET_ACCESS_KEY: 's', AWS_DEFAULT_REGION: 'eu-west-1' };
  const signed = resolve(aws).usable('amazon-bedrock');
  assert.equal(signed.baseUrl, 'https://bedrock-runtime.eu-west-1.amazonaws.com');
  assert.deepEqual(signed.credentials, {
    key: '',
    region: 'eu-west-1',
    aws: { accessKeyId: 'AKIA', secretAccessKey: 's' },
  });
  const own = resolve(
    { ...aws, AWS_SESSION_TOKEN: 't' },
    { 'amazon-bedrock': api({ variables: { AWS_REGION: 'us-east-1' }, api_key: 'bearer' }) },
  ).usable('amazon-bedrock');
  assert.equal(own.baseUrl, 'https://bedrock-runtime.us-east-1.amazonaws.com');
  assert.equal(own.credentials.key, 'bearer');
  assert.equal(own.credentials.aws?.sessionToken, 't');

  const variables = { GOOGLE_VERTEX_PROJECT: 'p', GOOGLE_VERTEX_LOCATION: 'global' };
  const vertex = resolve(
    { GOOGLE_APPLICATION_CREDENTIALS: '/srv/key.json' },
    { 'google-vertex': api({ variables }) },
  ).usable('google-vertex');
  assert.equal(vertex.baseUrl, 'https://aiplatform.googleapis.com/v1/projects/p/locations/global');
  assert.equal(vertex.credentials.googleCredentialsFile, '/srv/key.json');
});

test('a host that is given with its scheme, and a base URL with a final slash, come out right', () => {
  const { usable } = resolve({
    DATABRICKS_HOST: 'https://acme.cloud.databricks.com/',
    DATABRICKS_TOKEN: 't',
    LITELLM_PROXY_API_BASE: 'http://10.0.0.5:4000/',
  });
  assert.equal(usable('databricks').baseUrl, 'https://acme.cloud.databricks.com/ai-gateway/mlflow/v1');
  assert.equal(usable('litellm-proxy').baseUrl, 'http://10.0.0.5:4000');
});
