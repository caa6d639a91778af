import { readFileSync } from 'node:fs';

const { scripts } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  scripts: { trestle: string };
};

/** What `npm run trestle` gives to Node, before the arguments of the user: paths from the project's root. */
export const START_ARGUMENTS: readonly string[] = scripts.trestle.split(' ').slice(1);

/** Those of them that are for Node itself, which whatever starts the built program gives too. */
export const NODE_FLAGS: readonly string[] = START_ARGUMENTS.filter((argument) => argument.startsWith('--'));
