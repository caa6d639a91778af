import type { Static } from 'typebox';
import type { Complaint } from '../platform/config/problem.ts';
import { setting } from '../platform/config/setting.ts';
import { isLoopbackHost } from '../platform/network-address/classify-address.ts';

const ID = {
  pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$',
  expects: 'letters, digits, dots, dashes and underscores, at most 64',
};
/** The built-in plan: includes the demo model, and pays for nothing. */
export const FREE_PLAN = 'free';

const MAIL_ADDRESS = { pattern: '^([^<>]*<)?[^\\s@<>]+@[^\\s@<>]+>?$', expects: 'an e-mail address' };

const oauthClient = (provider: string) => ({
  client_id: setting.text({ default: '', description: `Client id at ${provider}. Empty: this login is off.` }),
  client_secret: setting.text({ default: '', secret: true, reload: true, description: 'The client’s secret.' }),
});

const port = (fallback: number, description: string) =>
  setting.integer({ default: fallback, minimum: 1, maximum: 65_535, description });

const proxyNode = setting.group('', {
  id: setting.text({ ...ID, description: 'Id of the agent.' }),
  name: setting.text({ default: '', description: 'The name to show. Empty: the id.' }),
  token: setting.token({
    default: '',
    reload: true,
    description: 'Its bearer token. Empty: an administrator issues one.',
  }),
  groups: setting.list(setting.text({}), { description: 'Groups that it belongs to.' }),
  address: setting.text({ default: '', description: 'Address that clients connect to. Empty: the id.' }),
  port: port(443, 'Port that clients connect to.'),
  server_name: setting.text({ default: '', description: 'Name in its certificate. Empty: the id.' }),
  path: setting.text({ default: '/split', description: 'Path of the xhttp transport.' }),
  mode: setting.text({ default: 'auto', description: 'Mode of the xhttp transport.' }),
  xhttp_port: port(443, 'Port of the xhttp transport.'),
  tcp_port: port(1443, 'Port of the tcp transport.'),
});

