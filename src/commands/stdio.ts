import type { Command } from 'commander';
import type { CommandContext } from './command-context.ts';

/** `trestle stdio`. */
export function registerStdio(program: Command, context: CommandContext): void {
  program
    .command('stdio')
    .summary('serve one app or editor over standard streams')
    .description(
      'Serves the bridge on standard input and output, one JSON message per line or behind Content-Length headers: its ' +
        'own methods and the Agent Client Protocol, so that an editor can use any agent. Logs go to standard error.',
    )
    .option('--agent <id>', 'agent of new sessions; by routing unless given')
    .addHelpText(
      'after',
      `
Examples:
  trestle stdio --agent codex

An editor that speaks the Agent Client Protocol has it as a custom agent:
  { "command": "trestle", "args": ["stdio"] }`,
    )
    .action(async ({ agent = '' }: { readonly agent?: string }, command: Command) => {
      const { serveStdio } = await import('./serve-stdio.ts');
      await serveStdio(agent, command.optsWithGlobals(), context);
    });
}
