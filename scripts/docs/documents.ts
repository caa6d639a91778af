import { buildProgram } from '../../src/commands/program.ts';
import { configurationDocument } from '../../src/system/configuration-document.ts';
import { commandReference } from './command-reference.ts';
import { errorReference } from './error-reference.ts';
import { evidenceReference } from './evidence-reference.ts';
import { modelReference } from './model-reference.ts';

interface WrittenDocument {
  readonly path: string;
  make(): string | Promise<string>;
}

/** The pages that are made from the sources. */
export const documents: readonly WrittenDocument[] = [
  { path: 'docs/command-line.md', make: commandPage },
  { path: 'docs/configuration.md', make: configurationDocument },
  { path: 'docs/errors.md', make: errorReference },
  { path: 'docs/evidence.md', make: evidenceReference },
  { path: 'docs/models.md', make: modelReference },
];

/** The help of a machine on which nothing is set, so that the page is the same wherever it is written. */
function commandPage(): string {
  const ignore = () => undefined;
  const places = { environment: {}, workingDirectory: '/', homeDirectory: '/' };
  return commandReference(buildProgram({ ...places, stdout: ignore, stderr: ignore, color: false }));
}