export const accountsSettings = setting.group('Identity, sessions and subscriptions.', {
  public_url: setting.url({
    schemes: ['http', 'https'],
    default: '',
    description: 'URL at which users reach this program. Empty: the address of the listener.',
  }),
  issuer: setting.url({
    schemes: ['http', 'https'],
    default: '',
    description:
      'Public address of another Trestle whose users may use the bridge and completions here, with its five-minute tokens (`POST /api/auth/token/jwt`). Only for programs without accounts: `serve bridge`, `serve completions`. Empty: none.',
  }),
  frontend_url: setting.url({
    schemes: ['http', 'https'],
    default: '',
    description: 'Address of the web console that logins return to. Empty: the public address.',
  }),
  allowed_origins: setting.list(setting.origin({}), {
    reload: true,
    description:
      'Web origins whose pages may call accounts with a token, spelled exactly. This server’s own origin is always allowed; cookies from other origins are always ignored.',
  }),
  registration: setting.choice(['open', 'invite', 'closed'], {
    default: '',
    reload: true,
    description:
      'Who may create an account: anyone (`open`), people with an invitation (`invite`), or nobody (`closed`). Empty: what the first administrator chose at set-up. Without such a choice, `open` while the program is reachable only from this machine (by `listen`, `public_url`, `allowed_hosts` and `trusted_proxies`), otherwise `invite`.',
  }),
  allowed_domains: setting.list(setting.hostName({}), {
    reload: true,
    description:
      'Domains of the e-mail addresses that may register without an invitation; needs `require_verification`. Empty: all.',
  }),
  default_plan: setting.text({
    ...ID,
    default: '',
    reload: true,
    description:
      'Plan of users without another plan: a name under `plans`, or the built-in `free`, which includes the demo model and pays for nothing. Empty: what the first administrator chose at set-up, otherwise `free`.',
  }),
  trial_days: setting.integer({
    default: 7,
    minimum: 0,
    maximum: 3650,
    description: 'Length of the trial that starts at registration.',
  }),
  require_verification: setting.flag({
    default: true,
    description: 'Registration requires a code that is sent by e-mail.',
  }),
  breached_passwords: setting.path({
    default: '',
    description:
      'File with a filter of breached passwords, which users cannot choose; `trestle user password-filter` builds it from a list. Empty: only the built-in list of common passwords is refused.',
  }),
  billing_webhook_secret: setting.text({
    default: '',
    secret: true,
    reload: true,
    description: 'Secret that signs payment webhooks. Empty: payment webhooks are refused.',
  }),
  webhook_allow: setting.list(setting.cidr({}), {
    description: 'Private address ranges that webhooks may be sent to.',
  }),
  sessions: setting.group('How long logins last.', {
    idle: setting.duration({
      default: '12h',
      minimum: '5m',
      maximum: '30d',
      reload: true,
      description: 'A login session ends after this time without use.',
    }),
    cookie_lifetime: setting.duration({
      default: '30d',
      minimum: '5m',
      maximum: '365d',
      reload: true,
      description: 'Maximum duration of a login in a browser, even if it is in use.',
    }),
    token_lifetime: setting.duration({
      default: '24h',
      minimum: '5m',
      maximum: '30d',
      reload: true,
      description: 'Maximum lifetime of a session token as a bearer token; a refresh token gives a new one.',
    }),
  }),
  tokens: setting.group('Personal access tokens (`tpt_...`).', {
    max_lifetime: setting.duration({
      default: '365d',
      minimum: '1d',
      maximum: '3650d',
      reload: true,
      description:
        'Maximum lifetime of a new token. A token that is created without a lifetime lasts 90 days, or this time if it is shorter.',
    }),
  }),
  mail_language: setting.choice(['en', 'de', 'zh'], {
    default: 'en',
    reload: true,
    description: 'Language of all mail: English, German or Chinese.',
  }),
  smtp: setting.group('How mail is sent. Without a host, it is written to the `outbox` folder of the data directory.', {
    host: setting.text({
      default: '',
      pattern: '^[^\\s/@]+$',
      expects: 'a host name',
      description: 'The mail server.',
    }),
    port: port(587, 'Its port.'),
    username: setting.text({ default: '', description: 'User to log in as. Empty: no login.' }),
    password: setting.text({ default: '', secret: true, reload: true, description: 'That user’s password.' }),
    from: setting.text({ ...MAIL_ADDRESS, default: '', description: 'Sender of all mail.' }),
    tls: setting.choice(['starttls', 'tls', 'none'], {
      default: 'starttls',
      description: 'How the connection is encrypted; `none` only to a server on this machine.',
    }),
    ca_file: setting.path({
      default: '',
      description: 'Certificates (PEM) to trust instead of the usual ones, for a mail server with a private authority.',
    }),
  }),
  oauth: setting.group('Login with other providers.', {
    github: setting.group('Login with GitHub.', {
      ...oauthClient('GitHub'),
      url: setting.url({
        schemes: ['http', 'https'],
        default: 'https://github.com',
        description: 'Where users log in; for GitHub Enterprise, its address.',
      }),
      api_url: setting.url({
        schemes: ['http', 'https'],
        default: 'https://api.github.com',
        description: 'Its API; for GitHub Enterprise `https://<host>/api/v3`.',
      }),
    }),
    google: setting.group('Login with Google.', oauthClient('Google')),
    oidc: setting.list(
      setting.group('', {
        id: setting.text({ ...ID, description: 'Name in the login address.' }),
        issuer: setting.url({
          schemes: ['http', 'https'],
          description: 'The issuer, exactly as in its discovery document.',
        }),
        client_id: setting.text({ description: 'Client id at the issuer.' }),
        client_secret: setting.text({
          default: '',
          secret: true,
          reload: true,
          description: 'The client’s secret. Empty: a public client.',
        }),
        trust_email: setting.flag({
          default: false,
          description:
            'Accept e-mail addresses that the issuer does not mark as verified, such as those of Microsoft Entra. Only for issuers where nobody can enter the address of someone else.',
        }),
      }),
      { description: 'OpenID Connect issuers.' },
    ),
  }),
  proxy_nodes: setting.flag({
    default: true,
    description:
      'Serve proxy nodes: their agents, the list of their clients, and their reports. If false, these paths do not exist; stored data is kept.',
  }),
  agents: setting.list(proxyNode, { description: 'Agents of proxy nodes that may report here.' }),
});

