import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import type { Command } from 'commander';
import { buildProgram } from '../../src/commands/program.ts';
import { projectRoot } from '../architecture/source-file.ts';

/** Examples of the help are typed into a program whose commands do nothing: what it does not know is an error. */

const page = readFileSync(`${projectRoot}docs/command-line.md`, 'utf8');
/** Lines of the help that begin with the command, behind variables or another program, without what is said about them. */
const examples = [...page.matchAll(/^ {2}(?:[A-Z_]+=\S+ |.* \| )?trestle (\S.*)$/gm)].map(([, line = '']) =>
  line.replace(/ {2,}.*$| [|>] .*$/, ''),
);

function wordsOf(line: string): readonly string[] {
  return [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '');
}

function withoutEffect(command: Command): Command {
  for (const one of command.commands) withoutEffect(one);
  return command.exitOverride().action(() => undefined);
}

test('every example of the help is one that the program takes', async () => {
  assert.ok(examples.length > 60, `${examples.length} examples`);
  for (const example of new Set(examples)) {
    let said = '';
    const say = (text: string) => {
      said += text;
    };
    const places = { environment: {}, workingDirectory: '/', homeDirectory: '/' };
    const program = withoutEffect(buildProgram({ ...places, stdout: say, stderr: say, color: false }));
    await assert.doesNotReject(program.parseAsync(wordsOf(example), { from: 'user' }), `trestle ${example}\n${said}`);
  }
});
