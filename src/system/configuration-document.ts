import { settingsTables } from '../platform/config/describe-settings.ts';
import { settingsDeclaration } from './settings.ts';

/** `docs/configuration.md`. */
export function configurationDocument(): string {
  return `${INTRODUCTION}\n## Sample\n\n\`\`\`yaml\n${SAMPLE_FILE}\`\`\`\n\n${settingsTables(settingsDeclaration)}\n`;
}

const INTRODUCTION = `# Configuration

<!-- Made by "trestle config docs" from the declarations of the settings: change those, not this file. -->

Every setting has a default: Trestle runs without any configuration. If a setting is given more than once,
**flags** override **environment variables**, which override the **file**, which overrides the defaults.

- **File.** \`--config PATH\`, otherwise \`TRESTLE_CONFIG\`, otherwise \`trestle.yaml\` in the working directory, if there is one. The file is
  YAML 1.2 in UTF-8, at most 256 KiB. Trestle ignores a key without a value. Give a file that contains secrets the
  mode 0600; Trestle warns if others can read it.
- **\`\${env:NAME}\`** anywhere in a value is replaced by that environment variable; \`$\${env:NAME}\` stands for the text itself.
  If the reference is the whole value and the default of the setting is empty, an unset variable counts as empty; anywhere
  else it is an error. Trestle does not expand the content of a variable again. One reference can stand for a whole list or map.
- **Environment.** Each setting below has a variable. Some also have an older name, which takes precedence. Separate the items of lists with
  commas; write maps, and lists of groups, as YAML or JSON. A list or map from a variable replaces that of the file. An empty
  variable counts as unset, except that an empty \`BRIDGE_REVIEW_AUTH_TOKEN\` clears the review token. A variable that
  starts with \`TRESTLE_\` and belongs to no setting is an error.
- **Flags.** \`--listen\`, \`--data-dir\`, \`--database\`, \`--log-level\`, \`--insecure\`.
- **Durations** are a whole number with \`ms\`, \`s\`, \`m\`, \`h\` or \`d\`: \`30s\`, \`10m\`, \`30d\`.
- **Paths.** \`~/\` is the home directory. A relative path starts at the folder of the configuration file; in a variable or
  flag, it starts at the working directory.
- **Errors.** Trestle reports all errors in one message, with file, line and column, and exits with code 78.
  \`trestle config check\` only checks; \`trestle config print --sources\` shows the active settings and their sources.
- **Reload.** SIGHUP reads everything again. Settings marked *Reloaded* then apply immediately, all others after a restart. If the
  new configuration has errors, nothing changes.
- **Secrets** are masked whenever settings are printed, as is the password in a database URL.
- **Editors** with a YAML language server check the file against \`trestle config schema > trestle.schema.json\` if its first line
  is \`# yaml-language-server: $schema=./trestle.schema.json\`.
`;

const SAMPLE_FILE = `listen: 127.0.0.1:8787
data_dir: ./data
database: { url: "" }                             # empty: SQLite files in data_dir; or postgres://...
allowed_hosts: []
trusted_proxies: []
listener: { connections_per_address: 20000 }
bridge:
  auth_token: "\${env:BRIDGE_AUTH_TOKEN}"
  review_auth_token: ""
  allowed_origins: []
  app_origin: https://app.example
  method_prefix_aliases: [acme]                   # acme.jobs.submit = app.jobs.submit
  workspace_roots: [~/code]
  permissions: allow
  limits: { message_bytes: 8388608, calls_per_connection: 1024, connections_per_address: 20000 }
agents:
  catalog: [builtin, codex, opencode, gemini]     # in routing order
  default: builtin
  builtin: { model: demo/echo }
  codex: { command: codex, args: [app-server], env: { CODEX_HOME: /srv/codex } }
  opencode: { command: opencode, args: [acp], url: "" }
  custom:
    - { id: claude, label: Claude, command: claude-agent-acp, args: [], env: {} }
jobs: { max_running: 4, callback_allow: [10.0.0.0/8] }
gateway:
  provider_id: openclaw
  label: OpenClaw
  url: ws://127.0.0.1:18789
  token: "\${env:OPENCLAW_TOKEN}"
  tools_allow: ["*"]
distributed:
  local_node_id: edge-1
  task_forward_token: "\${env:FORWARD_TOKEN}"
  nodes:
    - { id: runner-1, role: executor, zone: eu, bridge_endpoint: "http://10.0.0.7:8787", capabilities: [gpu] }
  forwarding:
    hop_limit: 3
    default_action: execute_local
    rules:
      - { methods: [session.start, session.message], target: { selector: { role: executor }, strategy: round_robin } }
    routes: []
completions:
  master_key: "\${env:COMPLETIONS_MASTER_KEY}"
  strict_params: false
  apis:                                           # adds to, or overrides, the built-in table
    lab: { dialect: openai, base_url: "http://127.0.0.1:9000/v1", api_key: "\${env:LAB_KEY}" }
  models:
    - name: fast
      targets:
        - { model: lab/small, weight: 2 }
        - { model: groq/llama-3.1-8b-instant, priority: 2, requests_per_minute: 30 }
      fallbacks: [demo/echo]
      retries: 2
      timeouts: { first_byte: 60s }
      cache: { ttl: 0s }
  prices: { lab/small: { input: 0.0000001, output: 0.0000002 } }
retention: { events: 30d, jobs: 90d, usage: 400d, content: 400d, audit: 400d }
console: { enabled: true }
telemetry: { otlp_endpoint: "" }                  # or OTEL_EXPORTER_OTLP_ENDPOINT
accounts:
  public_url: http://127.0.0.1:8787
  trial_days: 7
  require_verification: true
  smtp: { host: "", port: 587, username: "", password: "", from: "", tls: starttls }
  oauth:
    github: { client_id: "", client_secret: "" }
    oidc:
      - { id: acme, issuer: "https://login.acme.example", client_id: trestle, client_secret: "\${env:ACME_SECRET}" }
  agents:
    - { id: node-1, name: Node 1, token: "\${env:NODE_1_TOKEN}", groups: [] }
plans:
  pro:
    models: ["*"]
    requests_per_minute: 300
    budget: { usd: 50, period: month }
    keys: 20
`;
