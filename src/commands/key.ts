import { type Command, InvalidArgumentError } from 'commander';
import { parseDuration } from '../platform/config/leaf-settings.ts';
import type { CommandContext } from './command-context.ts';
import { callFromCommand, commaList } from './load-settings.ts';

interface KeyInfo {
  readonly id: string;
  readonly name: string;
  readonly owner: string;
  readonly hint: string;
  readonly models: readonly string[];
  readonly requests_per_minute: number | null;
  readonly tokens_per_minute: number | null;
  readonly budget: { readonly usd: number; readonly period: string } | null;
  readonly expires_at: string | null;
  readonly created_at: string;
}

interface CreateOptions {
  readonly owner?: string;
  readonly models?: readonly string[];
  readonly requestsPerMinute?: number;
  readonly tokensPerMinute?: number;
  readonly budget?: { readonly usd: number; readonly period: string };
  readonly expires?: string;
}

/** `trestle key create|list|revoke`. */
export function registerKey(program: Command, context: CommandContext): void {
  const key = program
    .command('key')
    .summary('issue, list and revoke keys of the completions API')
    .description('Manages the keys of the completions API, whether the server runs or not.');
  registerCreate(key, context);
  registerList(key, context);
  registerRevoke(key, context);
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
    .option('--budget <usd/period>', 'spending limit: 5/day, 100/month or 20/total', readBudget)
    .option('--expires <time>', 'when the key expires: 30d, or 2030-01-31T00:00:00Z', readExpiry)
    .addHelpText(
      'after',
      '\nExamples:\n  trestle key create laptop\n  trestle key create ci --models "openai/*,fast" --budget 5/day --expires 30d',
    )
    .action(async (name: string, given: CreateOptions, command: Command) => {
      const options = command.optsWithGlobals();
      const params = {
        name,
        ...(given.owner !== undefined && { owner: given.owner }),
        ...(given.models !== undefined && { models: given.models }),
        ...(given.requestsPerMinute !== undefined && { requests_per_minute: given.requestsPerMinute }),
        ...(given.tokensPerMinute !== undefined && { tokens_per_minute: given.tokensPerMinute }),
        ...(given.budget !== undefined && { budget: given.budget }),
        ...(given.expires !== undefined && { expires_at: given.expires }),
      };
      const issued = (await callFromCommand(options, context, 'completions', 'keys.create', params)) as KeyInfo & {
        readonly key: string;
      };
      if (options.json === true) context.stdout(`${JSON.stringify(issued)}\n`);
      else context.stdout(`${issued.key}\n\n  ${issued.id}  ${issued.name}. Keep the key: it is not shown again.\n`);
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
      const options = command.optsWithGlobals();
      const filter = owner === undefined ? {} : { owner };
      const data: KeyInfo[] = [];
      for (let more = true; more; ) {
        const after = data.at(-1)?.id;
        const page = (await callFromCommand(options, context, 'completions', 'keys.list', {
          ...filter,
          ...(after !== undefined && { after }),
        })) as { readonly data: readonly KeyInfo[]; readonly has_more: boolean };
        data.push(...page.data);
        more = page.has_more && page.data.length > 0;
      }
      if (options.json === true) context.stdout(`${JSON.stringify({ object: 'list', data })}\n`);
      else if (data.length === 0) context.stdout('No keys. Issue one with: trestle key create <name>\n');
      else context.stdout(data.map(keyLine).join(''));
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
      const options = command.optsWithGlobals();
      await callFromCommand(options, context, 'completions', 'keys.revoke', { id });
      context.stdout(options.json === true ? `${JSON.stringify({ id, revoked: true })}\n` : `Revoked ${id}.\n`);
    });
}

function keyLine(key: KeyInfo): string {
  const limits = [
    key.models.length > 0 && `models ${key.models.join(', ')}`,
    key.requests_per_minute !== null && `${key.requests_per_minute} requests/min`,
    key.tokens_per_minute !== null && `${key.tokens_per_minute} tokens/min`,
    key.budget !== null && `${key.budget.usd} USD/${key.budget.period}`,
    key.expires_at !== null && `until ${key.expires_at}`,
    key.owner !== '' && `owner ${key.owner}`,
  ].filter((limit) => limit !== false);
  return `  ${key.id}  ${key.hint}...  ${key.name}${limits.length === 0 ? '' : `  (${limits.join('; ')})`}\n`;
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
