import { styleText } from 'node:util';
import type { SystemSummary } from '../system/start-system.ts';
import type { CommandContext } from './command-context.ts';

type Options = Readonly<Record<string, unknown>>;

/** Prints what runs and where: for a person, or with `--json` for a program. */
export function printSummary(
  summary: SystemSummary,
  options: Options,
  context: CommandContext,
  file: string | undefined,
): void {
  const bold = (text: string): string => (context.color ? styleText('bold', text) : text);
  context.stdout(
    options.json === true
      ? `${JSON.stringify(summary)}\n`
      : bannerText(summary, bold, commandsFor(options, context), file),
  );
}

const LABEL_WIDTH = 14;

/** What a person sees when the server is ready. `bold` marks up the names, or leaves them as they are. */
function bannerText(
  summary: SystemSummary,
  bold: (text: string) => string,
  command: (words: string) => string,
  file: string | undefined,
): string {
  const { version, dataDirectory, database, url, exposure, agents } = summary;
  const line = (label: string, text: string) => `  ${bold(label)}${' '.repeat(LABEL_WIDTH - label.length)}${text}`;
  const socketUrl = url.replace(/^http/, 'ws');
  const lines = [
    `  ${bold(`trestle ${version}`)}   data ${dataDirectory} (${database})   ${exposure}`,
    '',
    ...(summary.console === undefined ? [] : [line('Console', summary.console)]),
    ...summary.services.flatMap((service) => {
      if (service === 'bridge') return [line('Bridge', `${socketUrl}/acp        POST /acp/rpc`)];
      if (service === 'completions') return [line('Completions', `${url}/v1       OPENAI_BASE_URL=${url}/v1`)];
      return [line('Accounts', `${url}/api/auth`)];
    }),
    line('API page', `${url}/docs`),
    ...(summary.workers === undefined ? [] : [line('Workers', `${summary.workers}      (trestle cluster)`)]),
  ];
  if (agents.length > 0) {
    const found = agents.map((agent) => `${agent.id} ${stateOf(agent)}`).join('   ');
    lines.push(line('Agents', `${found}      (trestle doctor)`));
  }
  if (summary.firstAdmin !== undefined) lines.push(line('First admin', `${summary.firstAdmin}  (once, 15 min)`));
  lines.push('', line('Try', tryLine(summary, command)));
  if (file === undefined)
    lines.push(line('Next', `${command('init')}   finds keys, local models and agents, and writes trestle.yaml`));
  lines.push('');
  return `${lines.join('\n')}\n`;
}

/** Commands as they reach this server: started by npm in a checkout, otherwise as an installed program. */
function commandsFor(options: Options, { environment }: CommandContext): (words: string) => string {
  const script = environment.npm_lifecycle_event;
  const program = script === undefined || script === 'npx' ? 'trestle' : 'npm run -s trestle --';
  const place = typeof options.dataDir === 'string' ? ` --data-dir ${options.dataDir}` : '';
  return (words) => `${program} ${words}${place}`;
}

function stateOf({ status, model }: SystemSummary['agents'][number]): string {
  const state = status.replaceAll('_', ' ');
  return model === undefined ? state : `${state} (${model})`;
}

/** A command that works as printed: on a guarded server the token stays out of sight. */
function tryLine({ services, url, guarded, database }: SystemSummary, command: (words: string) => string): string {
  if (services.includes('bridge') && database === 'SQLite') return command('run "Hello"');
  const json = `-H 'content-type: application/json'`;
  if (services.includes('bridge')) {
    const body = `{"jsonrpc":"2.0","id":"1","method":"session.start","params":{"sessionId":"first","taskPrompt":"Hello"}}`;
    const token = guarded.includes('bridge') ? ` -H "authorization: Bearer $BRIDGE_AUTH_TOKEN"` : '';
    return `curl ${url}/acp/rpc ${json}${token} -d '${body}'`;
  }
  if (services.includes('completions')) {
    const body = `{"model":"demo/echo","messages":[{"role":"user","content":"Hello"}]}`;
    const key = guarded.includes('completions') ? ` -H "authorization: Bearer $COMPLETIONS_MASTER_KEY"` : '';
    return `curl ${url}/v1/chat/completions ${json}${key} -d '${body}'`;
  }
  return `curl ${url}/healthz`;
}
