import { domainToASCII, domainToUnicode } from 'node:url';
import type { Randomness } from '../../platform/clock/randomness.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { BasePort, CredentialsPort, PeoplePort, PostPort, SessionsPort } from '../accounts-core.ts';
import type { AccountsErrorCode } from '../errors.ts';
import { setPasswordMail } from '../mail/messages.ts';
import { checkNewPassword } from '../passwords/passwords.ts';
import type { Role } from '../permissions.ts';
import type { FoundUser, SubscriptionRow } from '../storage/accounts-schema.ts';
import type { NewLink } from '../storage/credential-store.ts';
import { DAY_MS, type NewUserRow } from '../storage/user-store.ts';
import { newSubscription } from '../subscriptions/subscriptions.ts';

const MAX_EMAIL = 254;
const MAX_LOCAL = 64;
const MAX_LABEL = 63;
const LOCAL_PART = /^[a-z0-9!#$%&'*+/=?^_`{|}~-]+$/;
const LABEL = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

/** Scripts whose letters look like letters of another one of these scripts. */
const SCRIPTS: readonly RegExp[] = [
  /\p{Script=Latin}/u,
  /\p{Script=Cyrillic}/u,
  /\p{Script=Greek}/u,
  /\p{Script=Armenian}/u,
  /\p{Script=Cherokee}/u,
  /\p{Script=Hebrew}/u,
  /\p{Script=Arabic}/u,
  /\p{Script=Georgian}/u,
];
/**
 * Letters of other scripts that look like Latin ones: a label of only these letters looks like a Latin label. They are
 * аԁеһіјӏорԛѕԝхусвкмнтгпѵѡαικνορτυχωγ, as escapes because of the build.
 */
const LATIN_LOOK_ALIKES =
  /^[\u0430\u0501\u0435\u04bb\u0456\u0458\u04cf\u043e\u0440\u051b\u0455\u051d\u0445\u0443\u0441\u0432\u043a\u043c\u043d\u0442\u0433\u043f\u0475\u0461\u03b1\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03c9\u03b30-9-]+$/u;

/**
 * Returns an e-mail address as it is stored and compared: in lower case, the domain in ASCII (IDNA). Returns undefined for
 * text that is not an address, and for spellings that software would silently turn into another address: full-width letters,
 * invisible characters, letters of mixed scripts.
 */
export function normalizeEmail(text: string): string | undefined {
  if (text.length > MAX_EMAIL || text !== text.normalize('NFC')) return undefined;
  const at = text.lastIndexOf('@');
  if (at < 1) return undefined;
  const local = asciiLowerCase(text.slice(0, at));
  if (local.length > MAX_LOCAL || !local.split('.').every((atom) => LOCAL_PART.test(atom))) return undefined;
  const domain = normalizeDomain(text.slice(at + 1));
  if (domain === undefined) return undefined;
  const address = `${local}@${domain}`;
  return address.length > MAX_EMAIL ? undefined : address;
}

function normalizeDomain(text: string): string | undefined {
  const given = lowerCase(text);
  if (given === undefined) return undefined;
  const ascii = domainToASCII(given);
  const labels = ascii.split('.');
  const [topLevel = ''] = labels.slice(-1);
  if (labels.length < 2 || !labels.every(isLabel) || /^\d+$/.test(topLevel)) return undefined;
  const unicode = domainToUnicode(ascii);
  // Refuses text that the conversion changed in more than case. The ASCII form itself is accepted.
  if (given !== unicode && given !== ascii) return undefined;
  return unicode.split('.').some(isDisguised) ? undefined : ascii;
}

function isLabel(label: string): boolean {
  return label.length <= MAX_LABEL && LABEL.test(label);
}

function isDisguised(label: string): boolean {
  if (/^[a-z0-9-]*$/.test(label)) return false;
  return SCRIPTS.filter((script) => script.test(label)).length > 1 || LATIN_LOOK_ALIKES.test(label);
}

/** Returns undefined when a letter outside ASCII would become an ASCII letter, such as the Kelvin sign, which would become "k". */
function lowerCase(text: string): string | undefined {
  let lowered = '';
  for (const character of text) {
    const lower = character.toLowerCase();
    if (character > '\x7f' && /[\0-\x7f]/.test(lower)) return undefined;
    lowered += lower;
  }
  return lowered;
}

function asciiLowerCase(text: string): string {
  return text.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/** Returns the address as it is stored. Throws INVALID_EMAIL. */
export function requireEmail(text: string): string {
  const email = normalizeEmail(text);
  if (email === undefined) throw new AppError('INVALID_EMAIL');
  return email;
}

const MAX_NAME_LENGTH = 64;

/**
 * Returns a user's name as it is shown, or undefined for text that cannot be a name. A name has no "@", so that a login
 * cannot take it for an e-mail address, and no invisible characters.
 */
export function normalizeName(text: string): string | undefined {
  if (text.length > 4 * MAX_NAME_LENGTH || !text.isWellFormed()) return undefined;
  const name = text.normalize('NFC').trim();
  if (name === '' || [...name].length > MAX_NAME_LENGTH) return undefined;
  // NFKC turns some characters into "@", such as the full-width one.
  return /[\p{C}\p{Zl}\p{Zp}@]/u.test(name.normalize('NFKC')) ? undefined : name;
}

/** Returns the form in which names are compared: names that differ only in case, width or composition are equal. */
export function nameKey(name: string): string {
  return name.normalize('NFKC').trim().toLowerCase().normalize('NFKC');
}

interface NewUser {
  /** As `normalizeName` gives it. */
  readonly name: string;
  /** As `normalizeEmail` gives it. */
  readonly email: string;
  /** The address was shown to be theirs. */
  readonly emailVerified: boolean;
  /** They may log in as they are. */
  readonly confirmed: boolean;
  /** Given by an invitation or an administrator. */
  readonly plan?: string;
  readonly passwordHash: string | null;
  readonly role: Role;
  readonly now: number;
}

/** Returns the row of a new user. Every member is set here, so a request cannot set its role or state. */
export function newUserRow(user: NewUser, makeId: MakeId, randomness: Pick<Randomness, 'bytes'>): NewUserRow {
  return {
    id: makeId('usr_'),
    name: user.name,
    name_key: nameKey(user.name),
    email: user.email,
    email_verified: user.emailVerified ? 1 : 0,
    password_hash: user.passwordHash,
    role: user.role,
    root_mark: user.role === 'root' ? 'root' : null,
    plan: user.plan ?? '',
    active: 1,
    confirmed: user.confirmed ? 1 : 0,
    closing_at: null,
    proxy_uuid: randomUuid(randomness),
    proxy_uuid_expires_at: null,
    subscribed: 0,
    teams: 0,
    access_epoch: 1,
    totp_state: null,
    totp_issued_at: null,
    totp_confirmed_at: null,
    created_at: user.now,
    updated_at: user.now,
    last_login_at: null,
  };
}

/** RFC 9562, version 4. */
export function randomUuid(randomness: Pick<Randomness, 'bytes'>): string {
  const bytes = Uint8Array.from(randomness.bytes(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Buffer.from(bytes).toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

/** A person to create an account for, and the way in which they get it. */
interface NewPerson {
  readonly how: 'registration' | 'oauth' | 'invitation' | 'setup' | 'administrator' | 'command';
  readonly name: string;
  readonly email: string;
  /** The address was shown to be theirs. */
  readonly emailVerified: boolean;
  /** Without a password and a link they get a token to set a password with, by mail. */
  readonly password?: string | undefined;
  /** The account elsewhere that they logged in with. */
  readonly link?: Omit<NewLink, 'userId'>;
  readonly role: Role;
  readonly plan?: string;
  /** Who creates the account; themselves when left out. */
  readonly actor?: string;
  readonly head?: RequestHead | undefined;
  readonly details?: Readonly<Record<string, unknown>>;
  /** Called after all other checks. Returns the statements that use up the proof, or throws. */
  proof?(): Promise<readonly Runnable[]>;
  /** What else is stored with them, or not at all. */
  also?(userId: string): readonly Runnable[];
  /** The error when someone else has used the proof up. */
  readonly conflict?: AccountsErrorCode;
}

interface CreatedPerson {
  readonly user: FoundUser;
  /** To set a password with, for someone without any means of login. */
  readonly token?: string;
}

/**
 * The only way to create a user: user, password or link, trial, audit entry and mail are stored in one batch.
 * A mail, with a token to set a password, is sent only to a user without any means of login.
 */
type CreatePerson = (person: NewPerson) => Promise<CreatedPerson>;

type Parts = BasePort & PeoplePort & CredentialsPort & SessionsPort & PostPort;

/** Throws NAME_REQUIRED, INVALID_EMAIL, the errors of `checkNewPassword`, EMAIL_ALREADY_EXISTS and NAME_ALREADY_EXISTS. */
export function createPersonCreation(parts: Parts): CreatePerson {
  const { database, users, credentials, subscriptions, flows, audit, mail, clock, makeId } = parts;

  const invitingMail = (email: string, token: string) =>
    setPasswordMail(email, token, `${parts.frontendUrl()}/set-password#token=${token}`);

  return async (person) => {
    const name = normalizeName(person.name);
    if (name === undefined) throw new AppError('NAME_REQUIRED');
    const email = requireEmail(person.email);
    const { how, password, link, role, plan = '', emailVerified, head } = person;
    if (password !== undefined) checkNewPassword(password, { name, email }, parts.isBreached);
    const proof = (await person.proof?.()) ?? [];
    const passwordHash = password === undefined ? null : await parts.passwords.hash(password);
    const confirmed = passwordHash !== null || link !== undefined;
    const now = clock.now();
    const row = { name, email, emailVerified, confirmed, passwordHash, role, plan, now };
    const user = newUserRow(row, makeId, parts.randomness);
    const trial = trialOf(user, parts.settings().trial_days, now, makeId);
    const flow = confirmed ? undefined : flows.issue('set_password', { userId: user.id });
    const statements = [
      ...proof,
      ...users.add(user),
      ...(link === undefined ? [] : [credentials.addLink({ ...link, userId: user.id })]),
      ...trial.map(subscriptions.add),
      ...(flow === undefined ? [] : [flow.statement, mail.enqueue(invitingMail(email, flow.token))]),
      ...(person.also?.(user.id) ?? []),
      audit.statement({
        event: 'user.created',
        actor: person.actor ?? user.id,
        subject: user.id,
        ...(head !== undefined && { head }),
        details: { how, role, ...person.details },
      }),
      ...parts.webhooks.enqueue({ event: 'user.created', data: { userId: user.id, role, how } }),
    ];
    const refusals = person.conflict === undefined ? {} : { conflict: person.conflict };
    await database.write(statements, refusals).catch(explainTaken);
    mail.wake();
    parts.webhooks.wake();
    const stored = person.also === undefined ? user : ((await users.byId(user.id)) ?? user);
    return { user: stored, ...(flow !== undefined && { token: flow.token }) };
  };
}

/** The roles that get a trial: the others have no plan. */
const TRIAL_ROLES: ReadonlySet<string> = new Set(['user', 'readonly']);

/** Returns the trial subscription of a new user; empty when trials are switched off. */
function trialOf(user: NewUserRow, days: number, now: number, makeId: MakeId): readonly SubscriptionRow[] {
  if (days === 0 || !TRIAL_ROLES.has(user.role)) return [];
  const trial = { provider: 'trial', kind: 'trial', plan_id: `TRIAL-${days}D`, status: 'trialing' };
  const times = { expires_at: now + days * DAY_MS, event_at: now };
  return [{ ...newSubscription(makeId('sub_'), user.id, `trial-${user.id}`, now), ...trial, ...times }];
}

/** Translates a duplicate into the error that names the taken value; throws any other error again. */
export function explainTaken(error: unknown): never {
  if (!(error instanceof AppError) || error.code !== 'STORAGE_DUPLICATE') throw error;
  const columns = Array.isArray(error.details.columns) ? error.details.columns : [];
  if (columns.includes('root_mark')) throw new AppError('SETUP_DONE');
  throw new AppError(columns.includes('email') ? 'EMAIL_ALREADY_EXISTS' : 'NAME_ALREADY_EXISTS');
}
