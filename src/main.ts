import { createCommandContext, endProgram } from './commands/command-context.ts';
import { runProgram } from './commands/program.ts';
import { readEnvironment } from './system/environment.ts';

endProgram(await runProgram(process.argv.slice(2), createCommandContext(readEnvironment())));
