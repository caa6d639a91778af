import { type Command, InvalidArgumentError, Option } from 'commander';
import { parseDuration } from '../platform/config/setting.ts';
import type { ControlResult } from '../system/controls.ts';
import { type CommandContext, print } from './command-context.ts';
import { callFromCommand, commaList } from './load-settings.ts';
import { when } from './sessions.ts';

const NONE = 'none';
const MAX_GRACE_MS = 86_400_000;

type KeyInfo = ControlResult<'completions', 'keys.change'>;

interface CreateOptions {
  readonly owner?: string;
  readonly models?: readonly string[];
  readonly tags?: readonly string[];
  readonly requestsPerMinute?: number;
  readonly tokensPerMinute?: number;
  readonly maxParallel?: number;
  readonly budget?: { readonly usd: number; readonly period: string };
  readonly storeContent?: keyof typeof STORED;
  readonly expires?: string;
}

type OrNone<Options> = { readonly [Name in keyof Options]: Options[Name] | typeof NONE };

interface ChangeOptions extends OrNone<Omit<CreateOptions, 'owner' | 'models' | 'storeContent'>> {
  readonly name?: string;
  readonly models?: readonly string[];
  readonly storeContent?: keyof typeof STORED | typeof DEFAULT;
  readonly enable?: boolean;
  readonly disable?: boolean;
}

/** `trestle key create|list|change|rotate|revoke`. */
export function registerKey(program: Command, context: CommandContext): void {
  const key = program
    .command('key')
    .summary('issue, list, change and revoke keys of the completions API')
    .description('Manages the keys of the completions API, whether the server runs or not.');
  registerCreate(key, context);
  registerList(key, context);
  registerChange(key, context);
  registerRotate(key, context);
  registerRevoke(key, context);
}

const DEFAULT = 'default';
const STORED = {
  none: 'no content',
  errors: 'the content of calls that fail',
  all: 'the content of all calls',
} as const;

function contentOption(description: string, more: readonly string[]): Option {
  return new Option('--store-content <calls>', description).choices([...Object.keys(STORED), ...more]);
}

function registerCreate(key: Command, context: CommandContext): void {
  key
    .command('create')
    .summary('issue a key and print it, once')
    .description('Issues a key and prints it. It is not shown again: only its digest is stored.')
    .argument('<name>', 'what the key is for')
    .option('--owner <user>', 'id of the user who owns the key')
    .option('--models <patterns>', 'models that the key may use, separated by commas: openai/*,fast', commaList)
    .option('--requests-per-minute <number>', 'limit of requests per minute', readCount)
    .option('--tokens-per-minute <number>', 'limit of tokens per minute', readCount)
    .option('--max-parallel <number>', 'how many calls may run at the same time', readCount)
    .option('--budget <usd/period>', 'spending limit: 5/day, 100/month or 20/total', readBudget)
    .option('--tags <names>', 'tags for its calls in reports, separated by commas', commaList)
    .addOption(contentOption('which calls to store with their requests and responses: none, failed ones, or all', []))
    .option('--expires <time>', 'when the key expires: 30d, or 2030-01-31T00:00:00Z', readExpiry)
    .addHelpText(
      'after',
      '\nExamples:\n  trestle key create laptop\n  trestle key create ci --models "openai/*,fast" --budget 5/day --expires 30d',
    )
    .action(async (name: string, given: CreateOptions, command: Command) => {
      const params = {
        name,
        ...(given.owner !== undefined && { owner: given.owner }),
        ...(given.models !== undefined && { models: given.models }),
        ...(given.tags !== undefined && { tags: given.tags }),
        ...(given.requestsPerMinute !== undefined && { requests_per_minute: given.requestsPerMinute }),
        ...(given.tokensPerMinute !== undefined && { tokens_per_minute: given.tokensPerMinute }),
        ...(given.maxParallel !== undefined && { max_parallel: given.maxParallel }),
        ...(given.storeContent !== undefined && { store_content: given.storeContent }),
        ...(given.budget !== undefined && { budget: given.budget }),
        ...(given.expires !== undefined && { expires_at: given.expires }),
      };
      const issued = await callFromCommand(command, context, 'completions', 'keys.create', params);
      print(
        command,
        context,
        issued,
        `${issued.key}\n\n  ${issued.id}  ${issued.name}. Keep the key: it is not shown again.\n`,
      );
    });
}

