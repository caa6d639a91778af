import { setting } from '../platform/config/setting.ts';
import { MAIN } from './principal.ts';

/** The part of `bridge.*` that decides about what agents ask. */
export const permissionSettings = {
  permission_rules: setting.list(
    setting.group('', {
      when: setting.group('What the rule applies to; every given condition must match.', {
        kind: setting.text({
          default: '',
          pattern: '^[a-z_]{0,32}$',
          expects: 'a kind of tool such as execute or edit',
          description:
            'The kind of the tool: `execute`, `edit`, `delete`, `move`, `read`, `search`, `fetch`, `other`, or `question` for a question with a form.',
        }),
        command: setting.list(setting.text({ default: '' }), {
          description:
            'The first words of a command. An allow matches only plain commands, without anything that a shell interprets. A deny matches these words anywhere in a command, also with options between them.',
        }),
        path: setting.text({
          default: '',
          pattern: '^(?!~).{0,500}$',
          expects: 'a pattern of at most 500 characters, with the whole path of a home folder in place of `~`',
          description:
            'A pattern for paths: absolute, relative to the working directory, or with `**` in front, such as `**/.env*`. `*`, `?`, `[a-z]`, `{a,b}` and `**` also match hidden names. A deny ignores case, and a deny of a folder counts for everything inside. Rules check the path and where its links lead.',
        }),
      }),
      // biome-ignore lint/suspicious/noThenProperty: the name of the setting; its value is a text
      then: setting.choice(['allow', 'deny'], { default: 'deny', description: 'What the rule decides.' }),
    }),
    {
      reload: true,
      description:
        'Rules for permission requests of agents. A deny always wins. An allow decides without asking, even if the call requested `ask`.',
    },
  ),
  permission_timeout: setting.duration({
    default: '10m',
    minimum: '10s',
    maximum: '50m',
    reload: true,
    description: 'If nobody answers a question of an agent within this time, the answer is no.',
  }),
};

export const jobsSettings = setting.group('Background jobs.', {
  max_running: setting.integer({
    default: 4,
    minimum: 1,
    maximum: 1000,
    description: 'Jobs that run at the same time. Owners take turns, and so do the agents of each owner.',
  }),
  max_running_per_owner: setting.integer({
    default: 0,
    minimum: 0,
    maximum: 1000,
    description:
      'How many of these may belong to one owner. 0: one less than all; the main token may have all of them while there are no other tokens or nodes.',
  }),
  max_waiting_per_owner: setting.integer({
    default: 100_000,
    minimum: 1,
    maximum: 10_000_000,
    description: 'Pending jobs that one owner may have; further jobs are refused with OVERLOADED.',
  }),
  max_schedules_per_owner: setting.integer({
    default: 100,
    minimum: 0,
    maximum: 10_000,
    description: 'Schedules that one owner may have; further schedules are refused with TOO_MANY_SCHEDULES.',
  }),
  min_schedule_interval: setting.duration({
    default: '1m',
    minimum: '1m',
    maximum: '30d',
    description: 'Minimum time between two runs of a schedule; schedules that run more often are refused.',
  }),
  callback_allow: setting.list(setting.cidr({}), {
    description: 'Private address ranges that callbacks may be sent to.',
  }),
});

/** The part of `bridge.*` about saving what turns change, so that it can be shown and undone. */
export const checkpointSettings = {
  checkpoints: setting.group('Saves the working directory before and after each turn, so that changes can be undone.', {
    enabled: setting.flag({
      default: true,
      description: 'Save working directories. Needs git on this machine. Does not change repositories.',
    }),
    timeout: setting.duration({
      default: '2s',
      minimum: '100ms',
      maximum: '1m',
      description:
        'How long saving may delay a turn. After that, the turn continues, and its changes cannot be undone.',
    }),
    max_files: setting.integer({
      default: 5000,
      minimum: 1,
      maximum: 1_000_000,
      description:
        'The maximum number of files that one save reads: those that the repository does not have, or all files if there is no repository.',
    }),
    max_bytes: setting.integer({
      default: 268_435_456,
      minimum: 1_048_576,
      maximum: 1_099_511_627_776,
      description: 'The maximum total size of these files. A session keeps at most four times as much.',
    }),
    turns: setting.integer({
      default: 50,
      minimum: 1,
      maximum: 1000,
      description: 'How many of the last turns of a session can be undone.',
    }),
  }),
};

