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

Trestle knows COUNT model APIs. Call a model as \`<api>/<the API's own model name>\`, for example
\`openai/gpt-4o-mini\` or \`openrouter/meta-llama/llama-3.3-70b-instruct\`, or by your own alias. \`demo/echo\` is
always available.

\`\`\`sh
export GROQ_API_KEY=...            # the API is usable as soon as its key is set
trestle models                     # lists what you can call now
trestle models --all               # lists what the other APIs need
\`\`\`

One short call shows whether the key works:

\`\`\`sh
trestle models test groq/llama-3.3-70b-versatile
\`\`\`

- **Usable APIs.** An API is usable if its key is in the environment of the server or in its settings (\`completions.apis.<id>.api_key\`, which
  takes precedence). If an API has several key variables, the first one that is set counts. Trestle passes on any model name of a usable API, so new models need no new release.
- **Another address.** Set \`completions.apis.<id>.base_url\`, or the variable that the vendor's library reads (\`OPENAI_BASE_URL\`,
  \`ANTHROPIC_BASE_URL\`, \`AZURE_OPENAI_ENDPOINT\`, \`GOOGLE_GEMINI_BASE_URL\`, \`GROQ_BASE_URL\`, \`OLLAMA_HOST\`). Trestle ignores a variable that
  has the server's own address, because it is meant for clients.
- **Variables in addresses**, such as the region of AWS or the resource of Azure, come from the environment, or from
  \`completions.apis.<id>.variables\`, which takes precedence.
- **Amazon Bedrock** uses \`AWS_BEARER_TOKEN_BEDROCK\`, or signs requests with \`AWS_ACCESS_KEY_ID\` and \`AWS_SECRET_ACCESS_KEY\` (and
  \`AWS_SESSION_TOKEN\`, if set). The region is \`AWS_REGION\` or \`AWS_DEFAULT_REGION\`.
- **Vertex** uses the file of a service account (\`GOOGLE_APPLICATION_CREDENTIALS\`), or an access token or express key in
  \`GOOGLE_VERTEX_ACCESS_TOKEN\`.
- **Azure**: the model is the name of your deployment. Set \`base_url\` for your own address.
- **Local servers** need no key, and you can always call them by name. They are listed if they respond. Several kinds share the ports 8000 and 8080; Trestle
  asks those only if you configure them (\`completions.apis: { vllm: {} }\`, or their key variable).
- **\`GET /models\`** lists aliases, \`demo/echo\`, and the known models of usable APIs. If an API has no known models, Trestle asks it for
  its list, at most once a minute, and shows the last list while the API is unavailable. A key sees the models that it may use.
- **Prices and sizes** of the table are those of models.dev on DATE. It has prices of cache reads, cache writes, audio and long prompts
  (above 200,000 or 272,000 tokens) if models.dev has them for that API and model. The prices of Anthropic (with cache writes for an
  hour) and DeepSeek are from their own price pages, and a few cache reads of OpenAI (GPT-4o, GPT-4.1, GPT-5.3 chat, GPT-5.4
  mini and nano) from published tables that name OpenAI's page as their source. \`GET /models\` shows the prices that apply, and \`completions.prices\` overrides them, in USD per token.
- **Missing prices.** Unconfirmed prices are left out, such as those of batches, and of cache writes for an hour on Bedrock, Vertex AI and Azure: such tokens cost as much as other tokens (a cache write for an hour as much as
  one for five minutes). A model without a known price counts as free; its calls are marked (\`price_known\` of the usage record, and the metric
  \`completions_unpriced_calls_total\`).
- **Faster and regional answers.** The table has no prices for these. If a caller asks for them, a token costs 2.5 times its price with \`service_tier: priority\` (twice with \`serviceTier\` of Google and Bedrock),
  six times with Claude's \`speed: fast\`, and 1.1 times with \`inference_geo: us\`. These are the highest factors that the vendors charge for any model, so that budgets hold.
- **Catalogue updates.** \`trestle models update [file or address]\` reads a catalogue in the format of https://models.dev/api.json, and
  \`completions.catalog_url\` names a URL that Trestle reads every day. Trestle checks a catalogue before it uses it, and keeps the last three
  valid ones in the database, so a restart needs no network. An update overrides the built-in table. Models that the update lacks are kept, and so are prices that it lacks, if its prices
  of a prompt and an answer are the same. In addition to the members of models.dev, \`cost\`
  may have \`cache_write_1h\`, \`input_image\` and \`batch\`, and a model \`thinking\` (\`style\`, \`efforts\`) and \`takes\` (\`sampling\`: how many of temperature and
  top_p together, \`max_temperature\`, \`claude\`, \`json_schema\`, \`json_with_tools\`, \`needs_proofs\`) ([decision 74](decisions/0074-catalogue-updates-go-over-the-built-in-table.md)).
- **Abilities** (\`tools\`, \`structured_output\`, \`reasoning\`, \`temperature\`), modalities and dates are part of \`GET /v1/models\` if
  they are known. The built-in table has tools and reasoning, and for Claude and Nova whether they follow a schema; an update adds the others. Trestle guesses a fact from the name of a model only if
  neither has it ([decision 140](decisions/0140-sources-are-annotations-and-rows-say-what-a-model-takes.md)).

## Adding an API

Add it to the settings; the default \`dialect\` is \`openai\`:

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

Trestle distributes calls among the keys by \`weight\`; the limits of a key apply to all models together. Trestle immediately skips a key that the API refuses or whose quota is used up (429),
and each key has its own circuit. To replace a key without downtime, change the list and send SIGHUP: running calls end with the old key. Targets are
shown as \`openai/gpt-4o#spare\`. An API stores objects (responses, files, batches) in the account of the key that was used, so a request for an object goes to that key:
keep the name if the new key belongs to the same account. The key named \`main\` also has the objects that were stored with \`api_key\`
([decision 84](decisions/0084-keys-of-a-pool-are-targets.md)).

## Adding an API to Trestle

Add a row to \`src/completions/apis/api-table.ts\` (id, name, everything before the path of the operation, the key
variable), then run \`npm run docs\`. A test sends a request to every row. \`refuses\` lists the fields of OpenAI's API that an API
refuses. Known models are lines of \`src/completions/apis/known-models/\`.
`;