function registerList(key: Command, context: CommandContext): void {
  key
    .command('list')
    .summary('list the issued keys')
    .description('Lists the issued keys. The keys themselves are not stored.')
    .option('--owner <user>', 'only keys of this user')
    .addHelpText('after', '\nExamples:\n  trestle key list\n  trestle key list --json | jq .data')
    .action(async ({ owner }: { readonly owner?: string }, command: Command) => {
      const filter = owner === undefined ? {} : { owner };
      const data: KeyInfo[] = [];
      for (let more = true; more; ) {
        const after = data.at(-1)?.id;
        const page = await callFromCommand(command, context, 'completions', 'keys.list', {
          ...filter,
          ...(after !== undefined && { after }),
        });
        data.push(...page.data);
        more = page.has_more && page.data.length > 0;
      }
      const lines = data.map(keyLine).join('') || 'No keys. Issue one with: trestle key create <name>\n';
      print(command, context, { object: 'list', data }, lines);
    });
}

function registerChange(key: Command, context: CommandContext): void {
  key
    .command('change')
    .summary('change the name, the limits or the models of a key')
    .description('Changes a key. The change applies from the next request; limits you do not name stay as they are.')
    .argument('<id>', 'id of the key: key_...')
    .option('--name <name>', 'what the key is for')
    .option(
      '--models <patterns>',
      'models that the key may use, separated by commas; "all" for every model',
      readModels,
    )
    .option('--requests-per-minute <number>', 'limit of requests per minute, or "none"', orNone(readCount))
    .option('--tokens-per-minute <number>', 'limit of tokens per minute, or "none"', orNone(readCount))
    .option('--max-parallel <number>', 'how many calls may run at the same time, or "none"', orNone(readCount))
    .option('--budget <usd/period>', 'spending limit: 5/day, 100/month or 20/total, or "none"', orNone(readBudget))
    .option('--tags <names>', 'tags for its calls, separated by commas, or "none"', orNone(commaList))
    .addOption(
      contentOption(
        'which calls to store with their requests and responses; "default": use the setting of the server',
        [DEFAULT],
      ),
    )
    .option('--expires <time>', 'when the key expires: 30d, or 2030-01-31T00:00:00Z, or "none"', orNone(readExpiry))
    .addOption(new Option('--disable', 'refuse the key until it is enabled again').conflicts('enable'))
    .option('--enable', 'let a disabled key work again')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle key change key_01k9zexample --budget 20/month --models all\n  trestle key change key_01k9zexample --disable',
    )
    .action(async (id: string, given: ChangeOptions, command: Command) => {
      const change = {
        ...(given.name !== undefined && { name: given.name }),
        ...(given.models !== undefined && { models: given.models }),
        ...(given.tags !== undefined && { tags: given.tags === NONE ? [] : given.tags }),
        ...(given.requestsPerMinute !== undefined && { requests_per_minute: nullOf(given.requestsPerMinute) }),
        ...(given.tokensPerMinute !== undefined && { tokens_per_minute: nullOf(given.tokensPerMinute) }),
        ...(given.maxParallel !== undefined && { max_parallel: nullOf(given.maxParallel) }),
        ...(given.storeContent !== undefined && {
          store_content: given.storeContent === DEFAULT ? null : given.storeContent,
        }),
        ...(given.budget !== undefined && { budget: nullOf(given.budget) }),
        ...(given.expires !== undefined && { expires_at: nullOf(given.expires) }),
        ...((given.enable === true || given.disable === true) && { enabled: given.enable === true }),
      };
      if (Object.keys(change).length === 0) command.error('error: nothing to change; name at least one option');
      const changed = await callFromCommand(command, context, 'completions', 'keys.change', { id, change });
      print(command, context, changed, keyLine(changed));
    });
}

