import type { Command } from 'commander';
import type { CommandContext } from './command-context.ts';

/** `trestle adapter <agent>`. */
export function registerAdapter(program: Command, context: CommandContext): void {
  program
    .command('adapter')
    .summary('serve one agent to a bridge on another host')
    .description(
      'Serves one agent that speaks the Agent Client Protocol, for a bridge whose settings name this address as the url ' +
        'of that agent. It keeps its data in a folder of its own, so it can run beside a server.',
    )
    .argument('<agent>', 'id of the agent: opencode, gemini, or one of agents.custom')
    .addHelpText(
      'after',
      `
Examples:
  trestle adapter opencode               on 127.0.0.1:8788
  trestle adapter gemini                 on 127.0.0.1:8789
  BRIDGE_AUTH_TOKEN=... trestle adapter opencode --listen 10.0.0.7:8788

The bridge then has, in its trestle.yaml:
  agents: { opencode: { url: "http://10.0.0.7:8788", token: "..." } }`,
    )
    .action(async (agent: string, _options: unknown, command: Command) => {
      const { serve } = await import('./serve-until-stopped.ts');
      const { ADAPTER_METHODS, adapterSettings } = await import('../system/adapter-settings.ts');
      const { environment, homeDirectory } = context;
      const place = { homeDirectory, xdgDataHome: environment.XDG_DATA_HOME };
      await serve(['bridge'], command.optsWithGlobals(), context, {
        narrow: (settings) => adapterSettings(settings, agent, place),
        bridgeMethods: ADAPTER_METHODS,
      });
    });
}
