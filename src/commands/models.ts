import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { ControlResult } from '../system/controls.ts';
import { type CommandContext, CommandExit, EXIT_FAILED, print } from './command-context.ts';
import { callFromCommand } from './load-settings.ts';
import { printable } from './turn-display.ts';

type Listed = ControlResult<'completions', 'models.list'>;
type Tested = ControlResult<'completions', 'models.test'>;
type ApiStatus = Listed['apis'][number];
type ModelEntry = Listed['models'][number];

const MILLION = 1_000_000;

/** `trestle models`, `trestle models test MODEL` and `trestle models update [SOURCE]`. */
export function registerModels(program: Command, context: CommandContext): void {
  const models = program
    .command('models')
    .summary('list the model APIs and models that can be called')
    .description(
      'Lists the model APIs that the running server (or, without one, this shell) can use, and their models. --all also lists the other APIs and what each one needs.',
    )
    .option('--all', 'also list the APIs that cannot be used yet, and what each one needs')
    .addHelpText('after', '\nExamples:\n  trestle models\n  trestle models --all\n  trestle models test demo/echo')
    .action(async ({ all }: { readonly all?: true }, command: Command) => {
      const found = await callFromCommand(command, context, 'completions', 'models.list', {});
      print(command, context, found, listText(found.apis, found.models, found.prices_date, all === true));
    });
  models
    .command('test')
    .summary('send one small request to a model')
    .description('Sends one small request to a model and prints the outcome. Exits with 1 when the request failed.')
    .argument('<model>', 'an alias, or <api>/<model>')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle models test demo/echo\n  trestle models test openai/gpt-4o-mini --json',
    )
    .action(async (model: string, _given: unknown, command: Command) => {
      const result = await callFromCommand(command, context, 'completions', 'models.test', { model });
      print(command, context, result, testText(result));
      if (!result.ok) throw new CommandExit(EXIT_FAILED);
    });
  registerUpdate(models, context);
}

function registerUpdate(models: Command, context: CommandContext): void {
  models
    .command('update')
    .summary('update sizes, capabilities and prices of models from a file or URL')
    .description(
      'Reads the model catalogue from a file or URL, in the format of https://models.dev/api.json, and uses it from now on. Without either, reads it from completions.catalog_url, or else from models.dev. An invalid catalogue changes nothing.',
    )
    .argument('[source]', 'a file, or a URL that starts with https://')
    .addHelpText('after', '\nExamples:\n  trestle models update\n  trestle models update ./models.json')
    .action(async (source: string | undefined, _given: unknown, command: Command) => {
      const given = source === undefined || /^https?:\/\//i.test(source) ? source : resolve(source);
      const params = given === undefined ? {} : { source: given };
      const result = await callFromCommand(command, context, 'completions', 'models.update', params);
      const { models: count, changed, version, source: from } = result;
      const text = `${changed ? 'Updated' : 'Nothing new'}: ${count} models from ${printable(from)} (${version}).\n`;
      print(command, context, result, text);
    });
}

function listText(apis: readonly ApiStatus[], models: readonly ModelEntry[], date: string, all: boolean): string {
  const usable = apis.filter((api) => api.usable && api.configured === true);
  const local = apis.filter((api) => api.usable && api.configured !== true);
  const width = Math.max(4, ...apis.map(({ id }) => id.length));
  const lines = [
    'APIs with a key or a setting:',
    ...usable.map((api) => `  ${api.id.padEnd(width)}  ${api.name} (${api.dialect}) ${api.base_url}${keyText(api)}`),
    ...(usable.length === 0 ? ['  none yet: set the key variable of one, such as OPENAI_API_KEY'] : []),
    `Local servers that need none: ${local.map(({ id }) => id).join(', ')}`,
    '',
    `Models (sizes and prices of ${date}):`,
    ...models.map(modelLine),
  ];
  if (all) {
    lines.push('', 'APIs that are not set up:');
    for (const { id, usable: can, missing = [], key_variables: keys = [] } of apis) {
      if (can) continue;
      // One of several variables is enough: all of them are named.
      const named = missing.map((name) => (keys.includes(name) ? keys.join(' or ') : name));
      lines.push(`  ${id.padEnd(width)}  ${named.join(', ')}`);
    }
  } else {
    const lacking = apis.filter((api) => !api.usable).length;
    lines.push('', `${lacking} more APIs are known: trestle models --all`);
  }
  return `${lines.join('\n')}\n`;
}

/** Where the key comes from, and which other variables would do. */
function keyText({ key_from: from, key_variables: variables = [] }: ApiStatus): string {
  if (from === undefined) return '';
  const others = variables.filter((name) => name !== from);
  return `, key from ${from}${others.length === 0 ? '' : ` (also read: ${others.join(', ')})`}`;
}

function modelLine({ id, context_window: size, pricing }: ModelEntry): string {
  const price = pricing && `${perMillion(pricing.input)} / ${perMillion(pricing.output)} USD per million tokens`;
  const facts = [size !== undefined && `${size} tokens`, price].filter((fact) => typeof fact === 'string');
  return `  ${id}${facts.length === 0 ? '' : `  (${facts.join(', ')})`}`;
}

function perMillion(price: number): string {
  return String(Number((price * MILLION).toPrecision(6)));
}

function testText({ ok, model, status, duration_ms: ms, text, error }: Tested): string {
  if (ok) return `ok  ${model}  status ${status}, ${ms} ms: ${(text ?? '').replaceAll(/\s+/g, ' ').slice(0, 200)}\n`;
  return `failed  ${model}  status ${status}, ${ms} ms\n${error?.code}: ${error?.message}\n`;
}
