import { settingsTables } from '../platform/config/describe-settings.ts';
import { settingsDeclaration } from './settings.ts';

/** `docs/configuration.md`. */
export function configurationDocument(): string {
  return `${INTRODUCTION}\n## Sample\n\n\`\`\`yaml\n${SAMPLE_FILE}\`\`\`\n\n${settingsTables(settingsDeclaration)}\n`;
}

const INTRODUCTION = `# Configuration

<!-- Made by "trestle config docs" from the declarations of the settings: change those, not this file. -->

Every setting has a default: Trestle runs without any configuration. Where a setting is given more than once,
**flags** win over **environment variables**, these over the **file** and this over the defaults.

- **File.** \`--config PATH\`, else \`TRESTLE_CONFIG\`, else \`trestle.yaml\` in the working directory if there is one. It is
  YAML 1.2 in UTF-8, at most 256 KiB. A key with nothing after it counts as not written. A file that holds secrets should
  have mode 0600; there is a warning when others may read it.
- **\`\${env:NAME}\`** anywhere in a value is replaced by that environment variable; \`$\${env:NAME}\` stands for the text itself.
  Where the reference is all there is and the setting is empty by default, a variable that is not set counts as empty; anywhere
  else it is a problem. What a variable holds is not expanded again. One reference may stand for a whole list or map.
- **Environment.** Each setting below has a variable; some have an older name as well, which then wins. Lists are comma
  separated; maps, and lists of groups, are given as YAML or JSON. A list or map from a variable replaces that of the file. An empty
  variable counts as not set, except that an empty \`BRIDGE_REVIEW_AUTH_TOKEN\` clears the review token. A variable that
  starts with \`TRESTLE_\` and belongs to no setting is a problem.
- **Flags.** \`--listen\`, \`--data-dir\`, \`--database\`, \`--log-level\`, \`--insecure\`.
- **Durations** are a whole number with \`ms\`, \`s\`, \`m\`, \`h\` or \`d\`: \`30s\`, \`10m\`, \`30d\`.
- **Paths.** \`~/\` is the home directory. A relative path starts at the folder of the file that holds it; from a variable or
  flag, at the working directory.
- **Problems** are all reported together, with file, line and column, and the program ends with exit code 78.
  \`trestle config check\` only looks; \`trestle config print --sources\` shows what is in force and where it comes from.
- **Reload.** SIGHUP reads everything again. Settings marked *Reloaded* then apply immediately, all others after a restart; when
  there is a problem, everything stays as it was.
- **Secrets** are masked whenever settings are printed, as is the password in a database URL.
- **Editors** with a YAML language server check the file against \`trestle config schema > trestle.schema.json\` when its first line
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
