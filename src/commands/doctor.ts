import { styleText } from 'node:util';
import type { Command } from 'commander';
import type { Finding } from '../system/doctor/finding.ts';
import type { CommandContext } from './command-context.ts';
import { CommandExit } from './command-exit.ts';
import { EXIT_FAILED } from './command-failure.ts';
import { loadSettings } from './load-settings.ts';

const COLORS = { ok: 'green', note: 'yellow', broken: 'red' } as const;

/** `trestle doctor`. */
export function registerDoctor(program: Command, context: CommandContext): void {
  program
    .command('doctor')
    .summary('look whether everything that the server needs is there')
    .description(
      'Looks at the runtime, the data directory, the database, the port, the disk, the clock, the tokens, the other bridges and the agents. Exits with 1 when something is broken.',
    )
    .addHelpText('after', '\nExamples:\n  trestle doctor\n  trestle doctor --json | jq .findings')
    .action(async (_options: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const { settings, warnings } = await loadSettings(options, context);
      const { diagnose } = await import('../system/doctor/diagnose.ts');
      const { systemClock } = await import('../platform/clock/clock.ts');
      const { environment, homeDirectory } = context;
      const found = await diagnose({ settings, environment, homeDirectory, clock: systemClock });
      const findings = [...found, ...warnings.map((text): Finding => ({ name: 'configuration', state: 'note', text }))];
      const ok = findings.every(({ state }) => state !== 'broken');
      context.stdout(options.json === true ? `${JSON.stringify({ ok, findings })}\n` : findingsText(findings, context));
      if (!ok) throw new CommandExit(EXIT_FAILED);
    });
}

function findingsText(findings: readonly Finding[], { color }: CommandContext): string {
  const width = Math.max(...findings.map(({ name }) => name.length));
  const lines = findings.map(({ name, state, text }) => {
    const mark = state.padEnd(6);
    return `  ${color ? styleText(COLORS[state], mark) : mark}  ${name.padEnd(width)}  ${text}`;
  });
  return `${lines.join('\n')}\n`;
}
