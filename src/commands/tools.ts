import { type Command, InvalidArgumentError } from 'commander';
import type { CommandContext } from './command-context.ts';

interface ToolsFlags {
  readonly url?: string;
  readonly completionsUrl?: string;
}

/** `trestle tools`. */
export function registerTools(program: Command, context: CommandContext): void {
  program
    .command('tools')
    .summary('offer the running server to an agent, as MCP tools')
    .description(
      'An MCP server on standard input and output, for agents: chat, ask_agent, submit_job, get_job and send_message. It ' +
        'calls a running server with the tokens of the settings (BRIDGE_AUTH_TOKEN, COMPLETIONS_MASTER_KEY).',
    )
    .option('--url <url>', 'address of the server; by default where the settings say that it listens', readUrl)
    .option('--completions-url <url>', 'address of its completions service, if that runs elsewhere', readUrl)
    .addHelpText(
      'after',
      `
Examples:
  trestle tools --url http://127.0.0.1:8787

An agent that takes MCP servers has it in its settings:
  { "mcpServers": { "trestle": { "command": "trestle", "args": ["tools"] } } }`,
    )
    .action(async (flags: ToolsFlags, command: Command) => {
      const { serveToolsFromCommand } = await import('./serve-tools.ts');
      await serveToolsFromCommand(flags.url, flags.completionsUrl, command.optsWithGlobals(), context);
    });
}

function readUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return text;
  throw new InvalidArgumentError('Give a URL such as http://127.0.0.1:8787.');
}