/** The part of `bridge.*` that gives MCP servers to sessions of certain owners. */
export const mcpServerSettings = {
  mcp_servers: setting.list(
    setting.group('', {
      name: setting.text({
        pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$',
        expects: 'letters, digits, dots, dashes and underscores, at most 64',
        description: 'Its name. If a call has a server with the same name, that one is used instead.',
      }),
      owners: setting.list(setting.text({ pattern: '^[!-~]{1,200}$', expects: 'an owner, or *' }), {
        default: [MAIN.id],
        description:
          'Whose sessions have it: `main`, `user:<id>`, `service:<id>`, `team:<id>`, or `*` for everyone. Their agents can read its variables and headers.',
      }),
      command: setting.command({ default: '', description: 'The program: a name to look up in PATH, or a path.' }),
      args: setting.list(setting.text({ default: '' }), { description: 'Arguments of the program.' }),
      env: setting.record(setting.text({ default: '', secret: 'maybe' }), {
        keyPattern: '^[A-Za-z_][A-Za-z0-9_]*$',
        keyExpects: 'names of environment variables',
        description: 'Variables of the program.',
      }),
      type: setting.choice(['http', 'sse'], { default: 'http', description: 'How `url` is reached.' }),
      url: setting.url({ schemes: ['http', 'https'], default: '', description: 'Its address, instead of a program.' }),
      headers: setting.record(
        setting.text({ default: '', pattern: '^[ -~]*$', expects: 'visible ASCII', secret: 'maybe' }),
        {
          keyPattern: "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
          keyExpects: 'names of HTTP headers',
          description: 'Sent with each request to `url`.',
        },
      ),
      trestle: setting.flag({
        default: false,
        description:
          'Offers the tools of Trestle itself, instead of a program or an address: agents can ask other agents and submit jobs.',
      }),
    }),
    {
      description:
        'MCP servers for the agents of new sessions, in addition to those of the call. With `permissions: deny` there are none.',
    },
  ),
};

/** The part of `agents.builtin.*` about its model and its work. */
export const builtinSettings = {
  model: setting.text({ default: 'demo/echo', description: 'Model that the built-in agent runs on.' }),
  base_url: setting.url({
    schemes: ['http', 'https'],
    default: '',
    description: 'OpenAI-compatible API to use. Empty: the completions service inside this program.',
  }),
  api_key: setting.token({ default: '', description: 'Key for that API. Empty: none is sent.' }),
  charge_people: setting.choice(['here', 'there'], {
    default: 'here',
    description:
      'Who charges users for calls to `base_url`. `here`: the completions service of this program, at `completions.prices`. `there`: a Trestle at `base_url` that knows the same users, and gets a five-minute token of the user with each call.',
  }),
  max_requests: setting.integer({
    default: 50,
    minimum: 1,
    maximum: 1000,
    description:
      'Maximum number of requests to the model in one turn. At the limit, the turn ends with the work done so far.',
  }),
  context_characters: setting.integer({
    default: 400_000,
    minimum: 10_000,
    maximum: 4_000_000,
    description:
      'How much of a conversation is sent to the model; a conversation that fills three quarters of it is summarised.',
  }),
  command_timeout: setting.duration({
    default: '2m',
    minimum: '1s',
    maximum: '1h',
    description: 'Timeout of a command that the agent runs.',
  }),
  background_timeout: setting.duration({
    default: '1h',
    minimum: '1s',
    maximum: '7d',
    description: 'How long a command may run in the background; it also ends with its session.',
  }),
  fetch_allow: setting.list(setting.cidr({}), {
    description: 'Private address ranges that `fetch_url` may reach, in addition to `bridge.sandbox_hosts`.',
  }),
};
