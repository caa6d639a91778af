import { apiTable } from '../../src/completions/apis/api-table.ts';
import { knownModels, MODELS_DATE } from '../../src/completions/apis/known-models.ts';
import type { ModelApi } from '../../src/completions/apis/model-api.ts';

/** `docs/models.md`. */
export function modelReference(): string {
  const rows = [...apiTable.values()];
  return `${INTRODUCTION.replace('COUNT', String(rows.length)).replace('DATE', MODELS_DATE)}
## The table

| id | name | dialect | key variable | also needs | known models |
| --- | --- | --- | --- | --- | --- |
${rows.map(tableRow).join('\n')}
`;
}

function tableRow({ id, name, dialect, baseUrl, keyVariables, local }: ModelApi): string {
  const keys = keyVariables.map((variable) => `\`${variable}\``).join(', ');
  const others = [...new Set([...baseUrl.matchAll(/\{(\w+)\}/g)].map(([, variable]) => `\`${variable}\``))].join(', ');
  const known = knownModels(id).size;
  const key = local === true ? `none; or ${keys}` : keys;
  return `| \`${id}\` | ${name} | ${dialect} | ${key} | ${others} | ${known === 0 ? 'asked live' : known} |`;
}

const INTRODUCTION = `# Model APIs

<!-- Made by "npm run docs" from src/completions/apis: change the tables there, not this file. -->

COUNT model APIs are known out of the box. A model is called as \`<api>/<the API's own name of it>\`, for instance
\`openai/gpt-4o-mini\` or \`openrouter/meta-llama/llama-3.3-70b-instruct\`, or by an alias of your own. \`demo/echo\` is
always there.

\`\`\`sh
export GROQ_API_KEY=...            # the API is usable as soon as its key is there
trestle models                     # what can be called now
trestle models --all               # what the other APIs lack
\`\`\`

One short call shows whether the key works:

\`\`\`sh
trestle models test groq/llama-3.3-70b-versatile
\`\`\`

- **Usable** is an API whose key is in the environment of the server or in its settings (\`completions.apis.<id>.api_key\`, which
  wins). The first key variable that is set counts. Any model name of a usable API passes: new models need no new release.
- **Another address**: \`completions.apis.<id>.base_url\`, or the variable that the vendor's library reads (\`OPENAI_BASE_URL\`,
  \`ANTHROPIC_BASE_URL\`, \`AZURE_OPENAI_ENDPOINT\`, \`GOOGLE_GEMINI_BASE_URL\`, \`GROQ_BASE_URL\`, \`OLLAMA_HOST\`). One that names the
  server's own address is meant for clients, and ignored.
- **Variables in addresses**, such as the region of AWS or the resource of Azure, come from the environment, or from
  \`completions.apis.<id>.variables\`, which wins.
- **Amazon Bedrock** takes \`AWS_BEARER_TOKEN_BEDROCK\`, or \`AWS_ACCESS_KEY_ID\` and \`AWS_SECRET_ACCESS_KEY\` (with
  \`AWS_SESSION_TOKEN\` where there is one): then requests are signed. The region is \`AWS_REGION\` or \`AWS_DEFAULT_REGION\`.
- **Vertex** takes the file of a service account (\`GOOGLE_APPLICATION_CREDENTIALS\`), or an access token or express key in
  \`GOOGLE_VERTEX_ACCESS_TOKEN\`.
- **Azure**: the model is the name of your deployment. For an address of your own set \`base_url\`.
- **Local servers** need no key and can always be called by name. They are listed when they answer: those with a port of
  their own are asked; several kinds share ports 8000 and 8080, so these are asked only when they are configured
  (\`completions.apis: { vllm: {} }\`, or their key variable).
- **\`GET /models\`** lists aliases, \`demo/echo\`, and the known models of usable APIs; an API without known models is asked for
  its own list, at most once a minute, and its last list is shown while it is down. A key sees what it may use.
- **Prices and sizes** of the table are those of models.dev on DATE. Prices of cache reads, cache writes, audio and long prompts
  (above 200,000 or 272,000 tokens) are in it where models.dev has them for that API and model; those of Anthropic (with writes for an
  hour) and of DeepSeek are from these makers' price pages, and a few of OpenAI's cache reads (GPT-4o, GPT-4.1, GPT-5.3 chat, GPT-5.4
  mini and nano) from published tables that name OpenAI's page as their source. Prices of batches, of an hour's cache writes on Bedrock, Vertex AI and
  Azure, and whatever else no source confirmed are not in it: such tokens cost as much as the rest (an hour's cache write as much as
  one for five minutes). \`GET /models\` shows the prices that apply, and \`completions.prices\` overrides them, in USD per token.
  A model whose price is not known counts as free; its calls are flagged (\`price_known\` of the usage record, and the metric
  \`completions_unpriced_calls_total\`).
- **Newer facts**: \`trestle models update [file or address]\` reads a catalogue in the form of https://models.dev/api.json, and
  \`completions.catalog_url\` names an address that is read every day. A catalogue is checked before it is used; the last three
  good ones are kept in the database, so that a restart needs no network. It goes over the built-in table: models that it
  lacks stay, and so do prices that it lacks, as long as its prices of a prompt and an answer are the same. Besides the members of models.dev, \`cost\`
  may have \`cache_write_1h\`, \`input_image\` and \`batch\`, and a model \`thinking\` (\`style\`, \`efforts\`) and \`takes\` (\`sampling\`: how many of temperature and
  top_p together, \`max_temperature\`, \`claude\`, \`json_schema\`, \`json_with_tools\`, \`needs_proofs\`) ([decision 74](decisions/0074-catalogue-updates-go-over-the-built-in-table.md)).
- **Abilities** (\`tools\`, \`structured_output\`, \`reasoning\`, \`temperature\`), modalities and dates are part of \`GET /v1/models\` where
  they are known. The built-in table knows tools and reasoning, and of Claude and Nova whether they follow a schema; an update brings the rest. Only facts
  that neither has are guessed from the name of a model ([decision 140](decisions/0140-sources-are-annotations-and-rows-say-what-a-model-takes.md)).

## Adding one

In the settings; \`dialect\` is \`openai\` unless it says otherwise:

\`\`\`yaml
completions:
  apis:
    lab: { base_url: "http://127.0.0.1:9000/v1", api_key: "\${env:LAB_KEY}" }
    amazon-bedrock: { variables: { AWS_REGION: eu-central-1 } }
  prices: { lab/small: { input: 0.0000001, output: 0.0000002 } }
\`\`\`

## Several keys of one API

\`\`\`yaml
completions:
  apis:
    openai:
      api_keys:
        - { name: main, key: "\${env:OPENAI_KEY_1}", weight: 3, tokens_per_minute: 2000000 }
        - { name: spare, key: "\${env:OPENAI_KEY_2}" }
\`\`\`

Calls are shared among the keys by \`weight\`; limits of a key count for all models together. A key that the API refuses, or whose quota is used up (429), is passed over
immediately, and each key has a circuit of its own. To replace a key without downtime, change the list and send SIGHUP: calls under way end with the old key. Targets are
shown as \`openai/gpt-4o#spare\`. What an API stores (responses, files, batches) lies in the account of the key that was used, so a request that names it goes to that key:
keep the name when the new key is of the same account. The key named \`main\` takes over what was stored with \`api_key\`
([decision 84](decisions/0084-keys-of-a-pool-are-targets.md)).

## For everybody

A row in \`src/completions/apis/api-table.ts\` (id, name, everything before the path of the operation, the key
variable), then \`npm run docs\`. A test sends a request to every row. What an API refuses of OpenAI's fields is named in
\`refuses\`. Known models are lines of \`src/completions/apis/known-models/\`.
`;
