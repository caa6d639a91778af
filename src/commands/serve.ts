import { Argument, type Command } from 'commander';
import { SERVICE_NAMES, type ServiceName } from '../system/settings.ts';
import type { CommandContext } from './command-context.ts';

/** `trestle serve [service]`. */
export function registerServe(program: Command, context: CommandContext): void {
  program
    .command('serve')
    .summary('run the server')
    .description('Runs all services on one address, or one of them alone, until it is told to stop.')
    .addArgument(new Argument('[service]', 'run this one alone').choices(SERVICE_NAMES))
    .addHelpText(
      'after',
      `
Examples:
  trestle serve
  trestle serve completions              on 127.0.0.1:4000
  BRIDGE_AUTH_TOKEN=... trestle serve bridge --listen 0.0.0.0:8787

SIGTERM and SIGINT end it once running work is done (30 s at most), a second one at once. SIGHUP reads tokens and keys again.`,
    )
    .action(async (service: ServiceName | undefined, _options: unknown, command: Command) => {
      const { serve } = await import('./serve-until-stopped.ts');
      await serve(service === undefined ? SERVICE_NAMES : [service], command.optsWithGlobals(), context);
    });
}