function registerRotate(key: Command, context: CommandContext): void {
  key
    .command('rotate')
    .summary('replace a key with a new one and print it, once')
    .description('Replaces a key with a new one that has the same limits, budget and usage, and prints the new key.')
    .argument('<id>', 'id of the key: key_...')
    .option('--grace <time>', 'how long the old key stays valid, at most 24h', readGrace, 0)
    .addHelpText('after', '\nExamples:\n  trestle key rotate key_01k9zexample --grace 1h')
    .action(async (id: string, { grace }: { readonly grace: number }, command: Command) => {
      const params = { id, grace_seconds: grace };
      const issued = await callFromCommand(command, context, 'completions', 'keys.rotate', params);
      const until = issued.previous_until;
      const old = until === null ? 'The old key no longer works.' : `The old key works until ${until}.`;
      print(
        command,
        context,
        issued,
        `${issued.key}\n\n  ${id}  ${issued.name}. ${old} Keep the new key: it is not shown again.\n`,
      );
    });
}

function registerRevoke(key: Command, context: CommandContext): void {
  key
    .command('revoke')
    .summary('revoke a key; it stops working immediately')
    .description('Revokes a key. It stops working immediately; its usage stays in the reports.')
    .argument('<id>', 'id of the key: key_...')
    .addHelpText('after', '\nExamples:\n  trestle key revoke key_01k9zexample')
    .action(async (id: string, _given: unknown, command: Command) => {
      await callFromCommand(command, context, 'completions', 'keys.revoke', { id });
      print(command, context, { id, revoked: true }, `Revoked ${id}.\n`);
    });
}

function keyLine(key: KeyInfo): string {
  const limits = [
    !key.enabled && 'disabled',
    key.models.length > 0 && `models ${key.models.join(', ')}`,
    key.tags.length > 0 && `tags ${key.tags.join(', ')}`,
    key.requests_per_minute !== null && `${key.requests_per_minute} requests/min`,
    key.tokens_per_minute !== null && `${key.tokens_per_minute} tokens/min`,
    key.max_parallel !== null && `${key.max_parallel} calls at the same time`,
    key.store_content !== null && `stores ${STORED[key.store_content]}`,
    key.budget !== null && `${key.budget.usd} USD/${key.budget.period}`,
    key.expires_at !== null && expiry(key.expires_at),
    key.owner !== '' && `owner ${key.owner}`,
  ].filter((limit) => limit !== false);
  return `  ${key.id}  ${key.hint}...  ${key.name}${limits.length === 0 ? '' : `  (${limits.join('; ')})`}\n`;
}

function expiry(time: string): string {
  const now = Date.now();
  return `${Date.parse(time) > now ? 'expires' : 'expired'} ${when(time, now)}`;
}

function readModels(text: string): readonly string[] {
  return text === 'all' ? [] : commaList(text);
}

function orNone<Value>(read: (text: string) => Value): (text: string) => Value | typeof NONE {
  return (text) => (text === NONE ? NONE : read(text));
}

/** Returns null, which removes a limit, for the word that stands for it: commander would turn null into an empty text. */
function nullOf<Value>(value: Value | typeof NONE): Value | null {
  return value === NONE ? null : value;
}

function readGrace(text: string): number {
  const ms = parseDuration(text) ?? -1;
  if (ms < 0 || ms > MAX_GRACE_MS)
    throw new InvalidArgumentError('Give a duration of at most one day: 15m, 1h or 24h.');
  return Math.round(ms / 1000);
}

function readCount(text: string): number {
  const count = /^\d{1,12}$/.test(text) ? Number(text) : 0;
  if (count < 1) throw new InvalidArgumentError('Give a whole number above 0.');
  return count;
}

function readBudget(text: string): { usd: number; period: string } {
  const match = /^(\d{1,9}(?:\.\d{1,6})?)\/(day|month|total)$/.exec(text);
  if (match === null) throw new InvalidArgumentError('Give dollars and a period: 5/day, 100/month or 20/total.');
  return { usd: Number(match[1]), period: match[2] ?? '' };
}

function readExpiry(text: string): string {
  const ms = parseDuration(text);
  return ms === undefined ? text : new Date(Date.now() + ms).toISOString();
}
