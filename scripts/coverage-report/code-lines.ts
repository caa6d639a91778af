import { stripTypeScriptTypes } from 'node:module';

const COMMENT = /^(\/\/|\/\*|\*)/;

/**
 * The numbers of the lines that hold code. Node counts every line of a file it has loaded; here what is blank, a comment
 * or a type alone counts as nothing, since no test can fail to reach it.
 */
export function codeLines(source: string): readonly number[] {
  const plain = stripTypeScriptTypes(source).split('\n');
  return plain.flatMap((line, index) => (line.trim() === '' || COMMENT.test(line.trim()) ? [] : [index + 1]));
}