const plan = setting.group('', {
  models: setting.list(
    setting.text({ pattern: '^[^\\s]{1,200}$', expects: 'a model, or a pattern such as openai/*' }),
    {
      default: ['demo/*'],
      description: 'Models that it includes: names, or patterns such as `openai/*`. `["*"]`: all. Empty: none.',
    },
  ),
  requests_per_minute: setting.integer({
    default: 0,
    minimum: 0,
    maximum: 1_000_000_000,
    description: 'Requests per minute of one user, for all keys together. 0: no limit.',
  }),
  tokens_per_minute: setting.integer({
    default: 0,
    minimum: 0,
    maximum: 1_000_000_000_000,
    description: 'Tokens per minute of one user, for all keys together. 0: no limit.',
  }),
  budget: setting.group('What the plan pays for each user, for all keys together.', {
    usd: setting.number({
      default: 0,
      minimum: 0,
      maximum: 1_000_000_000,
      description: 'US dollars per period. 0: only models that are known to be free.',
    }),
    period: setting.choice(['day', 'month', 'total'], { default: 'month', description: 'The period, in UTC.' }),
  }),
  keys: setting.integer({
    default: 2,
    minimum: 0,
    maximum: 100,
    description: 'Keys of the completions API that a user may have at the same time.',
  }),
  bridge: setting.flag({
    default: false,
    description:
      'Whether agents work for users with this plan. If not, the bridge refuses them with 403. Needs a sandbox, or `bridge.trust_users`.',
  }),
  running_turns: setting.integer({
    default: 0,
    minimum: 0,
    maximum: 1_000_000,
    description:
      'Agent turns of a user that may run at the same time; further turns wait. 0: only the limits of the bridge apply.',
  }),
  jobs: setting.integer({
    default: 0,
    minimum: 0,
    maximum: 1_000_000,
    description:
      'Jobs of a user that may wait or run; further jobs are refused. 0: only `jobs.max_waiting_per_owner` applies.',
  }),
});

/** The plans, at the top level of the configuration because they limit what other services do. */
export const plansSettings = setting.record(plan, {
  keyPattern: ID.pattern,
  keyExpects: `names of ${ID.expects}`,
  reload: true,
  description:
    'Plans: what a user may use. A user has a plan if the payment webhook, an administrator or an invitation names it; all others have `accounts.default_plan`. The roles root, admin and operator have no plan unless you assign one. Users from 0.1.0 have the plan `legacy`, which has no limits unless you define it here.',
});

export type PlansSettings = Static<typeof plansSettings>;

/** Settings that the first administrator chooses where the configuration does not. */
export type LeftOpen = 'registration' | 'default_plan';

/** The settings of accounts as they apply: with the plans, and with what is empty worked out. */
export type AccountsSettings = Omit<Static<typeof accountsSettings>, 'registration'> & {
  readonly registration: 'open' | 'invite' | 'closed';
  readonly plans: PlansSettings;
  readonly leftOpen: ReadonlySet<LeftOpen>;
};

type GivenSettings = Static<typeof accountsSettings>;

/** What must hold between the settings of accounts. */
export function checkAccountsSettings(given: GivenSettings, plans: PlansSettings): readonly Complaint[] {
  const { smtp, oauth } = given;
  return [...checkRegistration(given, plans), ...checkMail(smtp), ...checkLogins(oauth), ...checkProxyNodes(given)];
}

