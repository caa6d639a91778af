import { doesPay } from '../../accounts/owners.ts';
import { isLoopbackBind } from '../../platform/http/listen-address.ts';
import { isLoopbackHost } from '../../platform/network-address/classify-address.ts';
import { tokenWeakness } from '../../platform/secrets/tokens.ts';
import { accountsSettingsOf, type Settings } from '../settings.ts';
import { broken, type Finding, fine, note } from './finding.ts';

interface NamedToken {
  readonly name: string;
  readonly value: string;
  /** Whether being without it leaves a door open. */
  readonly needed: boolean;
}

/** Weak tokens, and missing ones: those matter once others can reach the address. */
export function accessFindings(settings: Settings, host: string): readonly Finding[] {
  const { bridge, completions, distributed } = settings;
  const tokens: readonly NamedToken[] = [
    { name: 'BRIDGE_AUTH_TOKEN', value: bridge.auth_token, needed: bridge.review_auth_token === '' },
    { name: 'BRIDGE_REVIEW_AUTH_TOKEN', value: bridge.review_auth_token, needed: false },
    { name: 'COMPLETIONS_MASTER_KEY', value: completions.master_key, needed: true },
    { name: 'metrics_token', value: settings.metrics_token, needed: false },
    { name: 'distributed.task_forward_token', value: distributed.task_forward_token, needed: false },
  ];
  const exposed = !isLoopbackBind(host);
  const findings = tokens.flatMap(({ name, value, needed }) => {
    if (value === '') return needed ? [missing(name, exposed, settings.insecure)] : [];
    const weakness = tokenWeakness(value);
    return [weakness === undefined ? fine(name, 'set') : note(name, `weak: ${weakness}`)];
  });
  const isOpen = bridge.auth_token === '' && bridge.review_auth_token === '';
  const isBehindProxy = !isLoopbackUrl(settings.accounts.public_url);
  return [
    ...findings,
    ...(isOpen && bridge.allowed_origins.length === 0 ? [OPEN_TO_PAGES] : []),
    ...(isBehindProxy && !exposed && settings.trusted_proxies.length === 0 ? [UNKNOWN_PROXY] : []),
    ...consoleFindings(settings),
    registrationFinding(settings),
  ];
}

/** People reach a program that listens on loopback only through a proxy. */
const UNKNOWN_PROXY = note(
  'trusted_proxies',
  'accounts.public_url leads through a proxy, and no proxy is listed: all people seem to come from one address, so that one of them can use up the limits of all; list the proxy’s address',
);

function isLoopbackUrl(address: string): boolean {
  return address === '' || isLoopbackHost(URL.parse(address)?.host ?? '');
}

/** A web console of another origin whose pages could not call accounts. */
function consoleFindings({ accounts }: Settings): readonly Finding[] {
  const { frontend_url: console, public_url: own, allowed_origins: listed } = accounts;
  const origin = URL.parse(console)?.origin;
  if (origin === undefined || origin === URL.parse(own)?.origin || listed.includes(origin)) return [];
  const text = `pages of ${origin} (accounts.frontend_url) cannot call accounts; list the origin, unless a server calls for them`;
  return [note('accounts.allowed_origins', text)];
}

/** Who may create an account, and whether that costs the operator something. */
function registrationFinding(settings: Settings): Finding {
  const accounts = accountsSettingsOf(settings);
  const { registration, default_plan: plan } = accounts;
  const name = 'accounts.registration';
  if (registration !== 'open' || !doesPay(plan, accounts)) return fine(name, registration);
  const what = 'set registration to invite, or name a default_plan that pays for nothing';
  return note(name, `open, and the plan "${plan}" pays: anyone who registers can spend its budget; ${what}`);
}

/** The default that the contract asks for, and that is too much where other programs serve pages. */
const OPEN_TO_PAGES = note(
  'bridge.allowed_origins',
  'any page that another program serves on localhost can use the bridge, because it has no token; set a token, or allowed_origins: [self]',
);

function missing(name: string, exposed: boolean, insecure: boolean): Finding {
  if (!exposed) return fine(name, 'not set: open to programs on this machine only');
  if (insecure) return note(name, 'not set: open to everybody who reaches the address (--insecure)');
  return broken(name, 'not set, and the address can be reached from other machines: the server will not start');
}
