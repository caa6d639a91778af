import type { Command } from 'commander';

/** Wide enough that a description is one line: the page must not depend on the terminal of whoever writes it. */
const HELP_WIDTH = 120;

/** docs/command-line.md: what `--help` says, for every command. */
export function commandReference(program: Command): string {
  const sections = withSubcommands(program).map(
    (command) => `## ${fullName(command)}\n\n\`\`\`text\n${helpOf(command)}\n\`\`\`\n`,
  );
  return `# Command line

Written by \`npm run docs\` from what \`--help\` prints; do not edit. In a checkout, \`npm run trestle -- doctor\` is \`trestle doctor\`.

${sections.join('\n')}`;
}

function withSubcommands(command: Command): Command[] {
  const children = command.createHelp().visibleCommands(command).filter(isOwnCommand);
  return [command, ...children.flatMap(withSubcommands)];
}

/** Commander adds `help` itself; what it says is what the page says. */
function isOwnCommand(command: Command): boolean {
  return command.name() !== 'help';
}

function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;
}

function helpOf(command: Command): string {
  let text = '';
  command.configureOutput({
    writeOut: (part) => {
      text += part;
    },
    getOutHelpWidth: () => HELP_WIDTH,
    getOutHasColors: () => false,
  });
  command.outputHelp();
  return text.trim();
}