function checkRegistration(given: GivenSettings, plans: PlansSettings): readonly Complaint[] {
  const complaints: Complaint[] = [];
  if (isSentInTheClear(given.issuer)) {
    complaints.push({
      path: 'accounts.issuer',
      wrong: 'anyone on the network path could replace the keys that tokens are checked with',
      right: 'use https',
    });
  }
  if (!['', FREE_PLAN].includes(given.default_plan) && !Object.hasOwn(plans, given.default_plan)) {
    const names = [FREE_PLAN, ...Object.keys(plans)];
    complaints.push({
      path: 'accounts.default_plan',
      wrong: `there is no plan "${given.default_plan}"`,
      right: `define it under plans, or name one of ${names.join(', ')}`,
    });
  }
  if (given.allowed_domains.length > 0 && !given.require_verification) {
    complaints.push({
      path: 'accounts.allowed_domains',
      wrong: 'nothing proves the domain of an address while require_verification is false',
      right: 'remove one of the two',
      involves: ['accounts.require_verification'],
    });
  }
  return complaints;
}

function checkMail({ host, from, tls }: GivenSettings['smtp']): readonly Complaint[] {
  if (host === '') return [];
  const complaints: Complaint[] = [];
  if (tls === 'none' && !isLoopbackHost(host.includes(':') ? `[${host}]` : host)) {
    const right = 'say starttls or tls, or send through a server on this machine';
    complaints.push({
      path: 'accounts.smtp.tls',
      wrong: 'mail would leave this machine unencrypted',
      right,
      involves: ['accounts.smtp.host'],
    });
  }
  if (from === '')
    complaints.push({ path: 'accounts.smtp.from', wrong: 'mail needs a sender', right: 'give an e-mail address' });
  return complaints;
}

function checkLogins({ github, google, oidc }: GivenSettings['oauth']): readonly Complaint[] {
  const complaints: Complaint[] = [];
  for (const [name, client] of Object.entries({ github, google })) {
    if ((client.client_id === '') === (client.client_secret === '')) continue;
    const missing = client.client_id === '' ? 'client_id' : 'client_secret';
    const path = `accounts.oauth.${name}.${missing}`;
    complaints.push({
      path,
      wrong: 'one half of the client is missing',
      right: `add "${missing}"`,
      involves: [`accounts.oauth.${name}`],
    });
  }
  for (const name of ['url', 'api_url'] as const) {
    if (isSentInTheClear(github[name])) {
      complaints.push({
        path: `accounts.oauth.github.${name}`,
        wrong: 'logins would be sent unencrypted',
        right: 'use https',
      });
    }
  }
  const ids = ['github', 'google', ...oidc.map(({ id }) => id)];
  oidc.forEach(({ id, issuer }, index) => {
    const path = `accounts.oauth.oidc[${index}]`;
    if (ids.indexOf(id) !== index + 2) {
      complaints.push({ path: `${path}.id`, wrong: `the id "${id}" is taken`, right: 'choose another id' });
    }
    if (isSentInTheClear(issuer)) {
      complaints.push({ path: `${path}.issuer`, wrong: 'logins would be sent unencrypted', right: 'use https' });
    }
  });
  return complaints;
}

function isSentInTheClear(address: string): boolean {
  const url = URL.parse(address);
  return url?.protocol === 'http:' && !isLoopbackHost(url.host);
}

function checkProxyNodes({ agents, proxy_nodes: served }: GivenSettings): readonly Complaint[] {
  if (!served && agents.length > 0) {
    const wrong = 'agents are listed, and proxy nodes are switched off';
    return [{ path: 'accounts.agents', wrong, right: 'remove one of the two', involves: ['accounts.proxy_nodes'] }];
  }
  const ids = agents.map(({ id }) => id);
  const tokens = agents.map(({ token }) => token);
  return agents.flatMap(({ id, token }, index): readonly Complaint[] => {
    const path = `accounts.agents[${index}]`;
    return [
      ...(ids.indexOf(id) === index
        ? []
        : [{ path: `${path}.id`, wrong: `the agent "${id}" is there twice`, right: 'give each its own id' }]),
      ...(token === '' || tokens.indexOf(token) === index
        ? []
        : [{ path: `${path}.token`, wrong: 'another agent has the same token', right: 'give each its own' }]),
    ];
  });
}
