import { readdir, readFile, readlink } from 'node:fs/promises';

export interface PortOwner {
  readonly pid: number;
  readonly command: string;
}

const LISTENING = '0A';

/** Who listens on a TCP port, as far as Linux tells this user; undefined anywhere else and for other users' programs. */
export async function findPortOwner(port: number): Promise<PortOwner | undefined> {
  try {
    const tables = await Promise.all(['/proc/net/tcp', '/proc/net/tcp6'].map((path) => readFile(path, 'utf8')));
    const wanted = new Set(tables.flatMap((table) => listeningInodes(table, port)).map((inode) => `socket:[${inode}]`));
    if (wanted.size === 0) return undefined;
    for (const name of await readdir('/proc')) {
      if (/^\d+$/.test(name) && (await holdsOneOf(name, wanted))) {
        const command = (await readFile(`/proc/${name}/comm`, 'utf8')).trim();
        return { pid: Number(name), command };
      }
    }
  } catch {
    // Not Linux, or nothing that this user may see: the port alone must do.
  }
  return undefined;
}

/** The inodes of the sockets that listen on `port`, from the text of `/proc/net/tcp`. */
function listeningInodes(table: string, port: number): readonly string[] {
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  return table.split('\n').flatMap((line) => {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
    return state === LISTENING && local.endsWith(suffix) && inode !== undefined ? [inode] : [];
  });
}

async function holdsOneOf(pid: string, sockets: ReadonlySet<string>): Promise<boolean> {
  const folder = `/proc/${pid}/fd`;
  const descriptors = await readdir(folder).catch(() => []);
  for (const descriptor of descriptors) {
    const target = await readlink(`${folder}/${descriptor}`).catch(() => '');
    if (sockets.has(target)) return true;
  }
  return false;
}
