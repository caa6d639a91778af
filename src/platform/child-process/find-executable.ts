import { access, constants, stat } from 'node:fs/promises';
import { delimiter, isAbsolute, join } from 'node:path';

/** The absolute path of a program, searched as a shell would; relative entries of the path are not searched. */
export async function findExecutable(name: string, pathText: string): Promise<string | undefined> {
  if (name === '' || name.includes('\0')) return undefined;
  if (name.includes('/')) return isAbsolute(name) && (await isExecutable(name)) ? name : undefined;
  for (const folder of pathText.split(delimiter)) {
    const candidate = join(folder, name);
    if (isAbsolute(folder) && (await isExecutable(candidate))) return candidate;
  }
  return undefined;
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return (await stat(file)).isFile();
  } catch {
    return false;
  }
}
