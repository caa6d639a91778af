import { Argument, type Command } from 'commander';
import type { CommandContext } from './command-context.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

/** `trestle completion SHELL` prints a script; the script asks the program itself what could come next. */
export function registerCompletion(program: Command, context: CommandContext): void {
  program
    .command('completion')
    .summary('print a completion script for your shell')
    .description('Prints a script that completes commands and options in bash, zsh or fish.')
    .addArgument(new Argument('<shell>', 'the shell that will run the script').choices(SHELLS))
    .addHelpText('after', '\nExamples:\n  source <(trestle completion bash)\n  trestle completion fish | source')
    .action((shell: (typeof SHELLS)[number]) => context.stdout(`${SCRIPTS[shell]}\n`));
  program
    .command('complete', { hidden: true })
    .argument('[words...]', 'the words typed so far, the last one unfinished')
    .allowUnknownOption()
    .helpOption(false)
    .action((words: readonly string[]) => context.stdout(`${completions(program, words).join('\n')}\n`));
}

/** What could stand in the place of the last word. */
export function completions(program: Command, words: readonly string[]): readonly string[] {
  const typed = words.at(-1) ?? '';
  let command = program;
  for (const word of words.slice(0, -1)) command = command.commands.find((child) => child.name() === word) ?? command;
  return candidates(program, command).filter((candidate) => candidate.startsWith(typed));
}

function candidates(program: Command, command: Command): readonly string[] {
  const options = new Set([...command.options, ...program.options].flatMap((option) => option.long ?? []));
  const choices = command.registeredArguments.flatMap((argument) => argument.argChoices ?? []);
  const commands = command
    .createHelp()
    .visibleCommands(command)
    .map((child) => child.name());
  return [...commands, ...choices, ...options, '--help'];
}

const SCRIPTS = {
  bash: `_trestle() {
  local IFS=$'\\n'
  COMPREPLY=($(trestle complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _trestle trestle`,
  zsh: `#compdef trestle
_trestle() {
  local -a found
  found=(\${(f)"$(trestle complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)"})
  compadd -a found
}
compdef _trestle trestle`,
  fish: `complete -c trestle -f -a '(trestle complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'`,
};
