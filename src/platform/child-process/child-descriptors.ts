import { openSync, readdirSync, readFileSync } from 'node:fs';

type Descriptor = 'pipe' | 'ignore' | number;

const CLOSE_ON_EXEC = 0o2000000;

let descriptors: readonly Descriptor[] | undefined;

/**
 * The descriptors of a child: three pipes. Whatever Node opens is closed in children by itself, but what we were started
 * with (a log file of the shell, a lock of a wrapper) would go along: the child finds an empty device in its place.
 */
export function childDescriptors(): Descriptor[] {
  descriptors ??= coverInherited(inheritedDescriptors());
  return [...descriptors];
}

function coverInherited(inherited: readonly number[]): Descriptor[] {
  const covered: Descriptor[] = ['pipe', 'pipe', 'pipe'];
  if (inherited.length === 0) return covered;
  const empty = openSync('/dev/null', 'r+');
  for (let descriptor = 3; descriptor <= Math.max(...inherited); descriptor += 1) {
    covered.push(inherited.includes(descriptor) ? empty : 'ignore');
  }
  return covered;
}

function inheritedDescriptors(): number[] {
  try {
    return readdirSync('/proc/self/fdinfo').map(Number).filter(isInherited);
  } catch {
    return [];
  }
}

function isInherited(descriptor: number): boolean {
  if (descriptor < 3) return false;
  try {
    const [, flags = '0'] = /^flags:\s*(\d+)/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'latin1')) ?? [];
    return (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0;
  } catch {
    // The one that the folder itself was read through.
    return false;
  }
}
